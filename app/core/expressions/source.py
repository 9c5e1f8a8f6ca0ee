"""Reads the source of an expression without running it: where it ends, what it names and may cost.

CEL is total, but not cheap: a search can be quadratic, a regular expression can take a minute over
100 KB of text, a loop multiplies what stands in it, and nothing can interrupt an evaluation, which
holds the interpreter's lock. So its cost is bounded beforehand, from two sides: ``read`` finds once
what the *source* can multiply, ``Reading.cost`` applies that to the measured size of the *values*
that it names. The bound is in nanoseconds, roughly, and errs on the high side.

It holds because what could not be bounded is refused when a definition is published: a pattern or
a replacement that is not a literal, more than two loops, and ``format``, which can pad.

Tokens follow CEL's grammar (google/cel-spec, doc/langdef.md, "Syntax"). Where one is read otherwise
than CEL reads it, CEL refuses the expression: what is compiled is the text that was read here.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SOURCE_CHARACTERS_MAX = 1_000
"""Longer conditions are better made by the tool that answers."""

LOOPS_MAX = 2
"""One to choose and one to shape, or one inside another."""

_TURNS_MAX = 10_000  # CEL's own limit on the turns of all loops of an evaluation together.
# Measured on one slow core, at their worst, in nanoseconds:
_EVALUATION_COST = 20_000  # the smallest computed expression;
_CONVERSION_COST = 1_200  # a value to CEL; thrice where a loop puts keys in order;
_VALUE_WEIGHT = 50  # comparing a value (15 to 170), where a character costs about 0.1;
_APPEND_COST = 100  # a pair of turns, for `map` copies its list at each turn (60 to 110);
_PATTERN_COST = 12  # a character for each instruction of a pattern, without RE2's cache (5 to 11).
_PATTERN_COMPILATION = 42  # Compiling a pattern, in characters matched against it.
_SEARCH_SPEED = 64  # Characters compared in a nanosecond; at worst each with each.

_LOOPS = frozenset({"all", "exists", "exists_one", "map", "filter", "optMap", "optFlatMap"})
_BUILDING = frozenset({"map", "filter"})
_SEARCHES = frozenset({"contains", "indexOf", "lastIndexOf", "split"})
_LITERAL_ARGUMENTS = frozenset({"replace", "join"})
_OPERATORS = frozenset({"==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "!", "in"})

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+)
  | (?P<string>[bB]?(?:
        [rR](?:\"{3}(?s:.*?)\"{3} | '{3}(?s:.*?)'{3} | "[^"\r\n]*" | '[^'\r\n]*')
      | \"{3}(?s:[^\\]|\\.)*?\"{3} | '{3}(?s:[^\\]|\\.)*?'{3}
      | "(?:[^"\\\r\n]|\\.)*" | '(?:[^'\\\r\n]|\\.)*'))
  | (?P<number>0x[0-9a-fA-F]+[uU]? | (?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)
  | (?P<operator>in(?![A-Za-z0-9_]) | == | != | <= | >= | && | \|\|)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<quoted>`[^`\r\n]*`)
  | (?P<sign>(?s:.))
    """,
    re.VERBOSE,
)
_PLAIN_STRING = re.compile(
    r"""(?!r?"{3}|r?'{3})(?:(["'])(?P<text>[^\\]*)\1|r(["'])(?P<raw>.*)\3)""", re.IGNORECASE
)
_UNPRINTABLE = re.compile("[^\t\n\f\r -~\xa0-\ud7ff\ue000-\U0010ffff]")
_REPETITION = re.compile(r"\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}")


class SourceFault(NamedTuple):
    """What is wrong with a source, and what would be right."""

    message: str
    accepted: str


class Token(NamedTuple):
    """A word of an expression; ``kind`` is the name of its group in the pattern above."""

    kind: str
    text: str
    start: int


type Names = tuple[str, ...]
"""A root variable and the fields taken of it, as written: ``("steps", "flight", "output")``."""


@dataclass(slots=True)
class Size:
    """How much there is of a value."""

    values: int = 0
    text_bytes: int = 0
    list_longest: int = 0
    text_longest: int = 0

    @property
    def weight(self) -> int:
        """What looking at all of it once costs."""
        return _VALUE_WEIGHT * self.values + self.text_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a source says before anybody runs it.

    Attributes:
        references: Each mention of a root variable with the fields taken of it, and whether it
            stands in a loop. A path ends before a number, a computed index and a method.
        selectors: The whole source, if it is nothing but one path, numbers included; else None.
        has_loop_or_sum: Whether it has a loop or a ``+``: the ways to make much out of little.
        patterns: The regular expressions, as written.
        calls: The names of functions and methods.
        rewritten: The source with ``.in_order()`` before each ``map`` and ``filter``; see
            ``programs``.
    """

    references: tuple[tuple[Names, bool], ...] = ()
    selectors: tuple[str | int, ...] | None = None
    has_loop_or_sum: bool = False
    patterns: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    rewritten: str = ""
    # What it can multiply.
    literals: int = 0
    items: int = 1
    operations: int = 1
    searches: int = 0
    pattern_cost: int = 0
    growth: int = 1
    has_loops: bool = False
    is_nested: bool = False
    is_building: bool = False

    def cost(self, sizes: Mapping[Names, Size]) -> int:
        """Bound what running it costs, in nanoseconds.

        Args:
            sizes: of the value of each reference; one that is absent has no value.
        """
        mentions = [(sizes.get(names, Size()), is_inside) for names, is_inside in self.references]
        everything = (self.literals + sum(size.weight for size, _ in mentions)) * self.growth
        inside = (
            self.literals + sum(size.weight for size, is_in in mentions if is_in)
        ) * self.growth
        text = (self.literals + sum(size.text_longest for size, _ in mentions)) * self.growth
        items = self.items + sum(size.list_longest for size, _ in mentions)
        if "split" in self.calls:  # Each character may become a value.
            everything, items = everything * _VALUE_WEIGHT, items + text
        if "join" in self.calls:
            text = everything
        items = min(_TURNS_MAX, items) if self.has_loops else 0
        turns = min(_TURNS_MAX, items * items) if self.is_nested else items
        # Each turn of an inner loop may look at all of an item of the outer one.
        once = everything * items if self.is_nested else everything
        values = sum(size.values for size in sizes.values())
        return (
            _EVALUATION_COST
            + _CONVERSION_COST * values * (3 if self.is_building else 1)
            + self.operations * (once + turns * inside)
            + max(1, turns) * (self.searches * text * text // _SEARCH_SPEED)
            + max(1, turns) * self.pattern_cost * (text + _PATTERN_COMPILATION)
            + (_APPEND_COST * turns * items if self.is_building else 0)
        )


def tokens(text: str, start: int, end: int) -> Iterator[Token]:
    """Yield the words of a part of a text, without the white space between them."""
    for match in _TOKEN.finditer(text, start, end):
        if match.lastgroup != "space":
            yield Token(match.lastgroup or "sign", match[0], match.start())


def find_end(text: str, start: int) -> int | None:
    """Find the ``}}`` that closes the expression at ``start``; None if there is none within limits.

    Braces of the expression itself do not count, nor those in its strings.
    """
    depth = 0
    for token in tokens(text, start, start + SOURCE_CHARACTERS_MAX + 1):
        if token.text == "{":
            depth += 1
        elif token.text == "}" and depth:
            depth -= 1
        elif token.text == "}" and text.startswith("}}", token.start):
            return token.start
    return None


def read(source: str, roots: frozenset[str]) -> tuple[Reading, list[SourceFault]]:
    """Read a source, given the names of the roots, and find the faults that show without CEL."""
    assert len(source) <= SOURCE_CHARACTERS_MAX, len(source)
    if not source.strip():
        return Reading(), [SourceFault("the expression is empty", "a CEL expression")]
    if bad := _UNPRINTABLE.search(source):
        message = f"{_place(source, bad.start())}: {bad[0]!r} cannot stand in an expression"
        return Reading(), [SourceFault(message, "an escape in a string, such as \\u0007")]
    return _Reader(source, roots).read()


def _place(source: str, offset: int) -> str:
    """Say where an offset is as CEL does: lines and columns from 1."""
    line_start = source.rfind("\n", 0, offset) + 1
    return f"line {source.count('\n', 0, offset) + 1}, column {offset - line_start + 1}"


class _Call(NamedTuple):
    """A function or method: its name, and where its name and its parentheses are."""

    name: str
    at: int
    opens: int
    closes: int
    is_method: bool


class _Reader:
    """Goes over the tokens of one source; end tokens keep looking ahead simple."""

    def __init__(self, source: str, roots: frozenset[str]) -> None:
        self.source, self.roots = source, roots
        end = Token("end", "", len(source))
        self.tokens = [*tokens(source, 0, len(source)), end, end, end, end]
        self.calls = list(self._find_calls())
        self.loops = [call for call in self.calls if call.is_method and call.name in _LOOPS]
        self.faults: list[SourceFault] = []

    def read(self) -> tuple[Reading, list[SourceFault]]:
        self._check()
        words = [token.text for token in self.tokens]
        calls = tuple(call.name for call in self.calls)
        starts = [at for at in range(len(words)) if self._is_root(at)]
        paths = {at: self._follow(at) for at in starts}
        selectors, end = paths.get(0, ((), 0))
        patterns = [pattern for call in self.calls if (pattern := self._find_pattern(call))]
        reading = Reading(
            references=tuple(
                (_leading_names(path), self._is_in_loop(at)) for at, (path, _) in paths.items()
            ),
            selectors=selectors if end and self.tokens[end].kind == "end" else None,
            has_loop_or_sum=bool(self.loops) or "+" in words,
            patterns=tuple(patterns),
            calls=calls,
            rewritten=self._rewrite(),
            literals=len(self.source) + _VALUE_WEIGHT * words.count(","),
            items=1 + words.count(","),
            operations=1 + sum(word in _OPERATORS for word in words) + len(calls),
            searches=sum(name in _SEARCHES for name in calls),
            pattern_cost=sum(map(_bound_pattern, patterns)),
            growth=self._bound_growth(),
            has_loops=bool(self.loops),
            is_nested=any(self._is_in_loop(loop.at) for loop in self.loops),
            is_building=any(loop.name in _BUILDING for loop in self.loops),
        )
        return reading, self.faults

    # What there is.

    def _find_calls(self) -> Iterator[_Call]:
        closes, open_ones = {}, []
        for at, token in enumerate(self.tokens):
            if token.text == "(":
                open_ones.append(at)
            elif token.text == ")" and open_ones:
                closes[open_ones.pop()] = at
        for at, token in enumerate(self.tokens):
            if token.kind == "name" and at + 1 in closes:
                yield _Call(token.text, at, at + 1, closes[at + 1], self._is_taken(at))

    def _is_taken(self, at: int) -> bool:
        """Whether a name is taken of something (``a.b``, ``a.?b``), not standing for itself."""
        dot = at - 1
        if dot >= 1 and self.tokens[dot].text == "?" and self.tokens[dot - 1].text == ".":
            dot -= 1
        if dot < 1 or self.tokens[dot].text != ".":
            return False
        owner = self.tokens[dot - 1]
        return owner.kind in {"name", "quoted", "string", "number"} or owner.text in {")", "]", "}"}

    def _is_root(self, at: int) -> bool:
        token = self.tokens[at]
        is_named = token.kind == "name" and token.text in self.roots
        return is_named and not self._is_taken(at) and self.tokens[at + 1].text != "("

    def _is_in_loop(self, at: int) -> bool:
        return any(loop.opens < at < loop.closes for loop in self.loops)

    def _follow(self, at: int) -> tuple[tuple[str | int, ...], int]:
        """Follow the path from the root at ``at``: what it selects, and the first token after it.

        An optional field (``a.?b``, ``a[?"b"]``) belongs to what is selected, but ends the path.
        """
        path: list[str | int] = [self.tokens[at].text]
        at += 1
        while (field := self._find_field(at, at + 1)) is not None:
            path.append(field)
            at += 2 if self.tokens[at].text == "." else 3
        if self.tokens[at + 1].text == "?" and (field := self._find_field(at, at + 2)) is not None:
            path.append(field)
        return tuple(path), at

    def _find_field(self, sign_at: int, at: int) -> str | int | None:
        """What the token at ``at`` selects after a ``.`` or ``[``; None if it selects nothing."""
        sign, field, after = self.tokens[sign_at], self.tokens[at], self.tokens[at + 1]
        if sign.text == "." and field.kind in {"name", "quoted"} and after.text != "(":
            return field.text.strip("`")
        if sign.text == "[" and after.text == "]":
            if field.kind == "number" and field.text.isdecimal():
                return int(field.text)
            return _plain_text(field)
        return None

    def _find_pattern(self, call: _Call) -> str | None:
        before, last = self.tokens[call.closes - 2 : call.closes]
        is_literal = last.kind == "string" and before.text in {"(", ","}
        return last.text if call.name == "matches" and is_literal else None

    def _rewrite(self) -> str:
        dots = [loop.at - 1 for loop in self.loops if loop.name in _BUILDING]
        cuts = [0, *(self.tokens[dot].start for dot in dots), len(self.source)]
        pieces = [self.source[start:end] for start, end in itertools.pairwise(cuts)]
        return ".in_order()".join(pieces)

    # What is wrong.

    def _check(self) -> None:
        for first, second in itertools.pairwise(self.tokens):
            if first.text == second.text == "/" and second.start == first.start + 1:
                self._fault(first, "comments are not supported", "the expression alone")
            if first.kind in {"name", "quoted"} and second.text == "{":
                self._fault(first, "messages are not supported", 'a map: {"key": value}')
        if len(self.loops) > LOOPS_MAX:
            message = f"there are {len(self.loops)} loops"
            accepted = f"at most {LOOPS_MAX} of {', '.join(sorted(_LOOPS))}"
            self._fault(self.tokens[self.loops[LOOPS_MAX].at], message, accepted)
        for loop in self.loops:
            variable = self.tokens[loop.opens + 1]
            if variable.text in self.roots:
                message = f"the loop variable {variable.text!r} hides what has this name outside"
                self._fault(variable, message, "another name for the loop variable")
        for call in self.calls:
            self._check_call(call)

    def _check_call(self, call: _Call) -> None:
        name = self.tokens[call.at]
        arguments = self.tokens[call.opens + 1 : call.closes]
        if call.name == "format":
            self._fault(name, "format() is not supported", "text with ${{ }} in it")
        elif call.name in _LITERAL_ARGUMENTS:
            if any(
                each.kind not in {"string", "number"} and each.text != "," for each in arguments
            ):
                self._fault(name, f"{call.name}() takes only literals", 'a string, such as "-"')
        elif call.name == "matches" and self._find_pattern(call) is None:
            self._fault(name, "the pattern is not a literal", 'a string, such as "^[a-z]+$"')

    def _fault(self, token: Token, message: str, accepted: str) -> None:
        self.faults.append(SourceFault(f"{_place(self.source, token.start)}: {message}", accepted))

    # What it can multiply.

    def _bound_growth(self) -> int:
        """Bound how many times more a value can be, on the way, than all that the source names."""
        growth = 1
        for call in self.calls:
            if call.name in {"quote", "encode"}:
                growth *= 2
            elif call.name == "join":  # Between items, and each item has the weight of a value.
                between = self.tokens[call.closes].start - self.tokens[call.opens].start
                growth *= 1 + between // (_VALUE_WEIGHT // 2)
            elif call.name == "replace":
                growth *= self._bound_replacement(call)
        for loop in self.loops:
            if loop.name in {"map", "optMap", "optFlatMap"}:
                variable = self.tokens[loop.opens + 1].text
                body = self.tokens[loop.opens + 2 : loop.closes]
                growth *= max(1, sum(token.text == variable for token in body))
        return growth

    def _bound_replacement(self, call: _Call) -> int:
        arguments = self.tokens[call.opens : call.closes]
        strings = [token for token in arguments if token.kind == "string"]
        if len(strings) != 2:
            return 1  # CEL refuses it.
        old, new = _plain_text(strings[0]), len(strings[1].text)
        if old == "":
            return new + 1
        return -(-new // (1 if old is None else len(old)))


def _bound_pattern(pattern: str) -> int:
    """Bound what a pattern costs for a character: its instructions, as RE2 compiles it.

    RE2 refuses repetitions that multiply to more than 1,000. A class of Unicode is thousands
    of instructions, any other character of a pattern at most a few, for its forms in UTF-8.
    """
    times = 1
    for least, most in _REPETITION.findall(pattern):
        times = min(1_000, times * max(1, int(least), int(most or 0)))
    classes = pattern.count("\\p") + pattern.count("\\P")
    return _PATTERN_COST * times * (8 * len(pattern) + 5_000 * classes)


def _plain_text(token: Token) -> str | None:
    """The text of a string literal, if it can be read off it: no escapes, bytes, triple quotes."""
    plain = _PLAIN_STRING.fullmatch(token.text) if token.kind == "string" else None
    if plain is None:
        return None
    return plain["raw"] if plain["text"] is None else plain["text"]


def _leading_names(path: Sequence[str | int]) -> Names:
    """The part of a path before its first number."""
    names: list[str] = []
    for selector in path:
        if isinstance(selector, int):
            break
        names.append(selector)
    return tuple(names)

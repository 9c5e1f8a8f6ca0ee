"""Templates: JSON values whose strings hold expressions, compiled once and rendered per step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from app.core.expressions.interpolation import (
    Encoding,
    Hole,
    Part,
    UrlPart,
    as_text,
    encode_value,
    fill,
    find_fault,
    split,
)
from app.core.expressions.programs import Program, compile_source
from app.core.expressions.source import SOURCE_CHARACTERS_MAX, Names
from app.core.expressions.values import NESTING_MAX, Allowance, Unfit
from app.core.faults import child_path
from app.core.json_value import JsonValue


class InvalidExpression(ValueError):
    """A fault of a template, found when it is compiled.

    Attributes:
        path: of the string, as ``steps[0].action.http.url``.
        source: the expression, or the text that it stands in.
        message: what is wrong; line and column, where known, are those in ``source``.
        accepted: what would be right.
    """

    code: ClassVar[str] = "invalid_expression"

    def __init__(self, *, path: str, source: str, message: str, accepted: str) -> None:
        self.path, self.source, self.message, self.accepted = path, source, message, accepted
        super().__init__(f"{path or 'the template'}: {source!r}: {message}; accepted: {accepted}")


class ExpressionFailed(ValueError):
    """A template could not be rendered: says where, which expression, and what was missing."""

    code: ClassVar[str] = "invalid_expression"


class Scope:
    """What the expressions of one step see: the root variables, by name.

    Nothing is converted before an expression names it. The values must not change meanwhile.
    """

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, JsonValue]) -> None:
        self.values = values


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A compiled template, for every saga and thread.

    Attributes:
        node: what it consists of.
        references: each path from a root variable that an expression names, as written:
            ``("vars", "travel")`` for ``vars.travel`` and for ``vars["travel"]``. A path ends
            before an index that is a number or computed, and before a method:
            ``steps[input.x].size()`` gives ``("steps",)`` and ``("input", "x")``.
    """

    node: "_Node"
    references: frozenset[Names]

    @property
    def is_one_expression(self) -> bool:
        """Whether it is one expression and nothing else, so that its value keeps its type."""
        return isinstance(self.node, _Alone | _Faulty)

    def render(self, scope: Scope) -> JsonValue:
        """Fill it in.

        Returns:
            A new value, apart from the scope. Objects that expressions give have their keys in
            order.

        Raises:
            ExpressionFailed: a value is missing, too much, or does not fit its place; or the
                template has faults.
        """
        return self.node.render(scope, Allowance())


def compile_template(
    value: JsonValue, *, roots: frozenset[str], path: str, encode: Encoding = Encoding.TEXT
) -> tuple[Template, list[InvalidExpression]]:
    """Compile a JSON value whose strings may hold expressions.

    Args:
        value: the template. Keys of objects are literal.
        roots: the names of the variables that an expression may use. A scope may have fewer.
        path: where the value stands.
        encode: what all its strings are. A URL or a header is always text: numbers are written
            out, and an expression alone in a string gives text.

    Returns:
        The template and all its faults. With faults it cannot be rendered, but has its references.
    """
    compiler = _Compiler(roots, encode)
    node = compiler.compile(value, path, 0)
    return Template(node=node, references=frozenset(compiler.references)), compiler.faults


def expressions_in(text: str) -> list[str]:
    """The sources of the expressions that a text holds, in order."""
    return [part.source for part in split(text)[0] if isinstance(part, Hole)]


@dataclass(frozen=True, slots=True)
class _Constant:
    value: bool | int | float | str | None

    def render(self, _scope: Scope, allowance: Allowance) -> JsonValue:
        allowance.spend(1 + (len(self.value) if isinstance(self.value, str) else 0))
        return self.value


@dataclass(frozen=True, slots=True)
class _List:
    items: tuple["_Node", ...]

    def render(self, scope: Scope, allowance: Allowance) -> JsonValue:
        return [item.render(scope, allowance) for item in self.items]


@dataclass(frozen=True, slots=True)
class _Object:
    items: tuple[tuple[str, "_Node"], ...]

    def render(self, scope: Scope, allowance: Allowance) -> JsonValue:
        return {key: item.render(scope, allowance) for key, item in self.items}


@dataclass(frozen=True, slots=True)
class _Alone:
    """A string that is one expression: its value keeps its type."""

    path: str
    program: Program

    def render(self, scope: Scope, allowance: Allowance) -> JsonValue:
        try:
            return self.program.run(scope.values, allowance)
        except Unfit as unfit:
            raise _failed(self.path, self.program.source, unfit) from None


@dataclass(frozen=True, slots=True)
class _Text:
    """A string with expressions in it; as many programs as holes, in order."""

    path: str
    parts: tuple[Part, ...]
    programs: tuple[Program, ...]
    encoding: Encoding

    def render(self, scope: Scope, allowance: Allowance) -> JsonValue:
        texts: list[str] = []
        source = ""
        try:
            for program in self.programs:
                source = program.source
                url_part = UrlPart.of(self.parts, is_first=not texts)
                value = program.run(scope.values, allowance)
                texts.append(encode_value(value, self.encoding, url_part=url_part))
                allowance.spend(len(texts[-1]))
            return fill(self.parts, texts, self.encoding)
        except Unfit as unfit:
            raise _failed(self.path, source, unfit) from None


@dataclass(frozen=True, slots=True)
class _Faulty:
    """A string that could not be compiled, and so might have been anything."""

    fault: InvalidExpression

    def render(self, _scope: Scope, _allowance: Allowance) -> JsonValue:
        raise ExpressionFailed(str(self.fault))


type _Node = _Constant | _List | _Object | _Alone | _Text | _Faulty


def _failed(path: str, source: str, unfit: Unfit) -> ExpressionFailed:
    return ExpressionFailed(f"{path or 'the template'}: ${{{{ {source} }}}}: {unfit}")


class _Compiler:
    """Compiles one template, collecting its faults and references."""

    def __init__(self, roots: frozenset[str], encoding: Encoding) -> None:
        self.roots, self.encoding = roots, encoding
        self.faults: list[InvalidExpression] = []
        self.references: set[Names] = set()

    def compile(self, value: JsonValue, path: str, depth: int) -> _Node:
        if depth > NESTING_MAX:
            accepted = f"at most {NESTING_MAX} lists and objects within one another"
            return self._fault(path, "", "the template is nested too deeply", accepted)
        match value:
            case dict():
                items = [
                    (self._key(key, path), self.compile(each, child_path(path, key), depth + 1))
                    for key, each in value.items()
                ]
                return _Object(tuple(items))
            case list():
                nodes = [
                    self.compile(each, child_path(path, index), depth + 1)
                    for index, each in enumerate(value)
                ]
                return _List(tuple(nodes))
            case str():
                return self._text(value, path)
            case _ if self.encoding is Encoding.TEXT:
                return _Constant(value)
            case None:
                return self._fault(path, "null", "null is not text", "text")
            case bool() | int() | float():
                return self._text(as_text(value), path)

    def _key(self, key: str, path: str) -> str:
        parts, unclosed = split(key)
        literals = [part for part in parts if isinstance(part, str)]
        if unclosed is not None or len(literals) < len(parts):
            accepted = "a literal key, or one expression that gives the whole object"
            self._fault(child_path(path, key), key, "a key cannot hold an expression", accepted)
        return "".join(literals)

    def _text(self, text: str, path: str) -> _Node:
        faults_before = len(self.faults)
        parts, unclosed = split(text)
        programs: list[Program] = []
        for part in parts:
            if isinstance(part, Hole):
                program, reading, faults = compile_source(part.source, self.roots)
                self.references.update(names for names, _ in reading.references)
                for message, accepted in faults:
                    self._fault(path, part.source, message, accepted)
                if program is not None:
                    programs.append(program)
        if unclosed is not None:
            message = f"no }}}} closes this expression within {SOURCE_CHARACTERS_MAX:,} characters"
            accepted = "}} after the expression, or $${{ for a literal ${{"
            self._fault(path, unclosed, message, accepted)
        elif (misplaced := find_fault(parts, self.encoding)) is not None:
            self._fault(path, text, *misplaced)
        if len(self.faults) > faults_before:
            return _Faulty(self.faults[faults_before])
        if not programs:
            return _Constant("".join(part for part in parts if isinstance(part, str)))
        if len(parts) == 1 and self.encoding is Encoding.TEXT:
            return _Alone(path, programs[0])
        return _Text(path, tuple(parts), tuple(programs), self.encoding)

    def _fault(self, path: str, source: str, message: str, accepted: str) -> _Faulty:
        fault = InvalidExpression(
            path=path, source=source[:SOURCE_CHARACTERS_MAX], message=message, accepted=accepted
        )
        self.faults.append(fault)
        return _Faulty(fault)

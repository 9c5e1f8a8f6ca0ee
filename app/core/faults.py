"""Faults of a document: collected while it is read, and told in its order.

A document is read to its end whatever is wrong with it, so that its author sees every fault at
once. Paths are written as ``steps[0].action.http.url``; a name that would be ambiguous in that form
is quoted, as in ``headers["a.b"]``.
"""

import difflib
import itertools
import json
import math
import re
from collections.abc import Container, Iterable, Iterator

from app.core.errors import Fault
from app.core.json_value import JsonValue

FAULTS_MAX = 500
"""More are counted, not listed: nobody mends the five-hundred-and-first first."""

DEPTH_MAX = 64
"""Lists and objects within one another. Far more than a request body needs, and far less than
what overflows the stack of any recursive reader."""

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1
"""Larger whole numbers lose digits in most JSON libraries, and CEL has none."""

_SHOWN_CHARACTERS_MAX = 60
_NAME_CHARACTERS_MAX = 100
_NAMES_MAX = 50
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_$-]+")


class Faults:
    """The faults found so far; false while there are none."""

    def __init__(self) -> None:
        self._listed: list[Fault] = []
        self._unlisted = 0

    def __bool__(self) -> bool:
        return bool(self._listed)

    @property
    def is_full(self) -> bool:
        """Whether a further fault is only counted, so that its message need not be made."""
        return len(self._listed) >= FAULTS_MAX

    def count(self) -> None:
        """Note one fault that need not be listed."""
        self._unlisted += 1

    def add(self, path: str, message: str, *, accepted: str) -> None:
        """Note one fault."""
        if self.is_full:
            self.count()
        else:
            self._listed.append(Fault(path=path, message=message, accepted=accepted))

    def in_order(self, document: JsonValue) -> list[Fault]:
        """All that were listed, in the order of ``document``, and how many were not."""
        faults = in_document_order(self._listed, document)
        if self._unlisted:
            message = f"{self._unlisted} more faults are not listed"
            faults.append(Fault(path="", message=message, accepted="mend these first"))
        return faults


def child_path(path: str, name: str | int) -> str:
    """The path of a field, or of an item, of what stands at ``path``."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    name = name[:_NAME_CHARACTERS_MAX]  # a path is for people
    if _PLAIN_NAME.fullmatch(name) is None:
        return f"{path}[{json.dumps(name)}]"
    return f"{path}.{name}" if path else name


def in_document_order(faults: Iterable[Fault], document: JsonValue) -> list[Fault]:
    """Sort faults by where they are; what is missing stands where its parent begins."""
    faults = list(faults)
    needed = {prefix for fault in faults for prefix in _prefixes(fault.path)}
    positions: dict[str, int] = {}
    for place, (path, _, _) in enumerate(walk(document, within=needed)):
        positions.setdefault(path, place)

    def position(fault: Fault) -> int:
        return next(positions[each] for each in _prefixes(fault.path) if each in positions)

    return sorted(faults, key=position)


def _prefixes(path: str) -> Iterator[str]:
    """The path, that of its parent, and so on to the top."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    yield ""


def walk(
    document: JsonValue, *, within: Container[str] | None = None
) -> Iterator[tuple[str, JsonValue, int]]:
    """Values with path and depth, in the order of the document, down to just past ``DEPTH_MAX``.

    Args:
        document: where to begin.
        within: go down only from these paths; None for all.
    """
    ahead = [iter([("", document, 0)])]
    while ahead:
        step = next(ahead[-1], None)
        if step is None:
            ahead.pop()
            continue
        yield step
        path, value, depth = step
        if depth <= DEPTH_MAX and (within is None or path in within):
            ahead.append(_children(path, value, depth + 1))


def _children(path: str, value: JsonValue, depth: int) -> Iterator[tuple[str, JsonValue, int]]:
    match value:
        case dict():
            for name, each in value.items():
                yield child_path(path, name), each, depth
        case list():
            for index, each in enumerate(value):
                yield child_path(path, index), each, depth
        case _:
            pass


def find_unsound(document: JsonValue, faults: Faults) -> None:
    """Note what JSON, the database or CEL could not hold: text, numbers and depth gone wrong."""
    for path, value, depth in walk(document):
        match value:
            case str():
                _check_text(value, path, faults)
            case dict():
                for name in value:
                    _check_text(name, path, faults)
            case float() if not math.isfinite(value):
                faults.add(path, f"{value} is not a number", accepted="a finite number")
            case int() if not INTEGER_MIN <= value <= INTEGER_MAX:
                message = "a whole number of more than 64 bits would lose digits"
                faults.add(path, message, accepted="the same digits as text, in quotes")
            case _:
                pass
        if depth > DEPTH_MAX:
            message = f"more than {DEPTH_MAX} lists and objects lie within one another"
            faults.add(path, message, accepted=f"at most {DEPTH_MAX} levels")
            return


def _check_text(text: str, path: str, faults: Faults) -> None:
    if "\0" in text:
        faults.add(path, "a text holds a NUL character", accepted="text without it")
    if _SURROGATE.search(text) is not None:
        message = "a text holds half a character (a lone surrogate)"
        faults.add(path, message, accepted="whole characters")


def shown(value: JsonValue) -> str:
    """A value as a message quotes it: as JSON, and short."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return text
    return text[:_SHOWN_CHARACTERS_MAX] + "..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` if a known name is close, else nothing."""
    if len(name) > _SHOWN_CHARACTERS_MAX:
        return ""
    close = difflib.get_close_matches(name, itertools.islice(known, _NAMES_MAX), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def listed(names: Iterable[str]) -> str:
    """Names for ``accepted``."""
    few = list(itertools.islice(names, _NAMES_MAX + 1))
    if len(few) > _NAMES_MAX:
        few[-1] = "..."
    return ", ".join(few) or "none"

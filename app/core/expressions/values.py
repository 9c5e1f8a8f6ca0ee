"""Values on their way into expressions and out of them: followed, copied, converted, measured."""

import math
from collections.abc import Mapping, Sequence

from app.core.expressions.source import Names, Size
from app.core.faults import child_path
from app.core.json_value import JsonValue

NESTING_MAX = 100
"""Lists and objects within one another; CEL crashes the process somewhere above 10,000."""

RENDERED_SIZE_MAX = 1_048_576
"""Values, and bytes of text, in what is rendered: more cannot be JSON of 1 MiB, a body's limit."""

COST_MAX = 500_000_000
"""Nanoseconds that the expressions of a template may take together, as bounded (see ``source``).

They hold the interpreter's lock, and leases are renewed every few seconds. Usual ones take 30 us.
"""

_INT_BITS = 63  # Of CEL's int, apart from the sign.
_EXACT_INT = 2**53  # Up to here each double without a fraction is one int, and no other.
_NAMES_SHOWN_MAX = 8
_NAME_CHARACTERS_MAX = 40


class Unfit(Exception):
    """A value is missing, or does not fit its place; the message says why and shows no value."""


class Missing(Unfit):
    """A path leads nowhere.

    Attributes:
        name: What could not be found, the last name or number that was tried.
    """

    def __init__(self, name: str | int, reason: str) -> None:
        self.name = name
        super().__init__(reason)


class Allowance:
    """What one rendering may still produce and cost."""

    __slots__ = ("cost_left", "size_left")

    def __init__(self) -> None:
        self.size_left = RENDERED_SIZE_MAX
        self.cost_left = COST_MAX

    def spend(self, size: int) -> None:
        """Count values, and bytes of text, in the result."""
        self.size_left -= size
        if self.size_left < 0:
            raise Unfit(f"the result is larger than {RENDERED_SIZE_MAX:,} bytes")

    def spend_cost(self, nanoseconds: int) -> None:
        """Count what an evaluation costs at most, before it."""
        self.cost_left -= nanoseconds
        if self.cost_left < 0:
            raise Unfit("it could take too long over so much data: name less of it, or less often")


def follow(values: Mapping[str, JsonValue], path: Sequence[str | int]) -> JsonValue:
    """Follow a path into values, as CEL does.

    Raises:
        Missing: it leads nowhere.
    """
    value: JsonValue = None
    for position, selector in enumerate(path):
        holder = values if position == 0 else value
        match holder, selector:
            case Mapping(), str() if selector in holder:
                value = holder[selector]
            case list(), int() if selector < len(holder):
                value = holder[selector]
            case _:
                raise Missing(selector, _explain_missing(holder, path[:position], selector))
    return value


def copy(value: JsonValue, allowance: Allowance, depth: int = 0) -> JsonValue:
    """Copy a value into a result, keys in order.

    Raises:
        Unfit: it is too much, nested too deeply, or cannot be JSON.
    """
    if isinstance(value, str):
        allowance.spend(1 + measure_text(value))
        return value
    allowance.spend(1)
    if isinstance(value, dict):
        check_depth(depth)
        allowance.spend(sum(map(measure_text, value)))
        return {key: copy(value[key], allowance, depth + 1) for key in sorted(value)}
    if isinstance(value, list):
        check_depth(depth)
        return [copy(each, allowance, depth + 1) for each in value]
    if isinstance(value, float):
        check_finite(value)
    return value


def take(
    value: JsonValue, path: Names, wanted: Sequence[Names], sizes: dict[Names, Size]
) -> JsonValue:
    """Convert for CEL what is wanted of a value, and measure it.

    Args:
        value: what stands at ``path``.
        path: from a root variable.
        wanted: paths that begin with ``path``; what none of them leads to is left out.
        sizes: gets, for each wanted path, the size of the part that was taken for it.

    Raises:
        Unfit: it is nested too deeply, or cannot be JSON.
    """
    if path in wanted or not isinstance(value, dict):
        size = Size()
        sizes.update(dict.fromkeys(wanted, size))
        return _convert(value, size, 0)
    taken: dict[str, JsonValue] = {}
    for name in sorted({each[len(path)] for each in wanted}):
        if name in value:
            further = [each for each in wanted if each[len(path)] == name]
            taken[name] = take(value[name], (*path, name), further, sizes)
    return taken


def check_depth(depth: int) -> None:
    """Refuse what Python and CEL could not walk through."""
    if depth > NESTING_MAX:
        raise Unfit(f"more than {NESTING_MAX} lists and objects lie within one another")


def check_finite(value: float) -> None:
    """Refuse what is not a number in JSON."""
    if not math.isfinite(value):
        raise Unfit("a number is infinite, or none at all (division by 0.0?)")


def measure_text(text: str) -> int:
    """Count the bytes of a text in UTF-8, and refuse what cannot be written in it."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise Unfit("a text holds half a character (a lone surrogate)") from None


def _convert(value: JsonValue, size: Size, depth: int) -> JsonValue:
    """Make of a value what CEL can hold (the package says how numbers change); add to its size."""
    size.values += 1
    if isinstance(value, str):
        length = measure_text(value)
        size.text_bytes += length
        size.text_longest = max(size.text_longest, length)
        return value
    if isinstance(value, dict):
        check_depth(depth)
        lengths = [measure_text(key) for key in value]
        size.values += len(lengths)
        size.text_bytes += sum(lengths)
        size.list_longest = max(size.list_longest, len(lengths))
        size.text_longest = max(size.text_longest, *lengths, 0)
        return {key: _convert(each, size, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        check_depth(depth)
        size.list_longest = max(size.list_longest, len(value))
        return [_convert(each, size, depth + 1) for each in value]
    if isinstance(value, float):
        check_finite(value)
        return int(value) if value.is_integer() and abs(value) <= _EXACT_INT else value
    if isinstance(value, int) and value.bit_length() > _INT_BITS:
        return _as_double(value)
    return value


def _as_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Unfit("a whole number is too large to compute with") from None


def _explain_missing(
    holder: Mapping[str, JsonValue] | JsonValue, path: Sequence[str | int], selector: str | int
) -> str:
    if not path:
        assert isinstance(holder, Mapping), holder
        return f"{selector!r} is not there, only {_shown(holder)}"
    owner = ""
    for each in path:
        owner = child_path(owner, each)
    match holder:
        case Mapping():
            return f"{owner} has no {selector!r}, only {_shown(holder)}"
        case list() if isinstance(selector, int):
            return f"{owner} has {len(holder)} items and no [{selector}]"
        case _:
            return f"{owner} is {_kind(holder)} and has no {selector!r}"


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def _shown(names: Mapping[str, JsonValue]) -> str:
    shown = [repr(name[:_NAME_CHARACTERS_MAX]) for name in sorted(names)[:_NAMES_SHOWN_MAX]]
    return ", ".join([*shown, "..."] if len(names) > _NAMES_SHOWN_MAX else shown) or "nothing"

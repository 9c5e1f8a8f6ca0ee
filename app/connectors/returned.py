"""What a function returned: from any Python object to a JSON value, or to words for what it is.

The result is a copy: the function may keep and change what it returned. Strictness is not for its
own sake: what passes here is stored, and shown to expressions, exactly as it is.
"""

import math
from collections.abc import Iterable

import orjson

from app.connectors.answers import EXCERPT_CHARACTERS_MAX, NESTING_MAX
from app.core.json_value import JsonValue
from app.core.observation import Answered

STATUS = 200
"""To return is to succeed."""

type _Container = dict[object, object] | list[object] | tuple[object, ...]

_CONTAINERS = (dict, list, tuple)
_JSON = (str, int, float, bool, type(None), *_CONTAINERS)


def read_returned(value: object, *, bytes_max: int) -> Answered:
    """What was returned, as an answer; unreadable if it is not JSON.

    Args:
        value: dicts with strings as keys, lists and tuples, strings, integers of at most 64 bits,
            finite floats, booleans and None, nested at most ``NESTING_MAX`` deep. Values of a
            subclass are what orjson takes them for: an enumeration of strings is its strings.
        bytes_max: of its JSON text, as UTF-8.
    """
    try:
        fault = _find_fault(value, items_max=bytes_max // 2 + 1)  # an item takes two, or more
        if fault is not None:
            return _unreadable(fault)
        document = orjson.dumps(value)
        if len(document) > bytes_max:
            return _unreadable(f"it takes more than {bytes_max} bytes")
        body: JsonValue = orjson.loads(document)
    except Exception as error:  # noqa: BLE001 - a subclass of dict or str may run anything
        return _unreadable(f"{type(error).__name__}: {error}")
    return Answered(status=STATUS, body=body, body_bytes=len(document))


def _find_fault(value: object, *, items_max: int) -> str | None:
    """Why ``value`` is not JSON, as far as orjson would not say so; None if nothing is wrong.

    Level by level and container by container, so that neither depth nor cycles nor lists that hold
    themselves many times over cost more than ``items_max`` items do.
    """
    level: list[_Container] = [[value]]
    items_seen = 0
    for _ in range(NESTING_MAX + 1):
        below: list[_Container] = []
        for container in level:
            items_seen += len(container)
            if items_seen > items_max:
                return f"it is too large: it holds more than {items_max} items"
            fault = _find_fault_within(container)
            if fault is not None:
                return fault
            below += [item for item in _items(container) if isinstance(item, _CONTAINERS)]
        if not below:
            return None
        level = below
    return f"it is nested deeper than {NESTING_MAX} levels"


def _find_fault_within(container: _Container) -> str | None:
    """What is wrong with the keys and items of one container; by their types, for speed."""
    if isinstance(container, dict):
        for kind in set(map(type, container)):
            if kind is not str:
                return f"it has a key of type {kind.__name__!r}, not a string"
    kinds = set(map(type, _items(container)))
    for kind in kinds:
        if not issubclass(kind, _JSON):
            return f"it holds a value of type {kind.__name__!r}"
    if any(issubclass(kind, float) for kind in kinds):
        for item in _items(container):
            if isinstance(item, float) and not math.isfinite(item):
                return f"it holds the number {item!r}"
    return None


def _items(container: _Container) -> Iterable[object]:
    return container.values() if isinstance(container, dict) else container


def _unreadable(fault: str) -> Answered:
    """Words instead of the value; those of an error may hold what cannot be stored."""
    words = f"(what the function returned is not JSON: {fault}"[: EXCERPT_CHARACTERS_MAX - 1] + ")"
    body = words.encode(errors="replace")
    return Answered(status=STATUS, body=body.decode(), readable=False, body_bytes=len(body))

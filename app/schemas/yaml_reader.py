"""YAML as a notation for JSON: what JSON can say, read as YAML 1.2 has it, and nothing else.

PyYAML's loaders speak YAML 1.1, where ``no`` is false, ``1:30`` is 90, a date is an object, and a
second key replaces the first without a word. So only its parser is used: from its events the
document is built here, with the scalars of the YAML 1.2 core schema
(https://yaml.org/spec/1.2.2/#103-core-schema). Refused are duplicate keys, keys that are not text,
anchors and aliases (a few bytes unfold to gigabytes), tags, and numbers that JSON cannot hold.
"""

import math
import re
from collections.abc import Iterator
from typing import Protocol

import yaml

from app.core.faults import DEPTH_MAX, INTEGER_MAX, Faults, child_path, shown
from app.core.json_value import JsonValue

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where the wheel has it: ten times as fast."""

_CONSTANTS: dict[str, JsonValue] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")

_ACCEPTED = 'YAML 1.2; an expression in quotes: "${{ ... }}"'
"""Outside quotes, the braces of an expression may begin a mapping, and its colon a value."""


_SHOWN_CHARACTERS_MAX = 60
_INTEGER_CHARACTERS_MAX = 70
"""64 bits in any base, and more: longer ones are not worth reading."""


class _Mark(Protocol):
    """Where the parser was; libyaml has a class of its own for it."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class _Stopped(Exception):
    """Nothing more can be read; its fault is noted already."""


def read_yaml(text: str, faults: Faults) -> JsonValue:
    """Read one YAML document; what is wrong with it is noted, with line and column.

    Numbers that are too large are left to ``find_unsound``, like those of JSON.
    """
    try:
        return _Reader(text, faults).read()
    except _Stopped:
        return None
    except yaml.MarkedYAMLError as error:
        context = f" {error.context}" if error.context else ""
        message = f"{_position(error.problem_mark)}: {error.problem}{context}"
        faults.add("", message, accepted=_ACCEPTED)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = len(before) - before.rfind("\n")
        where = f"line {before.count('\n') + 1}, column {column}"
        faults.add("", f"{where}: {error.reason}", accepted="characters that can be seen")
    return None


def read_integer(text: str) -> int:
    """A whole number as YAML or JSON writes it; one past ``INTEGER_MAX`` if it is absurdly long."""
    if len(text) > _INTEGER_CHARACTERS_MAX:
        return INTEGER_MAX + 1
    # Not base 0 for all: it refuses leading zeros.
    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


def _position(mark: _Mark | None) -> str:
    assert mark is not None, "the parser marks everything"
    return f"line {mark.line + 1}, column {mark.column + 1}"


class _Reader:
    """Builds the document from the parser's events; a level of it is a level of the stack."""

    def __init__(self, text: str, faults: Faults) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)
        self._faults = faults

    def read(self) -> JsonValue:
        value: JsonValue = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fault(event, "", "a second document begins", accepted="one document")
                    raise _Stopped
            elif isinstance(event, yaml.NodeEvent):
                value = self._read_node(event, "", 0)
        return value

    def _fault(self, event: yaml.Event, path: str, message: str, *, accepted: str) -> None:
        where = _position(event.start_mark)
        self._faults.add(path, f"{where}: {message}", accepted=accepted)
        if self._faults.is_full:
            raise _Stopped

    def _read_node(self, event: yaml.Event, path: str, depth: int) -> JsonValue:
        if depth > DEPTH_MAX:
            message = f"more than {DEPTH_MAX} lists and objects lie within one another"
            self._fault(event, path, message, accepted=f"at most {DEPTH_MAX} levels")
            raise _Stopped
        if isinstance(event, yaml.AliasEvent):
            message = f"the alias *{event.anchor} is not supported"
            self._fault(event, path, message, accepted="the value itself, written out")
            return None
        self._refuse_properties(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._read_list(path, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._read_object(path, depth)
        assert isinstance(event, yaml.ScalarEvent), event
        return self._read_scalar(event, path)

    def _refuse_properties(self, event: yaml.Event, path: str) -> None:
        assert isinstance(event, yaml.NodeEvent), event
        if event.anchor is not None:
            message = f"the anchor &{event.anchor} is not supported"
            self._fault(event, path, message, accepted="the value without it")
        tag = getattr(event, "tag", None)
        if tag is not None:
            message = f"the tag {shown(tag)} is not supported"
            self._fault(event, path, message, accepted="the value without it; text in quotes")

    def _read_list(self, path: str, depth: int) -> JsonValue:
        items: list[JsonValue] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._read_node(event, child_path(path, len(items)), depth + 1))
        return items

    def _read_object(self, path: str, depth: int) -> JsonValue:
        members: dict[str, JsonValue] = {}
        lines: dict[str, int] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            name = self._read_key(event, path)
            below = child_path(path, name)
            if name in lines:
                message = f"the key {shown(name)} is here again, after line {lines[name]}"
                self._fault(event, below, message, accepted="each key once")
            assert event.start_mark is not None, "the parser marks everything"
            lines[name] = event.start_mark.line + 1
            members[name] = self._read_node(next(self._events), below, depth + 1)
        return members

    def _read_key(self, event: yaml.Event, path: str) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            message = "a key is a list, an object or an alias"
            self._fault(event, path, message, accepted="text as key")
            raise _Stopped
        self._refuse_properties(event, path)
        name = event.value
        if not event.implicit[0]:
            return name
        if name == "<<":
            message = "the merge key << is not supported"
            self._fault(event, path, message, accepted="the fields themselves, written out")
        elif not isinstance(_resolve(name), str):
            message = f"the key {name[:_SHOWN_CHARACTERS_MAX]} is not text"
            self._fault(event, path, message, accepted="the key in quotes")
        return name

    def _read_scalar(self, event: yaml.ScalarEvent, path: str) -> JsonValue:
        text = event.value
        if not event.implicit[0]:
            return text
        value = _resolve(text)
        if isinstance(value, int) and _LEADING_ZERO.fullmatch(text):
            message = f"the number {shown(text)} would lose its leading zero"
            accepted = "the number without it, or text in quotes"
            self._fault(event, path, message, accepted=accepted)
        if isinstance(value, float) and not math.isfinite(value):
            message = f"{text[:_SHOWN_CHARACTERS_MAX]} is no finite number"
            self._fault(event, path, message, accepted="a finite number")
            return None
        return value


def _resolve(text: str) -> JsonValue:
    """What a plain scalar says in the core schema."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return read_integer(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NOT_FINITE.fullmatch(text):
        return math.nan
    return text

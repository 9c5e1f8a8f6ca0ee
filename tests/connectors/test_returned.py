"""What a function returned is JSON, exactly, or is marked as unreadable."""

import datetime as dt
import enum
import uuid
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast, override

import pytest

from app.connectors.returned import read_returned
from app.core.json_value import JsonValue
from app.core.observation import Answered

MEBIBYTE = 1024 * 1024


def nested(depth: int) -> JsonValue:
    """So many lists, in each other."""
    value: JsonValue = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cyclic() -> list[object]:
    """A list that holds itself."""
    value: list[object] = []
    value.append(value)
    return value


def exploding() -> object:
    """Small in memory, and 2 to the power of 90 items when written out."""
    value: object = 1
    for _ in range(90):
        value = [value, value]
    return value


class Colour(enum.StrEnum):
    """JSON by inheritance."""

    RED = "red"


class Size(enum.Enum):
    """Not JSON, though some libraries would take it."""

    LARGE = "large"


@dataclass
class Booking:
    """Not JSON, though some libraries would take it."""

    id: str


class Hostile(dict[str, object]):
    """Runs code when it is looked at."""

    @override
    def __len__(self) -> int:
        raise KeyError("no")


Point = namedtuple("Point", "x y")  # noqa: PYI024 - what others do


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ((1, 2), [1, 2]),
        ({"a": ()}, {"a": []}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Colour.RED, "red"),
        (nested(100), nested(100)),
        (-(2**63), -(2**63)),
        (2**64 - 1, 2**64 - 1),
        ("x" * (MEBIBYTE - 2), "x" * (MEBIBYTE - 2)),
        ([0] * (MEBIBYTE // 2 - 1), [0] * (MEBIBYTE // 2 - 1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_json_is_read(value: object, body: JsonValue) -> None:
    """JSON is taken as it is, with tuples as lists and enumerations as what they are made of."""
    read = read_returned(value, bytes_max=MEBIBYTE)

    assert read.readable, read.body
    assert read.status == 200
    assert read.body == body


def test_size_is_that_of_its_text() -> None:
    """The size counts the bytes of the compact JSON text."""
    read = read_returned({"a": ["ä", 1]}, bytes_max=MEBIBYTE)

    assert read == Answered(status=200, body={"a": ["ä", 1]}, body_bytes=14)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "the number nan"),
        ({"a": [float("inf")]}, "the number inf"),
        ("\ud800", "surrogates"),
        ({"\ud800": 1}, "surrogates"),
        (2**64, "64-bit"),
        (10**5000, "64-bit"),
        ({1: "a"}, "a key of type 'int'"),
        ({None: "a"}, "a key of type 'NoneType'"),
        ({Colour.RED: 1}, "a key of type 'Colour'"),
        (b"x", "'bytes'"),
        ({1, 2}, "'set'"),
        (Decimal(1), "'Decimal'"),
        (dt.datetime.now(dt.UTC), "'datetime'"),
        (uuid.UUID(int=1), "'UUID'"),
        (Size.LARGE, "'Size'"),
        (Booking(id="x"), "'Booking'"),
        (Point(1, 2), "Point"),
        (object(), "'object'"),
        (len, "'builtin_function_or_method'"),
        (nested(101), "nested deeper than 100"),
        (cyclic(), "nested deeper than 100"),
        (exploding(), "more than 524289 items"),
        ("x" * (MEBIBYTE - 1), "more than 1048576 bytes"),
        ([0] * (MEBIBYTE // 2), "more than 1048576 bytes"),
        ([0] * (MEBIBYTE // 2 + 2), "more than 524289 items"),
        (Hostile(a=1), "KeyError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_things_are_unreadable(value: object, words: str) -> None:
    """Whatever is not JSON is named in words that can be stored, and is never guessed at."""
    read = read_returned(value, bytes_max=MEBIBYTE)

    assert read.status == 200
    assert not read.readable
    body = cast("str", read.body)
    assert words in body
    assert len(body) <= 500
    assert read.body_bytes == len(body.encode())


def test_result_is_a_copy() -> None:
    """A function may go on changing what it returned."""
    value: dict[str, Any] = {"list": [1]}

    read = read_returned(value, bytes_max=MEBIBYTE)
    value["list"].append(2)

    assert read.body == {"list": [1]}

"""What all wire shapes share: frozen, nothing unknown, and the small types of their fields."""

import datetime as dt
import re
import unicodedata
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    StringConstraints,
)
from pydantic_core import PydanticCustomError, core_schema

from app.core.json_value import JsonValue

TEXT_CHARACTERS_MAX = 255
"""Of business keys, label values and idempotency keys: what an index and a header can hold."""

REASON_CHARACTERS_MAX = 1000
LABELS_MAX = 20
VERSION_MAX = 2**31 - 1
"""The largest ``integer`` of SQL: versions and sequence numbers are stored as such."""

PAGE_ITEMS = 50
PAGE_ITEMS_MAX = 200

LABEL_NAME = r"^[A-Za-z0-9_.-]{1,63}$"
DEFINITION_NAME_CHARACTERS_MAX = 100


_SOMETHING = re.compile(r"[^\s\x00-\x20]")
"""More than blanks and control characters."""


class Shape(BaseModel):
    """A shape that goes out. Fields keep their order; a field without a value is null."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RequestShape(BaseModel):
    """A body that comes in. Unknown fields are refused, and so is 3 written as a text."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class QueryShape(BaseModel):
    """Query parameters; they are all texts, so numbers and booleans are read out of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def refused(kind: str, message: str, *, accepted: str) -> PydanticCustomError:
    """What a validator raises: the fault in our words, and what would be accepted.

    Args:
        kind: names the rule.
        message: what is wrong with the value.
        accepted: what would be right.
    """
    # pydantic fills braces in the template from the context: the words come in by it.
    return PydanticCustomError(kind, "{message}", {"message": message, "accepted": accepted})


def _check_printable(text: str) -> str:
    if text.isprintable():
        return text
    message = "it holds a character that cannot be printed"
    raise refused("not_printable", message, accepted="printable characters")


def _check_no_controls(text: str) -> str:
    if all(unicodedata.category(character) != "Cc" for character in text):
        return text
    message = "it holds a control character"
    raise refused("control_character", message, accepted="text without control characters")


def _check_something(text: str) -> str:
    if _SOMETHING.search(text) is not None:
        return text
    raise refused("blank", "it is blank", accepted="a few words")


AnyJson = Annotated[
    JsonValue, GetPydanticSchema(lambda _source, _handler: core_schema.any_schema())
]
"""Whatever JSON can say; it was read as JSON, so it is not looked at again."""

BusinessKey = Annotated[
    str,
    StringConstraints(min_length=1, max_length=TEXT_CHARACTERS_MAX),
    AfterValidator(_check_printable),
]
LabelName = Annotated[str, StringConstraints(pattern=LABEL_NAME)]
LabelValue = Annotated[
    str, StringConstraints(max_length=TEXT_CHARACTERS_MAX), AfterValidator(_check_no_controls)
]
DefinitionName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=DEFINITION_NAME_CHARACTERS_MAX),
    AfterValidator(_check_printable),
]
Reason = Annotated[
    str,
    StringConstraints(max_length=REASON_CHARACTERS_MAX),
    AfterValidator(_check_something),
    Field(json_schema_extra={"minLength": 1, "pattern": _SOMETHING.pattern}),
]

TIME_ACCEPTED = "an RFC 3339 time, as 2026-12-01T09:30:00Z"

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d.*")


def _read_time(value: Any) -> Any:  # noqa: ANN401 - whatever was sent
    """Leave times to pydantic, but for what it would read as something else."""
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        message = "it is not a time with a date, hours and minutes"
        raise refused("not_a_time", message, accepted=TIME_ACCEPTED)
    # In a query a plus that was not escaped arrives as a space.
    return value[:11] + value[11:].replace(" ", "+")


def _in_utc(value: dt.datetime) -> dt.datetime:
    try:
        return value.astimezone(dt.UTC)
    except OverflowError as error:
        message = "it lies beyond the years 1 to 9999"
        raise refused("time_out_of_range", message, accepted=TIME_ACCEPTED) from error


Time = Annotated[AwareDatetime, BeforeValidator(_read_time), AfterValidator(_in_utc)]

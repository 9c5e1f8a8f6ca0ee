"""Bodies: from bytes to a shape, or to a problem that says what is wrong.

JSON is read by orjson: strict about numbers, Unicode and depth, and fast. Two things it lets pass
are refused here, since readers disagree on them (RFC 7493): a name that comes twice, of which most
take the second and some the first, and whole numbers of more than 64 bits, which would lose digits.
"""

import json
import re

import orjson
from fastapi import Request
from pydantic import BaseModel

from app.api.limits import measure
from app.api.refusals import MalformedJson, UnsupportedMediaType
from app.api.validation import validated
from app.core.errors import Fault, InvalidRequest
from app.core.faults import DEPTH_MAX, INTEGER_MAX, INTEGER_MIN, shown
from app.core.json_value import JsonValue

JSON_ACCEPTED = "application/json"
DOCUMENT_ACCEPTED = "application/json or application/yaml"

_UNSAID = frozenset({"", "application/x-www-form-urlencoded", "application/octet-stream"})
"""What clients say of a file if nobody tells them: curl's form type, and "some bytes"."""

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_NAME = re.compile(rb'"[ \t\n\r]*:')


async def read_body[ShapeT: BaseModel](request: Request, shape: type[ShapeT]) -> ShapeT:
    """The JSON body as a shape.

    Raises:
        UnsupportedMediaType: it is not announced as JSON. (A page of another site could send it
            unasked if it were not.)
        MalformedJson: it is none.
        InvalidRequest: it has other fields or values; with every fault.
    """
    raw = await request.body()
    content_type = request.headers.get("content-type")
    media_type = media_type_of(content_type)
    if raw and media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType(found=content_type, accepted=JSON_ACCEPTED)
    return validated(shape, read_json(raw) if raw else None)


async def read_document_body(request: Request) -> tuple[bytes, str | None]:
    """The bytes of a definition, and the content type if it says which notation they are in.

    Raises:
        UnsupportedMediaType: it is announced as neither JSON nor YAML.
    """
    content_type = request.headers.get("content-type")
    media_type = media_type_of(content_type)
    if media_type in _UNSAID:
        return await request.body(), None
    if not media_type.endswith(("json", "yaml")):
        raise UnsupportedMediaType(found=content_type, accepted=DOCUMENT_ACCEPTED)
    return await request.body(), content_type


def media_type_of(content_type: str | None) -> str:
    """The media type without its parameters, in lower case; empty if there is none."""
    return (content_type or "").partition(";")[0].strip().lower()


def read_json(raw: bytes) -> JsonValue:
    """The document that the bytes say.

    Raises:
        MalformedJson: they say none, or not one that all readers agree on.
        InvalidRequest: it lies too deep, or holds a number that cannot be kept.
    """
    try:
        document: JsonValue = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(str(error)) from error
    names, depth = measure(document)
    if depth > DEPTH_MAX:
        message = f"{depth} lists and objects lie within one another"
        raise InvalidRequest(
            [Fault(path="", message=message, accepted=f"at most {DEPTH_MAX} levels")]
        )
    # Cheap signs that may mislead, never the other way: a colon within a text is counted too.
    if _LONG_NUMBER.search(raw) is not None or len(_NAME.findall(raw)) > names:
        _EXACT.decode(raw.decode())
    return document


def _whole_number(text: str) -> int:
    # Of as many digits as would be slow to convert, too.
    if len(text) <= len(str(INTEGER_MIN)) and INTEGER_MIN <= int(text) <= INTEGER_MAX:
        return int(text)
    message = f"{text[:40]} has more than 64 bits and would lose digits"
    accepted = "the same digits as text, in quotes"
    raise InvalidRequest([Fault(path="", message=message, accepted=accepted)])


def _once(members: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    built = dict(members)
    if len(built) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in built if names.count(name) > 1)
        raise MalformedJson(f"the name {shown(twice)} comes twice in one object")
    return built


_EXACT = json.JSONDecoder(object_pairs_hook=_once, parse_int=_whole_number)
"""A second, slower look that says what the first let pass."""

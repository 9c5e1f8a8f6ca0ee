"""What a tool's bytes say: from a transport's answer to a JSON value.

Tools are not asked to be tidy. JSON is recognised by parsing, whatever the content type claims;
what is not JSON is text, and what is neither is kept as an excerpt and marked unreadable. Nothing
here judges: a 200 that cannot be read is still a 200.
"""

import codecs
import contextlib

import orjson

from app.connectors.content_encoding import TooLarge, Undecodable, decode_content
from app.connectors.transport import TransportAnswer
from app.core.json_value import JsonValue
from app.core.observation import Answered

NESTING_MAX = 100
"""Arrays and objects within each other. Code that walks a body by recursion must survive it; what
tools mean to say needs a tenth of this."""

EXCERPT_CHARACTERS_MAX = 500

RETRY_AFTER_CHARACTERS_MAX = 100
"""A date takes 29; what follows is nonsense and need not be stored."""

_CHARSETS = {
    "ascii": "ascii",
    "big5": "big5",
    "cp1252": "cp1252",
    "euc-jp": "euc_jp",
    "euc-kr": "euc_kr",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "iso-8859-1": "iso8859_1",
    "iso-8859-15": "iso8859_15",
    "iso-8859-2": "iso8859_2",
    "koi8-r": "koi8_r",
    "latin1": "iso8859_1",
    "shift_jis": "shift_jis",
    "us-ascii": "ascii",
    "utf-16": "utf_16",
    "utf-16be": "utf_16_be",
    "utf-16le": "utf_16_le",
    "windows-1250": "cp1250",
    "windows-1251": "cp1251",
    "windows-1252": "cp1252",
}
"""Charset labels besides UTF-8, and Python's names for them. Named one by one: looking up a label
that a tool made up would import modules and fill caches, and some codecs take quadratic time."""

_WHITESPACE = b" \t\r\n"


def read_answer(answer: TransportAnswer, *, bytes_max: int) -> Answered:
    """What was answered; unreadable if the body is, or unfolds to, more than ``bytes_max``."""
    retry_after = _storable(answer.header("retry-after"))
    too_large = f"(more than {bytes_max} bytes)".encode()
    if not answer.is_whole:
        return _unreadable(answer.status, retry_after, too_large)
    try:
        body = decode_content(answer.body, _content_encodings(answer), bytes_max=bytes_max)
    except TooLarge:
        return _unreadable(answer.status, retry_after, too_large)
    except Undecodable:
        return _unreadable(answer.status, retry_after, answer.body)
    media_type, charset = _content_type(answer)
    text = body.removeprefix(codecs.BOM_UTF8)
    if not text.strip(_WHITESPACE):
        return Answered(status=answer.status, retry_after=retry_after, body_bytes=len(body))
    try:
        value = _decode(text, is_json=_is_json(media_type), charset=charset)
    except ValueError:
        return _unreadable(answer.status, retry_after, body)
    return Answered(status=answer.status, retry_after=retry_after, body=value, body_bytes=len(body))


def _decode(body: bytes, *, is_json: bool, charset: str | None) -> JsonValue:
    """The body's value; raises ``ValueError`` if it has none."""
    try:
        return _parse(body)
    except orjson.JSONDecodeError:
        text = body.decode(charset or "utf-8")
        if charset is not None:
            with contextlib.suppress(orjson.JSONDecodeError):
                return _parse(text.encode())  # RFC 8259 forbids it, and old servers do it
        if is_json:
            raise
        return text


def _parse(document: bytes) -> JsonValue:
    """Strict JSON: no NaN, no infinity, no lone surrogates; of equal keys the last one counts.

    Raises:
        orjson.JSONDecodeError: It is not JSON.
        ValueError: It nests deeper than ``NESTING_MAX``.
    """
    value: JsonValue = orjson.loads(document)
    openings = document.count(b"[") + document.count(b"{")
    if openings > NESTING_MAX and _is_nested_too_deep(value):
        raise ValueError("nested too deep")
    return value


def _is_nested_too_deep(value: JsonValue) -> bool:
    """Level by level, without recursion."""
    level = [value]
    for _ in range(NESTING_MAX + 1):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return False
        level = [
            item
            for container in containers
            for item in (container.values() if isinstance(container, dict) else container)
        ]
    return True


def _unreadable(status: int, retry_after: str | None, body: bytes) -> Answered:
    start = body[: EXCERPT_CHARACTERS_MAX * 4]  # a character takes four bytes at most
    return Answered(
        status=status,
        retry_after=retry_after,
        body=start.decode(errors="replace")[:EXCERPT_CHARACTERS_MAX],
        readable=False,
        body_bytes=len(body),
    )


def _content_type(answer: TransportAnswer) -> tuple[str, str | None]:
    """The media type in lower case, and the charset as Python names it, if not UTF-8."""
    media_type, *parameters = (answer.header("content-type") or "").lower().split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            return media_type.strip(), _CHARSETS.get(value.strip().strip("\"'"))
    return media_type.strip(), None


def _is_json(media_type: str) -> bool:
    return media_type == "application/json" or media_type.endswith("+json")


def _content_encodings(answer: TransportAnswer) -> str:
    """One value, though the header may come in several lines."""
    return ",".join(value for name, value in answer.headers if name == "content-encoding")


def _storable(header: str | None) -> str | None:
    """A header without the lone surrogates that stand for bytes that are not UTF-8."""
    if header is None:
        return None
    return header[:RETRY_AFTER_CHARACTERS_MAX].encode(errors="replace").decode()

"""Text with ``${{ }}`` in it: takes it apart, and puts values in so that they stay values.

A value never becomes syntax of its place. Nothing that a person or a tool says can choose another
host, leave its path segment, or add a parameter or a header.

A URL begins with a literal scheme, host and port, or with an expression that gives all three, its
*base*. Only a base is inserted as it is, once it is known to be one; all other values are
percent-encoded. A URL that is one expression, as a link that a tool gave, may have a query too.
Refused are values that would make a whole segment ``.`` or ``..``, which clients
resolve before they send, and empty ones, for ``DELETE /flights/`` is not ``DELETE /flights/F1``.
The characters are those of RFC 3986, and ``[ ]`` in a query.

A header value is visible ASCII, spaces and tabs: what RFC 9110 (5.5) calls safe, and what no two
clients write differently.
"""

import enum
import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from app.core.expressions.source import find_end
from app.core.expressions.values import Unfit
from app.core.json_value import JsonValue

PLACE_CHARACTERS_MAX = 8_000
"""Of a URL or a header value: what every server should take of a URL (RFC 9110, 4.1)."""

_PORT_MAX = 65_535
_EXACT_INT = 2**53
_OPENING = re.compile(r"\$?\$\{\{")
_NAME = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?"
_AUTHORITY = (
    rf"(?i:https?)://(?:{_NAME}|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{{1,5}}))?"
)
_PATH = r"(?P<path>(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?)"
_QUERY = r"(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\[\]-]|%[0-9A-Fa-f]{2})*)?"
_BEGINNING = re.compile(_AUTHORITY + "[/?]")
_BASE = re.compile(_AUTHORITY + _PATH)
_URL = re.compile(_AUTHORITY + _PATH + _QUERY)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_NOT_IN_HEADER = re.compile(r"[^\t -~]")

_BASE_ACCEPTED = "an absolute http or https URL without user, query and fragment"
_URL_ACCEPTED = "an absolute http or https URL, percent-encoded, without user and fragment"
_HEADER_ACCEPTED = "visible ASCII characters, spaces and tabs"


class Encoding(enum.Enum):
    """What a string is, so what values in it must be encoded for."""

    TEXT = enum.auto()
    URL = enum.auto()
    HEADER = enum.auto()


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of an expression in a text."""

    source: str


type Part = str | Hole


def split(text: str) -> tuple[list[Part], str | None]:
    """Take a text apart into literals and holes; no two literals are neighbours.

    Returns:
        The parts, and what follows the first ``${{`` that is not closed; None if all are.
    """
    parts: list[Part] = []
    literal, position = "", 0
    while (opening := _OPENING.search(text, position)) is not None:
        literal += text[position : opening.start()]
        position = opening.end()
        if opening[0].startswith("$$"):
            literal += "${{"
            continue
        end = find_end(text, position)
        if end is None:
            return parts, text[position:]
        if literal:
            parts.append(literal)
        parts.append(Hole(text[position:end].strip()))
        literal, position = "", end + len("}}")
    literal += text[position:]
    if literal:
        parts.append(literal)
    return parts, None


def find_fault(parts: Sequence[Part], encoding: Encoding) -> tuple[str, str] | None:
    """Find what is wrong with a text for its place, whatever the values will be.

    Returns:
        What is wrong, and what would be right; None if nothing is.
    """
    match encoding:
        case Encoding.TEXT:
            return None
        case Encoding.HEADER:
            if any(isinstance(part, str) and _NOT_IN_HEADER.search(part) for part in parts):
                return "the header has characters that cannot be sent", _HEADER_ACCEPTED
            return None
        case Encoding.URL:
            return _find_url_fault(parts)


class UrlPart(enum.Enum):
    """Which part of a URL a value is."""

    WHOLE = enum.auto()
    BASE = enum.auto()
    COMPONENT = enum.auto()

    @classmethod
    def of(cls, parts: Sequence[Part], *, is_first: bool) -> "UrlPart":
        """The part that a value is of a text; ``is_first`` if no value comes before it."""
        if not is_first or not isinstance(parts[0], Hole):
            return cls.COMPONENT
        return cls.WHOLE if len(parts) == 1 else cls.BASE


def encode_value(value: JsonValue, encoding: Encoding, *, url_part: UrlPart) -> str:
    """Make of a value the text that stands for it.

    Args:
        value: what the expression gave; see ``as_text``.
        encoding: what the place needs.
        url_part: what of a URL the place is; means nothing elsewhere.

    Raises:
        Unfit: it cannot stand there.
    """
    text = as_text(value)
    match encoding:
        case Encoding.TEXT:
            return text
        case Encoding.HEADER:
            if _NOT_IN_HEADER.search(text):
                raise Unfit(f"it has characters that no header may have, only {_HEADER_ACCEPTED}")
            return text
        case Encoding.URL if url_part is UrlPart.WHOLE:
            if _URL.fullmatch(text) is None:
                raise Unfit(f"it is the URL, so it must be {_URL_ACCEPTED}")
            return text
        case Encoding.URL if url_part is UrlPart.BASE:
            base = _BASE.fullmatch(text)
            if base is None or int(base["port"] or 0) > _PORT_MAX:
                raise Unfit(f"it begins the URL, so it must be {_BASE_ACCEPTED}")
            return text
        case Encoding.URL:
            if not text:
                raise Unfit("it is empty, and a URL would then name something else")
            if _CONTROL.search(text):
                raise Unfit("it has control characters, which no URL may have")
            return quote(text, safe="")


def as_text(value: JsonValue) -> str:
    """Write a value as text: strings as they are, all else as compact JSON with sorted keys.

    A number without a fraction has none in text (``3``, not ``3.0``): so do CEL and JavaScript.

    Raises:
        Unfit: it is null.
    """
    match value:
        case None:
            raise Unfit("it is null, and null cannot stand in text")
        case str():
            return value
        case float() if value.is_integer() and abs(value) <= _EXACT_INT:
            return str(int(value))
        case _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def fill(parts: Sequence[Part], texts: Sequence[str], encoding: Encoding) -> str:
    """Put encoded values into the holes, in order.

    Raises:
        Unfit: the whole is too long, or is no URL that could be called.
    """
    following = iter(texts)
    pieces = [part if isinstance(part, str) else next(following) for part in parts]
    if encoding is Encoding.TEXT:
        return "".join(pieces)
    if encoding is Encoding.URL and pieces[1:] and pieces[1].startswith("/"):
        pieces[0] = pieces[0].removesuffix("/")  # A base may end with the slash that follows it.
    whole = "".join(pieces)
    if len(whole) > PLACE_CHARACTERS_MAX:
        raise Unfit(f"the whole has more than {PLACE_CHARACTERS_MAX:,} characters")
    if encoding is Encoding.URL and (reason := _find_wrong(whole)) is not None:
        raise Unfit(reason)
    return whole


def _find_url_fault(parts: Sequence[Part]) -> tuple[str, str] | None:
    # An `x` for each value: it never completes an escape such as %4 or a segment of dots.
    pieces = [part if isinstance(part, str) else "x" for part in parts] or [""]
    first = parts[0] if parts else ""
    if isinstance(first, Hole):
        pieces[0] = "http://x"
        after = parts[1] if len(parts) > 1 else "/"
        if isinstance(after, Hole) or after[0] not in "/?":
            message = "what follows the expression at the beginning could change host or port"
            return message, "/ or ? after it: it gives scheme, host and port"
    elif len(parts) > 1 and _BEGINNING.match(first) is None:
        message = "an expression could change scheme, host or port"
        accepted = "http(s)://host/ before it, or one expression at the beginning for all of that"
        return message, accepted
    reason = _find_wrong("".join(pieces))
    return None if reason is None else (reason, _URL_ACCEPTED)


def _find_wrong(url: str) -> str | None:
    whole = _URL.fullmatch(url)
    if whole is None or int(whole["port"] or 0) > _PORT_MAX or not _is_address(whole["address"]):
        return "this is not a URL that could be called"
    segments = whole["path"].lower().replace("%2e", ".").split("/")
    if "." in segments or ".." in segments:
        return "a segment of the path would be '.' or '..', which changes the path"
    return None


def _is_address(address: str | None) -> bool:
    """Whether what stands in brackets, if anything does, is an address."""
    try:
        return address is None or bool(ipaddress.IPv6Address(address))
    except ValueError:
        return False

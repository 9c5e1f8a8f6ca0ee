"""Undo an answer's ``Content-Encoding``, within a bound.

Our own rather than the HTTP library's, for two reasons. A bomb stops at the limit, whatever it
would unfold to. And an answer whose encoding is broken is still a complete answer with a definite
status: a refusal stays a refusal.
"""

import zlib

ACCEPTED = "gzip, deflate"
"""The value of ``Accept-Encoding`` that goes with this module."""

LAYERS_MAX = 2
"""Encodings applied on top of each other; nobody sends more than one on purpose."""

MEMBERS_MAX = 8
"""Members of one gzip body (RFC 1952, section 2.2). Each costs a copy of what follows it."""

_GZIP = 16 + zlib.MAX_WBITS
_ZLIB = zlib.MAX_WBITS
_RAW_DEFLATE = -zlib.MAX_WBITS


class TooLarge(Exception):
    """The decoded body grows past the limit."""


class Undecodable(Exception):
    """The encoding is unknown, or the body does not follow it."""


def decode_content(body: bytes, encodings: str, *, bytes_max: int) -> bytes:
    """The body as the tool meant it.

    Args:
        body: as received.
        encodings: the value of ``Content-Encoding``: names with commas, applied in this order.
        bytes_max: of the result, and of each step on the way.

    Raises:
        TooLarge: The body unfolds to more than ``bytes_max``.
        Undecodable: It cannot be decoded.
    """
    if not body:
        return body  # as HEAD and 204 have it, whatever the header says
    layers = [name for part in encodings.split(",") if (name := part.strip().lower())]
    if len(layers) > LAYERS_MAX:
        raise Undecodable
    for name in reversed(layers):
        match name:
            case "identity":
                pass
            case "gzip" | "x-gzip":
                body = _inflate(body, _GZIP, bytes_max=bytes_max)
            case "deflate":
                window = _ZLIB if _has_zlib_header(body) else _RAW_DEFLATE
                body = _inflate(body, window, bytes_max=bytes_max)
            case _:
                raise Undecodable
    return body


def _inflate(body: bytes, window: int, *, bytes_max: int) -> bytes:
    decoded = b""
    for _ in range(MEMBERS_MAX):
        member = zlib.decompressobj(window)
        try:
            decoded += member.decompress(body, bytes_max + 1 - len(decoded))
        except zlib.error as error:
            raise Undecodable from error
        if len(decoded) > bytes_max:
            raise TooLarge
        if not member.eof:
            raise Undecodable
        body = member.unused_data
        if not body:
            return decoded
    raise Undecodable


def _has_zlib_header(body: bytes) -> bool:
    """Some servers send ``deflate`` without the wrapper that RFC 9110 asks for (RFC 1950)."""
    return len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0

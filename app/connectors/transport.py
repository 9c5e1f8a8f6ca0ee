"""Bytes to a tool and back, over whichever HTTP library.

A ``Transport`` knows sockets, not sagas. What it promises is written here, is what the conformance
suite (``tests/connectors``) checks, and is what a second library would have to keep.
"""

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from app.core.observation import BrokenOff, NotSent

URL_CHARACTERS_MAX = 8192
"""Servers commonly refuse more: 8 KiB is nginx's and Apache's default for the request line."""

HEADER_BYTES_MAX = 16 * 1024
"""One header, name and value: twice nginx's default, so that long tokens pass."""

HEADERS_BYTES_MAX = 64 * 1024
"""All headers of a request together."""

REQUEST_BYTES_MAX = 1024 * 1024
"""The request's body (DESIGN.md, section 8)."""

ANSWER_BYTES_MAX = 1024 * 1024
"""The answer's body, as it came and after decompression (DESIGN.md, section 8)."""

RESERVED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Lower-case names of headers that frame or route a message (RFC 9110, section 7.6.1). The library
writes them; one more, from a definition, would smuggle a second request or reach another host."""

_METHOD = re.compile(r"[A-Z]{1,20}")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.6.2
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_URL = re.compile(r"https?://[^/?#@]+([/?#].*)?", re.DOTALL)
_NOT_IN_URL = re.compile(r"[^!-~]|[\"<>\\^`{|}]")  # RFC 3986 has them percent-encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportRequest:
    """One request, complete but for ``Host`` and ``Content-Length``.

    Attributes:
        method: upper case.
        url: absolute, percent-encoded; sent as it is.
        headers: (name, value) pairs, sent in this order as UTF-8; nothing is added but what frames
            the message.
        body: the exact bytes; None for no body.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportAnswer:
    """One answer.

    Attributes:
        status: 100 to 599; never an interim one.
        headers: (name, value) pairs in the order received; names in lower case.
        body: as it came over the wire, ``Content-Encoding`` still applied.
        is_whole: False if the body was longer than is taken; it is then empty.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    is_whole: bool = True

    def header(self, name: str) -> str | None:
        """The first value of the header ``name`` (lower case), or None."""
        for given, value in self.headers:
            if given == name:
                return value
        return None


class Transport(Protocol):
    """Exchanges one request for one answer.

    * Nothing is sent twice, no redirect followed, no proxy, netrc or cookie used.
    * Connections are limited in all and per host; a slow host takes none from another.
    * The answer is limited in bytes, headers included, and the exchange in time, as a whole.
    * Once it has ended without an answer, no byte of the request leaves any more.
    """

    async def exchange(
        self, request: TransportRequest, *, within: dt.timedelta, expired: Callable[[], bool]
    ) -> TransportAnswer | NotSent | BrokenOff:
        """Send ``request`` and read the whole answer.

        Args:
            request: what to send.
            within: limits the exchange from the moment it has a connection slot; waiting for the
                slot is limited by as much again.
            expired: asked while waiting for a slot, and right before the first byte.
        """
        ...

    async def close(self) -> None:
        """Close all connections; no exchange may be running, and none may follow."""
        ...


def find_fault(request: TransportRequest) -> str | None:
    """Why this request must not be sent over any transport, or None.

    The message never quotes a header's value, which may be a secret.
    """
    if _METHOD.fullmatch(request.method) is None or request.method == "CONNECT":
        return f"the method {request.method[:20]!r} is not supported"
    if len(request.url) > URL_CHARACTERS_MAX:
        return f"the URL is longer than {URL_CHARACTERS_MAX} characters"
    if (wrong := _NOT_IN_URL.search(request.url)) is not None:
        return f"the URL holds {wrong.group()!r}, which must be percent-encoded"
    if _URL.fullmatch(request.url) is None:
        return "the URL must be absolute, http or https, and hold no user name or password"
    if request.body is not None and len(request.body) > REQUEST_BYTES_MAX:
        return f"the body is longer than {REQUEST_BYTES_MAX} bytes"
    return _find_header_fault(request.headers)


def _find_header_fault(headers: tuple[tuple[str, str], ...]) -> str | None:
    total = 0
    for name, value in headers:
        if (fault := _find_name_fault(name)) is not None:
            return fault
        if _CONTROL.search(value) is not None:
            return f"the header {name} holds a control character"
        try:
            size = len(name) + (len(value) if value.isascii() else len(value.encode()))
        except UnicodeEncodeError:
            return f"the header {name} holds half a character (a lone surrogate)"
        if size > HEADER_BYTES_MAX:
            return f"the header {name[:100]} is longer than {HEADER_BYTES_MAX} bytes"
        total += size
    if total > HEADERS_BYTES_MAX:
        return f"the headers together are longer than {HEADERS_BYTES_MAX} bytes"
    return None


@lru_cache(maxsize=1000)  # names repeat from call to call
def _find_name_fault(name: str) -> str | None:
    if _TOKEN.fullmatch(name) is None:
        return f"{name[:100]!r} is not a header name"
    if name.lower() in RESERVED_HEADERS:
        return f"the header {name} is not the definition's to set"
    return None

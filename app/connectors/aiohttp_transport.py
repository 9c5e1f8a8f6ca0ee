"""The transport over aiohttp.

aiohttp is made for browsing: it retries, follows, remembers, and names failures by where they
surfaced, not by whether bytes had left. Here all of that is off, and the one thing that an exchange
must know, whether its first byte may have left, comes from ``aiohttp_gate``. What goes wrong before
it is ``NotSent``, what goes wrong after it ``BrokenOff``. A kept-alive connection that the peer
closed, unseen by us, just before we wrote counts as broken off: its reset looks like any other.

Nothing may leave after an exchange broke off. Buffers outlive it: asyncio goes on writing what it
holds when a connection is closed, and the kernel retransmits for minutes. So the connection is
*aborted*, and sockets have a linger time of zero: to close one discards what was not acknowledged,
also when it is the kernel that closes it, for a killed process.
"""

import asyncio
import datetime as dt
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Final

import aiohttp
from aiohttp.client_reqrep import ClientResponse
from aiohttp.connector import AddrInfoType
from aiohttp.http_exceptions import LineTooLong
from yarl import URL

from app.connectors.aiohttp_gate import GatedRequest, Passage, Stale, Withheld
from app.connectors.slots import Slots
from app.connectors.transport import (
    ANSWER_BYTES_MAX,
    TransportAnswer,
    TransportRequest,
    find_fault,
)
from app.core.observation import BrokenOff, BrokenOffReason, NotSent, NotSentReason

CONNECTIONS_MAX = 500
"""Leaves room below the usual limit of 1024 open files, for idle connections and the database."""

CONNECTIONS_PER_HOST_MAX = 100

IDLE_MAX = dt.timedelta(seconds=4)
"""Below the five seconds after which Node and uvicorn close idle connections: who closes first is
never surprised by the other, and such a surprise costs an unknown outcome."""

ANSWER_HEADER_BYTES_MAX = 8190
"""One line of an answer's head; aiohttp's default, and Apache's."""

ANSWER_HEADERS_MAX = 128
"""Lines of an answer's head; aiohttp's default."""

MESSAGE_CHARACTERS_MAX = 300

_WRITTEN_BY_CONNECTOR: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_NO_TIME_LIMITS: Final = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None)
_DISCARD_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # struct linger: on, zero seconds

type _Origin = tuple[str, str | None, int | None]


class AiohttpTransport:
    """A ``Transport``; make it inside the running event loop that it will serve.

    Args:
        answer_bytes_max: of an answer's body, as it comes.
        connections_max: exchanges at once, in all.
        connections_per_host_max: exchanges at once with one scheme, host and port.
        idle_max: how long an unused connection is kept.
        ssl_context: for ``https``; None is aiohttp's default, which verifies.
    """

    def __init__(
        self,
        *,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_host_max: int = CONNECTIONS_PER_HOST_MAX,
        idle_max: dt.timedelta = IDLE_MAX,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._answer_bytes_max = answer_bytes_max
        self._slots = Slots[_Origin](limit=connections_max, limit_per_host=connections_per_host_max)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # `Slots` counts
                keepalive_timeout=idle_max.total_seconds(),
                socket_factory=_make_socket,
                ssl=True if ssl_context is None else ssl_context,
            ),
            auto_decompress=False,  # `content_encoding` does it, within a bound
            cookie_jar=aiohttp.DummyCookieJar(),
            max_field_size=ANSWER_HEADER_BYTES_MAX,
            max_headers=ANSWER_HEADERS_MAX,
            max_line_size=ANSWER_HEADER_BYTES_MAX,
            request_class=GatedRequest,
            skip_auto_headers=_WRITTEN_BY_CONNECTOR,
            timeout=_NO_TIME_LIMITS,  # ours instead: aiohttp's are rounded up to whole seconds
            trust_env=False,
        )
        # The only switch there is; aiohttp's own test client sets it. `Passage` is the guarantee.
        self._session._retry_connection = False  # noqa: SLF001

    async def exchange(
        self, request: TransportRequest, *, within: dt.timedelta, expired: Callable[[], bool]
    ) -> TransportAnswer | NotSent | BrokenOff:
        """Send ``request`` and read the whole answer; see ``Transport``."""
        fault = find_fault(request)
        if fault is not None:
            return _forbidden(fault)
        try:
            url = URL(request.url, encoded=True)
            origin = (url.scheme, url.raw_host, url.port)
        except ValueError as error:
            return _forbidden(f"the URL is not valid: {error}")
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + within.total_seconds()
        if not await self._slots.enter(
            origin, give_up=lambda: expired() or loop.time() >= give_up_at
        ):
            message = f"no connection to {_name(url)} became free in time"
            return NotSent(reason=NotSentReason.EXPIRED, message=message)
        try:
            return await self._pass(request, url, within=within, expired=expired)
        finally:
            self._slots.leave(origin)

    async def close(self) -> None:
        """Close all connections; see ``Transport``."""
        await self._session.close()

    async def _pass(
        self,
        request: TransportRequest,
        url: URL,
        *,
        within: dt.timedelta,
        expired: Callable[[], bool],
    ) -> TransportAnswer | NotSent | BrokenOff:
        """Exchange over the first connection that is of use: nothing was sent on the others.

        A tool may close its idle connections at any time; that is no failure of the attempt.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + within.total_seconds()
        while True:
            left = dt.timedelta(seconds=max(0.0, give_up_at - loop.time()))
            try:
                return await self._exchange(request, url, within=left, passage=Passage(expired))
            except Stale as stale:
                if loop.time() >= give_up_at:
                    return NotSent(reason=stale.reason, message=f"{_name(url)}: {stale}")

    async def _exchange(
        self, request: TransportRequest, url: URL, *, within: dt.timedelta, passage: Passage
    ) -> TransportAnswer | NotSent | BrokenOff:
        is_complete = False
        deadline = asyncio.timeout(within.total_seconds())
        try:
            async with deadline:
                response = await self._session.request(
                    request.method,
                    url,
                    headers=request.headers,
                    data=request.body,
                    allow_redirects=False,
                    middlewares=(passage,),
                )
                answer = await self._read(response)
            is_complete = answer.is_whole
            return answer
        except Stale:
            raise
        except Withheld as withheld:
            return NotSent(reason=withheld.reason, message=f"{_name(url)}: {withheld}")
        except (aiohttp.ClientError, OSError) as error:
            if passage.has_begun:
                return _broken_off(error, timed_out=deadline.expired())
            return _not_sent(error, url, timed_out=deadline.expired())
        except UnicodeError as error:  # a host name that the resolver cannot encode
            if passage.has_begun:
                raise
            return _forbidden(f"the URL is not valid: {error}")
        finally:
            if not is_complete:
                passage.abort()

    async def _read(self, response: ClientResponse) -> TransportAnswer:
        """The answer; its connection goes back into the pool as the last byte arrives.

        Of a body beyond the limit nothing is kept, but its status counts all the same.
        """
        try:
            if not 200 <= response.status <= 599:
                raise aiohttp.ClientPayloadError(f"it has the status {response.status}")
            chunks: list[bytes] = []
            size = 0
            while chunk := await response.content.readany():
                size += len(chunk)
                if size > self._answer_bytes_max:
                    chunks.clear()
                    break
                chunks.append(chunk)
        finally:
            response.close()
        return TransportAnswer(
            status=response.status,
            headers=tuple((name.lower(), value) for name, value in response.headers.items()),
            body=b"".join(chunks),
            is_whole=size <= self._answer_bytes_max,
        )


def _make_socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD_ON_CLOSE)
    return made


def _forbidden(message: str) -> NotSent:
    return NotSent(reason=NotSentReason.FORBIDDEN, message=message[:MESSAGE_CHARACTERS_MAX])


def _not_sent(error: aiohttp.ClientError | OSError, url: URL, *, timed_out: bool) -> NotSent:
    if isinstance(error, aiohttp.InvalidURL):
        return _forbidden(f"the URL is not valid: {error.description or 'it has no host'}")
    if timed_out:
        why = "no connection in time"
    elif isinstance(error, aiohttp.ClientConnectorError):
        why = str(error.os_error)
    else:
        why = f"{type(error).__name__}: {error}"
    message = f"cannot reach {_name(url)}: {why}"
    return NotSent(reason=NotSentReason.UNREACHABLE, message=message[:MESSAGE_CHARACTERS_MAX])


def _broken_off(error: aiohttp.ClientError | OSError, *, timed_out: bool) -> BrokenOff:
    reason = BrokenOffReason.RESET
    if timed_out:
        reason = BrokenOffReason.TIMED_OUT
        message = "no complete answer in time"
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        message = "the tool closed the connection without an answer"
    elif isinstance(error, aiohttp.ClientResponseError):
        if _has_cause(error, LineTooLong) or "Too many headers" in error.message:
            reason = BrokenOffReason.OVERSIZE
        message = f"the answer is not HTTP that we take: {error.message}"
    elif isinstance(error, aiohttp.ClientPayloadError):
        message = f"the answer broke off: {error}"
    else:
        message = f"the connection broke: {error}"
    return BrokenOff(reason=reason, message=message[:MESSAGE_CHARACTERS_MAX])


def _has_cause(error: BaseException, kind: type[BaseException]) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__
    return cause is not None


def _name(url: URL) -> str:
    """Scheme, host and port: neither path nor query, which may hold secrets."""
    return str(url.origin())

"""The one moment that matters, in aiohttp: the first byte of a request.

aiohttp calls ``ClientRequest.send`` with a connection in hand, and from there to its first write to
the socket nothing is awaited. So there, and only there, it is decided whether a request leaves:

* ``expired()`` is asked;
* a connection that is dead, or busy, or on which something came unasked, is refused;
* a second pass of the same exchange is refused, so that aiohttp's own retry can never send twice.

Whatever goes wrong before that point proves that nothing was sent; after it, nothing is proved.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Final, override

import aiohttp
from aiohttp.client_middlewares import ClientHandlerType
from aiohttp.client_reqrep import ClientRequest, ClientResponse
from aiohttp.connector import Connection

from app.core.observation import NotSentReason

_PEER_CLOSED: Final[int] = getattr(select, "POLLRDHUP", 0)  # Linux alone has it


class Withheld(Exception):
    """The request was not sent.

    Attributes:
        reason: why.
    """

    def __init__(self, reason: NotSentReason, message: str) -> None:
        super().__init__(f"{message} before anything was sent")
        self.reason = reason


class Stale(Withheld):
    """The connection had been lying idle, and is of no use any more; another one may be."""

    def __init__(self, message: str) -> None:
        super().__init__(NotSentReason.UNREACHABLE, message)


class Passage:
    """The way of one request through aiohttp: a middleware that ties it to its ``GatedRequest``.

    Attributes:
        has_begun: the first byte may have left.
    """

    def __init__(self, expired: Callable[[], bool]) -> None:
        self.has_begun = False
        self._expired = expired
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Called by aiohttp with the request it made, before it looks for a connection."""
        assert isinstance(request, GatedRequest)
        request.passage = self
        return await handler(request)

    def begin(self, connection: Connection) -> None:
        """The gate: to return lets the first byte leave, to raise proves that none did.

        Raises:
            Withheld: Nothing was sent. aiohttp closes the connection.
            aiohttp.ClientConnectionError: This is a second time; the first may have been read.
        """
        if self.has_begun:
            raise aiohttp.ClientConnectionError("aiohttp tried to send a second time")
        protocol = connection.protocol
        assert protocol is not None
        transport = protocol.transport
        if transport is None or transport.is_closing():
            raise Stale("the connection was closed")
        if protocol.should_close or _has_unseen_input(transport):
            # An answer that came unasked would be taken for the answer to this request.
            raise Stale("the connection was closed or spoken on")
        if protocol.writing_paused:
            # The tool answered before it had read all of the request before this one, which would
            # leave behind the rest of it: later than it was asked whether it may.
            raise Withheld(NotSentReason.UNREACHABLE, "the connection was still busy")
        if self._expired():
            raise Withheld(NotSentReason.EXPIRED, "the time to send had passed")
        transport.set_write_buffer_limits(high=0)  # `writing_paused` then means: not all has left
        self.has_begun = True
        self._connection = connection
        self._transport = transport

    def abort(self) -> None:
        """Let nothing more leave: drop the connection and what is still to be written on it.

        Unless it is another exchange's by now: a connection goes back into the pool with the last
        byte of the answer, and our task may be cancelled before it runs again.
        """
        if self._connection is None or self._transport is None:
            return
        if self._connection.protocol is not None or self._transport.is_closing():
            self._transport.abort()
        self._connection.close()


class GatedRequest(ClientRequest):
    """Asks its ``Passage`` right before the first byte."""

    passage: Passage | None = None

    @override
    async def send(self, conn: Connection) -> ClientResponse:
        assert self.passage is not None
        self.passage.begin(conn)
        return await super().send(conn)


def _has_unseen_input(transport: asyncio.Transport) -> bool:
    """Whether the peer closed, or said something, that the event loop has not come to yet.

    One system call. On TLS only closing counts: session tickets come unasked and mean nothing.
    """
    wanted = _PEER_CLOSED
    if transport.get_extra_info("ssl_object") is None:
        wanted |= select.POLLIN
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), wanted)
    return bool(poll.poll(0))

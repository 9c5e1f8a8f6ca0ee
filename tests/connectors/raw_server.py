"""A server on loopback that does what it is told, byte by byte.

A test writes a coroutine that plays the tool's part on one connection; ``serving`` runs it for each
connection and remembers what arrived.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

CERTIFICATE = Path(__file__).with_name("localhost.pem")
"""Self-signed, for localhost and 127.0.0.1, with its key: good for tests alone."""


class Peer:
    """The server's end of one connection."""

    def __init__(
        self, server: "RawServer", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer

    async def read_request(self) -> bytes:
        """One request, head and body; remembered in ``server.requests``."""
        request = await self.reader.readuntil(b"\r\n\r\n")
        for line in request.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                request += await self.reader.readexactly(int(line.partition(b":")[2]))
        self.server.requests.append(request)
        return request

    async def send(self, data: bytes) -> None:
        """Write and flush."""
        self.writer.write(data)
        await self.writer.drain()

    def send_now(self, data: bytes) -> None:
        """Put bytes on the wire without giving the event loop a turn."""
        with self._socket() as sock:
            assert sock.send(data) == len(data)

    def shut_down_now(self) -> None:
        """Put the end of the stream on the wire without giving the event loop a turn."""
        with self._socket() as sock:
            sock.shutdown(socket.SHUT_RDWR)

    def half_close(self) -> None:
        """Send the end of the stream, and go on reading."""
        self.writer.write_eof()

    def reset(self) -> None:
        """Close with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_until_gone(self) -> bytes:
        """Wait until the client closed or reset; returns what it sent until then."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while chunk := await self.reader.read(65536):
                received += chunk
        return received

    def _socket(self) -> socket.socket:
        fileno = self.writer.get_extra_info("socket").fileno()
        return socket.socket(fileno=os.dup(fileno))


type Behaviour = Callable[[Peer], Awaitable[None]]


class RawServer:
    """What ``serving`` yields.

    Attributes:
        port: on 127.0.0.1.
        connections: how many were accepted so far.
        requests: those read with ``Peer.read_request``, in order.
    """

    def __init__(self, *, port: int, scheme: str) -> None:
        self.port = port
        self.scheme = scheme
        self.connections = 0
        self.requests: list[bytes] = []

    def url(self, path: str = "/") -> str:
        """An address on this server."""
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"


@contextlib.asynccontextmanager
async def serving(
    behaviour: Behaviour, *, tls: bool = False, receive_buffer_bytes: int | None = None
) -> AsyncIterator[RawServer]:
    """Run ``behaviour`` for each connection; what it still does at the end is cancelled."""
    running: set[asyncio.Task[None]] = set()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if receive_buffer_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        server = RawServer(port=listener.getsockname()[1], scheme="https" if tls else "http")

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            running.add(task)
            server.connections += 1
            try:
                await behaviour(Peer(server, reader, writer))
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            except asyncio.CancelledError:  # ours, below; asyncio's streams would report it
                pass
            finally:
                running.discard(task)
                writer.close()
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    await writer.wait_closed()

        listening = await asyncio.start_server(serve, sock=listener, ssl=_server_context(tls=tls))
        try:
            yield server
        finally:
            listening.close()
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(tuple(running))
            await listening.wait_closed()


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port of 127.0.0.1 that neither accepts nor refuses: the queue of its listener is full."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield listener.getsockname()[1]


def answer(body: bytes = b"", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A well-formed answer."""
    head = [b"HTTP/1.1 " + status, *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def answering(*answers: bytes) -> Behaviour:
    """Answer one request after the other on each connection; the last answer repeats."""

    async def behave(peer: Peer) -> None:
        remaining = list(answers)
        while True:
            await peer.read_request()
            await peer.send(remaining.pop(0) if len(remaining) > 1 else remaining[0])

    return behave


async def closing_the_second_time(peer: Peer) -> None:
    """Keep the connection after the first request; close it, unanswered, after the second."""
    await peer.read_request()
    await peer.send(answer())
    await peer.read_request()


def client_context() -> ssl.SSLContext:
    """Trusts ``CERTIFICATE``."""
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def _server_context(*, tls: bool) -> ssl.SSLContext | None:
    if not tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context

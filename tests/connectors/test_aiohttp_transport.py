"""What the transport over aiohttp must get right inside aiohttp, beyond what every one must."""

import asyncio
import gc
import select
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp.client_reqrep import ClientRequest, ClientResponse
from aiohttp.connector import AddrInfoType, Connection

from app.connectors import AiohttpTransport, HttpConnector, aiohttp_transport
from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    NotSent,
    NotSentReason,
    Observation,
)
from tests.connectors.calls import a_call, a_get, a_turn
from tests.connectors.raw_server import Peer, answer, closing_the_second_time, serving
from tests.waiting import wait_until

MEBIBYTE = 1024 * 1024


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    """With the default limits."""
    made = AiohttpTransport()
    yield made
    await made.close()


@pytest.fixture
async def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes little of a request: the rest waits in the event loop's buffer."""
    make_socket = aiohttp_transport._make_socket

    def make_small(address: AddrInfoType) -> socket.socket:
        made = make_socket(address)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return made

    monkeypatch.setattr(aiohttp_transport, "_make_socket", make_small)


async def test_gate_alone_stops_a_resend(transport: AiohttpTransport) -> None:
    """Even with aiohttp's retry switched on, what left once does not leave twice."""
    connector = HttpConnector(transport)
    transport._session._retry_connection = True

    async with serving(closing_the_second_time) as server:
        await connector.attempt(a_get(server.url()))
        second = await connector.attempt(a_get(server.url()))

    assert isinstance(second, BrokenOff)
    assert len(server.requests) == 2


@pytest.mark.parametrize("body", [None, "x", "x" * 100_000])
async def test_first_byte_leaves_in_the_turn_of_the_question(
    monkeypatch: pytest.MonkeyPatch, transport: AiohttpTransport, body: str | None
) -> None:
    """Between asking whether it is too late and the first byte, the event loop gets no turn."""
    connector = HttpConnector(transport)
    peers: list[Peer] = []
    has_arrived: list[bool] = []
    send = ClientRequest.send

    async def behave(peer: Peer) -> None:
        peers.append(peer)
        while True:
            await peer.read_request()
            await peer.send(answer())

    async def send_and_look(self: ClientRequest, conn: Connection) -> ClientResponse:
        response = await send(self, conn)
        poll = select.poll()
        poll.register(peers[0].writer.get_extra_info("socket").fileno(), select.POLLIN)
        has_arrived.append(bool(poll.poll(0)))
        return response

    async with serving(behave) as server:
        await connector.attempt(a_call(server.url()))
        monkeypatch.setattr(ClientRequest, "send", send_and_look)
        await connector.attempt(a_call(server.url(), body=body))

    assert has_arrived == [True]


@pytest.mark.usefixtures("small_buffers")
async def test_nothing_leaves_the_buffer_after_a_timeout(transport: AiohttpTransport) -> None:
    """What the event loop still had to write when the exchange ended is dropped."""
    connector = HttpConnector(transport)
    ended = asyncio.Event()
    received: list[int] = []

    async def behave(peer: Peer) -> None:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
        await ended.wait()
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        received.append(len(await peer.wait_until_gone()))

    async with serving(behave, receive_buffer_bytes=4096) as server:
        call = a_call(server.url(), body="x" * MEBIBYTE, timeout_seconds=0.3)
        observed = await connector.attempt(call)
        ended.set()
        await wait_until(lambda: received)

    assert isinstance(observed, BrokenOff)
    assert observed.reason is BrokenOffReason.TIMED_OUT
    assert received[0] < MEBIBYTE // 2


@pytest.mark.usefixtures("small_buffers")
async def test_connection_with_an_unwritten_rest_is_not_used_again(
    transport: AiohttpTransport,
) -> None:
    """After an early answer the next request does not queue behind the rest of the one before."""
    connector = HttpConnector(transport)

    async def behave(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
        await peer.send(answer(status=b"413 Too Large"))
        await asyncio.Event().wait()

    async with serving(behave, receive_buffer_bytes=4096) as server:
        call = a_call(server.url(), body="x" * 50_000, timeout_seconds=5)
        observed = [await connector.attempt(call) for _ in range(3)]

    assert isinstance(observed[0], Answered)
    assert isinstance(observed[1], NotSent)
    assert observed[1].reason is NotSentReason.UNREACHABLE
    assert isinstance(observed[2], Answered)


@pytest.mark.usefixtures("small_buffers")
async def test_unfinished_writing_ends_quietly(transport: AiohttpTransport) -> None:
    """An exchange that ends while the request is being written leaves no task behind."""
    connector = HttpConnector(transport)
    reports: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_debug(True)  # aiohttp then warns of responses that were not closed
    loop.set_exception_handler(lambda _, context: reports.append(context))
    before = asyncio.all_tasks()
    left: set[asyncio.Task[object]] = set()

    async def behave(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
        await peer.send(answer(b"x" * 8 * MEBIBYTE))
        await peer.wait_until_gone()

    async with serving(behave, receive_buffer_bytes=4096) as server:
        observed = await connector.attempt(a_call(server.url(), body="x" * MEBIBYTE))
        await a_turn()
        left = {task for task in asyncio.all_tasks() - before if "write_bytes" in repr(task)}
    gc.collect()

    assert isinstance(observed, Answered)
    assert not observed.readable
    assert left == set()
    assert reports == []


async def test_cancellation_as_the_answer_ends_spares_the_connection(
    transport: AiohttpTransport,
) -> None:
    """A connection that is back in the pool is not aborted: it may be another attempt's by now."""
    connector = HttpConnector(transport)
    pool = transport._session.connector
    assert pool is not None
    loop = asyncio.get_running_loop()
    head_is_out, let_go = asyncio.Event(), asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n")
        head_is_out.set()
        await let_go.wait()
        await peer.send(b"1")
        await peer.read_request()
        await peer.send(answer(b"2"))
        await peer.wait_until_gone()

    def cancel_in_between(attempt: asyncio.Task[Observation]) -> None:
        """Wait, turn by turn, for the one turn between the last byte and the attempt's end."""
        if pool._conns:
            attempt.cancel()
        elif not attempt.done():
            loop.call_soon(cancel_in_between, attempt)

    async with serving(behave) as server, asyncio.TaskGroup() as group:
        first = group.create_task(connector.attempt(a_call(server.url())))
        await head_is_out.wait()
        cancel_in_between(first)
        let_go.set()
        await asyncio.wait((first,))
        second = await connector.attempt(a_call(server.url()))

    assert first.cancelled()
    assert isinstance(second, Answered)
    assert second.body == 2
    assert server.connections == 1

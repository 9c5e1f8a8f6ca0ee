"""Cancelling an attempt ends it at once, and leaves nothing behind."""

import asyncio

import pytest

from app.connectors import Connector
from app.core.observation import Answered, Observation
from tests.connectors.calls import a_call, a_turn
from tests.connectors.conftest import MakeConnector
from tests.connectors.raw_server import Peer, answer, answering, black_hole, serving


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="before the answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[", id="within the body"),
    ],
)
async def test_cancellation_closes_the_connection(
    make_connector: MakeConnector, said: bytes
) -> None:
    """A cancelled attempt raises, drops its connection, and frees its slot."""
    connector = make_connector(connections_max=1)
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(said)
        arrived.set()
        await peer.wait_until_gone()
        gone.set()

    async with serving(behave) as server, serving(answering(answer())) as other:
        async with asyncio.TaskGroup() as group:
            attempt = group.create_task(connector.attempt(a_call(server.url())))
            await arrived.wait()
            attempt.cancel()
        await gone.wait()
        after = await connector.attempt(a_call(other.url()))

    assert attempt.cancelled()
    assert isinstance(after, Answered)


async def test_cancellation_while_connecting(make_connector: MakeConnector) -> None:
    """An attempt that is cancelled before it has a connection raises, and frees its slot."""
    connector = make_connector(connections_max=1)
    with black_hole() as port:
        async with asyncio.TaskGroup() as group:
            call = a_call(f"http://127.0.0.1:{port}/")
            attempt = group.create_task(connector.attempt(call))
            for _ in range(5):
                await a_turn()
            attempt.cancel()

    async with serving(answering(answer())) as server:
        after = await connector.attempt(a_call(server.url()))

    assert attempt.cancelled()
    assert isinstance(after, Answered)


async def test_cancellation_while_waiting_for_a_connection(make_connector: MakeConnector) -> None:
    """An attempt that is cancelled in the queue leaves it, and those behind it move up."""
    connector = make_connector(connections_max=1)
    arrived, let_go = asyncio.Event(), asyncio.Event()

    async def behave(peer: Peer) -> None:
        while True:
            await peer.read_request()
            arrived.set()
            await let_go.wait()
            await peer.send(answer())

    async with serving(behave) as server, asyncio.TaskGroup() as group:
        attempts = [group.create_task(connector.attempt(a_call(server.url()))) for _ in range(3)]
        await arrived.wait()
        attempts[1].cancel()
        let_go.set()

    assert [attempt.cancelled() for attempt in attempts] == [False, True, False]
    assert len(server.requests) == 2


async def test_cancellation_is_not_taken_for_a_timeout(connector: Connector) -> None:
    """An attempt cut by a deadline from outside raises, though it has a deadline of its own."""
    arrived = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        arrived.set()
        await peer.wait_until_gone()

    async def attempt_within(limit: asyncio.Timeout) -> Observation | None:
        try:
            async with limit:
                return await connector.attempt(a_call(server.url()))
        except TimeoutError:
            return None

    async with serving(behave) as server, asyncio.TaskGroup() as group:
        outer = asyncio.timeout(None)
        attempt = group.create_task(attempt_within(outer))
        await arrived.wait()
        outer.reschedule(0)

    assert attempt.result() is None

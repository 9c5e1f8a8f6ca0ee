"""Closing a connector closes all it held, without a word."""

import asyncio
import gc
import warnings

import pytest

from app.core.observation import Answered
from tests.connectors.calls import a_call
from tests.connectors.conftest import MakeConnector
from tests.connectors.raw_server import Peer, answer, client_context, serving


@pytest.mark.parametrize("tls", [False, True])
async def test_close_is_quiet(make_connector: MakeConnector, *, tls: bool) -> None:
    """Kept connections are closed; nothing is reported, then or when memory is collected."""
    connector = make_connector(ssl_context=client_context())
    gone = asyncio.Semaphore(0)
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(answer())
        await peer.wait_until_gone()
        gone.release()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with serving(behave, tls=tls) as server:
            async with asyncio.TaskGroup() as group:
                attempts = [
                    group.create_task(connector.attempt(a_call(server.url()))) for _ in range(5)
                ]
            await connector.close()
            for _ in range(5):
                await gone.acquire()
        del connector
        gc.collect()

    assert all(isinstance(attempt.result(), Answered) for attempt in attempts)
    assert warned == []
    assert reports == []


async def test_close_without_use(make_connector: MakeConnector) -> None:
    """A connector that never called anybody closes too, and twice."""
    connector = make_connector()

    await connector.close()
    await connector.close()

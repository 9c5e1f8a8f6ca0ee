"""Callers that leave while their row is being committed: what is stored moves all the same."""

import asyncio

import asyncpg
import pytest

from app.core.saga import SagaStatus
from tests.engine.replica import Running, a_replica, all_completed
from tests.store.place import answered, connected, is_blocked, new_saga_id
from tests.store.proxy import Cut, a_proxy
from tests.waiting import wait_until


@pytest.mark.parametrize("when", [Cut.BEFORE, Cut.AFTER])
async def test_a_start_whose_caller_left_is_run_all_the_same(
    database_url: str, look: asyncpg.Connection, when: Cut
) -> None:
    """The client gave up while its start was being committed: once it is stored, the saga runs."""
    async with a_proxy(database_url) as proxy, a_replica(proxy.url) as running:
        cut = proxy.cut("started_journal", when)
        caller = asyncio.get_running_loop().create_task(running.start())
        await cut.wait()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)

        await wait_until(all_completed(look, 1), seconds_max=6)
        assert ["flight action 1", "hotel action 1"] == running.tools.names()
        await running.is_sound()


async def test_starts_whose_callers_left_are_all_run(
    running: Running, look: asyncpg.Connection
) -> None:
    """A hundred clients give up in the same moment: what was stored of theirs is run."""
    loop = asyncio.get_running_loop()
    async with look.transaction():
        await look.execute("SELECT FROM replicas WHERE id = $1 FOR UPDATE", running.incarnation)
        callers = [loop.create_task(running.start()) for _ in range(100)]
        await wait_until(is_blocked(look))
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    await wait_until(lambda: _all_at_rest(look), seconds_max=6)
    stored = await look.fetchval("SELECT count(*) FROM sagas")
    assert stored >= 1
    assert 2 * stored == len(running.tools.calls)


async def _all_at_rest(look: asyncpg.Connection) -> bool:
    # In one look: between two the starts may be committed.
    is_so = await look.fetchval(
        "SELECT count(*) > 0 AND bool_and(finished_at IS NOT NULL) FROM sagas"
    )
    return bool(is_so)


async def test_a_cancel_whose_caller_left_takes_effect(
    running: Running, look: asyncpg.Connection
) -> None:
    """The client gave up while its cancel of a parked saga was being committed: it is undone."""
    running.tools.answer("hotel", answered(429, retry_after="60"))
    saga = await running.start()
    await wait_until(lambda: running.engine.held == 0)
    async with connected(running.url) as holder, holder.transaction():
        await holder.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", saga.id)
        caller = asyncio.get_running_loop().create_task(running.cancel(saga))
        await wait_until(is_blocked(look))
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)

    (done,) = await running.rest(saga, seconds_max=6)
    assert done.status is SagaStatus.COMPENSATED


async def test_a_replayed_start_is_run_too(running: Running, look: asyncpg.Connection) -> None:
    """A client that gave up and asks again with its key gets a saga that moves."""
    saga_id = new_saga_id()
    fact = running.a_request(saga=saga_id)
    async with look.transaction():
        await look.execute("SELECT FROM replicas WHERE id = $1 FOR UPDATE", running.incarnation)
        caller = asyncio.get_running_loop().create_task(
            running.journal.start(fact, fingerprint=b"same")
        )
        await wait_until(is_blocked(look))
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
    again = await running.journal.start(fact, fingerprint=b"same")

    (done,) = await running.rest(again.saga, seconds_max=6)
    assert done.status is SagaStatus.COMPLETED
    assert 2 == len(running.tools.calls)

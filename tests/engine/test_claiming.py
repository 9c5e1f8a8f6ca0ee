"""Claiming: what waits is taken up when it is due, what is left behind is taken over."""

import asyncio
import datetime as dt
import time
from functools import partial

import asyncpg
import pytest

from app.core.saga import Saga, SagaStatus
from tests.engine.replica import Running, a_replica, all_completed
from tests.engine.tools import Tools
from tests.store.place import answered, head_of
from tests.store.proxy import Cut, a_proxy
from tests.waiting import wait_until


async def bury(dead: Running, look: asyncpg.Connection) -> None:
    """Revoke a dead replica, without waiting for the end of its lease."""
    await look.execute("UPDATE replicas SET revoked_at = now() WHERE id = $1", dead.incarnation)


async def test_what_the_api_alone_started_is_taken_up(
    running: Running, database_url: str, look: asyncpg.Connection
) -> None:
    """Sagas that start at a replica without an engine are claimed and run by one that has one."""
    async with a_replica(database_url, runs_engine=False) as front:
        await asyncio.gather(*(front.start() for _ in range(50)))

    await wait_until(all_completed(look, 50))
    assert 100 == len(running.tools.calls)


async def test_a_short_pause_is_waited_for_in_memory(running: Running) -> None:
    """A call that backs off for less than a second is sent again by the same replica's timer."""
    running.tools.answer("flight", answered(429, retry_after="1"), answered())
    saga = await running.start()
    begun = time.monotonic()

    (done,) = await running.rest(saga)

    assert done.status is SagaStatus.COMPLETED
    assert ["flight action 1", "flight action 2", "hotel action 1"] == running.tools.names()
    assert time.monotonic() - begun >= 0.9


async def test_a_long_pause_takes_no_memory(running: Running, look: asyncpg.Connection) -> None:
    """A saga that waits for longer is parked, forgotten, and comes back when it is due."""
    running.tools.answer("flight", answered(429, retry_after="2"), answered())
    saga = await running.start()
    await wait_until(lambda: running.engine.held == 0)

    head = await head_of(look, saga.id)
    assert head["owner"] is None
    assert ({}, {}) == (running.journal._lanes, running.engine._timers)
    (done,) = await running.rest(saga)
    assert done.status is SagaStatus.COMPLETED
    assert ["flight action 1", "flight action 2", "hotel action 1"] == running.tools.names()


async def test_no_more_are_held_than_there_is_room_for(
    database_url: str, look: asyncpg.Connection
) -> None:
    """Beyond its room a replica leaves new sagas pending, and claims them when there is room."""
    async with a_replica(database_url, sagas_max=3) as running:
        gate = running.tools.hold("flight")
        for _ in range(10):
            await running.start()
        await running.tools.arrived(3)

        assert 3 == running.engine.held
        assert 7 == await look.fetchval("SELECT count(*) FROM sagas WHERE status = 'pending'")
        gate.open()
        await wait_until(all_completed(look, 10))
        assert [] == running.tools.overlaps


async def test_many_that_start_at_once_share_the_room(
    database_url: str, look: asyncpg.Connection
) -> None:
    """A hundred starts in one moment do not all begin because none of them was there yet."""
    async with a_replica(database_url, sagas_max=3) as running:
        gate = running.tools.hold("flight")
        await asyncio.gather(*(running.start() for _ in range(100)))
        await running.tools.arrived(3)

        assert running.engine.held <= 10
        gate.open()
        await wait_until(all_completed(look, 100), seconds_max=60)


async def test_a_dead_replicas_sagas_are_taken_over(
    database_url: str, look: asyncpg.Connection
) -> None:
    """Two hundred sagas of a replica that died in the middle are finished by another."""
    async with a_replica(database_url) as first:
        first.tools.hold("hotel")
        await asyncio.gather(*(first.start() for _ in range(200)))
        await first.tools.arrived(400)
        await first.die()
        await bury(first, look)
        async with a_replica(database_url) as heir:
            await wait_until(all_completed(look, 200), seconds_max=20)
            await heir.is_sound()
            assert {"hotel action 2"} == set(heir.tools.names())
            assert [] == heir.tools.overlaps
            keys = {call.saga_id: call.key for call in first.tools.calls if call.step == "hotel"}
            assert keys == {call.saga_id: call.key for call in heir.tools.calls}


async def test_a_takeover_that_is_interrupted_is_completed(
    database_url: str, look: asyncpg.Connection
) -> None:
    """The database goes away right after orphans were claimed: they are taken up all the same."""
    async with a_replica(database_url) as first:
        first.tools.hold("flight")
        await asyncio.gather(*(first.start() for _ in range(20)))
        await first.tools.arrived(20)
        await first.die()
        await bury(first, look)
        async with a_proxy(database_url) as proxy:
            cut = proxy.cut("j.saga_id = ANY", Cut.BEFORE)
            async with a_replica(proxy.url) as heir:
                await cut.wait()
                await wait_until(all_completed(look, 20))
                await heir.is_sound()


@pytest.mark.parametrize("statement", ["orphans AS", "due AS"])
async def test_a_claim_whose_answer_is_lost_is_noticed(
    database_url: str, look: asyncpg.Connection, statement: str
) -> None:
    """The commit of a claim gets no answer: what was claimed is owned, and so it is run."""
    async with a_replica(database_url) as first:
        if statement == "orphans AS":
            first.tools.hold("flight")
            await asyncio.gather(*(first.start() for _ in range(20)))
            await first.tools.arrived(20)
        await first.die()
        await bury(first, look)
        async with a_proxy(database_url) as proxy, a_replica(proxy.url) as heir:
            proxy.cut("COMMIT", Cut.AFTER, times=2)
            if statement == "due AS":
                async with a_replica(database_url, runs_engine=False) as front:
                    await asyncio.gather(*(front.start() for _ in range(20)))
            await wait_until(all_completed(look, 20))
            await heir.is_sound()


async def test_two_engines_share_the_work(database_url: str, look: asyncpg.Connection) -> None:
    """What is due goes to one of two engines, and each call is made once."""
    tools = Tools()
    async with (
        a_replica(database_url, tools=tools),
        a_replica(database_url, tools=tools),
        a_replica(database_url, runs_engine=False) as front,
    ):
        await asyncio.gather(*(front.start() for _ in range(200)))
        await wait_until(all_completed(look, 200))

    assert 400 == len(tools.calls)
    assert [] == tools.overlaps


async def test_a_saga_that_kills_its_owners_is_stuck_at_last(
    database_url: str, look: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After four lost owners in a row a saga is stuck, and its neighbour is done long before."""
    monkeypatch.setattr("app.store.claims.SUSPECT_DELAY", dt.timedelta(0))
    async with a_replica(database_url) as first:
        first.tools.hold("flight")
        saga = await first.start()
        await first.tools.arrived(1)
        await first.die()
        await bury(first, look)
    for _ in range(4):
        async with a_replica(database_url) as heir:
            heir.tools.hold("flight")
            await wait_until(partial(_settled, heir, saga, look))
            await heir.die()
            await bury(heir, look)

    head = await head_of(look, saga.id)
    assert ("stuck", 4) == (head["status"], head["losses"])


async def _settled(heir: Running, saga: Saga, look: asyncpg.Connection) -> bool:
    return bool(heir.tools.calls) or (await head_of(look, saga.id))["status"] == "stuck"


async def test_an_unfoldable_journal_holds_up_no_other(
    running: Running, database_url: str, look: asyncpg.Connection
) -> None:
    """One saga in a batch cannot be read: the others of the batch are run, and it is set aside."""
    async with a_replica(database_url, runs_engine=False) as front:
        await running.stop()
        sagas = [await front.start() for _ in range(20)]
        await look.execute("UPDATE saga_journal SET data = '{}' WHERE saga_id = $1", sagas[7].id)
        async with a_replica(database_url):
            await wait_until(lambda: _completed(look, 19))
            await wait_until(lambda: _set_aside(look, sagas[7]))


async def _completed(look: asyncpg.Connection, count: int) -> bool:
    found: int = await look.fetchval("SELECT count(*) FROM sagas WHERE status = 'completed'")
    return found == count


async def _set_aside(look: asyncpg.Connection, saga: Saga) -> bool:
    head = await head_of(look, saga.id)
    return head["owner"] is None and head["losses"] == 1

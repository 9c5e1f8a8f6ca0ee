"""Draining: what is out is followed to its end, nothing new begins, the rest is handed back."""

import asyncio
import time

import asyncpg
import pytest

from app.core.identity import Direction, StepId
from app.core.saga import CallStatus, SagaStatus
from tests.engine.replica import Running, a_replica, all_completed
from tests.store.place import answered, head_of, is_blocked, journal_of
from tests.store.proxy import a_proxy
from tests.waiting import wait_until


async def stopping(running: Running) -> asyncio.Task[None]:
    """A stop that is under way."""
    task = asyncio.get_running_loop().create_task(running.stop())
    await wait_until(lambda: running.replica.is_draining)
    return task


async def test_calls_that_are_out_are_followed_to_their_end(
    database_url: str, look: asyncpg.Connection
) -> None:
    """Results that come while the replica drains are stored; no next call is opened."""
    async with a_replica(database_url) as running:
        gate = running.tools.hold("flight")
        sagas = [await running.start() for _ in range(10)]
        await running.tools.arrived(10)

        stop = await stopping(running)
        gate.open()
        async with asyncio.timeout(5):
            await stop

        assert ["flight action 1"] * 10 == running.tools.names()
        for saga in sagas:
            now = await running.fetch(saga)
            flight = now.call(StepId("flight"), Direction.ACTION)
            assert flight is not None
            assert flight.status is CallStatus.SUCCEEDED
            head = await head_of(look, saga.id)
            assert (None, 0) == (head["owner"], head["losses"])
            assert head["due_at"] <= await look.fetchval("SELECT amends_now() + interval '1 s'")

    async with a_replica(database_url) as heir:
        await wait_until(all_completed(look, 10))
        assert ["hotel action 1"] * 10 == heir.tools.names()


async def test_what_only_waits_is_handed_back(database_url: str, look: asyncpg.Connection) -> None:
    """A saga that backs off for a moment is parked by the drain, and not left to be an orphan."""
    async with a_replica(database_url) as running:
        running.tools.answer("flight", answered(429, retry_after="1"))
        sagas = [await running.start() for _ in range(5)]
        await running.tools.arrived(5)
        await wait_until(lambda: running.engine._dispatcher.in_flight == 0)

        await running.stop()

    for saga in sagas:
        head = await head_of(look, saga.id)
        assert (None, 0) == (head["owner"], head["losses"])
        assert head["due_at"] is not None


async def test_who_drains_claims_nothing(database_url: str, look: asyncpg.Connection) -> None:
    """Work that becomes due while a replica drains is left to others."""
    async with a_replica(database_url, runs_engine=False) as front:
        async with a_replica(database_url) as running:
            gate = running.tools.hold("flight")
            await running.start()
            await running.tools.arrived(1)
            stop = await stopping(running)
            late = await front.start()
            gate.open()
            await stop
            assert 1 == len(running.tools.calls)
        assert (await head_of(look, late.id))["owner"] is None
        async with a_replica(database_url):
            await wait_until(all_completed(look, 2))


async def test_a_call_that_does_not_end_is_broken_off(
    database_url: str, look: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain ends in bounded time; the heir finds the attempt unknown and sends it again."""
    monkeypatch.setattr("app.engine.engine.DRAIN_SECONDS_MAX", 0.3)
    async with a_replica(database_url) as running:
        running.tools.hold("flight")
        saga = await running.start()
        await running.tools.arrived(1)
        begun = time.monotonic()

        await running.stop()

        assert time.monotonic() - begun < 3
        assert 1 == len(running.tools.broken_off)
        assert running.tools.is_closed

    async with a_replica(database_url) as heir:
        (done,) = await heir.rest(saga)
        assert done.status is SagaStatus.COMPLETED
        assert ["flight action 2", "hotel action 1"] == heir.tools.names()
        assert running.tools.calls[0].key == heir.tools.calls[0].key


async def test_an_intent_that_is_committed_during_the_stop_is_not_lost(
    database_url: str, look: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that is being committed when the replica stops is waited for, sent or not."""
    monkeypatch.setattr("app.engine.engine.DRAIN_SECONDS_MAX", 3.0)
    async with a_replica(database_url) as running:
        async with look.transaction():
            await look.execute("SELECT FROM replicas WHERE id = $1 FOR UPDATE", running.incarnation)
            start = asyncio.get_running_loop().create_task(running.start())
            await wait_until(is_blocked(look))
            stop = await stopping(running)
            # Everything else is quiet: the engine would end now.
            await asyncio.wait([stop], timeout=0.8)
        saga = await start
        await stop

        assert [] == running.tools.late
        assert [] == running.tools.broken_off

    async with a_replica(database_url) as heir:
        (done,) = await heir.rest(saga)
        assert done.status is SagaStatus.COMPLETED
    assert 0 == (await head_of(look, saga.id))["losses"]
    assert all("internal" not in entry["data"] for entry in await journal_of(look, saga.id))


async def test_an_end_that_is_abandoned_comes_at_once(
    database_url: str, look: asyncpg.Connection
) -> None:
    """A second signal breaks off what is out, and the saga is left as after a crash."""
    async with a_replica(database_url) as running:
        running.tools.hold("flight")
        saga = await running.start()
        await running.tools.arrived(1)
        stop = await stopping(running)
        assert not stop.done()

        running.engine.abandon()
        async with asyncio.timeout(5):
            await stop

        assert 1 == len(running.tools.broken_off)
        assert running.incarnation == (await head_of(look, saga.id))["owner"]


async def test_stopping_without_a_database_is_bounded(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the database away the replica still ends, and sends nothing more."""
    monkeypatch.setattr("app.engine.engine.DRAIN_SECONDS_MAX", 1.0)
    async with a_proxy(database_url) as proxy, a_replica(proxy.url) as running:
        gate = running.tools.hold("flight")
        await running.start()
        await running.tools.arrived(1)
        proxy.refuses = True
        proxy.cut_all()
        gate.open()

        async with asyncio.timeout(8):
            await running.stop()

        assert ["flight action 1"] == running.tools.names()


async def test_stop_works_twice_and_before_start(database_url: str) -> None:
    """A replica whose engine never started stops as well as one that is stopped again."""
    async with a_replica(database_url, runs_engine=False) as idle:
        await idle.stop()
        await idle.stop()
    async with a_replica(database_url) as running:
        await running.stop()
        await running.engine.stop()

"""Faults around one saga: it goes on, or is set aside, and nothing else is touched."""

import asyncio
import datetime as dt

import asyncpg
import pytest

from app.core.entries import FORMAT
from app.core.identity import Direction, StepId
from app.core.saga import Saga, SagaStatus
from app.engine.loop import Loop
from tests.core.builders import a_definition, a_step
from tests.engine.replica import Running, a_replica, all_completed
from tests.store.place import (
    CANCEL,
    answered,
    head_of,
)
from tests.store.proxy import a_proxy
from tests.waiting import wait_until

REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '23514'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON saga_journal FOR EACH ROW
WHEN (NEW.data::text LIKE '%{marker}%' AND NEW.type = '{type}') EXECUTE FUNCTION refuse();
"""
"""Makes the database refuse entries that contain a marker, as it may for reasons of its own."""


async def refuse(look: asyncpg.Connection, marker: str, *, fact: str = "attempt_observed") -> None:
    """Let the database refuse entries of a fact that contain a marker."""
    await look.execute(REFUSE.format(marker=marker, type=fact))


async def test_an_answer_that_the_database_refuses_is_recorded_without_its_body(
    running: Running, look: asyncpg.Connection
) -> None:
    """The effect of a call is not forgotten because its answer cannot be stored."""
    await refuse(look, "poison")
    running.tools.answer("flight", answered(body={"id": "poison"}), answered(body={"id": "F1"}))

    (done,) = await running.rest(await running.start())

    flight = done.call(StepId("flight"), Direction.ACTION)
    assert flight is not None
    assert done.status in {SagaStatus.COMPLETED, SagaStatus.STUCK, SagaStatus.COMPENSATED}
    assert [] == running.tools.overlaps
    await running.is_sound()


async def test_a_saga_that_the_database_refuses_is_set_aside_and_comes_back(
    running: Running, look: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a saga can be stored for a while: others go on, and it is taken up again later."""
    monkeypatch.setattr("app.engine.engine.SET_ASIDE", dt.timedelta(seconds=1))
    saga = await set_aside(running, look)
    await running.is_sound()

    await look.execute("DROP TRIGGER refuse ON saga_journal")

    (done,) = await running.rest(saga, seconds_max=8)
    assert done.status is SagaStatus.COMPLETED
    assert [] == running.tools.overlaps


async def set_aside(running: Running, look: asyncpg.Connection, *, version: int = 1) -> Saga:
    """A saga whose flight has answered, which the database refused to store in any form."""
    await refuse(look, "flight")
    saga = await running.start(version=version)
    await wait_until(lambda: _is_aside(running, look, saga))
    assert ["flight action"] == running.tools.sent_steps()
    return saga


async def _is_aside(running: Running, look: asyncpg.Connection, saga: Saga) -> bool:
    head = await head_of(look, saga.id)
    return running.engine.held == 0 and head["losses"] == 1


async def test_an_answer_that_could_not_be_stored_is_unknown(
    running: Running, look: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was made, and whose answer was lost with us, is not made again unless it may."""
    monkeypatch.setattr("app.engine.engine.SET_ASIDE", dt.timedelta(seconds=1))
    await running.publish(a_definition(a_step("flight", idempotent=False, undo_by="key")))
    saga = await set_aside(running, look, version=2)

    await look.execute("DROP TRIGGER refuse ON saga_journal")
    await wait_until(lambda: _has_moved(look, saga), seconds_max=8)

    assert "compensating" == (await head_of(look, saga.id))["status"]
    assert ["flight action"] == running.tools.sent_steps()


async def test_a_saga_that_a_newer_release_moved_is_let_go(
    running: Running, look: asyncpg.Connection
) -> None:
    """An answer for a saga of a newer release's is not offered for ever: the saga is its now."""
    gate = running.tools.hold("flight")
    saga = await running.start()
    await running.tools.arrived(1)
    await look.execute("UPDATE sagas SET format = $1, seq = seq + 1", FORMAT + 1)
    await look.execute(
        "INSERT INTO saga_journal (saga_id, seq, id, tenant_id, at, type, format, data)"
        " SELECT saga_id, seq + 1, gen_random_uuid(), tenant_id, at, type, $1, data"
        " FROM saga_journal",
        FORMAT + 1,
    )
    gate.open()

    await wait_until(lambda: not running.engine.held and not running.engine._dispatcher.in_flight)

    assert FORMAT + 1 == (await head_of(look, saga.id))["format"]
    assert ["flight action"] == running.tools.sent_steps()


async def _has_moved(look: asyncpg.Connection, saga: Saga) -> bool:
    head = await head_of(look, saga.id)
    return bool(head["seq"] > saga.seq)


async def test_a_lock_held_for_long_costs_no_observation(
    running: Running, look: asyncpg.Connection
) -> None:
    """A result meets a lock for longer than it may wait, and is stored when that is gone."""
    gate = running.tools.hold("flight")
    saga = await running.start()
    await running.tools.arrived(1)
    async with look.transaction():
        await look.execute("LOCK TABLE sagas IN ACCESS EXCLUSIVE MODE")
        gate.open()
        await look.execute("SELECT pg_sleep(2.5)")

    (done,) = await running.rest(saga)

    assert done.status is SagaStatus.COMPLETED
    assert ["flight action", "hotel action"] == running.tools.sent_steps()
    assert 0 == (await head_of(look, saga.id))["losses"]


async def test_a_lock_on_the_definitions_only_delays(
    database_url: str, look: asyncpg.Connection
) -> None:
    """A definition that cannot be read for a while delays its sagas, and costs none."""
    async with a_replica(database_url, runs_engine=False) as front:
        sagas = [await front.start() for _ in range(5)]
    async with a_proxy(database_url) as proxy, a_replica(proxy.url) as running:
        running.definitions._kept.clear()
        async with look.transaction():
            await look.execute("LOCK TABLE definitions IN ACCESS EXCLUSIVE MODE")
            await wait_until(lambda: proxy.errors["55P03"] >= 3)

        done = await running.rest(*sagas)

    assert {SagaStatus.COMPLETED} == {saga.status for saga in done}
    assert {0} == {row["losses"] for row in await look.fetch("SELECT losses FROM sagas")}


async def test_the_loops_outlive_what_they_meet(
    running: Running, database_url: str, look: asyncpg.Connection
) -> None:
    """Rounds that crash are followed by others: work that comes afterwards is done."""
    await look.execute("ALTER TABLE sagas RENAME COLUMN losses TO elsewhere")
    async with a_proxy(database_url) as proxy, a_replica(proxy.url):
        await wait_until(lambda: proxy.errors["42703"] >= 2)
        await look.execute("ALTER TABLE sagas RENAME COLUMN elsewhere TO losses")
        async with a_replica(database_url, runs_engine=False) as front:
            await front.start()
            await wait_until(all_completed(look, 1))


async def test_an_outage_in_the_middle_only_delays(
    database_url: str, look: asyncpg.Connection
) -> None:
    """The database is away while calls are out: their results are stored when it is back."""
    async with a_proxy(database_url) as proxy, a_replica(proxy.url, lease_seconds=3) as running:
        gate = running.tools.hold("flight")
        sagas = [await running.start() for _ in range(30)]
        await running.tools.arrived(30)
        proxy.refuses = True
        proxy.cut_all()
        gate.open()
        await wait_until(lambda: running.replica._clock.now() > running.replica.expires_at)
        proxy.refuses = False

        done = await running.rest(*sagas)
        assert {SagaStatus.COMPLETED} == {saga.status for saga in done}
        assert ["hotel action"] * 30 == running.tools.sent_steps()[30:]
        assert [] == running.tools.overlaps


async def test_what_another_replica_records_is_picked_up(
    running: Running, database_url: str, look: asyncpg.Connection
) -> None:
    """A cancel through another replica is known to the owner within a second or two."""
    gate = running.tools.hold("flight")
    saga = await running.start()
    await running.tools.arrived(1)
    async with a_replica(database_url, runs_engine=False) as front:
        await front.cancel(saga)
        await wait_until(lambda: running.engine._held[saga.id].seq == 2, seconds_max=2.5)

    gate.open()

    (done,) = await running.rest(saga)
    assert done.status is SagaStatus.COMPENSATED
    assert ["flight action 1", "flight compensation 1"] == running.tools.names()


async def test_two_hundred_are_cancelled_through_another_replica(
    running: Running, database_url: str, look: asyncpg.Connection
) -> None:
    """Results and cancels race at two replicas: every saga comes to rest, nothing is left done."""
    async with a_replica(database_url, runs_engine=False) as front:
        sagas = await asyncio.gather(*(running.start() for _ in range(200)))
        await asyncio.gather(
            *(front.journal.record(saga.id, CANCEL, urgent=True) for saga in sagas),
            return_exceptions=True,
        )
        done = await running.rest(*sagas)

    for saga in done:
        assert saga.status in {SagaStatus.COMPENSATED, SagaStatus.COMPLETED}
        if saga.status is SagaStatus.COMPENSATED:
            assert all(
                call.effect.value == "none"
                for call in saga.calls.values()
                if call.direction is Direction.ACTION
            )
    assert [] == running.tools.overlaps
    await running.is_sound()


async def test_a_send_that_comes_late_sends_nothing_twice(running: Running) -> None:
    """A send that was held up until its attempt had been made and answered sends nothing."""
    gate = running.tools.hold("hotel")
    offered = await running.start()
    await running.tools.arrived(2)

    await running.engine._send(offered)
    gate.open()
    await running.rest(offered)
    await running.engine._send(offered)
    await wait_until(lambda: running.engine._dispatcher.in_flight == 0)

    assert ["flight action 1", "hotel action 1"] == running.tools.names()


async def test_a_loop_stops_before_its_start_and_twice() -> None:
    """A loop that never ran is stopped at once, and one that ran may be stopped again."""
    rounds = asyncio.Event()

    async def work() -> bool:
        rounds.set()
        return False

    loop = Loop("test", work, every_seconds=60)
    await loop.stop()
    loop = Loop("test", work, every_seconds=60)
    await loop.start()
    await rounds.wait()
    async with asyncio.timeout(2):
        await loop.stop()
        await loop.stop()


async def test_a_kick_begins_the_next_round_at_once() -> None:
    """Who is kicked does not sit out its pause; what is left to do is done without a pause."""
    done: list[int] = []

    async def work() -> bool:
        done.append(len(done))
        return len(done) % 3 != 0

    loop = Loop("test", work, every_seconds=3600)
    await loop.start()
    await wait_until(lambda: len(done) == 3)
    loop.kick()
    await wait_until(lambda: len(done) == 6)
    await loop.stop()

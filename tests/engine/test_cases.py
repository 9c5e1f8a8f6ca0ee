"""Cases of whole replicas: who runs a saga when another dies, freezes, drains, or starts anew.

``tests/cases.toml`` lists all cases, and where those are that are not here.
"""

import asyncio

import asyncpg
import pytest
import structlog

from app.core.errors import KeyReused
from app.core.saga import Saga, SagaStatus
from tests.core.builders import ONCE, a_definition, a_step, a_verify
from tests.engine.replica import Running, a_replica, all_completed
from tests.engine.tools import Tools
from tests.store.place import TIMED_OUT, answered, head_of, new_saga_id
from tests.waiting import wait_until


async def bury(dead: Running, look: asyncpg.Connection) -> None:
    """Revoke a dead replica, without waiting for the end of its lease."""
    await look.execute("UPDATE replicas SET revoked_at = now() WHERE id = $1", dead.incarnation)


async def test_durable_engines_b02_a_rolling_restart(
    database_url: str, look: asyncpg.Connection
) -> None:
    """While one drains and another of the same name starts, each saga is run by one of them."""
    async with (
        a_replica(database_url, runs_engine=False) as front,
        a_replica(database_url) as old,
    ):
        gate = old.tools.hold("flight")
        out = [await old.start() for _ in range(5)]
        await old.tools.arrived(5)
        stop = asyncio.get_running_loop().create_task(old.stop())
        await wait_until(lambda: old.replica.is_draining)
        async with a_replica(database_url) as new:
            late = [await front.start() for _ in range(5)]
            await new.rest(*late)
            gate.open()
            async with asyncio.timeout(10):
                await stop
            done = await new.rest(*out)
            await new.is_sound()

            assert old.incarnation != new.incarnation
            assert {SagaStatus.COMPLETED} == {saga.status for saga in done}
            assert ["flight action 1"] * 5 == old.tools.names()
            assert 5 == new.tools.names().count("flight action 1")
            assert 10 == new.tools.names().count("hotel action 1") == len(new.tools.calls) - 5
    await wait_until(all_completed(look, 10))


async def test_durable_engines_b05_a_frozen_owner_wakes(database_url: str) -> None:
    """Who was frozen in a call learns once that its lease is lost, and does nothing more of it."""
    async with a_replica(database_url, lease_seconds=0.9) as frozen:
        frozen.tools.answer("flight", answered(body={"id": "from the frozen one"}))
        gate = frozen.tools.hold("flight")
        saga = await frozen.start()
        await frozen.tools.arrived(1)
        await frozen.heart.stop()
        async with a_replica(database_url, lease_seconds=0.9) as heir:
            (done,) = await heir.rest(saga)
            with structlog.testing.capture_logs() as logs:
                gate.open()
                await frozen.heart._beat()
                await wait_until(lambda: frozen.engine._dispatcher.in_flight == 0)

            first, again = frozen.tools.calls[0], heir.tools.calls[0]
            assert (first.key, first.request) == (again.key, again.request)
            assert ["flight action 1"] == frozen.tools.names()
            assert ["flight action 2", "hotel action 1"] == heir.tools.names()
            assert done == await heir.fetch(saga)
            assert 1 == [entry["event"] for entry in logs].count("lease_lost")


async def test_saga_coordinators_b13_a_call_longer_than_its_lease(
    database_url: str, look: asyncpg.Connection
) -> None:
    """A lease is kept by beating however long a call takes: another replica does not call."""
    async with a_replica(database_url, lease_seconds=1.5) as owner:
        gate = owner.tools.hold("flight")
        saga = await owner.start()
        await owner.tools.arrived(1)
        begun = owner.replica.expires_at
        async with a_replica(database_url, lease_seconds=1.5) as other:
            lease = owner.replica._lease
            await wait_until(lambda: owner.replica.expires_at > begun + 2 * lease)
            mine = (await head_of(look, saga.id))["owner"]
            gate.open()
            (done,) = await owner.rest(saga)

            assert (owner.incarnation, SagaStatus.COMPLETED) == (mine, done.status)
            assert [] == other.tools.names()
            assert ["flight action 1", "hotel action 1"] == owner.tools.names()


async def test_saga_coordinators_b2_submitted_fifty_times_while_it_runs(
    database_url: str,
) -> None:
    """However often a saga is submitted, also while it runs, each tool is called once."""
    tools = Tools()
    async with (
        a_replica(database_url, tools=tools) as one,
        a_replica(database_url, tools=tools) as other,
    ):
        gate = tools.hold("flight")
        fact = one.a_request(saga=new_saga_id())

        async def submit(number: int) -> Saga:
            place = (one, other)[number % 2]
            return (await place.journal.start(fact, fingerprint=b"same")).saga

        first = await asyncio.gather(*(submit(number) for number in range(50)))
        await tools.arrived(1)
        again = await asyncio.gather(*(submit(number) for number in range(50)))
        with pytest.raises(KeyReused):
            await other.journal.start(fact, fingerprint=b"different")
        gate.open()
        (done,) = await one.rest(first[0])
        finished = await submit(1)

        assert {fact.id} == {saga.id for saga in (*first, *again, finished)}
        assert (SagaStatus.COMPLETED, done) == (done.status, finished)
        assert ["flight action 1", "hotel action 1"] == tools.names()


async def test_agents_b5_a_turn_that_is_played_again(running: Running) -> None:
    """An agent that starts its turn anew repeats nothing: what is in doubt is looked for."""
    mail = a_step("mail", idempotent=False, undo_by="key") | {"verify": a_verify()}
    definition = a_definition(a_step("charge"), a_step("mark"), mail)
    version = (await running.publish(definition)).version
    running.tools.answer("mail", TIMED_OUT)
    gate = running.tools.hold("mail", call="verify")
    found = answered(body={"done": True, "none": False, "item": {"id": "M1"}})
    running.tools.answer("mail", found, call="verify")
    fact = running.a_request(version=version)

    await running.journal.start(fact, fingerprint=b"same")
    await running.tools.arrived(4)
    replayed = await running.journal.start(fact, fingerprint=b"same")
    gate.open()
    (done,) = await running.rest(replayed.saga)

    assert (True, SagaStatus.COMPLETED) == (replayed.is_replay, done.status)
    assert [
        "charge action 1",
        "mark action 1",
        "mail action 1",
        "mail verify 1",
    ] == running.tools.names()


async def test_saga_coordinators_b12_recovery_waits_for_no_tool(
    database_url: str, look: asyncpg.Connection
) -> None:
    """Of what a dead replica left, sagas of a tool that hangs do not hold up those of another."""
    async with a_replica(database_url) as dead:
        slow = await dead.publish(a_definition(a_step("slow", action={"retry": ONCE})))
        gates = [dead.tools.hold(step) for step in ("slow", "flight")]
        for number in range(80):
            await dead.start(version=slow.version if number % 2 else 1)
        await dead.tools.arrived(80)
        await dead.die()
        await bury(dead, look)
        async with a_replica(database_url) as heir:
            gates.append(heir.tools.hold("slow"))

            async def fast_are_done() -> bool:
                count: int = await look.fetchval(
                    "SELECT count(*) FROM sagas WHERE status = 'completed'"
                )
                return count == 40

            await wait_until(fast_are_done, seconds_max=8)
            await wait_until(lambda: heir.engine._dispatcher.in_flight == 40)
            await heir.is_sound()
            for gate in gates:
                gate.open()
            await wait_until(all_completed(look, 80))

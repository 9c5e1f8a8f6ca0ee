"""A replica that lost its lease: nothing more is sent as it was, and what it saw is not lost."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.core.identity import Direction, StepId
from app.core.saga import CallStatus, SagaStatus
from tests.engine.replica import Running, a_replica
from tests.store.place import answered, connected, head_of, journal_of
from tests.waiting import wait_until


@pytest.fixture
async def running(database_url: str) -> AsyncIterator[Running]:
    """A replica that soon finds out that it was revoked."""
    async with a_replica(database_url, lease_seconds=1.5) as running:
        yield running


async def revoke(running: Running, look: asyncpg.Connection) -> None:
    """Revoke a replica, as another does that finds its lease over."""
    await look.execute("UPDATE replicas SET revoked_at = now() WHERE id = $1", running.incarnation)


async def test_a_result_that_comes_after_the_revocation_is_evidence(
    running: Running, look: asyncpg.Connection
) -> None:
    """What the revoked incarnation's call came to is recorded by the next, and the saga goes on."""
    gate = running.tools.hold("flight")
    saga = await running.start()
    await running.tools.arrived(1)
    before = running.incarnation

    await revoke(running, look)
    await wait_until(lambda: running.incarnation != before)
    gate.open()

    (done,) = await running.rest(saga)
    assert done.status is SagaStatus.COMPLETED
    flight = done.call(StepId("flight"), Direction.ACTION)
    assert flight is not None
    assert flight.status is CallStatus.SUCCEEDED
    # The heir, which is the same process, may have asked the idempotent tool once more.
    assert len(running.tools.names()) in {2, 3}
    assert 1 == len({call.key for call in running.tools.calls if call.step == "flight"})


async def test_nothing_more_is_sent_by_the_revoked(
    database_url: str, look: asyncpg.Connection
) -> None:
    """A replica that does not know yet that it was revoked commits and sends nothing."""
    async with a_replica(database_url, lease_seconds=60) as zombie:
        gate = zombie.tools.hold("flight")
        saga = await zombie.start()
        await zombie.tools.arrived(1)
        await revoke(zombie, look)

        async with a_replica(database_url) as heir:
            (done,) = await heir.rest(saga)
            entries = len(await journal_of(look, saga.id))
            gate.open()
            await wait_until(lambda: zombie.engine._dispatcher.in_flight == 1)

            assert done.status is SagaStatus.COMPLETED
            assert ["flight action 1"] == zombie.tools.names()
            assert ["flight action 2", "hotel action 1"] == heir.tools.names()
            assert entries == len(await journal_of(look, saga.id))
        for task in zombie.engine._dispatcher._out.values():
            task.cancel()


async def test_an_intent_is_not_sent_after_the_lease(
    database_url: str, look: asyncpg.Connection
) -> None:
    """A call whose lease ran out before its first byte is not sent, and says so."""
    async with a_replica(database_url, lease_seconds=1) as running:
        await running.heart.stop()
        await wait_until(lambda: not running.replica.is_trusted)
        assert not running.replica.is_trusted

        saga = await running.start()

        assert [] == running.tools.sent
        assert (await head_of(look, saga.id))["owner"] is None


async def test_the_lease_ends_while_a_commit_is_held_up(
    database_url: str, look: asyncpg.Connection
) -> None:
    """An intent that is committed when its lease is over is not sent: the heir sends its own."""
    async with a_replica(database_url, lease_seconds=0.9) as running:
        async with connected(database_url) as holder, holder.transaction():
            await holder.execute(
                "SELECT FROM replicas WHERE id = $1 FOR UPDATE", running.incarnation
            )
            start = asyncio.get_running_loop().create_task(running.start())
            await running.heart.stop()
            await wait_until(lambda: not running.replica.is_trusted)
        saga = await start
        await wait_until(lambda: running.tools.calls)
        assert [] == running.tools.sent
        await running.heart._beat()
        await running.heart.start()

        (done,) = await running.rest(saga)
        assert done.status is SagaStatus.COMPLETED
        assert 1 == len([call for call in running.tools.sent if call.step == "flight"])


async def test_a_revoked_replica_works_on_as_a_new_one(
    running: Running, look: asyncpg.Connection
) -> None:
    """After the loss of its lease a replica takes new work, and its old work back."""
    gate = running.tools.hold("flight")
    old = [await running.start() for _ in range(5)]
    await running.tools.arrived(5)
    before = running.incarnation
    await revoke(running, look)
    await wait_until(lambda: running.incarnation != before)

    new = await running.start()
    gate.open()

    done = await running.rest(*old, new)
    assert {SagaStatus.COMPLETED} == {saga.status for saga in done}
    await wait_until(lambda: running.engine.held == 0)
    assert {} == running.journal._lanes


async def test_a_frozen_replica_loses_its_sagas_and_wakes_up_harmless(
    database_url: str, look: asyncpg.Connection
) -> None:
    """Beats stop for longer than a lease; another takes over; the first finds out and obeys."""
    async with a_replica(database_url, lease_seconds=0.9) as first:
        gate = first.tools.hold("flight")
        first.tools.answer("flight", answered(body={"id": "first"}))
        saga = await first.start()
        await first.tools.arrived(1)
        old = first.incarnation
        await first.heart.stop()
        async with a_replica(database_url, lease_seconds=0.9) as second:
            (done,) = await second.rest(saga)
            assert done.status is SagaStatus.COMPLETED
            gate.open()
            await first.heart._beat()
            await wait_until(lambda: first.engine._dispatcher.in_flight == 0)

            assert old != first.incarnation
            assert ["flight action 1"] == first.tools.names()
            assert done == await second.fetch(saga)

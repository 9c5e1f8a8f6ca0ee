"""Leases: kept by beating, lost by silence, and never in the way of the work, nor it of them."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.clock import Clock, elapsed_seconds
from app.core.errors import Fenced, StoreUnavailable
from app.core.identity import Incarnation
from app.store import Replica, claim_orphans
from app.store.writer import Outcome
from tests.store.place import (
    Place,
    a_move,
    a_place,
    a_start,
    answered,
    connected,
    is_blocked,
    written,
)
from tests.store.proxy import Cut, a_proxy
from tests.waiting import wait_until

BRIEF = 0.3
"""Seconds: a lease short enough to wait for its end."""


@pytest.fixture
async def brief(database_url: str) -> AsyncIterator[Place]:
    """A replica with a brief lease, which nobody renews."""
    async with a_place(database_url, lease_seconds=BRIEF) as place:
        yield place


async def expired(look: asyncpg.Connection, incarnation: Incarnation) -> None:
    """Wait until a lease is over by the database's clock."""
    await wait_until(
        lambda: look.fetchval(
            "SELECT expires_at < amends_now() FROM heartbeats WHERE replica_id = $1", incarnation
        )
    )


async def held_for_a_lease(place: Place) -> None:
    """Wait until a replica has held its own lease for the whole of a lease, beating."""

    async def has_held() -> bool:
        await place.replica.beat()
        before = place.replica._trusted_since_seconds
        return elapsed_seconds() - before > BRIEF

    await wait_until(has_held)


async def test_a_new_replica_has_a_lease(place: Place, look: asyncpg.Connection) -> None:
    """Registering writes a replica and a heartbeat, and the lease is trusted."""
    assert place.replica.is_trusted
    row = await look.fetchrow(
        "SELECT role, revoked_at, expires_at - beat_at AS lease, expires_at FROM replicas"
        " JOIN heartbeats ON id = replica_id WHERE id = $1",
        place.incarnation,
    )
    assert row is not None
    assert ("test", None, dt.timedelta(seconds=300)) == (
        row["role"],
        row["revoked_at"],
        row["lease"],
    )
    assert row["expires_at"] == place.replica.expires_at


async def test_each_start_is_a_new_incarnation(database_url: str) -> None:
    """A process never meets its own past."""
    async with a_place(database_url) as first, a_place(database_url) as second:
        assert first.incarnation != second.incarnation
        before = first.incarnation
        await first.replica.register()
        assert before != first.incarnation


async def test_a_beat_renews_the_lease(brief: Place, look: asyncpg.Connection) -> None:
    """A beat moves the lease's end, even after it, as long as nobody has revoked it."""
    before = brief.replica.expires_at
    await expired(look, brief.incarnation)
    await wait_until(lambda: not brief.replica.is_trusted)

    await brief.replica.beat()

    assert brief.replica.expires_at > before
    assert brief.replica.is_trusted
    assert not brief.replica.revoked.is_set()


async def test_who_is_silent_is_revoked_and_learns_it_by_beating(
    brief: Place, database_url: str, look: asyncpg.Connection
) -> None:
    """An expired incarnation is revoked by another, once; its next beat tells it so."""
    await expired(look, brief.incarnation)
    async with a_place(database_url, lease_seconds=BRIEF) as heir:
        await held_for_a_lease(heir)

        assert [brief.incarnation] == await heir.replica.revoke_expired()
        assert [] == await heir.replica.revoke_expired()

    with pytest.raises(Fenced):
        await brief.start()
    await brief.replica.beat()
    assert brief.replica.revoked.is_set()


async def test_nobody_is_revoked_whose_lease_is_valid(place: Place, database_url: str) -> None:
    """The living are left alone, and nobody revokes himself."""
    async with a_place(database_url, lease_seconds=BRIEF) as eager:
        await held_for_a_lease(eager)
        await wait_until(lambda: not eager.replica.is_trusted)
        await eager.replica.beat()
        await held_for_a_lease(eager)

        assert [] == await eager.replica.revoke_expired()


async def test_a_newcomer_waits_a_whole_lease_before_it_revokes(
    brief: Place, database_url: str, look: asyncpg.Connection
) -> None:
    """Who has only just got its lease gives the others the time to renew theirs."""
    await expired(look, brief.incarnation)
    async with a_place(database_url, lease_seconds=300) as newcomer:
        assert [] == await newcomer.replica.revoke_expired()


async def test_after_an_outage_nobody_is_revoked_at_once(
    brief: Place, database_url: str, look: asyncpg.Connection
) -> None:
    """All leases ran out while the database was away: who beats first revokes nobody yet."""
    async with a_place(database_url, lease_seconds=BRIEF) as first:
        await held_for_a_lease(first)
        await expired(look, brief.incarnation)
        await wait_until(lambda: not first.replica.is_trusted)  # the outage

        assert [] == await first.replica.revoke_expired()
        await first.replica.beat()
        assert [] == await first.replica.revoke_expired()
        await brief.replica.beat()
        await held_for_a_lease(first)
        await brief.replica.beat()
        assert [] == await first.replica.revoke_expired()


async def test_who_retires_frees_its_sagas_at_once(place: Place, other: Place) -> None:
    """After a clean end the sagas can be claimed, without waiting for the lease."""
    saga = await place.start()

    await place.replica.retire()
    await place.replica.retire()

    async with other.database.write() as tx:
        claims, _ = await claim_orphans(tx, incarnation=other.incarnation, limit=10)
    assert [saga.id] == [claim.saga for claim in claims]


async def test_who_is_draining_opens_nothing(place: Place) -> None:
    """A draining replica stores what it learns, opens no call, and leaves the saga due."""
    saga = await place.start()
    place.replica.is_draining = True

    after = await place.observe(saga, "flight", answered())
    started = await place.start()

    assert (None, ()) == (after.now.owner, after.open_calls(place.incarnation))
    assert after.now.due_at is not None
    assert after.now.due_at <= place.clock.now()
    assert (None, {}) == (started.now.owner, dict(started.calls))


async def test_who_is_not_trusted_opens_nothing(brief: Place) -> None:
    """With its lease over a replica opens no call, though it was not revoked yet."""
    saga = await brief.start()
    await wait_until(lambda: not brief.replica.is_trusted)

    after = await brief.observe(saga, "flight", answered())

    assert (None, ()) == (after.now.owner, after.open_calls(brief.incarnation))


async def test_no_intent_may_be_sent_after_the_lease(brief: Place) -> None:
    """An intent's last moment is the end of the lease under which it was opened."""
    saga = await brief.start()

    (call,) = saga.open_calls(brief.incarnation)
    assert call.open is not None
    assert brief.replica.expires_at == call.open.send_by


async def test_a_flush_that_waits_holds_up_no_heartbeat(
    place: Place, look: asyncpg.Connection, database_url: str
) -> None:
    """A flush stuck at a lock holds its fence row, and the lease is renewed all the same."""
    row = a_start()
    await written(place, [row])
    async with (
        asyncio.TaskGroup() as tasks,
        connected(database_url) as holder,
        holder.transaction(),
    ):
        await holder.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", row.id)
        writing = tasks.create_task(place.writer.write(a_move(row), incarnation=place.incarnation))
        await wait_until(is_blocked(look))
        async with asyncio.timeout(0.9):
            await place.replica.beat()
        assert not writing.done()
    assert writing.result() is Outcome.WRITTEN


async def test_a_heartbeat_that_waits_holds_up_no_flush(
    place: Place, look: asyncpg.Connection
) -> None:
    """Whoever locks the heartbeat row keeps no saga from being written."""
    async with look.transaction():
        await look.execute("SELECT FROM heartbeats FOR UPDATE")
        async with asyncio.timeout(5):
            await written(place, [a_start()])


async def test_the_revocation_of_a_busy_replica_gets_through(
    place: Place, look: asyncpg.Connection
) -> None:
    """A revocation needs the row that every flush locks, and gets it between two of them."""
    stopped = asyncio.Event()

    async def write_all_the_time() -> int:
        count = 0
        while not stopped.is_set():
            try:
                await place.writer.write(a_start(), incarnation=place.incarnation)
            except Fenced:
                break
            count += 1
        return count

    async with asyncio.TaskGroup() as tasks:
        busy = [tasks.create_task(write_all_the_time()) for _ in range(8)]
        await wait_until(lambda: place.writer.flushes > 20)
        async with asyncio.timeout(5):
            await look.execute("UPDATE replicas SET revoked_at = now()")
        await wait_until(lambda: all(task.done() for task in busy))
        stopped.set()

    rows = sum(task.result() for task in busy)
    assert rows == await look.fetchval("SELECT count(*) FROM sagas")


async def test_a_beat_over_a_dead_line_fails_in_time(database_url: str) -> None:
    """A line that swallows everything costs one beat, not the lease."""
    async with a_proxy(database_url) as proxy, a_place(proxy.url, lease_seconds=3) as far:
        proxy.cut("UPDATE heartbeats", Cut.STALL)

        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(2):
                await far.replica.beat()
        await far.replica.beat()

        assert far.replica.is_trusted


async def test_a_clock_that_is_read_late_trusts_too_briefly(place: Place) -> None:
    """The reading is dated when it was asked for: this clock is never behind the database's."""
    for _ in range(20):
        await place.replica.beat()
        async with place.database.read() as tx:
            theirs = await tx.fetch_value("SELECT amends_now()")
        assert theirs <= place.clock.now()


async def test_the_long_gone_are_forgotten_once_they_own_nothing(
    place: Place, other: Place, look: asyncpg.Connection
) -> None:
    """Pruning drops replicas revoked for more than a day, and their heartbeats."""
    owning = await other.start()
    gone = Replica(place.database, Clock(), role="test", lease_seconds=1)
    await gone.register()
    await look.execute(
        "UPDATE replicas SET revoked_at = now() - interval '25 hours' WHERE id <> $1",
        place.incarnation,
    )

    await place.replica.prune()

    left = {row["id"] for row in await look.fetch("SELECT id FROM replicas")}
    assert {place.incarnation, owning.now.owner} == left
    assert left == {row["replica_id"] for row in await look.fetch("SELECT * FROM heartbeats")}

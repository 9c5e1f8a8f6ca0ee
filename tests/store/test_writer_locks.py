"""Locks: a blocked row waits alone, deadlocks are survived, and our own writers make none."""

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.core.errors import RowRefused
from app.store.statements import MoveRow, StartRow
from app.store.writer import Outcome
from tests.store.place import (
    Place,
    a_move,
    a_place,
    a_start,
    connected,
    head_of,
    is_blocked,
    journal_of,
    written,
)
from tests.waiting import wait_until


@pytest.fixture
async def holder(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of somebody who holds locks."""
    async with connected(database_url) as connection:
        yield connection


async def timed(place: Place, row: StartRow | MoveRow) -> tuple[object, float]:
    """What became of a row, and after how many seconds."""
    begun = time.monotonic()
    try:
        outcome: object = await place.writer.write(row, incarnation=place.incarnation)
    except RowRefused as error:
        outcome = error.sqlstate
    return outcome, time.monotonic() - begun


async def test_a_blocked_row_fails_alone(
    place: Place, look: asyncpg.Connection, holder: asyncpg.Connection
) -> None:
    """A row whose head a foreign transaction holds is given up; those around it are written."""
    starts = sorted((a_start() for _ in range(8)), key=lambda row: row.id)
    await written(place, starts)
    blocked = starts[3].id

    async with holder.transaction():
        await holder.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", blocked)
        ends = await asyncio.gather(*(timed(place, a_move(start)) for start in starts))

    outcomes = {row.id: outcome for row, (outcome, _) in zip(starts, ends, strict=True)}
    assert "55P03" == outcomes.pop(blocked)
    assert {Outcome.WRITTEN} == set(outcomes.values())
    assert 1 == (await head_of(look, blocked))["seq"]


async def test_a_blocked_row_holds_the_others_up_for_about_one_lock_timeout(
    place: Place, holder: asyncpg.Connection
) -> None:
    """Of 256 rows one is blocked: the others are written within two lock timeouts, not nine."""
    starts = sorted((a_start() for _ in range(256)), key=lambda row: row.id)
    await asyncio.gather(
        *(place.writer.write(row, incarnation=place.incarnation) for row in starts)
    )

    async with holder.transaction():
        await holder.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", starts[0].id)
        ends = await asyncio.gather(*(timed(place, a_move(start)) for start in starts))

    slowest = max(seconds for outcome, seconds in ends if outcome is Outcome.WRITTEN)
    assert slowest < 2.9


async def test_a_start_that_waits_for_anothers_business_key_fails_alone(
    place: Place, holder: asyncpg.Connection
) -> None:
    """A business key in an unfinished foreign transaction holds up its own start alone."""
    start = a_start(business_key="order 7")
    async with holder.transaction():
        await holder.execute(
            "INSERT INTO sagas (id, tenant_id, definition_name, definition_version, status, seq,"
            " entry_id, due_at, format, business_key, labels, created_at, updated_at)"
            " VALUES (gen_random_uuid(), 1, 'book_trip', 1, 'pending', 1, gen_random_uuid(),"
            " now(), 1, 'order 7', '{}', now(), now())"
        )
        first, second = await asyncio.gather(timed(place, start), timed(place, a_start()))

    assert "55P03" == first[0]
    assert second[0] is Outcome.WRITTEN
    assert (await timed(place, start))[0] is Outcome.LOST


async def test_starts_beside_one_that_waits_for_a_key_wait_for_it_once(
    place: Place, holder: asyncpg.Connection
) -> None:
    """However many starts share its batch, one that must wait is waited for twice at most."""
    starts = [a_start(business_key=f"order {number}") for number in range(64)]
    async with holder.transaction():
        await holder.execute(
            "INSERT INTO sagas (id, tenant_id, definition_name, definition_version, status, seq,"
            " entry_id, due_at, format, business_key, labels, created_at, updated_at)"
            " VALUES (gen_random_uuid(), 1, 'book_trip', 1, 'pending', 1, gen_random_uuid(),"
            " now(), 1, 'order 63', '{}', now(), now())"
        )
        ends = await asyncio.gather(*(timed(place, start) for start in starts))

    assert [Outcome.WRITTEN] * 63 + ["55P03"] == [outcome for outcome, _ in ends]
    assert max(seconds for _, seconds in ends) < 3.9  # halving would wait seven times


async def test_a_deadlock_is_survived(database_url: str, look: asyncpg.Connection) -> None:
    """A flush that is the victim of a deadlock with a foreign transaction is sent again."""
    # The flush looks for a deadlock at once, the foreign transaction late: the flush is the victim.
    database = database_url.partition("?")[0].rpartition("/")[2]
    await look.execute(
        f"ALTER ROLE CURRENT_USER IN DATABASE {database} SET deadlock_timeout = '50ms'"
    )
    first, second = sorted((a_start(), a_start()), key=lambda row: row.id)
    async with connected(database_url) as holder, a_place(database_url) as place:
        await holder.execute("SET deadlock_timeout = '60s'")
        await holder.execute("SET lock_timeout = '60s'")
        await written(place, [first, second])
        async with asyncio.TaskGroup() as tasks, holder.transaction():
            await holder.execute("UPDATE sagas SET attention = true WHERE id = $1", second.id)
            moves = [
                tasks.create_task(place.writer.write(a_move(row), incarnation=place.incarnation))
                for row in (first, second)
            ]
            await wait_until(is_blocked(look))
            await holder.execute("UPDATE sagas SET attention = true WHERE id = $1", first.id)

    assert [Outcome.WRITTEN] * 2 == [move.result() for move in moves]
    assert [2, 2] == [len(await journal_of(look, row.id)) for row in (first, second)]
    assert await deadlocks(look) >= 1


async def deadlocks(look: asyncpg.Connection) -> int:
    """How many deadlocks this database has seen, once nobody else is connected to it."""
    await wait_until(lambda: _is_alone(look))
    count: int = await look.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    return count


async def _is_alone(look: asyncpg.Connection) -> bool:
    """Whether all others have gone, and told the server's statistics what they saw."""
    others: int = await look.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid()"
    )
    return others == 0


async def test_two_writers_in_opposite_order_do_not_deadlock(
    database_url: str, look: asyncpg.Connection
) -> None:
    """Two replicas that move the same sagas, in opposite order, never lock each other out."""
    before = await deadlocks(look)
    rows: list[StartRow | MoveRow] = [a_start() for _ in range(40)]
    async with a_place(database_url) as place, a_place(database_url) as other:
        await written(place, rows)
        for _ in range(25):
            moves = [a_move(row) for row in rows]
            outcomes = await asyncio.gather(
                *(place.writer.write(row, incarnation=place.incarnation) for row in moves),
                *(
                    other.writer.write(a_move(row), incarnation=other.incarnation)
                    for row in reversed(rows)
                ),
                return_exceptions=True,
            )
            assert {Outcome.WRITTEN, Outcome.LOST} >= set(outcomes), outcomes
            assert 40 == outcomes.count(Outcome.WRITTEN)
            rows = [await last_of(look, row) for row in moves]

    assert before == await deadlocks(look)


async def last_of(look: asyncpg.Connection, row: MoveRow) -> MoveRow:
    """A row that stands for the last entry of the same saga, whoever wrote it."""
    head = await head_of(look, row.id)
    return a_move(row, seq=head["seq"], entry_id=head["entry_id"])


async def test_heads_are_locked_in_the_order_of_their_ids(
    place: Place, look: asyncpg.Connection, holder: asyncpg.Connection
) -> None:
    """Blocked at one head, a flush has locked those with smaller ids, and none with larger."""
    starts = sorted((a_start() for _ in range(9)), key=lambda row: row.id)
    await written(place, starts)

    async with asyncio.TaskGroup() as tasks, holder.transaction():
        await holder.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", starts[4].id)
        for row in reversed(starts):
            tasks.create_task(place.writer.write(a_move(row), incarnation=place.incarnation))
        await wait_until(is_blocked(look))
        free = await look.fetch("SELECT id FROM sagas ORDER BY id FOR UPDATE SKIP LOCKED")

    assert [row.id for row in starts[5:]] == [row["id"] for row in free]


async def test_a_lock_on_a_table_only_delays(
    place: Place, look: asyncpg.Connection, holder: asyncpg.Connection
) -> None:
    """While a migration holds the table for three seconds rows wait; none is refused for it."""
    starts = [a_start() for _ in range(20)]
    released = asyncio.Event()

    async def hold() -> None:
        async with holder.transaction():
            await holder.execute("LOCK TABLE sagas IN ACCESS EXCLUSIVE MODE")
            locked.set()
            await holder.execute("SELECT pg_sleep(3)")
        released.set()

    locked = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold())
        await locked.wait()
        ends = await asyncio.gather(*(timed(place, row) for row in starts))

    assert [Outcome.WRITTEN] * 20 == [outcome for outcome, _ in ends]

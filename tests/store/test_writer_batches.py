"""The shared writer: what waits shares a commit, and one row never fails the others."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import asyncpg
import pytest

from app.core.errors import RowRefused
from app.store import Writer
from app.store.statements import MoveRow, StartRow
from app.store.writer import BYTES_MAX, ROWS_MAX, Outcome
from tests.store.place import (
    Place,
    a_move,
    a_start,
    answered,
    is_blocked,
    journal_of,
    written,
)
from tests.waiting import wait_until


async def write_all(place: Place, rows: Sequence[StartRow | MoveRow]) -> list[object]:
    """Write rows at once; returns what came of each, errors too."""
    return await asyncio.gather(
        *(place.writer.write(row, incarnation=place.incarnation) for row in rows),
        return_exceptions=True,
    )


async def commits(look: asyncpg.Connection) -> int:
    """How many transactions have got an id so far: those that wrote or locked something."""
    count: str = await look.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
    return int(count)


async def test_rows_that_wait_share_a_commit(place: Place, look: asyncpg.Connection) -> None:
    """Four hundred rows written at once take a handful of transactions."""
    before = await commits(look)

    outcomes = await write_all(place, [a_start() for _ in range(400)])

    assert [Outcome.WRITTEN] * 400 == outcomes
    assert await commits(look) - before <= 4
    assert 400 == await look.fetchval("SELECT count(*) FROM saga_journal")


async def test_result_and_next_intent_are_one_entry(place: Place, look: asyncpg.Connection) -> None:
    """A saga of two calls takes three entries and three transactions, head row and all."""
    before = await commits(look)

    saga = await place.start()
    await place.observe(saga, "flight", answered())
    done = await place.observe(saga, "hotel", answered())

    assert "completed" == done.status.value
    entries = await journal_of(look, saga.id)
    assert ["saga_requested", "attempt_observed", "attempt_observed"] == [
        entry["type"] for entry in entries
    ]
    assert 3 == await commits(look) - before


async def test_five_hundred_rows_are_a_flush_and_no_more(place: Place) -> None:
    """A flush holds at most 500 rows."""
    flushes = place.writer.flushes

    await write_all(place, [a_start() for _ in range(ROWS_MAX * 2 + 1)])

    assert flushes + 3 == place.writer.flushes


async def test_four_megabytes_are_a_flush_and_no_more(place: Place) -> None:
    """A flush is closed once it holds four megabytes."""
    megabyte = '{"x": "' + "x" * 1024 * 1024 + '"}'
    flushes = place.writer.flushes

    await write_all(place, [a_start(data=megabyte) for _ in range(BYTES_MAX // 2**20 * 2)])

    assert flushes + 2 == place.writer.flushes


async def test_urgent_rows_go_first(
    database_url: str, place: Place, look: asyncpg.Connection
) -> None:
    """Of what waits, urgent rows are written before others that came earlier."""
    blocker = a_start()
    await written(place, [blocker])
    order: list[str] = []

    async def write(name: str, *, urgent: bool) -> None:
        await place.writer.write(a_start(), incarnation=place.incarnation, urgent=urgent)
        order.append(name)

    async with asyncio.TaskGroup() as tasks, look.transaction():
        await look.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", blocker.id)
        held = place.writer.write(a_move(blocker), incarnation=place.incarnation)
        tasks.create_task(held)
        await wait_until(is_blocked(look))
        for number in range(ROWS_MAX):
            tasks.create_task(write(f"waiting {number}", urgent=False))
        tasks.create_task(write("urgent", urgent=True))
        await wait_until(lambda: len(place.writer._waiting) == ROWS_MAX)

    assert "waiting 499" == order[-1]
    assert "urgent" in order[:-1]


POISONED: dict[str, dict[str, object]] = {
    "a NUL in a label": {"labels": '{"a": "\\u0000"}'},
    "text with a NUL": {"type": "a\0b"},
    "JSON that is none": {"data": "{"},
    "a status that there is not": {"status": "sleepy"},
    "no reason to move": {"status": "running", "due_at": None},
    "a key too long for its index": {"business_key": "".join(map(chr, range(256, 6256)))},
    "a lone surrogate": {"business_key": "\ud800"},
    "a number too large": {"definition_version": 2**40},
}


@pytest.mark.parametrize("fault", POISONED)
async def test_a_poisoned_row_fails_alone(
    place: Place, look: asyncpg.Connection, fault: str
) -> None:
    """A row that the database refuses gets a typed failure; fifty around it are written."""
    healthy = [a_start() for _ in range(50)]
    poisoned = replace(a_start(), **POISONED[fault])  # type: ignore[arg-type]  # as the fault is

    async with asyncio.timeout(20):
        outcomes = await write_all(place, [*healthy[:25], poisoned, *healthy[25:]])

    refused = outcomes.pop(25)
    assert isinstance(refused, RowRefused), refused
    assert poisoned.id == refused.saga
    assert [Outcome.WRITTEN] * 50 == outcomes
    assert 50 == await look.fetchval("SELECT count(*) FROM sagas")


async def test_many_poisoned_rows_fail_alone(place: Place) -> None:
    """Every refused row of a flush is found, and no other fails."""
    rows = [a_start(status="sleepy" if number % 7 == 0 else "pending") for number in range(50)]

    outcomes = await write_all(place, rows)

    for row, outcome in zip(rows, outcomes, strict=True):
        if row.status == "sleepy":
            assert isinstance(outcome, RowRefused)
        else:
            assert outcome is Outcome.WRITTEN


async def test_a_move_and_starts_in_one_flush_do_not_fail_each_other(place: Place) -> None:
    """A refused move leaves the starts beside it alone, and the other way round."""
    first, second = a_start(), a_start()
    await written(place, [first, second])

    outcomes = await write_all(
        place,
        [a_move(first), a_start(status="sleepy"), a_move(second, status="sleepy"), a_start()],
    )

    assert [Outcome.WRITTEN, Outcome.WRITTEN] == [outcomes[0], outcomes[3]]
    assert [True, True] == [isinstance(outcomes[at], RowRefused) for at in (1, 2)]


async def test_one_saga_started_fifty_times_at_once_is_one_saga(
    place: Place, look: asyncpg.Connection
) -> None:
    """Of equal starts in one flush one is written, and the others are told that they lost."""
    saga = a_start().id

    outcomes = await write_all(place, [a_start(saga=saga) for _ in range(50)])

    assert {Outcome.WRITTEN: 1, Outcome.LOST: 49} == {
        outcome: outcomes.count(outcome) for outcome in (Outcome.WRITTEN, Outcome.LOST)
    }
    assert 1 == len(await journal_of(look, saga))


async def test_equal_starts_do_not_break_up_the_flush(
    place: Place, look: asyncpg.Connection
) -> None:
    """A client that posts twice at once costs the others nothing: two flushes, not a dozen."""
    before = await commits(look)
    saga = a_start().id

    await write_all(place, [*(a_start() for _ in range(100)), *(a_start(saga=saga),) * 2])

    assert await commits(look) - before <= 3


async def test_a_caller_that_gave_up_is_not_written(place: Place, look: asyncpg.Connection) -> None:
    """A row whose caller was cancelled while it waited is dropped; the rest goes on."""
    blocker = a_start()
    await written(place, [blocker])
    given_up, kept = a_start(), a_start()

    async with asyncio.TaskGroup() as tasks, look.transaction():
        await look.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", blocker.id)
        held = place.writer.write(a_move(blocker), incarnation=place.incarnation)
        tasks.create_task(held)
        await wait_until(is_blocked(look))
        leaving = tasks.create_task(place.writer.write(given_up, incarnation=place.incarnation))
        staying = tasks.create_task(place.writer.write(kept, incarnation=place.incarnation))
        await wait_until(lambda: len(place.writer._waiting) == 2)
        leaving.cancel()

    assert staying.result() is Outcome.WRITTEN
    assert {blocker.id, kept.id} == {row["id"] for row in await look.fetch("SELECT id FROM sagas")}


async def test_a_listener_that_raises_harms_nobody(place: Place, look: asyncpg.Connection) -> None:
    """Who is told of a commit and fails has a bug: the commit stands, and its caller knows."""

    def fail() -> None:
        raise RuntimeError("a bug")

    async with asyncio.timeout(3):
        outcomes = await asyncio.gather(
            place.writer.write(a_start(), incarnation=place.incarnation, on_written=fail),
            *(place.writer.write(a_start(), incarnation=place.incarnation) for _ in range(5)),
            return_exceptions=True,
        )

    assert [Outcome.WRITTEN] * 6 == outcomes


async def test_what_follows_a_commit_is_done_though_the_caller_left(
    place: Place, look: asyncpg.Connection
) -> None:
    """A caller leaves while its row is out: once that is committed, everybody is told."""
    told: list[str] = []
    row = a_start()
    loop = asyncio.get_running_loop()
    async with look.transaction():
        await look.execute("SELECT FROM replicas FOR UPDATE")
        caller = loop.create_task(
            place.writer.write(
                row, incarnation=place.incarnation, on_written=lambda: told.append("written")
            )
        )
        await wait_until(is_blocked(look))
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert [] == told

    await wait_until(lambda: told == ["written"])
    assert 1 == len(await journal_of(look, row.id))


async def test_stop_writes_what_waits(place: Place, look: asyncpg.Connection) -> None:
    """A writer that is stopped first writes all that it was given; stopping again is harmless."""
    rows = [a_start() for _ in range(ROWS_MAX + 50)]
    async with asyncio.TaskGroup() as tasks:
        waiting = [
            tasks.create_task(place.writer.write(row, incarnation=place.incarnation))
            for row in rows
        ]
        await wait_until(lambda: len(place.writer._waiting) > 0)
        await place.writer.stop()
        await place.writer.stop()

    assert {Outcome.WRITTEN} == {task.result() for task in waiting}
    assert len(rows) == await look.fetchval("SELECT count(*) FROM sagas")


async def test_stop_works_before_start(place: Place) -> None:
    """A writer that never started is stopped at once."""
    await Writer(place.database).stop()

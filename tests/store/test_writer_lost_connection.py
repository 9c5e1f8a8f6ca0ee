"""The connection is lost while a flush is out: the row is written exactly once, and we know it."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.core.errors import Fenced
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
from tests.store.proxy import Cut, Proxy, a_proxy
from tests.waiting import wait_until

KINDS = {"start": "started_journal", "move": "moved_journal"}
"""What is written, and what its statement alone contains."""


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """The way from the writer to the database."""
    async with a_proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def far(database_url: str, proxy: Proxy) -> AsyncIterator[Place]:
    """A place whose writer goes through the proxy, and nothing else does."""
    async with a_place(database_url, writing_url=proxy.url) as place:
        yield place


async def write(place: Place, row: StartRow | MoveRow) -> Outcome:
    """Write a row as this place."""
    return await place.writer.write(row, incarnation=place.incarnation)


async def a_row(place: Place, kind: str) -> tuple[StartRow | MoveRow, int]:
    """A row of a kind that may be written now, and how many entries its saga has then."""
    start = a_start()
    if kind == "start":
        return start, 1
    await written(place, [start])
    return a_move(start), 2


async def seen_once(look: asyncpg.Connection, row: StartRow | MoveRow, entries: int) -> None:
    """The row is in place, and its saga has so many entries."""
    journal = await journal_of(look, row.id)
    assert entries == len(journal)
    assert row.entry_id == journal[-1]["id"]
    head = await head_of(look, row.id)
    assert (entries, row.entry_id) == (head["seq"], head["entry_id"])


@pytest.mark.parametrize("when", [Cut.BEFORE, Cut.AFTER])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_row_is_written_once_wherever_the_line_is_cut(
    far: Place, proxy: Proxy, look: asyncpg.Connection, kind: str, when: Cut
) -> None:
    """The line is cut before the server hears of the flush, or after its commit."""
    row, entries = await a_row(far, kind)
    cut = proxy.cut(KINDS[kind], when)

    assert await write(far, row) is Outcome.WRITTEN
    assert cut.is_set()
    await seen_once(look, row, entries)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_row_is_written_once_though_the_line_is_cut_again_and_again(
    far: Place, proxy: Proxy, look: asyncpg.Connection, kind: str
) -> None:
    """Three commits in a row get no answer, and the look-up after them is cut as well."""
    row, entries = await a_row(far, kind)
    proxy.cut(KINDS[kind], Cut.AFTER, times=3)
    cut = proxy.cut("AS appended", Cut.BEFORE)

    assert await write(far, row) is Outcome.WRITTEN
    assert cut.is_set()
    await seen_once(look, row, entries)


async def test_a_flush_goes_on_without_its_client(
    far: Place, proxy: Proxy, look: asyncpg.Connection, database_url: str
) -> None:
    """The client is cut off while its flush waits for a lock; that flush may commit later."""
    row, entries = await a_row(far, "move")

    async with asyncio.TaskGroup() as tasks, connected(database_url) as holder:
        async with holder.transaction():
            await holder.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", row.id)
            gone = proxy.cut(KINDS["move"], Cut.DURING)
            writing = tasks.create_task(write(far, row))
            await gone.wait()
            await wait_until(is_blocked(look, 2), what="the first flush and its repetition")
        assert await writing is Outcome.WRITTEN

    await wait_until(lambda: _is_idle(look), what="both flushes to end")
    await seen_once(look, row, entries)


async def _is_idle(look: asyncpg.Connection) -> bool:
    running: int = await look.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%moved_journal%'"
    )
    return running == 0


async def test_a_terminated_backend_costs_nothing(far: Place, look: asyncpg.Connection) -> None:
    """An operator ends the writer's backend in the middle of a flush; the flush is repeated."""
    row, entries = await a_row(far, "move")
    other = a_start()

    async with asyncio.TaskGroup() as tasks, look.transaction():
        await look.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", row.id)
        writing = tasks.create_task(write(far, row))
        await wait_until(is_blocked(look))
        await look.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE '%moved_journal%' AND pid <> pg_backend_pid()"
        )
        waiting = tasks.create_task(write(far, other))
    assert [Outcome.WRITTEN] * 2 == [writing.result(), waiting.result()]
    await seen_once(look, row, entries)
    await seen_once(look, other, 1)


async def test_who_lost_the_race_is_told_so_after_a_cut(
    far: Place, proxy: Proxy, look: asyncpg.Connection
) -> None:
    """A row that meets another's entry after the line was cut is lost, and writes nothing."""
    row, _ = await a_row(far, "move")
    winner = a_move(a_start(saga=row.id), seq=2, before=row.before)  # type: ignore[union-attr]
    cut = proxy.cut(KINDS["move"], Cut.BEFORE)
    proxy.refuses = True
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write(far, row))
        await cut.wait()
        await look.execute(
            "INSERT INTO saga_journal VALUES ($1, 2, $2, 1, now(), 'saga_woken', 1, '{}')",
            winner.id,
            winner.entry_id,
        )
        await look.execute(
            "UPDATE sagas SET seq = 2, entry_id = $2 WHERE id = $1", winner.id, winner.entry_id
        )
        proxy.refuses = False

    assert writing.result() is Outcome.LOST
    assert [winner.entry_id] == [entry["id"] for entry in (await journal_of(look, row.id))[1:]]


@pytest.mark.parametrize("when", [Cut.BEFORE, Cut.AFTER])
async def test_who_is_revoked_meanwhile_learns_what_became_of_the_row(
    far: Place, proxy: Proxy, look: asyncpg.Connection, when: Cut
) -> None:
    """Committed before the revocation, the row is written; not sent before it, it is refused."""
    row, _ = await a_row(far, "move")
    cut = proxy.cut(KINDS["move"], when)
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(asyncio.wait_for(_outcome(far, row), 30))
        await cut.wait()
        if when is Cut.AFTER:
            await wait_until(lambda: _has_two(look, row))
        proxy.refuses = True
        await look.execute("UPDATE replicas SET revoked_at = now()")
        proxy.refuses = False

    expected = Outcome.WRITTEN if when is Cut.AFTER else Fenced
    assert expected in {writing.result(), type(writing.result())}


async def _outcome(place: Place, row: StartRow | MoveRow) -> Outcome | Exception:
    try:
        return await write(place, row)
    except Fenced as error:
        return error


async def _has_two(look: asyncpg.Connection, row: StartRow | MoveRow) -> bool:
    return len(await journal_of(look, row.id)) == 2


async def test_a_whole_batch_survives_a_cut(
    far: Place, proxy: Proxy, look: asyncpg.Connection
) -> None:
    """A lost commit of many rows is resolved for each of them, with others behind it."""
    rows = [a_start() for _ in range(300)]
    cut = proxy.cut(KINDS["start"], Cut.AFTER)

    outcomes = await asyncio.gather(*(write(far, row) for row in rows))
    more = await asyncio.gather(*(write(far, a_move(row)) for row in rows))

    assert cut.is_set()
    assert [Outcome.WRITTEN] * 600 == [*outcomes, *more]
    assert 600 == await look.fetchval("SELECT count(*) FROM saga_journal")
    assert 600 == await look.fetchval("SELECT sum(seq) FROM sagas")

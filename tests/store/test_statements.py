"""The flush statement: what it writes, and that who loses the compare-and-set writes nothing."""

import uuid

import asyncpg
import pytest

from app.core.errors import Fenced
from app.core.identity import Incarnation
from app.store.statements import FIND, MoveRow, StartRow, columns, flush_statement
from app.store.writer import Outcome
from tests.store.place import Place, a_move, a_start, head_of, journal_of, written


async def test_a_start_writes_the_head_and_its_first_entry(
    place: Place, look: asyncpg.Connection
) -> None:
    """A start writes every field of the head row, and the first entry."""
    row = a_start(
        owner=place.incarnation,
        business_key="order 7",
        labels='{"team": "travel"}',
        fingerprint=b"same",
        attention=True,
        failure='{"cause": "cancelled"}',
    )

    assert await place.writer.write(row, incarnation=place.incarnation) is Outcome.WRITTEN
    head = await head_of(look, row.id)
    assert {
        "id": row.id,
        "tenant_id": 1,
        "definition_name": "book_trip",
        "definition_version": 1,
        "status": "pending",
        "seq": 1,
        "entry_id": row.entry_id,
        "owner": place.incarnation,
        "due_at": row.at,
        "losses": 0,
        "attention": True,
        "format": 1,
        "business_key": "order 7",
        "labels": '{"team": "travel"}',
        "failure": '{"cause": "cancelled"}',
        "fingerprint": b"same",
        "created_at": row.at,
        "updated_at": row.at,
        "finished_at": None,
    } == dict(head)
    (entry,) = await journal_of(look, row.id)
    assert {
        "saga_id": row.id,
        "seq": 1,
        "id": row.entry_id,
        "tenant_id": 1,
        "at": row.at,
        "type": "saga_requested",
        "format": 1,
        "data": row.data,
    } == dict(entry)


async def test_a_move_sets_the_head_and_appends_its_entry(
    place: Place, look: asyncpg.Connection
) -> None:
    """A move changes what is its business in the head row, and nothing of the rest."""
    start = a_start(business_key="order 7", fingerprint=b"same", labels='{"a": "b"}')
    move = a_move(start, status="completed", finished_at=start.at, due_at=None)
    await written(place, [start])
    before = await head_of(look, start.id)

    await written(place, [move])
    after = await head_of(look, start.id)
    changed = {name for name, value in after.items() if value != before[name]}
    assert {"status", "seq", "entry_id", "due_at", "finished_at"} == changed
    first, second = await journal_of(look, start.id)
    assert (1, start.entry_id) == (first["seq"], first["id"])
    assert (2, move.entry_id, move.data, 1) == (
        second["seq"],
        second["id"],
        second["data"],
        second["tenant_id"],
    )


@pytest.mark.parametrize("stale", ["seq", "predecessor"])
async def test_who_loses_the_compare_and_set_writes_nothing(
    place: Place, look: asyncpg.Connection, stale: str
) -> None:
    """A move whose predecessor is not the head's last entry writes neither head nor entry."""
    start = a_start()
    winner = a_move(start)
    loser = a_move(start) if stale == "seq" else a_move(winner, before=uuid.uuid4())
    await written(place, [start, winner])
    before = await head_of(look, start.id)

    outcome = await place.writer.write(loser, incarnation=place.incarnation)

    assert outcome is Outcome.LOST
    assert before == await head_of(look, start.id)
    assert [start.entry_id, winner.entry_id] == [
        entry["id"] for entry in await journal_of(look, start.id)
    ]


async def test_a_move_of_a_saga_that_is_missing_is_lost(place: Place) -> None:
    """A move without a head changes nothing."""
    outcome = await place.writer.write(a_move(a_start()), incarnation=place.incarnation)

    assert outcome is Outcome.LOST


async def test_a_start_of_a_saga_that_exists_changes_nothing(
    place: Place, look: asyncpg.Connection
) -> None:
    """The second start under an id is lost, and the first stays as it was."""
    first = a_start(labels='{"first": "yes"}')
    await written(place, [first])
    second = a_start(saga=first.id, labels='{"first": "no"}')

    outcome = await place.writer.write(second, incarnation=place.incarnation)

    assert outcome is Outcome.LOST
    assert '{"first": "yes"}' == (await head_of(look, first.id))["labels"]
    assert 1 == len(await journal_of(look, first.id))


async def test_a_live_business_key_is_taken_and_a_finished_one_is_free(
    place: Place, look: asyncpg.Connection
) -> None:
    """A start with the business key of a live saga is lost; after that saga's end it is not."""
    first = a_start(business_key="order 7")
    await written(place, [first])

    second = a_start(business_key="order 7")
    assert Outcome.LOST is await place.writer.write(second, incarnation=place.incarnation)
    other = a_start(business_key="order 7", definition_name="another")
    await written(place, [other])
    await written(place, [a_move(first, status="completed", finished_at=first.at)])
    await written(place, [second])
    live = await look.fetch("SELECT id FROM sagas WHERE finished_at IS NULL ORDER BY id")
    assert sorted([second.id, other.id]) == [row["id"] for row in live]


@pytest.mark.parametrize(("progress", "losses"), [(False, 2), (True, 0)])
async def test_progress_forgives_lost_owners(
    place: Place, look: asyncpg.Connection, *, progress: bool, losses: int
) -> None:
    """Lost owners are counted until the saga makes progress."""
    start = a_start()
    await written(place, [start])
    await look.execute("UPDATE sagas SET losses = 2")

    await written(place, [a_move(start, progress=progress)])

    assert losses == (await head_of(look, start.id))["losses"]


async def test_the_format_of_the_head_never_shrinks(place: Place, look: asyncpg.Connection) -> None:
    """The head carries the newest format in its journal, whoever wrote last."""
    start = a_start(format=2)
    move = a_move(start, format=1)
    await written(place, [start, move])

    assert 2 == (await head_of(look, start.id))["format"]
    assert [2, 1] == [entry["format"] for entry in await journal_of(look, start.id)]


async def test_a_revoked_incarnation_is_refused_wholly(
    place: Place, look: asyncpg.Connection
) -> None:
    """No start and no move of a revoked incarnation is written, and it is told why."""
    start = a_start()
    await written(place, [start])
    await look.execute("UPDATE replicas SET revoked_at = now()")

    for row in (a_start(), a_move(start)):
        with pytest.raises(Fenced):
            await place.writer.write(row, incarnation=place.incarnation)

    assert 1 == await look.fetchval("SELECT count(*) FROM sagas")
    assert 1 == await look.fetchval("SELECT count(*) FROM saga_journal")


async def test_an_incarnation_that_was_never_registered_is_refused(place: Place) -> None:
    """Who is no replica writes nothing."""
    with pytest.raises(Fenced):
        await place.writer.write(a_start(), incarnation=Incarnation(uuid.uuid4()))


async def test_a_mixed_flush_says_who_won(place: Place, look: asyncpg.Connection) -> None:
    """One statement writes starts and moves, and names exactly the entries that it wrote."""
    old, moved, stale = a_start(), a_start(), a_start()
    await written(place, [old, moved, stale])
    starts: list[StartRow] = [a_start(), a_start(saga=old.id)]
    moves: list[MoveRow] = [a_move(moved), a_move(stale, before=uuid.uuid4())]
    statement = flush_statement(starts=True, moves=True)

    row = await look.fetchrow(statement, place.incarnation, *columns(starts), *columns(moves))

    assert row is not None
    assert (True, {starts[0].entry_id, moves[0].entry_id}) == (row["valid"], set(row["won"]))


async def test_find_tells_whose_entry_is_in_place(place: Place, look: asyncpg.Connection) -> None:
    """What became of a row is found by its saga and seq: whose entry is there, if any is."""
    start = a_start(fingerprint=b"same")
    move = a_move(start)
    await written(place, [start, move])
    nobody = uuid.uuid4()

    rows = await look.fetch(FIND, [start.id, start.id, start.id, nobody], [1, 2, 3, 1])

    assert [start.entry_id, move.entry_id, None] == [row["appended"] for row in rows]
    assert {(start.id, 2, move.entry_id, b"same")} == {
        (row["id"], row["seq"], row["entry_id"], row["fingerprint"]) for row in rows
    }

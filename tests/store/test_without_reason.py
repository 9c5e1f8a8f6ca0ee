"""The query that must return no rows: it finds every kind of saga that nothing would ever move."""

import asyncio
import uuid

import asyncpg
import pytest

from app.store import list_without_reason
from tests.store.place import Place, a_start, answered, written


async def found(place: Place) -> list[object]:
    """What the query finds."""
    async with place.database.read() as tx:
        return [*await list_without_reason(tx)]


async def wedge(look: asyncpg.Connection, saga: uuid.UUID, change: str, *args: object) -> None:
    """Do to a saga what the tables would not allow."""
    await look.execute("ALTER TABLE sagas DROP CONSTRAINT sagas_reason_check")
    await look.execute(f"UPDATE sagas SET {change} WHERE id = $1", saga, *args)


async def test_sagas_on_their_way_all_have_a_reason(
    place: Place, front: Place, look: asyncpg.Connection
) -> None:
    """Pending, owned, parked, stuck, finished, orphaned: none is found."""
    await front.start()
    await place.start()
    await place.park()
    stuck = await place.park()
    await place.cancel(stuck)
    stuck = await place.observe(stuck, "flight", answered(400), undo=True)
    compensated = await place.start()
    await place.observe(compensated, "flight", answered(402))
    orphan = await place.start()
    gone = uuid.uuid4()
    await look.execute("INSERT INTO replicas VALUES ($1, 'all', now(), now())", gone)
    await look.execute("INSERT INTO heartbeats VALUES ($1, now(), now())", gone)
    await look.execute("UPDATE sagas SET owner = $2 WHERE id = $1", orphan.id, gone)

    statuses = {row["status"] for row in await look.fetch("SELECT status FROM sagas")}
    assert {"pending", "running", "stuck", "compensated"} == statuses
    assert [] == await found(place)


@pytest.mark.parametrize("status", ["pending", "running", "compensating"])
async def test_neither_owner_nor_time_is_found(
    place: Place, look: asyncpg.Connection, status: str
) -> None:
    """A saga that nobody owns and that is never due is found, whatever its status."""
    row = a_start(status=status)
    await written(place, [row])
    await wedge(look, row.id, "due_at = NULL")

    assert [row.id] == await found(place)


async def test_the_database_refuses_neither_owner_nor_time(place: Place) -> None:
    """The tables themselves refuse a saga that nothing would move."""
    with pytest.raises(Exception, match="sagas_reason_check"):
        await written(place, [a_start(due_at=None)])


async def test_an_owner_that_there_is_not_is_found(place: Place, look: asyncpg.Connection) -> None:
    """A saga of an unknown incarnation is found, though it has a due time."""
    row = a_start(owner=uuid.uuid4())
    await written(place, [row])

    assert [row.id] == await found(place)


async def test_an_owner_without_a_heartbeat_is_found(
    place: Place, look: asyncpg.Connection
) -> None:
    """An owner whose lease can never end would keep its sagas for ever: they are found."""
    saga = await place.start()
    await look.execute("DELETE FROM heartbeats")

    assert [saga.id] == await found(place)


async def test_a_hundred_are_enough(place: Place, look: asyncpg.Connection) -> None:
    """However many are wedged, the answer stays small."""
    rows = [a_start(owner=uuid.uuid4()) for _ in range(150)]
    await asyncio.gather(*(place.writer.write(row, incarnation=place.incarnation) for row in rows))

    assert 100 == len(await found(place))

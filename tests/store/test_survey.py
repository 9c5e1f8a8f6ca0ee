"""The survey tells what is in the database, whoever owns it."""

import uuid

import asyncpg

from app.core.saga import SagaStatus
from app.store import Survey, make_survey
from tests.store.place import Place, a_start, answered, written


async def survey(place: Place) -> Survey:
    """What there is."""
    async with place.database.read() as tx:
        return await make_survey(tx)


async def test_an_empty_database_is_surveyed(place: Place) -> None:
    """Where there is nothing, everything is 0, and every status is there."""
    seen = await survey(place)

    assert not any(seen.live.values())
    assert {"pending", "running", "compensating", "paused", "stuck"} == set(seen.live)
    assert (0, 0) == (seen.attention, seen.without_reason)
    assert (0.0, 0.0) == (seen.due_oldest_seconds, seen.lease_overdue_seconds)


async def test_live_sagas_are_counted_by_status(place: Place, front: Place) -> None:
    """Pending, running and stuck sagas are counted; final ones are not."""
    await front.start()
    await place.start()
    await place.start()
    stuck = await place.park()
    await place.cancel(stuck)
    await place.observe(stuck, "flight", answered(400), undo=True)
    done = await place.start()
    await place.observe(done, "flight", answered(402))

    live = (await survey(place)).live

    counted = {status: count for status, count in live.items() if count}
    assert {SagaStatus.PENDING: 1, SagaStatus.RUNNING: 2, SagaStatus.STUCK: 1} == counted


async def test_the_saga_due_longest_is_told(place: Place, look: asyncpg.Connection) -> None:
    """Of sagas without an owner the earliest due time counts; suspects and the owned do not."""
    rows = [a_start() for _ in range(4)]
    await written(place, rows)
    for row, seconds, losses, owner in zip(
        rows,
        (60, 300, 3000, 5000),
        (0, 0, 3, 0),
        (None, None, None, place.incarnation),
        strict=True,
    ):
        await look.execute(
            "UPDATE sagas SET due_at = now() - $2 * interval '1 second', losses = $3, owner = $4"
            " WHERE id = $1",
            row.id,
            seconds,
            losses,
            owner,
        )

    assert 300 <= (await survey(place)).due_oldest_seconds < 400


async def test_what_is_due_later_does_not_wait(place: Place, look: asyncpg.Connection) -> None:
    """A saga that is parked until a time to come is not late."""
    await written(place, [a_start()])
    await look.execute("UPDATE sagas SET due_at = now() + interval '1 hour'")

    assert 0 == (await survey(place)).due_oldest_seconds


async def test_a_lease_that_nobody_revokes_is_told(place: Place, look: asyncpg.Connection) -> None:
    """A replica that is gone is told until another revokes it."""
    gone = uuid.uuid4()
    await look.execute("INSERT INTO replicas VALUES ($1, 'all', now(), NULL)", gone)
    await look.execute(
        "INSERT INTO heartbeats VALUES ($1, now(), now() - interval '90 seconds')", gone
    )
    before = (await survey(place)).lease_overdue_seconds
    await look.execute("UPDATE replicas SET revoked_at = now() WHERE id = $1", gone)

    assert 90 <= before < 190
    assert 0 == (await survey(place)).lease_overdue_seconds


async def test_attention_and_what_has_no_reason_are_counted(
    place: Place, look: asyncpg.Connection
) -> None:
    """The two counts that must be looked at are those of the queries that find them."""
    rows = [a_start(owner=uuid.uuid4()), a_start(attention=True)]
    await written(place, rows)

    seen = await survey(place)

    assert (1, 1) == (seen.attention, seen.without_reason)

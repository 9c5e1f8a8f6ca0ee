"""Claims: each due or orphaned saga comes to one engine, the oldest first, suspects alone."""

import asyncio
import datetime as dt
import uuid
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from app.core.entries import FORMAT
from app.core.identity import SagaId
from app.core.saga import Code, SagaStatus
from app.store import Claim, claim_due, claim_orphans, list_owned, set_aside
from tests.store.place import Place, a_move, a_place, a_start, answered, connected, head_of, written

NOW = dt.datetime.now(dt.UTC)
SECOND = dt.timedelta(seconds=1)


async def due(place: Place, *, limit: int = 100, suspects: bool = False) -> list[UUID]:
    """Claim what is due; returns whose claims came, in their order."""
    async with place.database.write() as tx:
        claims = await claim_due(tx, incarnation=place.incarnation, limit=limit, suspects=suspects)
    return [claim.saga for claim in claims]


async def orphans(place: Place, *, limit: int = 100) -> tuple[list[Claim], int]:
    """Claim what the revoked have left."""
    async with place.database.write() as tx:
        return await claim_orphans(tx, incarnation=place.incarnation, limit=limit)


async def an_orphan(place: Place, look: asyncpg.Connection, *, losses: int = 0) -> UUID:
    """A saga whose owner was revoked, and that has lost so many owners before."""
    gone = uuid.uuid4()
    await look.execute("INSERT INTO replicas VALUES ($1, 'all', now(), now())", gone)
    row = a_start(owner=gone, due_at=None)
    await written(place, [row])
    await look.execute("UPDATE sagas SET losses = $2 WHERE id = $1", row.id, losses)
    return row.id


async def test_what_is_due_first_is_claimed_first(place: Place, look: asyncpg.Connection) -> None:
    """A batch is what has been due longest, and the claimer owns it by the head."""
    rows = [a_start(due_at=NOW - number * SECOND) for number in (3, 9, 1, 7, 5)]
    await written(place, rows)

    assert {rows[1].id, rows[3].id} == set(await due(place, limit=2))
    assert {rows[4].id, rows[0].id} == set(await due(place, limit=2))
    assert [place.incarnation] * 4 == [
        row["owner"] for row in await look.fetch("SELECT owner FROM sagas WHERE owner IS NOT NULL")
    ]


async def test_what_is_not_due_or_owned_or_at_rest_is_left_alone(place: Place) -> None:
    """Only sagas whose time has come and that nobody owns are claimed."""
    finished = a_start()
    await written(
        place,
        [
            a_start(due_at=NOW + dt.timedelta(hours=1)),
            a_start(owner=place.incarnation),
            finished,
            a_move(finished, status="completed", finished_at=NOW, due_at=None),
        ],
    )

    assert [] == await due(place)


async def test_evidence_after_a_claim_leaves_the_saga_to_the_claimer(
    database_url: str, look: asyncpg.Connection
) -> None:
    """What another replica hears between a claim and the claimer's first entry costs no owner."""
    async with (
        a_place(database_url) as gone,
        a_place(database_url) as heir,
        a_place(database_url, runs_engine=False) as front,
    ):
        saga = await gone.start()
        await look.execute("UPDATE replicas SET revoked_at = now() WHERE id = $1", gone.incarnation)
        claims, _ = await orphans(heir)
        await front.cancel(saga)

        assert [saga.id] == [claim.saga for claim in claims]
        assert heir.incarnation == (await head_of(look, saga.id))["owner"]
        woken = await heir.wake(saga, losses=claims[0].losses)

    assert heir.incarnation == woken.now.owner or woken.now.due_at is not None
    assert SagaStatus.COMPENSATING is woken.status
    assert 1 == (await head_of(look, saga.id))["losses"]


async def test_evidence_for_a_parked_saga_leaves_it_to_its_claimer(
    database_url: str, look: asyncpg.Connection
) -> None:
    """A saga that was claimed because it is due is not taken from its claimer by a cancel."""
    async with (
        a_place(database_url) as heir,
        a_place(database_url, runs_engine=False) as front,
    ):
        saga = await heir.park()
        await look.execute("UPDATE sagas SET due_at = now() - interval '1 s'")
        assert [saga.id] == await due(heir)
        await front.cancel(saga)

        assert heir.incarnation == (await head_of(look, saga.id))["owner"]
        woken = await heir.wake(saga)

    assert heir.incarnation == woken.now.owner


async def test_four_claimers_claim_each_saga_once(database_url: str) -> None:
    """A thousand due sagas and four engines: each saga is claimed by exactly one."""
    async with a_place(database_url) as place:
        rows = [a_start(due_at=NOW - number * SECOND) for number in range(1000)]
        await asyncio.gather(
            *(place.writer.write(row, incarnation=place.incarnation) for row in rows)
        )
        async with a_place(database_url) as second, a_place(database_url) as third:
            claimed = await asyncio.gather(
                *(drain(claimer) for claimer in (place, place, second, third))
            )

    assert sorted(row.id for row in rows) == sorted(saga for batch in claimed for saga in batch)


async def drain(place: Place) -> list[UUID]:
    """Claim until nothing is due any more."""
    claimed: list[UUID] = []
    while batch := await due(place, limit=30):
        claimed += batch
    return claimed


async def test_what_another_claims_is_passed_by(place: Place, look: asyncpg.Connection) -> None:
    """A saga in another's unfinished claim is neither waited for nor claimed twice."""
    first, second = a_start(due_at=NOW - 2 * SECOND), a_start(due_at=NOW - SECOND)
    await written(place, [first, second])

    async with look.transaction():
        await look.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", first.id)
        async with asyncio.timeout(0.9):
            assert [second.id] == await due(place)


async def test_the_revoked_claim_nothing(place: Place, look: asyncpg.Connection) -> None:
    """A revoked incarnation gets no saga, neither due nor orphaned."""
    await written(place, [a_start()])
    await an_orphan(place, look)
    await look.execute("UPDATE replicas SET revoked_at = now()")

    assert [] == await due(place)
    assert ([], 0) == await orphans(place)
    assert 0 == await look.fetchval(
        "SELECT count(*) FROM sagas WHERE owner = $1", place.incarnation
    )


async def test_a_newer_format_is_left_to_newer_replicas(
    place: Place, look: asyncpg.Connection
) -> None:
    """A saga with entries of a newer format is not claimed by this release."""
    due_one = a_start(format=FORMAT + 1)
    await written(place, [due_one])
    orphan = await an_orphan(place, look)
    await look.execute("UPDATE sagas SET format = $2 WHERE id = $1", orphan, FORMAT + 1)

    assert [] == await due(place)
    assert ([], 0) == await orphans(place)


async def test_only_the_sagas_of_the_revoked_are_orphans(
    place: Place, other: Place, look: asyncpg.Connection
) -> None:
    """Sagas of living owners are no orphans, however long they take."""
    orphan = await an_orphan(place, look)
    await written(other, [a_start(owner=other.incarnation)])

    claims, found = await orphans(place)

    assert ([Claim(saga=claims[0].saga, losses=1)], 1) == (claims, found)
    assert orphan == claims[0].saga
    assert ([], 0) == await orphans(place)


async def test_orphans_are_claimed_in_batches_once(
    place: Place, other: Place, look: asyncpg.Connection
) -> None:
    """Two engines take over a hundred orphans in batches, each saga once."""
    ids = [await an_orphan(place, look) for _ in range(100)]

    async def take(heir: Place) -> list[UUID]:
        taken: list[UUID] = []
        while True:
            claims, found = await orphans(heir, limit=20)
            taken += [claim.saga for claim in claims]
            if not found:
                return taken

    both = await asyncio.gather(take(place), take(other))

    assert sorted(ids) == sorted([*both[0], *both[1]])


async def test_a_suspect_is_parked_and_claimed_by_itself(
    place: Place, look: asyncpg.Connection
) -> None:
    """A saga that lost its third owner in a row is parked for a while, apart from the others."""
    suspect = await an_orphan(place, look, losses=2)
    healthy = await an_orphan(place, look, losses=1)

    claims, found = await orphans(place)

    assert ([Claim(saga=claims[0].saga, losses=2)], 2) == (claims, found)
    assert healthy == claims[0].saga
    head = await head_of(look, suspect)
    assert (3, None) == (head["losses"], head["owner"])
    assert head["due_at"] > await look.fetchval("SELECT amends_now()")
    await look.execute("UPDATE sagas SET due_at = now() WHERE id = $1", suspect)
    assert [] == await due(place)
    assert [suspect] == await due(place, limit=1, suspects=True)


async def test_the_fourth_loss_in_a_row_leaves_a_saga_stuck(
    place: Place, look: asyncpg.Connection
) -> None:
    """A saga that lost its owner again while it ran alone is stuck, and asks how to go on."""
    saga = await place.park()
    await look.execute("UPDATE sagas SET due_at = now(), losses = 4")
    assert [saga.id] == await due(place, suspects=True)

    after = await place.wake(saga, losses=4)

    assert after.status is SagaStatus.STUCK
    assert after.now.stuck is not None
    assert after.now.stuck.problem.code is Code.OWNER_LOST
    assert 4 == (await head_of(look, saga.id))["losses"]
    assert 0 == (await head_of(look, (await place.retry(saga)).id))["losses"]


async def test_three_losses_are_forgiven_by_progress(
    place: Place, look: asyncpg.Connection
) -> None:
    """An answer of a tool shows that the saga is not what kills its owners."""
    saga = await place.start()
    await look.execute("UPDATE sagas SET losses = 3")

    await place.observe(saga, "flight", answered())

    assert 0 == (await head_of(look, saga.id))["losses"]


async def test_set_aside_parks_ones_own_and_nobody_elses(
    place: Place, other: Place, look: asyncpg.Connection
) -> None:
    """Setting a saga aside frees it, makes it due later, and counts as a lost owner."""
    mine, theirs = a_start(owner=place.incarnation), a_start(owner=other.incarnation)
    await written(place, [mine, theirs])

    async with place.database.write() as tx:
        for row in (mine, theirs):
            saga = SagaId(row.id)
            await set_aside(tx, incarnation=place.incarnation, saga=saga, delay=60 * SECOND)

    head = await head_of(look, mine.id)
    assert (None, 1) == (head["owner"], head["losses"])
    assert head["due_at"] > await look.fetchval("SELECT amends_now() + interval '50 s'")
    assert other.incarnation == (await head_of(look, theirs.id))["owner"]


async def test_what_is_owned_is_listed_with_its_seq(place: Place, other: Place) -> None:
    """The sagas that an incarnation owns, by the heads, whoever moved them last."""
    mine, theirs = await place.start(), await other.start()
    await other.cancel(mine)

    async with place.database.read() as tx:
        assert {mine.id: 2} == await list_owned(tx, incarnation=place.incarnation)
        assert {theirs.id: 1} == await list_owned(tx, incarnation=other.incarnation)


@pytest.fixture
async def holder(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of somebody who holds locks."""
    async with connected(database_url) as connection:
        yield connection


async def test_claims_and_flushes_do_not_deadlock(place: Place, other: Place) -> None:
    """Two replicas claim and move the same sagas all the time; everybody gets through."""
    rows = [a_start(due_at=NOW - number * SECOND) for number in range(60)]
    await written(place, rows)

    async def move(mover: Place) -> None:
        await asyncio.gather(
            *(mover.writer.write(a_move(row), incarnation=mover.incarnation) for row in rows)
        )

    async with asyncio.timeout(20):
        await asyncio.gather(*(move(place) for _ in range(5)), drain(other), drain(place))

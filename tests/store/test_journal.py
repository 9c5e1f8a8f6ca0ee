"""The journal, written by several replicas: who loses a race reloads and decides anew."""

import asyncio

import asyncpg
import pytest

from app.core.entries import FORMAT
from app.core.errors import (
    BusinessKeyTaken,
    Fenced,
    KeyReused,
    NotFound,
    ServiceError,
    VerbRefused,
)
from app.core.events import SagaWoken
from app.core.saga import Effect, Saga, SagaStatus
from app.store import ClaimLost, claim_due, fetch_saga
from tests.store.place import (
    CANCEL,
    Place,
    answered,
    head_of,
    journal_of,
    new_saga_id,
    observed,
)


async def stored(place: Place, saga: Saga) -> Saga:
    """The saga as the database has it."""
    async with place.database.read() as tx:
        return await fetch_saga(tx, saga.id)


async def claim(place: Place) -> int:
    """Claim what is due; returns how many sagas that were."""
    async with place.database.write() as tx:
        return len(await claim_due(tx, incarnation=place.incarnation, limit=100, suspects=False))


async def test_a_saga_runs_to_its_end(place: Place, look: asyncpg.Connection) -> None:
    """The head is true at every commit, and the fold of the journal is what was returned."""
    saga = await place.start()
    for step in ("flight", "hotel"):
        saga = await place.observe(saga, step, answered())
        head = await head_of(look, saga.id)
        assert (saga.status.value, saga.seq, saga.entry_id, saga.now.owner) == (
            head["status"],
            head["seq"],
            head["entry_id"],
            head["owner"],
        )
        assert saga == await stored(place, saga)

    assert saga.status is SagaStatus.COMPLETED
    assert saga.now.finished_at == (await head_of(look, saga.id))["finished_at"]


async def test_the_loser_of_a_race_decides_on_what_is_true(place: Place, other: Place) -> None:
    """A result meets a cancel that came first through another replica: it is undone."""
    saga = await place.start()
    await other.cancel(saga)

    after = await place.observe(saga, "flight", answered())

    assert after.status is SagaStatus.COMPENSATING
    assert (3, place.incarnation) == (after.seq, after.now.owner)
    (call,) = after.open_calls(place.incarnation)
    assert ("flight", "compensation") == (call.step, call.direction.value)
    assert after == await stored(place, saga)


async def test_two_replicas_at_once_lose_nothing(place: Place, other: Place) -> None:
    """A result and a cancel at the same moment, fifty times: both are in every journal."""
    sagas = await asyncio.gather(*(place.start() for _ in range(50)))

    await asyncio.gather(
        *(place.observe(saga, "flight", answered()) for saga in sagas),
        *(other.cancel(saga) for saga in sagas),
    )

    for saga in sagas:
        now = await stored(place, saga)
        assert (3, SagaStatus.COMPENSATING) == (now.seq, now.status)
        assert len(now.calls) in {1, 2}
        assert now.step_effect(next(iter(now.calls))[0]) is not Effect.NONE


async def test_evidence_by_another_opens_nothing(place: Place, other: Place) -> None:
    """While a saga is owned, another replica's entry opens no call and leaves the owner be."""
    saga = await place.start()

    after = await other.cancel(saga)

    assert after.now.owner == place.incarnation
    assert () == after.open_calls(other.incarnation)
    assert saga.open_calls(place.incarnation)[0].open == (
        after.open_calls(place.incarnation)[0].open
    )


async def test_an_engine_that_moves_a_parked_saga_owns_it(place: Place, other: Place) -> None:
    """Who appends to a parked saga and may send becomes its owner in the same entry."""
    parked = await place.park()

    after = await other.cancel(parked)

    assert after.now.owner == other.incarnation
    assert 1 == len(after.open_calls(other.incarnation))


async def test_evidence_through_the_api_alone_makes_a_parked_saga_due(
    place: Place, front: Place, look: asyncpg.Connection
) -> None:
    """A replica that may not send leaves the saga parked, and due at once."""
    parked = await place.park()

    after = await front.cancel(parked)

    head = await head_of(look, parked.id)
    assert after.now.owner is None
    assert head["owner"] is None
    assert await look.fetchval("SELECT $1 <= amends_now() + interval '1 s'", head["due_at"])


async def test_a_start_through_the_api_alone_waits_to_be_claimed(
    front: Place, place: Place, look: asyncpg.Connection
) -> None:
    """A saga that starts where nothing may be sent is pending, due, and claimed by an engine."""
    saga = await front.start()

    assert (SagaStatus.PENDING, None, {}) == (saga.status, saga.now.owner, dict(saga.calls))
    assert 1 == await claim(place)
    woken = await place.wake(saga)
    assert (SagaStatus.RUNNING, place.incarnation) == (woken.status, woken.now.owner)


async def test_one_key_starts_one_saga(place: Place, other: Place) -> None:
    """Fifty equal requests at two replicas at once start one saga, and all get it."""
    saga = new_saga_id()
    fact = place.a_request(saga=saga)

    started = await asyncio.gather(
        *(
            (place, other)[number % 2].journal.start(fact, fingerprint=b"same")
            for number in range(50)
        )
    )

    assert {saga} == {each.saga.id for each in started}
    assert 1 == sum(not each.is_replay for each in started)
    assert 1 == len({each.saga.entry_id for each in started})


async def test_a_key_with_another_request_is_refused(place: Place, other: Place) -> None:
    """The key of a saga with other content starts nothing, at whichever replica."""
    fact = place.a_request()
    await place.journal.start(fact, fingerprint=b"same")

    for where in (place, other):
        with pytest.raises(KeyReused):
            await where.journal.start(fact, fingerprint=b"different")
        with pytest.raises(KeyReused):
            await where.journal.find_replay(fact.id, fingerprint=b"different")
    assert await place.journal.find_replay(new_saga_id(), fingerprint=b"same") is None


async def test_one_business_key_has_one_live_saga(place: Place, other: Place) -> None:
    """Of forty starts with one business key one wins; all others are told which is live."""
    ends = await asyncio.gather(
        *((place, other)[number % 2].start(business_key="order 7") for number in range(40)),
        return_exceptions=True,
    )

    (winner,) = (end for end in ends if isinstance(end, Saga))
    losers = [end for end in ends if isinstance(end, BusinessKeyTaken)]
    assert 39 == len(losers)
    assert {winner.id} == {end.saga for end in losers}


async def test_the_key_is_looked_at_before_the_business_key(place: Place) -> None:
    """The same request again meets its own saga, though that holds the business key."""
    fact = place.a_request(business_key="order 7")
    await place.journal.start(fact, fingerprint=b"same")

    assert (await place.journal.start(fact, fingerprint=b"same")).is_replay


async def test_a_claim_that_others_have_overtaken_is_lost(place: Place, other: Place) -> None:
    """Waking a claimed saga that has moved to another owner meanwhile changes nothing."""
    parked = await place.park()
    async with place.database.write() as tx:
        await tx.execute("UPDATE sagas SET due_at = now() WHERE id = $1", parked.id)
    assert 1 == await claim(place)
    moved = await other.cancel(parked)

    with pytest.raises(ClaimLost):
        await place.wake(parked)

    assert moved == await stored(place, parked)


async def test_a_saga_that_nobody_claimed_is_not_woken(place: Place) -> None:
    """Waking needs a claim: a parked saga is nobody's to wake."""
    with pytest.raises(ClaimLost):
        await place.wake(await place.park())


async def test_the_revoked_are_told(place: Place, look: asyncpg.Connection) -> None:
    """A revoked incarnation records nothing, not even what it has seen."""
    saga = await place.start()
    await look.execute("UPDATE replicas SET revoked_at = now()")

    with pytest.raises(Fenced):
        await place.observe(saga, "flight", answered())
    with pytest.raises(Fenced):
        await place.start()

    assert 1 == len(await journal_of(look, saga.id))


async def test_a_saga_that_there_is_not_is_not_found(place: Place) -> None:
    """A fact about an unknown saga is refused, and leaves no trace in memory."""
    with pytest.raises(NotFound):
        await place.journal.record(new_saga_id(), CANCEL)
    with pytest.raises(ClaimLost):
        await place.journal.record(new_saga_id(), SagaWoken())

    assert {} == place.journal._lanes


async def test_a_newer_format_is_left_to_newer_replicas(
    place: Place, look: asyncpg.Connection
) -> None:
    """A saga with entries that this release may not understand is neither read nor moved by it."""
    saga = await place.park()
    await look.execute("UPDATE sagas SET format = $1", FORMAT + 1)
    await look.execute("UPDATE saga_journal SET format = $1", FORMAT + 1)

    with pytest.raises(ServiceError):
        await place.cancel(saga)

    assert saga.seq == (await head_of(look, saga.id))["seq"]


async def test_nothing_is_kept_of_a_saga_that_is_not_ours(
    place: Place, other: Place, front: Place
) -> None:
    """Parked, finished, refused, others': none of them takes memory; our own does."""
    parked = await place.park()
    finished = await place.start()
    await place.observe(finished, "flight", answered(402))
    with pytest.raises(VerbRefused):
        await place.retry(parked)
    await front.cancel(await front.start())
    await other.cancel(parked)
    assert {} == place.journal._lanes
    assert {} == front.journal._lanes

    kept = await place.start()
    assert {kept.id} == place.journal._lanes.keys()
    await place.observe(kept, "flight", answered(402))
    assert {} == place.journal._lanes


async def test_facts_of_one_saga_wait_for_each_other(place: Place) -> None:
    """Twenty facts about one saga at once are decided one after the other, without a lost race."""
    saga = await place.start()
    rows = place.writer.rows

    await asyncio.gather(
        *(place.journal.record(saga.id, observed("flight", answered())) for _ in range(20))
    )

    assert 2 == (await stored(place, saga)).seq
    assert rows + 1 == place.writer.rows

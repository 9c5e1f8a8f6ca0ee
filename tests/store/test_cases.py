"""Cases of claims, leases, clocks and statements: what real databases do to other systems.

``tests/cases.toml`` lists all cases, and where those are that are not here.
"""

import asyncio
import datetime as dt
import os
import time
from collections.abc import Iterator
from dataclasses import replace

import asyncpg
import pytest

from app.core.errors import Fenced, RowRefused
from app.core.identity import Incarnation, derive_saga_id
from app.core.saga import Effect, SagaStatus
from app.store import Claim, ClaimLost, claim_due, claim_orphans, ensure_tenant, publish, set_aside
from app.store.replicas import _BEAT, BEATS_PER_LEASE
from tests.core.builders import a_definition
from tests.store.place import (
    Place,
    a_move,
    a_place,
    a_start,
    answered,
    connected,
    head_of,
    journal_of,
    observed,
    written,
)
from tests.store.proxy import a_proxy

SECOND = dt.timedelta(seconds=1)


async def orphans(place: Place) -> list[Claim]:
    """Claim what the revoked have left."""
    async with place.database.write() as tx:
        return (await claim_orphans(tx, incarnation=place.incarnation, limit=100))[0]


async def due(place: Place) -> list[Claim]:
    """Claim what is due."""
    async with place.database.write() as tx:
        return await claim_due(tx, incarnation=place.incarnation, limit=100, suspects=False)


async def revoke(look: asyncpg.Connection, incarnation: Incarnation) -> None:
    """Revoke an incarnation, as another replica does that finds its lease over."""
    await look.execute("UPDATE replicas SET revoked_at = now() WHERE id = $1", incarnation)


async def test_durable_engines_b03_a_taker_that_comes_late(
    place: Place, database_url: str, look: asyncpg.Connection
) -> None:
    """Of two takers the second gets nothing, and who acts on what it once read changes nothing."""
    saga = await place.start()
    await revoke(look, place.incarnation)
    async with a_place(database_url) as first, a_place(database_url) as second:
        async with first.database.write() as tx:
            claims, _ = await claim_orphans(tx, incarnation=first.incarnation, limit=10)
            meanwhile = await orphans(second)
        await first.wake(saga, losses=claims[0].losses)
        moved = await first.observe(saga, "flight", answered(), attempt=2)
        with pytest.raises(ClaimLost):
            await second.wake(saga, losses=1)

        assert [saga.id] == [claim.saga for claim in claims]
        assert [] == meanwhile == await orphans(second)
        assert {} == second.journal._lanes
        head = await head_of(look, saga.id)
        assert (moved.seq, first.incarnation) == (head["seq"], head["owner"])


async def test_durable_engines_b07_an_earlier_self_is_another(
    place: Place, other: Place, look: asyncpg.Connection
) -> None:
    """Once registered anew, what a process was before cannot beat, write, let go of, or claim."""
    saga = await place.start()
    former = place.incarnation
    await revoke(look, former)
    await place.replica.register()
    (claim,) = await orphans(place)
    now = await place.wake(saga, losses=claim.losses)
    before = await head_of(look, saga.id)

    assert former != place.incarnation == now.now.owner
    assert await look.fetchval(_BEAT, former, SECOND) is None
    with pytest.raises(Fenced):
        await place.writer.write(a_move(a_start(saga=saga.id)), incarnation=former)
    async with other.database.write() as tx:
        await set_aside(tx, incarnation=former, saga=saga.id, delay=SECOND)
        assert ([], 0) == await claim_orphans(tx, incarnation=former, limit=10)
    assert before == await head_of(look, saga.id)


async def test_durable_engines_b42_a_beat_touches_no_index(
    place: Place, other: Place, look: asyncpg.Connection
) -> None:
    """Each replica beats a row of its own, three times a lease, and no index is written for it."""
    async with look.transaction():
        for incarnation in (place.incarnation, other.incarnation) * 5:
            assert await look.fetchval(_BEAT, incarnation, SECOND) is not None
        updates = await look.fetchrow(
            "SELECT n_tup_upd AS all, n_tup_hot_upd AS hot FROM pg_stat_xact_user_tables"
            " WHERE relname = 'heartbeats'"
        )

    assert updates is not None
    assert (10, 10) == (updates["all"], updates["hot"])
    assert BEATS_PER_LEASE == 3


async def test_durable_engines_b43_nothing_is_notified(
    database_url: str, look: asyncpg.Connection
) -> None:
    """No transition, claim, beat or start sends a NOTIFY, by a statement or a trigger."""
    async with a_proxy(database_url) as proxy, a_place(proxy.url) as place:
        parked = await place.park()
        await look.execute("UPDATE sagas SET due_at = now() - interval '1 s'")
        assert 1 == len(await due(place))
        await place.wake(parked)
        await place.cancel(parked)
        await place.observe(parked, "flight", answered(204), undo=True)
        await place.replica.beat()
        await place.replica.revoke_expired()
        said = [text for text in proxy.seen if "notify" in text.lower()]

    assert proxy.runs("INSERT INTO sagas") >= 1
    assert proxy.runs("UPDATE sagas") >= 3
    assert [] == said
    assert [] == await look.fetch("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal")


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '23514'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON saga_journal FOR EACH ROW
WHEN (NEW.data::text LIKE '%compensating%') EXECUTE FUNCTION refuse();
"""


async def test_durable_engines_b56_a_refused_decision_leaves_the_saga_as_it_was(
    place: Place, look: asyncpg.Connection
) -> None:
    """A saga goes forward, or it has given up and its first undo is out: nothing is in between."""
    saga = await place.observe(await place.start(), "flight", answered())
    before = await head_of(look, saga.id)
    await look.execute(REFUSE)

    with pytest.raises(RowRefused):
        await place.observe(saga, "hotel", answered(402))
    refused = await head_of(look, saga.id)
    await look.execute("DROP TRIGGER refuse ON saga_journal")
    after = await place.observe(saga, "hotel", answered(402))

    assert before == refused
    assert (before["status"], before["owner"]) == ("running", place.incarnation)
    assert saga.seq + 1 == after.seq == len(await journal_of(look, saga.id))
    assert after.status is SagaStatus.COMPENSATING
    assert ["compensation"] == [
        call.direction.value for call in after.open_calls(place.incarnation)
    ]


@pytest.fixture(params=["UTC", "Asia/Shanghai"])
def zone_of_process(request: pytest.FixtureRequest) -> Iterator[str]:
    """The zone in which this process thinks that it is."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize("zones", [("Asia/Shanghai", "America/New_York"), ("UTC", "Asia/Tokyo")])
async def test_saga_coordinators_b1_zones_do_not_move_what_is_due(
    database_url: str, look: asyncpg.Connection, zones: tuple[str, str], zone_of_process: str
) -> None:
    """Whatever zones processes and sessions are in, a pause of a minute is a minute to all."""
    name = await look.fetchval("SELECT current_database()")
    await look.execute(f"ALTER DATABASE {name} SET timezone = '{zones[0]}'")
    async with a_place(database_url) as first:
        saga = await first.park()
        await look.execute(f"ALTER DATABASE {name} SET timezone = '{zones[1]}'")
        async with a_place(database_url) as second, connected(database_url) as inside:
            assert zones[1] == await inside.fetchval("SHOW timezone")
            pause = await inside.fetchval("SELECT due_at - amends_now() FROM sagas")
            leases = await inside.fetch("SELECT expires_at - amends_now() AS left FROM heartbeats")
            early = [await due(place) for place in (first, second)]
            await inside.execute("UPDATE sagas SET due_at = due_at - interval '61 s'")
            claimed = await due(second)

    assert 30 * SECOND < pause <= 61 * SECOND
    assert all(200 * SECOND < row["left"] <= 301 * SECOND for row in leases)
    assert [[], []] == early
    assert [saga.id] == [claim.saga for claim in claimed]


async def test_agents_b42_keys_are_each_tenants_own(place: Place, look: asyncpg.Connection) -> None:
    """Two tenants with the same Idempotency-Key and business key have a saga each."""
    async with place.database.write() as tx:
        stranger = await ensure_tenant(tx, "stranger")
        await publish(tx, stranger.id, a_definition())
    started = []
    for tenant in (place.tenant, stranger):
        saga = derive_saga_id(tenant_secret=tenant.secret, idempotency_key="order-7")
        fact = replace(place, tenant=tenant).a_request(saga=saga, business_key="order 7")
        started.append(await place.journal.start(fact, fingerprint=b"same"))

    assert [False, False] == [each.is_replay for each in started]
    rows = await look.fetch("SELECT id, tenant_id FROM sagas ORDER BY tenant_id")
    assert [(each.saga.id, each.saga.facts.tenant) for each in started] == [
        (row["id"], row["tenant_id"]) for row in rows
    ]
    keys = {call.key for each in started for call in each.saga.calls.values()}
    assert 2 == len(keys)


async def test_agents_g6_a_pause_outlives_the_process(
    database_url: str, look: asyncpg.Connection
) -> None:
    """A saga that waits when its process ends is due when it was, to whoever is there then."""
    async with a_place(database_url) as first:
        saga = await first.park()
    at = (await head_of(look, saga.id))["due_at"]
    async with a_place(database_url) as second:
        early = await due(second)
        kept = (await head_of(look, saga.id))["due_at"]
        await look.execute("UPDATE sagas SET due_at = now()")
        claimed = await due(second)
        woken = await second.wake(saga)

    assert at == kept == saga.now.due_at
    assert ([], [saga.id]) == (early, [claim.saga for claim in claimed])
    assert second.incarnation == woken.now.owner or woken.now.due_at == at


async def test_durable_engines_b48_to_lose_a_claim_is_no_error(database_url: str) -> None:
    """Of eight that are after one due saga seven have nothing, at once and without an error."""
    async with a_proxy(database_url) as proxy, a_place(proxy.url, connections_max=8) as place:
        await written(place, [a_start(due_at=dt.datetime.now(dt.UTC) - SECOND)])
        async with place.database.write() as tx:
            won = await claim_due(tx, incarnation=place.incarnation, limit=9, suspects=False)
            async with asyncio.timeout(0.9):
                lost = await asyncio.gather(*(due(place) for _ in range(7)))
        again = await due(place)

        assert 1 == len(won)
        assert [[]] * 7 == lost
        assert [] == again
        assert {} == proxy.errors


async def test_saga_coordinators_b50_who_prunes_leaves_sagas_alone(
    place: Place, look: asyncpg.Connection
) -> None:
    """A saga whose undo has failed is still there, as it was, after years of tidying up."""
    saga = await place.observe(await place.start(), "flight", answered())
    await place.observe(saga, "hotel", answered(402))
    stuck = await place.observe(saga, "flight", answered(400), undo=True)
    await look.execute(
        "UPDATE sagas SET created_at = created_at - interval '9 years',"
        " updated_at = updated_at - interval '9 years'"
    )
    before = await head_of(look, saga.id)

    await place.replica.prune()
    await place.replica.revoke_expired()
    assert [] == await due(place) == await orphans(place)

    assert (stuck.status, stuck.step_effect(next(iter(stuck.calls))[0])) == (
        SagaStatus.STUCK,
        Effect.DONE,
    )
    assert before == await head_of(look, saga.id)
    assert stuck.seq == len(await journal_of(look, saga.id))


async def test_saga_coordinators_b49_a_refused_start_leaves_nothing(
    place: Place, look: asyncpg.Connection
) -> None:
    """A start that the database refuses fails, leaves nothing, and may be repeated."""
    fact = place.a_request(business_key="order 7")
    await look.execute(REFUSE.replace("compensating", "running"))

    with pytest.raises(RowRefused):
        await place.journal.start(fact, fingerprint=b"same")
    sagas = await look.fetchval("SELECT count(*) FROM sagas")
    await look.execute("DROP TRIGGER refuse ON saga_journal")
    started = await place.journal.start(fact, fingerprint=b"same")
    moved = await place.journal.record(fact.id, observed("flight", answered()))

    assert (0, False) == (sagas, started.is_replay)
    assert 2 == moved.seq == len(await journal_of(look, fact.id))

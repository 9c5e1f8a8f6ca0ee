"""Cases in which two say something of one saga in the same moment: one wins, nothing is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.core.entries import Reception
from app.core.errors import NotFound
from app.core.events import CallbackReceived
from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.saga import CallbackOutcome, CallStatus, Effect, Saga, SagaStatus
from app.store import ClaimLost, claim_due
from tests.core.builders import ONCE, a_definition, a_step
from tests.store.place import (
    Place,
    a_place,
    answered,
    head_of,
    journal_of,
    new_saga_id,
)
from tests.store.proxy import Proxy, a_proxy
from tests.waiting import wait_until

FLIGHT, HOTEL = StepId("flight"), StepId("hotel")


def a_caller(
    step: str = FLIGHT, *, within: str = "1h", idempotent: bool = True
) -> dict[str, JsonValue]:
    """A step whose outcome comes by callback, asked once, and undone by its key."""
    action: dict[str, JsonValue] = {
        "completion": {"callback": {"within": within}},
        "retry": ONCE,
    }
    return a_step(step, undo_by="key", idempotent=idempotent, action=action)


def succeeded(step: str = FLIGHT) -> CallbackReceived:
    """A tool reports that it is done."""
    return CallbackReceived(
        step=StepId(step),
        direction=Direction.ACTION,
        generation=0,
        outcome=CallbackOutcome.SUCCEEDED,
        output={"id": "X1"},
        error=None,
        effect=None,
        progress=None,
        body_bytes=20,
        digest=f"{step} is done",
    )


async def stored(place: Place, saga: Saga) -> Saga:
    """The saga as the database has it."""
    return (await place.journal.load([saga.id]))[saga.id]


async def started(place: Place, count: int, *steps: dict[str, JsonValue]) -> list[Saga]:
    """So many sagas of these steps."""
    version = (await place.publish(a_definition(*steps))).version
    return await asyncio.gather(*(place.start(version=version) for _ in range(count)))


async def test_durable_engines_b13_a_stale_copy_decides_nothing(
    place: Place, front: Place, look: asyncpg.Connection
) -> None:
    """A step that a callback has completed is not completed again by who holds an older copy."""
    (saga,) = await started(place, 1, a_caller(), a_step(HOTEL))
    assert place.journal._lanes.keys() == {saga.id}

    heard = await front.journal.receive(saga.id, succeeded())
    moved = await place.observe(saga, "flight", answered(202))
    again = await front.journal.receive(saga.id, succeeded())

    assert (Reception.ACCEPTED, Reception.DUPLICATE) == (heard, again)
    hotel = moved.call(HOTEL, Direction.ACTION)
    assert hotel is not None
    assert (1, True) == (hotel.attempts, hotel.open is not None)
    assert moved == await stored(front, saga)
    kinds = [row["type"] for row in await journal_of(look, saga.id)]
    assert ["saga_requested", "callback_received", "attempt_observed"] == kinds


async def test_saga_coordinators_b38_callback_and_timeout_at_once(
    place: Place, front: Place, look: asyncpg.Connection
) -> None:
    """A callback comes first and the saga goes on, or the time-out does and it is undone."""
    steps = (a_caller(within="1ms", idempotent=False), a_step(HOTEL))
    sagas = await started(place, 40, *steps)
    await asyncio.gather(*(place.observe(saga, "flight", answered(202)) for saga in sagas))

    async def is_due() -> bool:
        late: int = await look.fetchval("SELECT count(*) FROM sagas WHERE due_at > amends_now()")
        return late == 0

    await wait_until(is_due)

    async def race(number: int, saga: Saga) -> Reception:
        told = front.journal.receive(saga.id, succeeded())
        rings = place.wake(saga)
        if number % 2:
            reception, _ = await asyncio.gather(told, rings)
        else:
            _, reception = await asyncio.gather(rings, told)
        return reception

    receptions = await asyncio.gather(*(race(*each) for each in enumerate(sagas)))

    assert {Reception.ACCEPTED, Reception.LATE} >= set(receptions)
    for saga in sagas:
        now = await stored(front, saga)
        assert now.step_effect(FLIGHT) is Effect.DONE
        is_going_on = now.status is SagaStatus.RUNNING
        assert now.status in {SagaStatus.RUNNING, SagaStatus.COMPENSATING}
        assert is_going_on or now.call(HOTEL, Direction.ACTION) is None
        assert now.has_open_calls or now.now.due_at is not None


async def test_agents_g3_two_replies_at_once(place: Place, other: Place, front: Place) -> None:
    """Two tools report to two replicas in one moment, fifty times: both are heard."""
    steps = [a_caller(name) | {"needs": []} for name in ("a", "b")]
    sagas = await started(place, 50, *steps)

    await asyncio.gather(
        *(front.journal.receive(saga.id, succeeded("a")) for saga in sagas),
        *(other.journal.receive(saga.id, succeeded("b")) for saga in sagas),
    )

    for saga in sagas:
        now = await stored(place, saga)
        statuses = {call.step: call.status for call in now.calls.values()}
        assert {"a": CallStatus.SUCCEEDED, "b": CallStatus.SUCCEEDED} == statuses
        assert (3, SagaStatus.COMPLETED) == (now.seq, now.status)


async def test_saga_coordinators_b45_a_report_makes_no_saga(
    front: Place, look: asyncpg.Connection
) -> None:
    """A callback for a saga that is not there, or not any more, is refused and creates nothing."""
    with pytest.raises(NotFound):
        await front.journal.receive(new_saga_id(), succeeded())

    assert 0 == await look.fetchval("SELECT count(*) FROM sagas")
    assert 0 == await look.fetchval("SELECT count(*) FROM saga_journal")
    assert {} == front.journal._lanes


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """The way of all replicas to the database, which counts its errors."""
    async with a_proxy(database_url) as proxy:
        yield proxy


async def test_durable_engines_b49_everything_at_once(
    proxy: Proxy, look: asyncpg.Connection
) -> None:
    """Whatever eighteen connections say of a few sagas: no deadlock, and each cancel counts."""
    async with (
        a_place(proxy.url, connections_max=5) as owner,
        a_place(proxy.url, connections_max=5) as other,
        a_place(proxy.url, connections_max=5, runs_engine=False) as front,
    ):
        steps = [a_caller(name) | {"needs": []} for name in ("a", "b")]
        sagas = await started(owner, 12, *steps, a_step("last") | {"needs": ["a", "b"]})

        async def wake(place: Place, saga: Saga) -> None:
            async with place.database.write() as tx:
                await claim_due(tx, incarnation=place.incarnation, limit=5, suspects=False)
            with contextlib.suppress(ClaimLost):
                await place.wake(saga)

        async def stir(saga: Saga) -> None:
            await asyncio.gather(
                owner.observe(saga, "a", answered(202)),
                other.cancel(saga),
                front.journal.receive(saga.id, succeeded("a")),
                wake(owner, saga),
                wake(other, saga),
                front.cancel(saga),
                other.journal.receive(saga.id, succeeded("b")),
                owner.replica.prune(),
            )

        async with asyncio.timeout(30):
            await asyncio.gather(*(stir(saga) for saga in sagas))

        assert 0 == proxy.errors["40P01"]
        for saga in sagas:
            now = await stored(front, saga)
            assert now.status in {SagaStatus.COMPENSATING, SagaStatus.COMPENSATED}
            assert now.call(StepId("last"), Direction.ACTION) is None
            kinds = [row["type"] for row in await journal_of(look, saga.id)]
            assert 2 == kinds.count("callback_received")
            assert 1 == kinds.count("cancel_requested")
            assert (await head_of(look, saga.id))["seq"] == len(kinds)

"""What is counted of callbacks, and of sagas that end without an engine."""

import datetime as dt

import pytest

from app.core.entries import Reception
from app.core.events import CallbackReceived
from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.saga import CallbackOutcome, Effect, Saga
from app.metrics import Metrics
from app.store import Tally
from tests.core.builders import a_definition, a_step
from tests.store.place import Place, a_place, answered

FLIGHT = StepId("flight")
LAG = "callback_lag_seconds"


class Counts:
    """Metrics, and the journal's tally of them."""

    def __init__(self, *places: Place) -> None:
        self._metrics = Metrics(version="test")
        for place in places:
            place.journal.observe(Tally(self._metrics).observe)

    def __call__(self, name: str, **labels: str) -> float | None:
        """The value of a series, as it is scraped."""
        return self._metrics.registry.get_sample_value(f"amends_{name}", labels)


@pytest.fixture
def counts(place: Place) -> Counts:
    """What the place's tally counts."""
    return Counts(place)


def a_callback(outcome: CallbackOutcome = CallbackOutcome.SUCCEEDED) -> CallbackReceived:
    """What the flight's tool reports."""
    effect = Effect.NONE if outcome is CallbackOutcome.FAILED else None
    return CallbackReceived(
        step=FLIGHT,
        direction=Direction.ACTION,
        generation=0,
        outcome=outcome,
        output={"id": "F1"},
        effect=effect,
        digest=outcome.value,
    )


async def a_saga_with_a_callback(place: Place) -> Saga:
    """A saga whose flight is out, and whose outcome comes by callback."""
    action: JsonValue = {"completion": {"callback": {"within": "1h"}}}
    assert isinstance(action, dict)
    reference = await place.publish(a_definition(a_step(action=action)))
    return await place.start(version=reference.version)


async def a_waiting_saga(place: Place) -> Saga:
    """The same, once the flight's tool has acknowledged it."""
    saga = await a_saga_with_a_callback(place)
    return await place.observe(saga, "flight", answered(202))


async def test_callbacks_are_counted_by_their_reception(place: Place, counts: Counts) -> None:
    """What is accepted, what comes twice and what contradicts are told apart."""
    saga = await a_waiting_saga(place)

    receptions = [
        await place.journal.receive(saga.id, a_callback()),
        await place.journal.receive(saga.id, a_callback()),
        await place.journal.receive(saga.id, a_callback(CallbackOutcome.FAILED)),
    ]

    kinds = [Reception.ACCEPTED, Reception.DUPLICATE, Reception.CONTRADICTION]
    assert kinds == receptions
    assert [1, 1, 1] == [counts("callbacks_total", reception=kind.value) for kind in kinds]
    assert 0 == counts("callbacks_total", reception="late")


async def test_the_lag_is_from_the_acknowledgement(place: Place, counts: Counts) -> None:
    """The one callback that was awaited is timed, from the entry that began to wait for it."""
    saga = await a_waiting_saga(place)

    await place.journal.receive(saga.id, a_callback())
    await place.journal.receive(saga.id, a_callback())

    took = (await place.journal.load([saga.id]))[saga.id].updated_at - saga.updated_at
    assert 1 == counts(f"{LAG}_count")
    assert took == dt.timedelta(seconds=counts(f"{LAG}_sum") or 0)


async def test_a_callback_before_the_answer_has_no_lag(place: Place, counts: Counts) -> None:
    """A tool that reports before it has acknowledged is accepted, and nothing was waited for."""
    saga = await a_saga_with_a_callback(place)

    await place.journal.receive(saga.id, a_callback())

    assert 1 == counts("callbacks_total", reception="accepted")
    assert 0 == counts(f"{LAG}_count")


async def test_each_entry_is_counted_where_it_was_committed(database_url: str) -> None:
    """Two replicas in one process count apart, and their counts add up."""
    async with a_place(database_url) as first, a_place(database_url) as second:
        mine, yours = Counts(first), Counts(second)
        saga = await first.start()
        await second.cancel(saga)

    assert (1, 0) == (mine("sagas_started_total"), yours("sagas_started_total"))
    cancelled = {"cause": "cancelled"}
    assert (0, 1) == (mine("rollbacks_total", **cancelled), yours("rollbacks_total", **cancelled))


async def test_a_lost_race_is_not_counted(place: Place, other: Place) -> None:
    """What was decided in vain, and decided again, is counted once."""
    counts = Counts(place, other)
    saga = await place.start()
    await place.observe(saga, "flight", answered())

    await other.cancel(saga)
    await place.cancel(saga)

    assert 1 == counts("rollbacks_total", cause="cancelled")
    assert 1 == counts("calls_concluded_total", call="action", outcome="succeeded")

"""The shipped definitions at work: the core decides, the example world acts and judges.

There is no engine and no database in between: a loop sends what the core opens, over real HTTP, and
turns the clock to the next due time when nothing is open.
"""

import datetime as dt
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from app.connectors import AiohttpTransport, HttpConnector, OutgoingCall
from app.core.definition import Definition
from app.core.entries import Entry
from app.core.events import AttemptObserved, Event, Fact, Reporter, SagaRequested, SagaWoken
from app.core.identity import EntryId, Incarnation, SagaId, TenantId
from app.core.json_value import JsonValue
from app.core.machine import apply, decide
from app.core.saga import CallState, DefinitionRef, Saga, SagaStatus
from examples.world import Expectation, World, judge, read_ledger, serving
from tests.sagas.test_shipped import load

ME = Incarnation(UUID(int=1))
SAGA = SagaId(UUID(int=7))
TRIP: JsonValue = {"city": "Lisbon", "card": "4242424242424242"}
DECLINED: JsonValue = {"city": "Lisbon", "card": "declined"}
LOSE_THE_ANSWER: JsonValue = {"drop": "after"}
"""The world does what is asked, and hangs up."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A world of the test's own."""
    async with serving(ledger=tmp_path / "world.db") as served:
        yield served


class Runner:
    """Runs one saga to its rest."""

    def __init__(self, definition: Definition, world: World, connector: HttpConnector) -> None:
        self._definition = definition
        self._world = world
        self._connector = connector
        self._at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        self._numbers = itertools.count(1)
        self._saga: Saga | None = None

    async def run(self, value: JsonValue) -> Saga:
        """Start it with an input, and answer whatever it waits for."""
        saga = self._conclude(
            SagaRequested(
                id=SAGA,
                tenant=TenantId(1),
                definition=DefinitionRef(name=self._definition.name, version=1),
                input=value,
                vars={"world": self._world.url},
                key_seed=b"k" * 16,
                business_key=None,
                labels={},
                deadline=None,
            )
        )
        while not saga.status.is_at_rest:
            calls = saga.open_calls(ME)
            if calls:
                saga = self._conclude(await self._send(calls[0]))
            else:
                assert saga.now.due_at is not None
                self._at = max(self._at, saga.now.due_at)
                saga = self._conclude(SagaWoken())
        return saga

    def _conclude(self, fact: Fact) -> Saga:
        number = next(self._numbers)
        until = self._at + dt.timedelta(seconds=6)
        event = Event(
            at=self._at,
            entry_id=EntryId(UUID(int=number)),
            seed=number,
            reporter=Reporter(
                incarnation=ME, may_open=True, send_until=until, callbacks_url="http://amends/"
            ),
            fact=fact,
        )
        entry = decide(self._definition, self._saga, event)
        assert isinstance(entry, Entry), entry
        self._saga = apply(self._saga, entry)
        return self._saga

    async def _send(self, call: CallState) -> AttemptObserved:
        assert call.open is not None
        assert call.request is not None
        observation = await self._connector.attempt(
            OutgoingCall(
                saga_id=SAGA,
                step=call.step,
                call=call.direction.value,
                attempt=call.open.number,
                key=call.key,
                request=call.request,
                timeout=dt.timedelta(seconds=5),
                expired=lambda: False,
            )
        )
        return AttemptObserved(
            step=call.step,
            direction=call.direction,
            attempt=call.open.number,
            observation=observation,
        )


async def run(name: str, value: JsonValue, world: World) -> Saga:
    """Run a shipped definition in the world."""
    connector = HttpConnector(AiohttpTransport())
    try:
        return await Runner(load(name), world, connector).run(value)
    finally:
        await connector.close()


def judged(tmp_path: Path, end: Expectation) -> list[str]:
    """What the world's judge has to say of the saga."""
    found = judge(read_ledger(tmp_path / "world.db"), {str(SAGA): end})
    return [str(violation) for violation in found]


def effects_in(tmp_path: Path) -> list[tuple[str, bool]]:
    """What was made, in order, and whether it still stands."""
    return [(effect.resource, effect.live) for effect in read_ledger(tmp_path / "world.db").effects]


@pytest.mark.parametrize(
    ("name", "value", "output"),
    [
        ("book_trip", TRIP, {"flight": "F1", "hotel": "H1", "charge": "CH1"}),
        ("rent_car", TRIP, {"car": "C1", "charge": "CH1"}),
    ],
)
async def test_it_completes(
    name: str, value: JsonValue, output: JsonValue, world: World, tmp_path: Path
) -> None:
    """When every tool does its part, everything stands, and the output names it."""
    saga = await run(name, value, world)

    assert saga.status is SagaStatus.COMPLETED
    assert saga.now.output is not None
    assert saga.now.output.value == output
    assert judged(tmp_path, "completed") == []


@pytest.mark.parametrize("name", ["book_trip", "rent_car"])
async def test_it_leaves_nothing(name: str, world: World, tmp_path: Path) -> None:
    """When the card is declined, nothing of the trip remains."""
    saga = await run(name, DECLINED, world)

    assert saga.status is SagaStatus.COMPENSATED
    assert effects_in(tmp_path)
    assert judged(tmp_path, "compensated") == []


@pytest.mark.parametrize("path", ["/flights", "/hotels", "/charges"])
async def test_a_lost_answer_is_asked_for_again(path: str, world: World, tmp_path: Path) -> None:
    """A tool that honours keys is asked again, and nothing is made twice."""
    world.switches.replace([{"match": {"path": path}, "times": 1, "do": LOSE_THE_ANSWER}])

    saga = await run("book_trip", TRIP, world)

    assert saga.status is SagaStatus.COMPLETED
    assert len(effects_in(tmp_path)) == 3
    assert judged(tmp_path, "completed") == []


MOVE: dict[str, JsonValue] = {
    "old_flight": "F1",
    "old_city": "Rome",
    "new_city": "Oslo",
    "card": "4242424242424242",
    "fee": 20,
}


async def book_the_old_flight(world: World) -> None:
    """Somebody has a flight already, F1."""
    saga = await run("book_trip", TRIP, world)
    assert saga.status is SagaStatus.COMPLETED


async def test_a_booking_is_moved(world: World, tmp_path: Path) -> None:
    """The new flight and the fee stand, and the old flight is given back."""
    await book_the_old_flight(world)

    saga = await run("move_booking", MOVE, world)

    assert saga.status is SagaStatus.COMPLETED
    assert effects_in(tmp_path) == [
        ("F1", False),
        ("H1", True),
        ("CH1", True),
        ("F2", True),
        ("CH2", True),
    ]


async def test_a_fee_whose_answer_is_lost_is_refunded_unseen(world: World, tmp_path: Path) -> None:
    """It is never asked for twice: it is refunded by our own key, and the new flight given back."""
    await book_the_old_flight(world)
    world.switches.replace([{"match": {"path": "/charges"}, "do": LOSE_THE_ANSWER}])

    saga = await run("move_booking", MOVE, world)

    assert saga.status is SagaStatus.COMPENSATED
    assert effects_in(tmp_path) == [
        ("F1", True),
        ("H1", True),
        ("CH1", True),
        ("F2", False),
        ("CH2", False),
    ]


async def test_an_old_flight_that_is_gone_fails_the_move(world: World, tmp_path: Path) -> None:
    """A DELETE that is refused at once had no effect, and the move is undone."""
    saga = await run("move_booking", {**MOVE, "old_flight": "F99"}, world)

    assert saga.status is SagaStatus.COMPENSATED
    assert effects_in(tmp_path) == [("F1", False), ("CH1", False)]

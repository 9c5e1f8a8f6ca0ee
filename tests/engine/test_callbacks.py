"""Callbacks while the engine is busy: they are taken at once, by whichever replica hears them."""

import asyncio

from app.core.entries import Reception
from app.core.events import CallbackReceived
from app.core.identity import Direction, StepId
from app.core.saga import CallbackOutcome, Saga, SagaStatus
from tests.core.builders import a_definition, a_step
from tests.engine.replica import Running, a_replica
from tests.engine.tools import Tools
from tests.store.place import answered
from tests.waiting import wait_until

WAITING = a_step(action={"completion": {"callback": {"within": "1h"}}}, undo_by="key")


def a_report(outcome: CallbackOutcome = CallbackOutcome.SUCCEEDED) -> CallbackReceived:
    """A tool's word on the flight."""
    return CallbackReceived(
        step=StepId("flight"),
        direction=Direction.ACTION,
        generation=0,
        outcome=outcome,
        output={"id": "F1"},
        body_bytes=20,
        digest=outcome.value,
    )


async def waiting(running: Running) -> Saga:
    """A saga whose tool has taken its call on."""
    saga = await running.start(version=2)

    async def is_parked() -> bool:
        found = await running.fetch(saga)
        return found.seq > 1 and found.now.owner is None

    await wait_until(is_parked, what="the acknowledgement")
    return saga


async def test_a_callback_is_taken_while_the_engine_is_full(database_url: str) -> None:
    """Every place is taken by calls that hang, and more wait: the saga that is called back ends."""
    tools = Tools()
    tools.answer("flight", answered(202))
    async with a_replica(database_url, tools=tools, sagas_max=2) as running:
        await running.publish(a_definition(WAITING))
        saga = await waiting(running)
        gate = tools.hold("flight")
        hanging = [await running.start() for _ in range(6)]
        await wait_until(lambda: running.engine.held == 2)

        reception = await running.journal.receive(saga.id, a_report())
        (done,) = await running.rest(saga)
        tools.answer("flight", answered())
        gate.open()
        ends = await running.rest(*hanging)

    assert reception is Reception.ACCEPTED
    assert done.status is SagaStatus.COMPLETED
    assert {SagaStatus.COMPLETED} == {end.status for end in ends}


async def test_many_callbacks_at_once_are_decided_once(running: Running) -> None:
    """Forty reports of one call, half of them contrary: one decides, and each learns its fate."""
    running.tools.answer("flight", answered(202))
    await running.publish(a_definition(WAITING))
    saga = await waiting(running)
    outcomes = [CallbackOutcome.SUCCEEDED, CallbackOutcome.FAILED] * 20

    receptions = await asyncio.gather(
        *(running.journal.receive(saga.id, a_report(outcome)) for outcome in outcomes)
    )
    (done,) = await running.rest(saga)

    assert 1 == receptions.count(Reception.ACCEPTED)
    assert {Reception.ACCEPTED, Reception.DUPLICATE, Reception.CONTRADICTION} == set(receptions)
    assert done.status is SagaStatus.COMPLETED
    assert done.now.attention


async def test_a_callback_that_comes_with_its_answer_loses_neither(running: Running) -> None:
    """The tool reports before it has answered: both are recorded, and the saga goes on once."""
    gate = running.tools.hold("flight")
    await running.publish(a_definition(WAITING))
    saga = await running.start(version=2)
    await running.tools.arrived(1)

    reception = await running.journal.receive(saga.id, a_report())
    running.tools.answer("flight", answered(202))
    gate.open()
    (done,) = await running.rest(saga)
    await wait_until(lambda: not running.engine._dispatcher.in_flight)

    assert reception is Reception.ACCEPTED
    assert done.status is SagaStatus.COMPLETED
    assert ["flight action"] == running.tools.sent_steps()

"""Cases of callbacks: early, late, at the very moment of the time-out, and with nothing in them.

The other cases of the core stand beside this file; ``tests/cases.toml`` lists all there are.
"""

import pytest

from app.core.entries import Ignored
from app.core.identity import StepId
from app.core.json_value import JsonValue
from app.core.saga import CallbackOutcome, CallStatus, Code, Effect, Output, SagaStatus
from tests.core.builders import (
    ACTION,
    CALLS_BACK,
    COMPENSATION,
    ELSEWHERE,
    FLIGHT,
    HERE,
    HOTEL,
    ONCE,
    T0,
    THERE,
    Story,
    a_definition,
    a_request,
    a_step,
    accepted,
    answered,
    seconds,
)

SUCCEEDED, FAILED = CallbackOutcome.SUCCEEDED, CallbackOutcome.FAILED
IN_PROGRESS = CallbackOutcome.IN_PROGRESS
UNDONE = answered(204)


def a_caller(name: str = FLIGHT, *, idempotent: bool = True) -> dict[str, JsonValue]:
    """A step whose outcome comes by callback within 20 s, asked once, and undone by its key."""
    return a_step(name, idempotent=idempotent, undo_by="key", action={**CALLS_BACK, "retry": ONCE})


def waiting(*, idempotent: bool = True) -> Story:
    """A story of a flight that was acknowledged, and a hotel after it."""
    story = Story(a_definition(a_caller(idempotent=idempotent), a_step(HOTEL))).start()
    story.answer(accepted())
    return story


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


@pytest.mark.parametrize("output", [None, False, 0, "", [], {}])
def test_durable_engines_b21_nothing_is_a_result(output: JsonValue) -> None:
    """A callback whose output is null, or any other nothing, is a success and no time-out."""
    story = waiting()

    story.hear(SUCCEEDED, output=output, by=HERE, may_open=True)
    story.later(21).wake()

    assert story.call().output == Output(value=output)
    assert story.call().status is CallStatus.SUCCEEDED
    assert out(story) == [(HOTEL, ACTION)]


def test_durable_engines_b21_each_wait_times_out_for_itself() -> None:
    """Of three waits in a row each ends at its own moment, whoever restarts, and stays so."""
    names = ("a", "b", "c")
    steps = [a_caller(name) | {"optional": True, "default": name} for name in names]
    story = Story(a_definition(*steps, output=[f"${{{{ steps.{n}.output }}}}" for n in names]))
    story.start()

    for number, name in enumerate(names):
        story.answer(accepted())
        due_at = story.saga.now.due_at
        story.later(13).wake(by=(THERE, ELSEWHERE)[number % 2])
        assert (out(story), story.saga.now.due_at) == ([], due_at)
        story.until_due(by=THERE)

        assert due_at == T0 + seconds(20 * (number + 1))
        error = story.call(StepId(name)).error
        assert error is not None
        assert error.code is Code.CALLBACK_TIMED_OUT
        assert [step for step, _ in out(story)] == list(names[number + 1 : number + 2]), name

    assert story.status is SagaStatus.COMPLETED
    assert story.saga.now.output == Output(value=list(names))


def test_durable_engines_b26_progress_sends_nothing() -> None:
    """However often a tool says that it is at work, nobody is sent, and the deadline stays."""
    story = Story(a_definition(a_caller(), a_step(HOTEL), deadline="1m")).start()
    story.answer(accepted())

    for number in range(5):
        story.later(10).hear(IN_PROGRESS, progress=number, by=THERE, may_open=True)
        story.wake(by=THERE)

        assert (out(story), story.call().attempts) == ([], 1)
    story.until_due(by=THERE)

    assert story.at == T0 + seconds(60)
    assert story.status is SagaStatus.COMPENSATING


@pytest.mark.parametrize("idempotent", [True, False])
def test_saga_coordinators_b38_the_callback_comes_first(*, idempotent: bool) -> None:
    """A success in the very moment of the time-out, told before it: the time-out is dropped."""
    story = waiting(idempotent=idempotent).later(20)

    story.hear(SUCCEEDED, output={"id": "F1"}, by=HERE, may_open=True)
    rung = story.wake()

    assert isinstance(rung, Ignored)
    assert out(story) == [(HOTEL, ACTION)]
    assert story.status is SagaStatus.RUNNING


@pytest.mark.parametrize("idempotent", [True, False])
def test_saga_coordinators_b38_the_timeout_comes_first(*, idempotent: bool) -> None:
    """A success in the very moment of the time-out, told after it: what exists is undone."""
    story = waiting(idempotent=idempotent).later(20)

    story.wake()
    story.hear(SUCCEEDED, output={"id": "F1"}, by=HERE, may_open=True)
    effect = story.effect()
    story.until_out()
    undone = []
    while story.out:
        undone += out(story)
        story.answer(UNDONE)

    assert effect is Effect.DONE
    assert undone[-1:] == [(FLIGHT, COMPENSATION)]
    assert story.status is SagaStatus.COMPENSATED
    assert story.saga.call(HOTEL, ACTION) is None


@pytest.mark.parametrize("effect", [None, Effect.NONE, Effect.DONE, Effect.UNKNOWN])
def test_agents_b24_a_callback_that_says_failed(effect: Effect | None) -> None:
    """Whatever a failure by callback says of its effect, the saga ends, with the reason in it."""
    story = waiting()

    story.hear(FAILED, effect=effect)
    for _ in range(10):
        story.until_out()
        if story.out:
            story.answer(UNDONE)

    failure = story.saga.now.failure
    assert story.status is SagaStatus.COMPENSATED
    assert failure is not None
    assert (failure.step, failure.problem.code) == (FLIGHT, Code.CALLBACK_FAILED)


@pytest.mark.parametrize("idempotent", [True, False])
def test_agents_b24_a_callback_that_never_comes(*, idempotent: bool) -> None:
    """A tool that acknowledges and falls silent leaves no saga running for ever."""
    story = waiting(idempotent=idempotent)

    for _ in range(10):
        story.until_out()
        if story.out:
            story.answer(accepted() if story.out[0].direction is ACTION else UNDONE)

    failure = story.saga.now.failure
    assert story.status is SagaStatus.COMPENSATED
    assert failure is not None
    assert failure.problem.code is Code.CALLBACK_TIMED_OUT


def test_durable_engines_b30_cancel_while_it_waits_for_a_callback() -> None:
    """A tool that has acknowledged is asked once more, not waited for, and undone."""
    story = Story(a_definition(a_caller(), a_step(HOTEL))).start(
        request=a_request(deadline=seconds(3600))
    )
    story.answer(accepted())

    story.cancel(by=THERE)
    again = story.cancel(by=THERE)
    sent = []
    while not story.status.is_final:
        story.until_out()
        sent += out(story)
        story.answer(accepted() if story.out[0].direction is ACTION else UNDONE)

    assert isinstance(again, Ignored)
    assert sent == [(FLIGHT, ACTION), (FLIGHT, COMPENSATION)]
    assert story.status is SagaStatus.COMPENSATED

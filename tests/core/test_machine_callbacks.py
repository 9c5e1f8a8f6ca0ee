"""Callbacks: in time, early, twice, late, contradictory; and what waits for them."""

import pytest

from app.core.entries import Entry, Ignored, Reception
from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.saga import (
    CallbackOutcome,
    CallStatus,
    Cause,
    Code,
    Effect,
    Output,
    Question,
    SagaStatus,
    StepStatus,
)
from tests.core.builders import (
    ACTION,
    CALLS_BACK,
    COMPENSATION,
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
    a_verify,
    accepted,
    answered,
    broken_off,
    done,
    looked,
    refused,
    seconds,
)

SUCCEEDED, FAILED = CallbackOutcome.SUCCEEDED, CallbackOutcome.FAILED
IN_PROGRESS = CallbackOutcome.IN_PROGRESS
UNDONE = answered(204)
ITEM: JsonValue = {"id": "X1"}


def a_caller(**step: JsonValue) -> dict[str, JsonValue]:
    """A step whose action's outcome comes by callback, within 20 s; undone by its key."""
    fields: dict[str, JsonValue] = {"undo_by": "key", **step}
    action = fields.pop("action", {})
    assert isinstance(action, dict)
    return a_step(action={**CALLS_BACK, **action}, **fields)  # type: ignore[arg-type] # a_step checks


def waiting(**step: JsonValue) -> Story:
    """A story of a flight that was acknowledged, and a hotel after it."""
    story = Story(a_definition(a_caller(**step), a_step(HOTEL))).start()
    story.answer(accepted())
    return story


def undoing() -> Story:
    """A story whose flight is being undone by a compensation that calls back."""
    step = a_step(undo_by="key", compensation=CALLS_BACK)
    story = Story(a_definition(step, a_step(HOTEL))).start().book()
    story.answer(refused())
    story.answer(accepted())
    return story


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


def reception(told: Entry | Ignored) -> Reception | None:
    """What became of a callback."""
    return told.reception


class TestInTime:
    """A callback that decides a call that waits for it."""

    def test_an_acknowledged_call_waits_parked(self) -> None:
        """Nothing is out, nobody owns it, and it is due when the callback is."""
        story = waiting()

        now = story.saga.now
        assert story.saga.step_status(FLIGHT) is StepStatus.WAITING
        assert story.effect() is Effect.UNKNOWN
        assert (out(story), now.owner, now.due_at) == ([], None, T0 + seconds(20))
        assert story.call().accepted == Output(value={"job": 1})

    def test_a_success_is_the_output_and_the_next_step_begins(self) -> None:
        """At a replica with an engine the next intent is in the same entry."""
        story = waiting()

        told = story.hear(SUCCEEDED, output=ITEM, by=THERE, may_open=True)

        assert reception(told) is Reception.ACCEPTED
        assert (story.effect(), story.call().output) == (Effect.DONE, Output(value=ITEM))
        assert out(story) == [(HOTEL, ACTION)]
        assert story.saga.now.owner == THERE

    def test_through_a_replica_without_an_engine_it_is_due_at_once(self) -> None:
        """It opens nothing, and whoever is awake next does."""
        story = waiting().later(5)

        story.hear(SUCCEEDED, output=ITEM)
        due_at = story.saga.now.due_at
        story.until_due()

        assert due_at == T0 + seconds(5)
        assert out(story) == [(HOTEL, ACTION)]

    @pytest.mark.parametrize(
        ("said", "effect"),
        [(None, Effect.NONE), (Effect.NONE, Effect.NONE), (Effect.UNKNOWN, Effect.UNKNOWN)],
    )
    def test_a_failure_has_no_effect_unless_it_says_so(
        self, said: Effect | None, effect: Effect
    ) -> None:
        """It gives the step up, and decides the rollback."""
        story = waiting(idempotent=False).later(11)

        story.hear(FAILED, effect=said)

        failure = story.saga.now.failure
        assert failure is not None
        assert (failure.cause, failure.problem.code) == (Cause.STEP_FAILED, Code.CALLBACK_FAILED)
        assert failure.problem.message == "the bank says no"
        assert story.effect() is effect

    def test_a_failure_that_took_effect_is_undone(self) -> None:
        """What a tool says exists is undone, though the call has failed."""
        story = waiting()

        story.hear(FAILED, effect=Effect.DONE, by=HERE, may_open=True)

        assert (story.effect(), out(story)) == (Effect.DONE, [(FLIGHT, COMPENSATION)])

    def test_progress_is_kept_and_restarts_the_wait(self) -> None:
        """Each sign of life gives the tool the whole time again."""
        story = waiting().later(15)

        told = story.hear(IN_PROGRESS, progress={"percent": 50})

        assert reception(told) is Reception.ACCEPTED
        assert story.call().progress == Output(value={"percent": 50})
        assert story.saga.now.due_at == T0 + seconds(35)

    def test_progress_does_not_outlast_the_deadline(self) -> None:
        """The forward phase ends at the deadline, whatever a tool says."""
        story = Story(a_definition(a_caller())).start(request=a_request(deadline=seconds(25)))
        story.answer(accepted())
        story.later(15).hear(IN_PROGRESS)

        assert story.call().due_at == T0 + seconds(25)

    def test_none_in_time_is_unknown_and_sent_again(self) -> None:
        """The same key asks again; that failure counts."""
        story = waiting()

        story.until_due()

        assert story.call().status is CallStatus.BACKING_OFF
        assert story.call().failures == 1
        assert story.until_out().call().attempts == 2

    def test_none_in_time_gives_up_where_it_may_not_be_sent_again(self) -> None:
        """The effect stays unknown; it is compensated once the tool cannot act any more."""
        story = waiting(idempotent=False)

        story.until_due()
        waits_until = story.saga.now.due_at
        story.until_due()

        assert story.saga.now.failure is not None
        assert story.saga.now.failure.problem.code is Code.CALLBACK_TIMED_OUT
        assert waits_until == T0 + seconds(30)
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_a_success_after_none_in_time_is_still_believed(self) -> None:
        """While the next attempt waits, or is out, a callback decides the call."""
        story = waiting()
        story.until_due()
        story.until_out()

        story.hear(SUCCEEDED, output=ITEM)

        assert story.effect() is Effect.DONE
        assert story.call().status is CallStatus.SUCCEEDED


class TestBeforeTheAnswer:
    """A callback is accepted from the moment its intent is committed."""

    def test_a_success_before_the_answer_decides(self) -> None:
        """The exchange is not waited for."""
        story = Story(a_definition(a_caller(), a_step(HOTEL))).start()

        told = story.hear(SUCCEEDED, output=ITEM, by=HERE, may_open=True)

        assert reception(told) is Reception.ACCEPTED
        assert out(story) == [(HOTEL, ACTION)]

    @pytest.mark.parametrize("answer", [accepted(), broken_off(), answered(503)])
    def test_the_answer_that_follows_is_only_late(self, answer: object) -> None:
        """Whatever the exchange came to, the callback has told."""
        story = Story(a_definition(a_caller(), a_step(HOTEL))).start()
        story.hear(SUCCEEDED, output=ITEM)

        told = story.answer_late(answer)  # type: ignore[arg-type] # they are observations

        assert isinstance(told, Ignored)
        assert story.effect() is Effect.DONE

    def test_a_refusal_that_follows_is_a_contradiction(self) -> None:
        """It is kept, and alerts; success counts for the undo."""
        story = Story(a_definition(a_caller(), a_step(HOTEL))).start()
        story.hear(SUCCEEDED, output=ITEM)

        told = story.answer_late(refused())

        assert isinstance(told, Entry)
        assert (story.effect(), story.saga.now.attention) == (Effect.DONE, True)

    def test_progress_before_the_answer_is_only_kept(self) -> None:
        """The time runs from the acknowledgement."""
        story = Story(a_definition(a_caller(), a_step(HOTEL))).start()
        story.hear(IN_PROGRESS, progress=1)
        kept = story.call().progress
        story.later(2).answer(accepted())

        assert kept == Output(value=1)
        assert story.saga.now.due_at == T0 + seconds(22)

    def test_a_failure_in_doubt_before_the_answer_is_not_quiet(self) -> None:
        """The request may still be under way: the undo waits until it cannot arrive any more."""
        story = Story(a_definition(a_caller(idempotent=False))).start()

        story.hear(FAILED, effect=Effect.UNKNOWN, by=HERE, may_open=True)

        assert out(story) == []
        assert story.saga.now.due_at == T0 + seconds(6 + 5 + 10)

    def test_progress_while_it_backs_off_makes_the_effect_unknown(self) -> None:
        """The tool has it after all, though a gateway said that it was not asked."""
        story = Story(a_definition(a_caller())).start()
        story.answer(answered(429, retry_after="10"))
        believed = story.effect()
        story.hear(IN_PROGRESS)

        assert believed is Effect.NONE
        assert story.effect() is Effect.UNKNOWN
        assert story.call().status is CallStatus.WAITING
        assert story.saga.now.due_at == T0 + seconds(20)


class TestAgain:
    """A callback after one that has decided the call."""

    @pytest.mark.parametrize("outcome", [SUCCEEDED, FAILED])
    def test_the_same_again_is_a_duplicate(self, outcome: CallbackOutcome) -> None:
        """Tools send twice; nothing changes."""
        story = waiting()
        story.hear(outcome, output=None)
        before = story.saga

        told = story.hear(outcome, output=None)

        assert isinstance(told, Ignored)
        assert told.reception is Reception.DUPLICATE
        assert story.saga == before

    def test_the_same_again_after_the_end_is_a_duplicate(self) -> None:
        """Also once the saga is over."""
        story = waiting()
        story.hear(SUCCEEDED, output=ITEM, by=HERE, may_open=True)
        story.answer(done())

        told = story.hear(SUCCEEDED, output=ITEM)

        assert story.status is SagaStatus.COMPLETED
        assert reception(told) is Reception.DUPLICATE
        assert not story.saga.now.attention

    def test_an_owner_that_hears_it_again_still_says_duplicate(self) -> None:
        """What it opens by the way does not change what became of the report."""
        story = waiting()
        story.hear(SUCCEEDED, output=ITEM)

        told = story.hear(SUCCEEDED, output=ITEM, by=HERE, may_open=True)

        assert isinstance(told, Entry)
        assert told.reception is Reception.DUPLICATE
        assert out(story) == [(HOTEL, ACTION)]

    def test_a_failure_after_a_success_is_a_contradiction(self) -> None:
        """The success counts; a person is to look."""
        story = waiting()
        story.hear(SUCCEEDED, output=ITEM)

        told = story.hear(FAILED)

        assert isinstance(told, Entry)
        assert told.reception is Reception.CONTRADICTION
        assert (story.effect(), story.saga.now.attention) == (Effect.DONE, True)

    def test_a_success_after_a_failure_is_undone(self) -> None:
        """A contradiction, too; what exists is undone."""
        story = waiting()
        story.hear(FAILED, by=HERE, may_open=True)
        ended = story.status

        told = story.hear(SUCCEEDED, output=ITEM)

        assert ended is SagaStatus.COMPENSATED
        assert reception(told) is Reception.CONTRADICTION
        assert (story.effect(), story.saga.now.attention) == (Effect.DONE, True)

    def test_a_success_after_a_failure_is_undone_while_it_goes_back(self) -> None:
        """Before the end it is part of the rollback."""
        definition = a_definition(a_step(FLIGHT), a_caller() | {"id": HOTEL})
        story = Story(definition).start().book()
        story.answer(accepted())
        story.hear(FAILED, step=HOTEL, by=HERE, may_open=True)
        story.hear(SUCCEEDED, step=HOTEL, output=ITEM)
        story.answer(UNDONE)

        assert out(story) == [(HOTEL, COMPENSATION)]

    def test_progress_after_the_outcome_is_late(self) -> None:
        """Nothing changes."""
        story = waiting()
        story.hear(SUCCEEDED, output=ITEM)

        told = story.hear(IN_PROGRESS)

        assert isinstance(told, Ignored)
        assert told.reception is Reception.LATE

    def test_a_new_try_is_decided_by_a_new_callback(self) -> None:
        """After a failure in doubt the question is sent again: what is told then is its outcome."""
        story = waiting()
        story.hear(FAILED, effect=Effect.UNKNOWN, by=HERE, may_open=True)
        asked = out(story)

        again = story.hear(FAILED, effect=Effect.UNKNOWN)
        told = story.hear(FAILED)

        assert asked == [(FLIGHT, ACTION)]
        assert reception(again) is Reception.DUPLICATE
        assert reception(told) is Reception.ACCEPTED
        assert (story.effect(), story.saga.now.attention) == (Effect.NONE, False)


class TestGoingBack:
    """Callbacks and the rollback."""

    def test_a_step_that_waits_is_not_waited_for(self) -> None:
        """Its effect is unknown at once: the tool is asked again, once, without another wait."""
        story = waiting()

        story.cancel()
        asked = out(story)
        story.answer(accepted())

        assert asked == [(FLIGHT, ACTION)]
        assert story.call().status is CallStatus.FAILED
        assert story.effect() is Effect.UNKNOWN
        assert story.saga.now.due_at == T0 + seconds(10)

    def test_a_success_settles_it(self) -> None:
        """It is done, and undone."""
        story = waiting(idempotent=False)
        story.cancel()

        told = story.hear(SUCCEEDED, output=ITEM, by=HERE, may_open=True)

        assert reception(told) is Reception.LATE
        assert out(story) == [(FLIGHT, COMPENSATION)] or story.saga.now.due_at is not None
        assert story.effect() is Effect.DONE

    def test_a_failure_without_effect_settles_it(self) -> None:
        """There is nothing to undo."""
        story = waiting(idempotent=False)
        story.cancel()

        story.hear(FAILED)

        assert story.status is SagaStatus.COMPENSATED
        assert story.effect() is Effect.NONE

    def test_a_failure_in_time_for_a_compensation_that_is_out_ends_it(self) -> None:
        """The undo of what never was is over, too."""
        story = waiting(idempotent=False)
        story.cancel()
        story.until_due()
        story.hear(FAILED)
        story.answer(broken_off())

        assert story.status is SagaStatus.COMPENSATED
        assert story.saga.step_status(FLIGHT) is StepStatus.COMPENSATED

    def test_progress_is_only_recorded(self) -> None:
        """Nobody waits for it any more."""
        story = waiting(idempotent=False)
        story.cancel()
        due_at = story.saga.now.due_at

        told = story.hear(IN_PROGRESS)

        assert reception(told) is Reception.LATE
        assert story.saga.now.due_at == due_at

    def test_it_is_quiet_only_some_time_after_nobody_waits(self) -> None:
        """The tool may be at work until then: what its verify denies does not count before."""
        story = waiting(idempotent=False).later(15)

        story.cancel()

        assert story.saga.now.due_at == T0 + seconds(25)

    def test_a_success_after_the_end_is_for_a_person(self) -> None:
        """It is recorded, alerts, and stays final."""
        story = waiting(idempotent=False)
        story.cancel()
        story.until_due()
        story.answer(UNDONE)
        ended = story.status

        told = story.hear(SUCCEEDED, output=ITEM)

        assert ended is SagaStatus.COMPENSATED
        assert reception(told) is Reception.LATE
        assert (story.status, story.effect()) == (SagaStatus.COMPENSATED, Effect.DONE)
        assert story.saga.now.attention


class TestCompensations:
    """An undo whose outcome comes by callback."""

    def test_it_waits_and_a_success_ends_it(self) -> None:
        """Nothing remains."""
        story = undoing()
        waits = story.saga.step_status(FLIGHT)

        story.hear(SUCCEEDED, direction=COMPENSATION)

        assert waits is StepStatus.COMPENSATING
        assert story.status is SagaStatus.COMPENSATED

    def test_a_failure_asks_a_person(self) -> None:
        """The undo was refused."""
        story = undoing()

        story.hear(FAILED, direction=COMPENSATION)

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.HOW_TO_UNDO
        assert story.effect() is Effect.DONE

    def test_a_late_success_frees_a_stuck_saga(self) -> None:
        """The contradiction alerts, and the saga goes on."""
        story = undoing()
        story.hear(FAILED, direction=COMPENSATION)

        told = story.hear(SUCCEEDED, direction=COMPENSATION)

        assert reception(told) is Reception.CONTRADICTION
        assert story.status is SagaStatus.COMPENSATED

    def test_none_in_time_is_sent_again(self) -> None:
        """With the same key."""
        story = undoing()

        story.until_due()
        story.until_out()

        assert story.call(direction=COMPENSATION).attempts == 2
        assert story.call(direction=COMPENSATION).generation == 0

    def test_progress_gives_it_more_time(self) -> None:
        """Though the saga goes back: the undo is what it waits for."""
        story = undoing().later(15)

        story.hear(IN_PROGRESS, direction=COMPENSATION)

        assert story.saga.now.due_at == T0 + seconds(35)


class TestStandstill:
    """Callbacks while a person holds the saga."""

    def test_a_paused_saga_stores_it_and_opens_nothing(self) -> None:
        """It goes on when it is resumed."""
        story = waiting()
        story.pause()
        told = story.hear(SUCCEEDED, output=ITEM, by=HERE, may_open=True)
        held = (story.status, out(story))
        story.resume()

        assert reception(told) is Reception.ACCEPTED
        assert held == (SagaStatus.PAUSED, [])
        assert out(story) == [(HOTEL, ACTION)]

    def test_a_failure_while_paused_turns_it_back_once_resumed(self) -> None:
        """The decision is made, and carried out later."""
        story = Story(a_definition(a_step(HOTEL), a_caller())).start().book()
        story.answer(accepted())
        story.pause()
        story.hear(FAILED)
        held = (story.status, story.saga.now.phase)
        story.resume()

        assert held == (SagaStatus.PAUSED, SagaStatus.COMPENSATING)
        assert out(story) == [(HOTEL, COMPENSATION)]

    def test_the_time_for_it_may_pass_while_paused(self) -> None:
        """What comes after is still believed; on resume it is too late."""
        story = waiting()
        story.pause()
        story.later(60).resume()

        assert story.call().status is CallStatus.BACKING_OFF

    def test_a_failure_does_not_set_a_saga_going_that_waits_for_a_person(self) -> None:
        """Replicas were lost while they ran it: it waits for a retry, and then goes back."""
        story = waiting()
        story.wake(by=THERE, losses=9)
        story.hear(FAILED)
        held = (story.status, story.saga.now.phase)
        story.retry()

        assert held == (SagaStatus.STUCK, SagaStatus.COMPENSATING)
        assert story.status is SagaStatus.COMPENSATED


class TestGenerations:
    """A callback for a generation that was given up for another."""

    def _anew(self) -> Story:
        """A hotel after the pivot that was refused, and is tried again under another key."""
        definition = a_definition(
            a_step(FLIGHT) | {"pivot": True}, a_caller() | {"id": HOTEL}, a_step(StepId("car"))
        )
        story = Story(definition).start().book()
        story.answer(refused())
        story.retry()
        return story

    def test_a_failure_says_nothing(self) -> None:
        """The call goes on under its new key."""
        story = self._anew()

        told = story.hear(FAILED, step=HOTEL, generation=0)

        assert story.call(HOTEL).generation == 1
        assert isinstance(told, Ignored)
        assert told.reception is Reception.LATE

    def test_a_success_alerts_while_the_next_is_under_way(self) -> None:
        """It may exist twice now; only a person can tell."""
        story = self._anew()

        told = story.hear(SUCCEEDED, step=HOTEL, generation=0, output=ITEM)

        assert reception(told) is Reception.LATE
        assert story.saga.now.attention
        assert story.call(HOTEL).status is CallStatus.RUNNING

    def test_a_success_is_adopted_where_nothing_exists_else(self) -> None:
        """The new one was refused: the old one is what exists."""
        story = self._anew()
        story.answer(refused())

        story.hear(SUCCEEDED, step=HOTEL, generation=0, output=ITEM, by=HERE, may_open=True)

        assert story.effect(HOTEL) is Effect.DONE
        assert out(story) == [("car", ACTION)]

    def test_an_answer_of_an_earlier_generation_is_evidence_too(self) -> None:
        """A success is never dropped, whichever way it comes."""
        definition = a_definition(a_step(FLIGHT) | {"pivot": True}, a_step(HOTEL))
        story = Story(definition).start().book()
        story.wake(by=THERE)
        story.answer(refused())
        story.retry(by=THERE)
        late = story.answer_late(done(), step=HOTEL, attempt=1)
        said = story.answer_late(broken_off(), step=HOTEL, attempt=1)

        assert isinstance(late, Entry)
        assert story.saga.now.attention
        assert isinstance(said, Ignored)

    def test_what_is_not_known_is_late(self) -> None:
        """Of a call that a failover has lost."""
        story = waiting()

        told = [
            story.hear(SUCCEEDED, generation=3),
            story.hear(SUCCEEDED, step=HOTEL),
            story.hear(SUCCEEDED, direction=COMPENSATION),
        ]

        assert [reception(each) for each in told] == [Reception.LATE] * 3
        assert story.effect() is Effect.UNKNOWN


class TestVerifiedToo:
    """A call that calls back and can be asked about."""

    def test_a_callback_ends_the_question(self) -> None:
        """It is not waited for, and what it answers is late."""
        step = a_caller(idempotent=False) | {"verify": a_verify()}
        story = Story(a_definition(step)).start()
        story.answer(accepted())
        story.until_due()
        asked = out(story)

        story.hear(SUCCEEDED, output=ITEM)
        told = story.answer_late(looked(done=False), direction=Direction.VERIFY)

        assert asked == [(FLIGHT, "verify")]
        assert story.status is SagaStatus.COMPLETED
        assert not story.out
        assert isinstance(told, Ignored)

    def test_only_once_may_try(self) -> None:
        """With one attempt, none in time gives up."""
        story = waiting(action={"retry": ONCE})

        story.until_due()

        assert story.status is SagaStatus.COMPENSATING


def test_each_contradiction_is_kept() -> None:
    """The second that differs says no more than the first, and is evidence all the same."""
    waits: JsonValue = {"callback": {"within": "1h"}}
    story = Story(a_definition(a_step(action={"completion": waits}, undo_by="key"))).start()
    story.answer(answered(202))
    story.hear(CallbackOutcome.SUCCEEDED, output={"id": "F1"})
    before = story.saga.seq

    for name in ("F2", "F3"):
        told = story.hear(CallbackOutcome.SUCCEEDED, output={"id": name})
        assert isinstance(told, Entry)
        assert told.reception is Reception.CONTRADICTION

    assert story.saga.seq == before + 2

"""The point of no return: before it, while it is being passed, and after it."""

from collections.abc import Callable

import pytest

from app.core.entries import Ignored
from app.core.errors import VerbRefused
from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.saga import (
    CallbackOutcome,
    CallStatus,
    Cause,
    Code,
    Effect,
    Question,
    SagaStatus,
    Wish,
)
from app.core.verbs import possible_verbs
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
    a_verify,
    accepted,
    answered,
    broken_off,
    done,
    looked,
    refused,
    seconds,
)

CAR = StepId("car")
UNDONE = answered(204)
VERIFY: dict[str, JsonValue] = {"verify": a_verify()}


def at_pivot(*, deadline: float | None = None, verify: bool = False, **step: JsonValue) -> Story:
    """A story whose flight is done, and whose hotel, the pivot, is out; a car comes after it."""
    pivot = a_step(HOTEL, **step) | {"pivot": True} | (VERIFY if verify else {})  # type: ignore[arg-type]
    story = Story(a_definition(a_step(FLIGHT), pivot, a_step(CAR)))
    request = a_request(deadline=None if deadline is None else seconds(deadline))
    return story.start(request=request).book()


def past_pivot() -> Story:
    """A story that has passed it: the car is out."""
    return at_pivot().book()


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


def cancelled(story: Story) -> None:
    """A person cancels."""
    story.cancel()


def overdue(story: Story) -> None:
    """The deadline, of 3 s, passes."""
    story.later(3).wake()


type Wanting = Callable[[Story], None]
WANTED = pytest.mark.parametrize("want", [cancelled, overdue])


class TestBefore:
    """Not begun yet, or surely without effect: a saga may go back."""

    def test_before_it_a_cancel_undoes(self) -> None:
        """As without a pivot."""
        story = Story(a_definition(a_step(FLIGHT), a_step(HOTEL) | {"pivot": True})).start()

        story.cancel()
        story.book()

        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_it_is_refused_and_the_saga_is_undone(self) -> None:
        """It was not passed."""
        story = at_pivot()

        story.answer(refused())

        assert story.saga.now.failure is not None
        assert story.saga.now.failure.step == HOTEL
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_while_it_backs_off_without_effect_a_cancel_undoes(self) -> None:
        """Nothing has to be waited for."""
        story = at_pivot()
        story.answer(answered(429, retry_after="30"))

        story.cancel()

        assert story.saga.now.pending is None
        assert out(story) == [(FLIGHT, COMPENSATION)]


class TestWhileItIsOpen:
    """A cancel or the deadline is recorded, and waits for its outcome."""

    @WANTED
    def test_it_is_pending(self, want: Wanting) -> None:
        """Nothing is decided; the call is followed to its end."""
        story = at_pivot(deadline=3)

        want(story)

        pending = story.saga.now.pending
        assert pending is not None
        assert pending.wish.value == want.__name__.replace("cancelled", "cancel").replace(
            "overdue", "deadline"
        )
        assert (story.status, out(story)) == (SagaStatus.RUNNING, [(HOTEL, ACTION)])

    def test_a_cancel_says_who_and_why(self) -> None:
        """It is audited."""
        story = at_pivot()
        story.cancel()

        pending = story.saga.now.pending
        assert pending is not None
        assert (pending.wish, pending.actor) == (Wish.CANCEL, "ann")
        assert pending.reason

    def test_again_is_a_duplicate(self) -> None:
        """It is wanted already."""
        story = at_pivot()
        story.cancel()

        told = story.cancel()

        assert isinstance(told, Ignored)
        assert "cancel" in possible_verbs(story.definition, story.saga)

    @WANTED
    def test_done_it_lapses_visibly(self, want: Wanting) -> None:
        """The saga goes on, and only forward."""
        story = at_pivot(deadline=3)
        want(story)

        story.answer(done())
        story.answer(done())

        assert story.status is SagaStatus.COMPLETED
        assert story.saga.now.pending is not None
        assert story.saga.now.pending.lapsed

    @WANTED
    def test_refused_the_cause_stays_the_step(self, want: Wanting) -> None:
        """It has failed, whatever was wanted."""
        story = at_pivot(deadline=3)
        want(story)

        story.answer(refused())

        assert story.saga.now.failure is not None
        assert story.saga.now.failure.cause is Cause.STEP_FAILED
        assert out(story) == [(FLIGHT, COMPENSATION)]

    @pytest.mark.parametrize(
        ("want", "cause"), [(cancelled, Cause.CANCELLED), (overdue, Cause.DEADLINE)]
    )
    def test_surely_without_effect_it_applies(self, want: Wanting, cause: Cause) -> None:
        """It is not tried again."""
        story = at_pivot(deadline=3)
        want(story)

        story.answer(answered(429))

        assert story.saga.now.failure is not None
        assert story.saga.now.failure.cause is cause
        assert out(story) == [(FLIGHT, COMPENSATION)]

    @WANTED
    def test_in_doubt_it_is_settled_at_once(self, want: Wanting) -> None:
        """By its verify: no further attempt of the action."""
        story = at_pivot(deadline=3, verify=True)
        want(story)

        story.answer(broken_off())
        asked = out(story)
        story.answer(looked(done=True))

        assert asked == [(HOTEL, "verify")]
        assert out(story) == [(CAR, ACTION)]

    @WANTED
    def test_in_doubt_a_keyed_one_is_asked_by_its_key(self, want: Wanting) -> None:
        """With fresh limits: it is a question now."""
        story = at_pivot(deadline=3, action={"retry": ONCE})
        want(story)

        story.answer(broken_off())
        asked = out(story)
        story.answer(refused())

        assert asked == [(HOTEL, ACTION)]
        assert story.effect(HOTEL) is Effect.NONE
        assert out(story) == [(FLIGHT, COMPENSATION)]

    @WANTED
    def test_unsettled_it_is_stuck(self, want: Wanting) -> None:
        """A person says what became of it, and then it applies or lapses."""
        story = at_pivot(deadline=3, idempotent=False)
        want(story)
        story.answer(broken_off())

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.DID_IT_TAKE_EFFECT
        assert story.saga.now.failure is not None
        assert story.saga.now.pending is not None

    @WANTED
    def test_unsettled_and_resolved_as_done_it_lapses(self, want: Wanting) -> None:
        """The saga goes on."""
        story = at_pivot(deadline=3, idempotent=False)
        want(story)
        story.answer(broken_off())

        story.resolve(Effect.DONE, step=HOTEL, output={"id": "X1"})

        assert out(story) == [(CAR, ACTION)]
        assert story.saga.now.pending is not None
        assert story.saga.now.pending.lapsed
        assert story.saga.now.failure is None

    @WANTED
    def test_unsettled_and_resolved_as_none_it_is_undone(self, want: Wanting) -> None:
        """The cause stays the step that failed."""
        story = at_pivot(deadline=3, idempotent=False)
        want(story)
        story.answer(broken_off())

        story.resolve(Effect.NONE, step=HOTEL)

        assert story.saga.now.failure is not None
        assert story.saga.now.failure.cause is Cause.STEP_FAILED
        assert out(story) == [(FLIGHT, COMPENSATION)]

    @WANTED
    def test_a_late_success_of_a_stuck_pivot_lapses_it(self, want: Wanting) -> None:
        """Evidence answers the question before a person does."""
        story = at_pivot(deadline=3, idempotent=False)
        want(story)
        story.answer(broken_off())

        story.answer_late(done(), step=HOTEL, by=THERE)

        assert out(story) == [(CAR, ACTION)]
        assert story.saga.now.forward_only

    def test_its_sender_is_lost_while_a_cancel_is_pending(self) -> None:
        """Who takes over settles it."""
        story = at_pivot(verify=True)
        story.cancel()
        story.later(8).wake(by=THERE, losses=1)

        assert story.status is SagaStatus.RUNNING
        assert len(out(story)) == 1
        assert story.out[0].step == HOTEL

    def test_a_cancel_through_a_replica_without_an_engine(self) -> None:
        """Its owner sees it, and follows."""
        story = at_pivot()
        story.cancel(by=ELSEWHERE, may_open=False)
        story.answer(done())

        assert story.saga.now.owner == HERE
        assert out(story) == [(CAR, ACTION)]

    def test_a_deadline_passes_in_doubt_and_is_seen_by_a_replica_without_an_engine(self) -> None:
        """What is owed stays due."""
        story = at_pivot(deadline=3, verify=True)
        story.answer(broken_off())
        story.later(4).wake(by=THERE, may_open=False)
        left = (story.saga.now.owner, story.saga.now.due_at)
        story.until_due()

        assert left == (None, T0 + seconds(4))
        assert out(story) == [(HOTEL, "verify")] or out(story) == [(HOTEL, ACTION)]

    def test_the_saga_is_paused_while_a_cancel_is_pending(self) -> None:
        """A cancel again lifts the pause, through any replica."""
        story = at_pivot()
        story.cancel()
        story.pause()
        paused = story.status

        story.cancel(by=ELSEWHERE, may_open=False)

        assert paused is SagaStatus.PAUSED
        assert story.status is SagaStatus.RUNNING

    def test_terminate_does_not_lapse(self) -> None:
        """The pivot is done, and the saga ends all the same."""
        story = at_pivot()
        story.terminate()

        story.answer(done())

        assert story.status is SagaStatus.TERMINATED
        assert story.saga.now.pending is not None
        assert not story.saga.now.pending.lapsed


class TestWaitingForItsCallback:
    """A pivot whose outcome comes by callback."""

    def _waiting(self, **fields: bool) -> Story:
        story = at_pivot(
            deadline=3,
            action=CALLS_BACK,
            undo_by="key",
            **fields,
        )
        story.answer(accepted())
        return story

    @WANTED
    def test_it_is_waited_for(self, want: Wanting) -> None:
        """What was wanted waits, too."""
        story = self._waiting()

        want(story)

        assert (story.status, out(story)) == (SagaStatus.RUNNING, [])
        assert story.saga.now.pending is not None
        assert story.saga.now.due_at == T0 + seconds(20)

    @WANTED
    def test_a_success_lapses_it(self, want: Wanting) -> None:
        """The saga goes on."""
        story = self._waiting()
        want(story)

        story.hear(CallbackOutcome.SUCCEEDED, step=HOTEL, by=HERE, may_open=True)

        assert out(story) == [(CAR, ACTION)]

    @WANTED
    def test_a_failure_undoes(self, want: Wanting) -> None:
        """It was not passed."""
        story = self._waiting()
        want(story)

        story.hear(CallbackOutcome.FAILED, step=HOTEL, by=HERE, may_open=True)

        assert out(story) == [(FLIGHT, COMPENSATION)]

    @WANTED
    def test_none_in_time_is_settled(self, want: Wanting) -> None:
        """By its verify."""
        story = self._waiting(verify=True)
        want(story)

        story.until_due()

        assert out(story) == [(HOTEL, "verify")]

    def test_a_late_failure_of_a_stuck_pivot_undoes(self) -> None:
        """It answers the question: it was not passed."""
        story = self._waiting(idempotent=False)
        story.cancel()
        story.until_due()
        stuck = story.saga.now.stuck

        story.hear(CallbackOutcome.FAILED, step=HOTEL, by=HERE, may_open=True)

        assert stuck is not None
        assert story.status is SagaStatus.COMPENSATING
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_failed_but_took_effect_is_passed(self) -> None:
        """Nothing is undone any more; a person tells the output."""
        story = self._waiting()

        story.hear(CallbackOutcome.FAILED, step=HOTEL, effect=Effect.DONE)
        stuck = story.saga.now.stuck
        story.resolve(Effect.DONE, step=HOTEL, output={"id": "X1"})

        assert stuck is not None
        assert stuck.question is Question.HOW_TO_GO_ON
        assert story.saga.now.forward_only
        assert out(story) == [(CAR, ACTION)]


class TestInDoubtByItself:
    """The pivot gives up with its effect unknown, and nobody has wanted anything."""

    def test_it_is_settled_and_then_stuck(self) -> None:
        """Nothing is decided."""
        story = at_pivot(action={"retry": ONCE})
        story.answer(broken_off())
        asked = out(story)
        while story.status is SagaStatus.RUNNING:
            story.answer(broken_off())
            if story.status is SagaStatus.RUNNING:
                story.until_out()

        assert asked == [(HOTEL, ACTION)]
        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.DID_IT_TAKE_EFFECT
        assert story.effect(FLIGHT) is Effect.DONE

    def test_settled_as_none_it_is_undone(self) -> None:
        """The step has failed."""
        story = at_pivot(idempotent=False, verify=True, action={"retry": ONCE})
        story.answer(broken_off())
        story.later(11).answer(looked(done=False))

        assert story.saga.now.failure is not None
        assert story.saga.now.failure.cause is Cause.STEP_FAILED
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_a_key_that_may_be_forgotten_leaves_it_in_doubt(self) -> None:
        """Nobody can be asked any more: a person is, in that very entry."""
        story = at_pivot(action={"key_lifetime": "20s"})
        story.later(8).wake(by=THERE, losses=1, may_open=False)
        story.later(60).wake(by=THERE)

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.DID_IT_TAKE_EFFECT

    def test_a_cancel_of_a_stuck_pivot_waits(self) -> None:
        """Nobody knows yet; a person's answer decides."""
        story = at_pivot(idempotent=False)
        story.answer(broken_off())

        story.cancel()

        assert story.status is SagaStatus.STUCK
        assert story.saga.now.pending is not None
        assert "cancel" in possible_verbs(story.definition, story.saga)

    def test_retry_of_a_stuck_pivot_asks_again(self) -> None:
        """The same key, where that is harmless."""
        story = at_pivot(action={"retry": ONCE})
        story.answer(broken_off())
        while story.status is SagaStatus.RUNNING:
            story.answer(broken_off())
            if story.status is SagaStatus.RUNNING:
                story.until_out()
        story.retry()

        assert out(story) == [(HOTEL, ACTION)]
        assert story.call(HOTEL).generation == 0


class TestAfter:
    """Once it is done, nothing is undone any more."""

    def test_a_later_step_that_is_refused_asks_a_person(self) -> None:
        """The question is how to go on."""
        story = past_pivot()

        story.answer(refused())

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.HOW_TO_GO_ON
        assert story.saga.now.forward_only

    def test_a_later_step_in_doubt_asks_whether_it_took_effect(self) -> None:
        """The person answers, and the saga goes on."""
        definition = a_definition(
            a_step(FLIGHT) | {"pivot": True}, a_step(HOTEL, idempotent=False), a_step(CAR)
        )
        story = Story(definition).start().book()
        story.answer(broken_off())
        stuck = story.saga.now.stuck
        story.resolve(Effect.DONE, step=HOTEL, output={"id": "X1"})

        assert stuck is not None
        assert stuck.question is Question.DID_IT_TAKE_EFFECT
        assert out(story) == [(CAR, ACTION)]

    def test_resolved_as_none_it_may_be_tried_again(self) -> None:
        """Under a fresh key: the tool may have stored its refusal."""
        story = past_pivot()
        story.answer(broken_off())
        while story.status is SagaStatus.RUNNING:
            story.until_out()
            story.answer(broken_off())
        story.resolve(Effect.NONE, step=CAR)
        stuck = story.saga.now.stuck
        story.retry()

        assert stuck is not None
        assert stuck.question is Question.HOW_TO_GO_ON
        assert story.call(CAR).generation == 1
        assert out(story) == [(CAR, ACTION)]

    def test_a_cancel_is_refused(self) -> None:
        """409: what may be done is said."""
        story = past_pivot()

        with pytest.raises(VerbRefused) as caught:
            story.cancel()

        assert caught.value.possible == ("pause", "terminate")

    def test_the_deadline_does_not_matter(self) -> None:
        """It is about what can be undone."""
        story = at_pivot(deadline=3).book().later(60)
        story.wake()

        assert story.status is SagaStatus.RUNNING
        assert story.saga.now.due_at is None

    def test_a_step_that_cannot_be_rendered_asks_a_person(self) -> None:
        """In the very entry that passes the pivot."""
        http: JsonValue = {"method": "GET", "url": "https://a.test/${{ input.missing }}"}
        car = a_step(CAR, action={"http": http})
        story = Story(a_definition(a_step(FLIGHT) | {"pivot": True}, car)).start().book()

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.problem.code is Code.INVALID_EXPRESSION

    def test_an_optional_step_that_gives_up_does_not_hold_it(self) -> None:
        """The saga completes without it."""
        definition = a_definition(
            a_step(FLIGHT) | {"pivot": True}, a_step(HOTEL) | {"optional": True}
        )
        story = Story(definition).start().book()
        story.answer(refused())

        assert story.status is SagaStatus.COMPLETED

    def test_two_that_fail_are_asked_about_in_turn(self) -> None:
        """Nothing is begun while one of them waits for a person."""
        definition = a_definition(
            a_step(FLIGHT) | {"pivot": True},
            a_step(HOTEL) | {"needs": ["flight"]},
            a_step(CAR) | {"needs": ["flight"]},
        )
        story = Story(definition).start().book()
        for step in (HOTEL, CAR):
            story.answer_late(refused(), step=step, by=HERE)
        first = story.saga.now.stuck
        story.retry()
        second = story.saga.now.stuck
        nothing = out(story)
        story.retry()

        assert first is not None
        assert second is not None
        assert (first.step, second.step) == (HOTEL, CAR)
        assert nothing == []
        assert out(story) == [(HOTEL, ACTION), (CAR, ACTION)]

    def test_a_skipped_pivot_is_no_point_of_no_return(self) -> None:
        """What was not done need not be kept."""
        pivot = a_step(HOTEL) | {"pivot": True, "when": "${{ input.city == 'Rome' }}"}
        story = Story(a_definition(a_step(FLIGHT), pivot, a_step(CAR))).start().book()
        story.answer(refused())

        assert story.call(HOTEL).status is CallStatus.SKIPPED
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_its_verify_says_done_without_an_output(self) -> None:
        """It is passed all the same."""
        story = at_pivot(idempotent=False, verify=True)
        story.answer(broken_off())
        story.answer(answered(200, {"done": True, "none": False}))

        assert story.out == []
        assert story.call(HOTEL, Direction.VERIFY).status is CallStatus.SUCCEEDED
        assert story.saga.now.forward_only
        assert story.status is SagaStatus.STUCK

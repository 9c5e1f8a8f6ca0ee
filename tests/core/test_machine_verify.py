"""Asking what became of a call: when, how often, what counts, and what follows."""

import pytest

from app.core.identity import Direction
from app.core.json_value import JsonValue
from app.core.observation import Observation
from app.core.saga import (
    CallStatus,
    Code,
    Effect,
    Output,
    Question,
    SagaStatus,
    Settling,
    StepStatus,
)
from tests.core.builders import (
    ACTION,
    COMPENSATION,
    FLIGHT,
    HERE,
    HOTEL,
    ONCE,
    T0,
    THERE,
    Story,
    a_definition,
    a_step,
    a_verify,
    answered,
    broken_off,
    done,
    http_of,
    looked,
    not_sent,
    refused,
    seconds,
)

VERIFY, UNDO_VERIFY = Direction.VERIFY, Direction.COMPENSATION_VERIFY
UNDONE = answered(204)


def a_verified(*, verify: dict[str, JsonValue] | None = None, **step: JsonValue) -> Story:
    """A story of a bare flight that can be asked about, and a hotel; the flight is in doubt."""
    fields: dict[str, JsonValue] = {"idempotent": False, **step}
    flight = a_step(**fields) | {"verify": a_verify(**(verify or {}))}  # type: ignore[arg-type]
    story = Story(a_definition(flight, a_step(HOTEL))).start()
    story.answer(broken_off())
    return story


def going_back(**step: JsonValue) -> Story:
    """A story whose second step, in doubt and given up, can be asked about."""
    fields: dict[str, JsonValue] = {"undo_by": "key", "action": {"on_unknown": "give_up"}, **step}
    hotel = a_step(HOTEL, **fields) | {"verify": a_verify()}  # type: ignore[arg-type]
    story = Story(a_definition(a_step(FLIGHT), hotel)).start().book()
    story.answer(broken_off())
    return story


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


class TestForward:
    """An action in doubt whose ``on_unknown`` is verify."""

    def test_the_tool_is_asked(self) -> None:
        """The question sees the action's key, has one of its own, and the step shows it."""
        story = a_verified()

        (question,) = story.out
        action = story.call()
        assert (question.direction, question.effect) == (VERIFY, Effect.NONE)
        assert http_of(question).url.endswith(str(action.key))
        assert question.key != action.key
        assert story.saga.step_status(FLIGHT) is StepStatus.VERIFYING
        assert story.effect() is Effect.UNKNOWN

    def test_done_counts_at_once_and_gives_the_output(self) -> None:
        """The saga goes on as if the answer had come."""
        story = a_verified()

        story.answer(looked(done=True))

        assert (story.effect(), story.call().output) == (Effect.DONE, Output(value={"id": "X1"}))
        assert out(story) == [(HOTEL, ACTION)]

    def test_none_counts_only_once_the_attempt_is_quiet(self) -> None:
        """Before that, the request may still arrive: it is asked again."""
        story = a_verified()

        story.answer(looked(done=False))
        waits = (story.effect(), story.saga.now.due_at)
        story.until_due()
        asked = out(story)
        story.answer(looked(done=False))

        assert waits == (Effect.UNKNOWN, T0 + seconds(10))
        assert asked == [(FLIGHT, "verify")]
        assert story.effect() is Effect.NONE
        assert story.call().status is CallStatus.BACKING_OFF

    def test_after_none_it_is_tried_again_with_the_same_key(self) -> None:
        """It is an attempt that has failed, within the same limits."""
        story = a_verified()
        story.later(11).answer(looked(done=False))

        story.until_out()

        assert out(story) == [(FLIGHT, ACTION)]
        assert (story.call().attempts, story.call().generation) == (2, 0)

    def test_after_none_and_no_more_attempts_it_is_given_up(self) -> None:
        """Without effect: nothing is to be undone."""
        story = a_verified(action={"retry": ONCE})

        story.later(11).answer(looked(done=False))

        assert (story.status, story.effect()) == (SagaStatus.COMPENSATED, Effect.NONE)

    @pytest.mark.parametrize(
        "answer",
        [
            looked(done=False, none=False),
            looked(done=True, none=True),
            looked(done=True, status=503),
            answered(200, {"done": 7}),
            answered(200, None),
            answered(200, "<html>", readable=False),
            answered(404),
            broken_off(),
            not_sent(),
        ],
    )
    def test_an_answer_that_says_neither_is_asked_again(self, answer: Observation) -> None:
        """Neither, both, an error, an outage: none of them tells anything."""
        story = a_verified()

        story.answer(answer)

        assert story.effect() is Effect.UNKNOWN
        assert story.saga.step_status(FLIGHT) is StepStatus.VERIFYING
        assert story.call(direction=VERIFY).failures == 1
        assert story.saga.now.due_at is not None

    def test_each_question_has_a_key_of_its_own(self) -> None:
        """A tool that remembers answers by key must not answer from memory."""
        story = a_verified()
        first = story.call(direction=VERIFY).key
        story.answer(broken_off())
        story.until_out()

        assert story.call(direction=VERIFY).key != first
        assert story.call(direction=VERIFY).attempts == 2

    def test_it_waits_as_long_as_the_tool_wants(self) -> None:
        """``Retry-After`` counts for questions too."""
        story = a_verified()

        story.answer(answered(503, retry_after="30"))

        assert story.saga.now.due_at == T0 + seconds(30)

    def test_if_nobody_can_say_the_step_has_failed_in_doubt(self) -> None:
        """The rollback is decided, and asks once more with fresh limits before it undoes."""
        story = a_verified(verify={"retry": ONCE}, undo_by="key")

        story.answer(broken_off())
        decided = (story.status, story.effect(), out(story))
        story.answer(looked(done=True))

        assert decided == (SagaStatus.COMPENSATING, Effect.UNKNOWN, [(FLIGHT, "verify")])
        assert out(story.until_out()) == [(FLIGHT, COMPENSATION)]

    def test_done_with_an_output_that_cannot_be_told_is_undone(self) -> None:
        """It exists; without its output nothing can follow."""
        story = a_verified(undo_by="key")

        story.answer(answered(200, {"done": True, "none": False}))

        error = story.call().error
        assert error is not None
        assert (story.effect(), error.code) == (Effect.DONE, Code.INVALID_OUTPUT)
        assert out(story.until_out()) == [(FLIGHT, COMPENSATION)]

    def test_a_question_that_cannot_be_rendered_is_no_question(self) -> None:
        """The step has failed in doubt, and says why."""
        http: JsonValue = {"method": "GET", "url": "https://a.test/${{ input.missing }}"}
        story = a_verified(verify={"http": http}, undo_by="key")

        failure = story.saga.now.failure
        assert failure is not None
        assert failure.problem.code is Code.INVALID_EXPRESSION
        assert story.effect() is Effect.UNKNOWN
        assert story.saga.now.due_at == T0 + seconds(10)

    def test_a_late_success_ends_the_question(self) -> None:
        """The answer to it proves nothing new."""
        story = a_verified()

        story.answer_late(done(), by=HERE)
        told = story.answer_late(looked(done=False), direction=VERIFY)

        assert story.effect() is Effect.DONE
        assert out(story) == [(HOTEL, ACTION)]
        assert "late" in getattr(told, "reason", "")

    def test_a_keyed_tool_is_asked_where_it_says_verify(self) -> None:
        """``on_unknown: verify`` goes before resending."""
        story = a_verified(idempotent=True, action={"on_unknown": "verify"})

        assert out(story) == [(FLIGHT, "verify")]

    def test_a_keyed_tool_is_sent_again_first(self) -> None:
        """And asked once the limits are reached."""
        story = a_verified(
            idempotent=True, action={"retry": {"max_attempts": 2, "initial_delay": "1s"}}
        )
        resent = story.until_out().out[0].direction
        story.answer(broken_off())

        assert resent is ACTION
        assert out(story) == [(FLIGHT, "verify")]


class TestLostSenders:
    """Questions, and questions about attempts, whose sender was lost."""

    def _lost(self) -> Story:
        flight = a_step(idempotent=False) | {"verify": a_verify()}
        story = Story(a_definition(flight, a_step(HOTEL))).start().later(8)
        story.wake(by=THERE, losses=1)
        return story

    def test_a_lost_attempt_is_asked_about(self) -> None:
        """By whoever takes over."""
        story = self._lost()

        assert out(story) == [(FLIGHT, "verify")]
        assert story.saga.now.owner == THERE

    def test_none_counts_once_the_lost_attempt_is_quiet(self) -> None:
        """After send_by, the time-out and the late window."""
        story = self._lost()
        story.answer(looked(done=False))
        waits_until = story.saga.now.due_at
        story.until_due()
        story.answer(looked(done=False))

        assert waits_until == T0 + seconds(6 + 5 + 10)
        assert story.effect() is Effect.NONE
        assert story.until_out().call().attempts == 2

    def test_a_lost_question_is_asked_again(self) -> None:
        """Losing it costs nothing: it does not count."""
        story = a_verified().later(8)

        story.wake(by=THERE, losses=1)

        assert out(story) == [(FLIGHT, "verify")]
        assert story.call(direction=VERIFY).failures == 0

    def test_a_replica_that_may_not_open_leaves_it_due_at_once(self) -> None:
        """Somebody else asks."""
        story = a_verified().later(8)
        story.wake(by=THERE, losses=1, may_open=False)
        left = (story.saga.now.owner, story.saga.now.due_at)
        story.until_due()

        assert left == (None, T0 + seconds(8))
        assert out(story) == [(FLIGHT, "verify")]


class TestGoingBack:
    """Settling before undoing."""

    def test_the_question_comes_before_the_undo(self) -> None:
        """Even where the undo needs no output."""
        story = going_back()

        assert story.status is SagaStatus.COMPENSATING
        assert out(story) == [(HOTEL, "verify")]
        assert story.call(HOTEL).settling is Settling.BY_VERIFY

    def test_done_is_undone(self) -> None:
        """With the output that was learned, if it needs one."""
        story = going_back(undo_by="output")

        story.answer(looked(done=True))

        (undo,) = story.out
        assert http_of(undo).url == "https://hotel.test/orders/X1"

    def test_none_is_not_undone(self) -> None:
        """Once it is quiet, the next one's turn has come."""
        story = going_back()
        story.later(11).answer(looked(done=False))

        assert story.effect(HOTEL) is Effect.NONE
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_if_it_cannot_say_a_keyed_tool_is_asked_by_its_key(self) -> None:
        """And then it is undone as unknown, or a person is asked."""
        story = going_back()
        for _ in range(5):
            story.until_out()
            story.answer(broken_off())
        asked = story.until_out().out[0]

        assert (asked.step, asked.direction) == (HOTEL, ACTION)
        assert asked.settling is Settling.BY_RESEND

    def test_if_nobody_can_say_and_the_undo_needs_the_output_a_person_is_asked(self) -> None:
        """The saga says which question: whether it took effect."""
        story = going_back(idempotent=False, undo_by="output")
        while story.status is SagaStatus.COMPENSATING:
            story.until_out()
            if story.out:
                story.answer(broken_off())

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.DID_IT_TAKE_EFFECT

    def test_a_question_that_is_out_when_the_rollback_is_decided_goes_on(self) -> None:
        """It is followed to its end, not asked twice."""
        story = a_verified()
        story.cancel()
        asked = out(story)
        story.answer(looked(done=True))

        assert asked == [(FLIGHT, "verify")]
        assert story.call(direction=VERIFY).attempts == 1
        assert out(story.until_out()) == [(FLIGHT, COMPENSATION)]

    def test_a_question_that_backs_off_is_asked_anew(self) -> None:
        """With fresh limits."""
        story = a_verified()
        story.answer(broken_off())
        story.cancel()

        assert out(story) == [(FLIGHT, "verify")]
        assert story.call(direction=VERIFY).failures == 0

    def test_a_read_only_step_in_doubt_is_not_asked_about(self) -> None:
        """There is nothing to undo: its question is dropped."""
        flight = {n: part for n, part in a_step(idempotent=False).items() if n != "compensation"}
        flight = flight | {"read_only": True, "verify": a_verify()}
        flight["action"] = {**flight["action"], "on_unknown": "verify"}  # type: ignore[dict-item]
        story = Story(a_definition(flight)).start()
        story.answer(broken_off())

        story.cancel()

        assert story.status is SagaStatus.COMPENSATED


class TestCompensations:
    """An undo that has a verify of its own."""

    def _in_doubt(self) -> Story:
        undo: JsonValue = {"retry": ONCE, "verify": a_verify()}
        step = a_step(undo_by="key", compensation=undo)  # type: ignore[arg-type] # a mapping
        story = Story(a_definition(step, a_step(HOTEL))).start().book()
        story.answer(refused())
        story.answer(broken_off())
        return story

    def test_it_is_asked_about_once_it_is_not_sent_any_more(self) -> None:
        """Before a person is."""
        story = self._in_doubt()

        assert out(story) == [(FLIGHT, "compensation_verify")]
        assert story.saga.step_status(FLIGHT) is StepStatus.COMPENSATING

    def test_done_means_undone(self) -> None:
        """Nothing remains."""
        story = self._in_doubt()

        story.answer(looked(done=True))

        assert (story.status, story.effect()) == (SagaStatus.COMPENSATED, Effect.NONE)

    def test_none_and_no_attempts_left_is_asked_of_a_person(self) -> None:
        """The action's effect still exists."""
        story = self._in_doubt()
        story.later(11).answer(looked(done=False))

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.HOW_TO_UNDO
        assert story.effect() is Effect.DONE
        assert story.call(direction=COMPENSATION).effect is Effect.NONE

    def test_a_forgotten_key_is_asked_about_and_tried_under_another(self) -> None:
        """Surely without effect, it is sent once more under a fresh key."""
        undo: JsonValue = {"key_lifetime": "30s", "verify": a_verify()}
        step = a_step(undo_by="key", compensation=undo)  # type: ignore[arg-type] # a mapping
        story = Story(a_definition(step, a_step(HOTEL))).start().book()
        story.answer(refused())
        story.answer(answered(503, retry_after="60"))
        asked = out(story.until_out())
        story.later(11).answer(looked(done=False))
        story.until_out()

        assert asked == [(FLIGHT, "compensation_verify")]
        assert story.call(direction=COMPENSATION).generation == 1
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_if_nobody_can_say_a_person_is_asked(self) -> None:
        """And its retry sends the same key again."""
        story = self._in_doubt()
        while story.status is SagaStatus.COMPENSATING:
            story.until_out()
            if story.out:
                story.answer(broken_off())
        stuck = story.saga.now.stuck
        story.retry()

        assert stuck is not None
        assert stuck.question is Question.HOW_TO_UNDO
        assert out(story) == [(FLIGHT, COMPENSATION)]
        assert story.call(direction=COMPENSATION).generation == 0

    def test_a_late_success_ends_the_question(self) -> None:
        """The undo has worked."""
        story = self._in_doubt()

        story.answer_late(UNDONE, direction=COMPENSATION)

        assert story.status is SagaStatus.COMPENSATED
        assert not story.out


class TestUnreadable:
    """A late success that cannot be read: something may exist that was believed not to."""

    def test_it_makes_the_effect_unknown_and_a_refusal_proves_nothing_then(self) -> None:
        """Nor does a bare tool's refusal of another attempt."""
        story = Story(a_definition(a_step(idempotent=False, undo_by="key"))).start()
        story.answer(answered(429, retry_after="30"))
        story.answer_late(answered(201, "<html>", readable=False), by=HERE)
        suspected = story.effect()
        story.until_out()
        story.answer(refused())

        assert suspected is Effect.UNKNOWN
        assert story.effect() is Effect.UNKNOWN
        assert story.status is SagaStatus.COMPENSATING

    def test_after_the_end_a_person_should_look(self) -> None:
        """It is listed."""
        story = Story(a_definition(a_step(undo_by="key"))).start()
        story.answer(refused())
        story.answer_late(answered(201, "<html>", readable=False))

        assert (story.status, story.effect()) == (SagaStatus.COMPENSATED, Effect.UNKNOWN)
        assert story.saga.now.attention

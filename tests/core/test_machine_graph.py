"""Steps that wait for one another, side by side, skipped, optional, read-only or irreversible."""

import pytest

from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.observation import Observation
from app.core.residue import Residue, Why, list_residue
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
    broken_off,
    done,
    http_of,
    refused,
    seconds,
)

CAR = StepId("car")
UNDONE = answered(204)
NONE: dict[str, JsonValue] = {"needs": []}
NEVER: dict[str, JsonValue] = {"when": "${{ input.city == 'Rome' }}"}
OPTIONAL: dict[str, JsonValue] = {"optional": True}
USES_FLIGHT: dict[str, JsonValue] = {
    "http": {
        "method": "POST",
        "url": "https://hotel.test/orders",
        "json": {"f": "${{ steps.flight.output }}"},
    }
}


def side_by_side(*, deadline: float | None = None, **hotel: JsonValue) -> Story:
    """A story whose flight and hotel are out; a car needs both."""
    definition = a_definition(
        a_step(FLIGHT, undo_by="key") | NONE,
        a_step(HOTEL, undo_by="key", **hotel) | NONE,  # type: ignore[arg-type] # a_step checks
        a_step(CAR, undo_by="key") | {"needs": ["flight", "hotel"]},
    )
    request = a_request(deadline=None if deadline is None else seconds(deadline))
    return Story(definition).start(request=request)


def without_undo(step: str, **fields: JsonValue) -> dict[str, JsonValue]:
    """A step without a compensation."""
    return {n: part for n, part in a_step(step).items() if n != "compensation"} | fields


def tell(story: Story, step: StepId, observation: object, attempt: int = 1) -> None:
    """The owner reports what an attempt of an action came to."""
    story.answer_late(observation, step=step, attempt=attempt, by=HERE)  # type: ignore[arg-type]


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


class TestOrder:
    """What begins when."""

    def test_steps_without_needs_begin_together(self) -> None:
        """In one entry."""
        story = side_by_side()

        assert out(story) == [(FLIGHT, ACTION), (HOTEL, ACTION)]
        assert story.saga.seq == 1

    def test_a_step_begins_once_all_it_needs_are_done(self) -> None:
        """Not before."""
        story = side_by_side()
        tell(story, HOTEL, done())
        before = out(story)
        tell(story, FLIGHT, done())

        assert before == [(FLIGHT, ACTION)]
        assert out(story) == [(CAR, ACTION)]

    def test_a_plain_list_is_a_sequence(self) -> None:
        """Absent ``needs`` mean the step before."""
        story = Story().start()

        assert out(story) == [(FLIGHT, ACTION)]

    def test_one_backs_off_while_another_is_out(self) -> None:
        """The owner keeps it, and runs its timer."""
        story = side_by_side()
        tell(story, FLIGHT, answered(429, retry_after="3"))

        assert (story.saga.now.owner, story.saga.now.due_at) == (HERE, T0 + seconds(3))
        story.until_due()
        assert out(story) == [(FLIGHT, ACTION), (HOTEL, ACTION)]

    def test_the_owner_is_lost_with_both_out(self) -> None:
        """Each is sent again by whoever takes over."""
        story = side_by_side().later(8)

        story.wake(by=THERE, losses=1)

        assert out(story) == [(FLIGHT, ACTION), (HOTEL, ACTION)]
        assert {call.attempts for call in story.out} == {2}

    def test_evidence_elsewhere_leaves_the_next_step_to_the_owner(self) -> None:
        """It concludes, and opens nothing."""
        story = side_by_side()
        tell(story, HOTEL, done())
        story.answer_late(done(), by=ELSEWHERE, may_open=True)
        before = out(story)
        story.wake(by=HERE)

        assert before == []
        assert out(story) == [(CAR, ACTION)]


class TestGoingBack:
    """Siblings in flight when one fails, and the order of the undo."""

    def test_a_sibling_in_flight_is_followed_to_its_end(self) -> None:
        """And undone, if it took effect; nothing new is begun."""
        story = side_by_side()
        tell(story, FLIGHT, refused())
        waits = (story.status, out(story))
        tell(story, HOTEL, done())

        assert waits == (SagaStatus.COMPENSATING, [(HOTEL, ACTION)])
        assert out(story) == [(HOTEL, COMPENSATION)]

    def test_a_sibling_that_fails_as_well_is_only_recorded(self) -> None:
        """The cause is the first."""
        story = side_by_side()
        tell(story, FLIGHT, refused())
        tell(story, HOTEL, refused())

        assert story.status is SagaStatus.COMPENSATED
        assert story.saga.now.failure is not None
        assert story.saga.now.failure.step == FLIGHT

    def test_a_sibling_in_doubt_is_settled(self) -> None:
        """By the same key again, since its tool honours keys."""
        story = side_by_side()
        tell(story, FLIGHT, refused())
        tell(story, HOTEL, broken_off())

        assert out(story) == [(HOTEL, ACTION)]

    def test_a_sibling_that_backs_off_keeps_the_effect_it_has(self) -> None:
        """It is not waited for."""
        story = side_by_side()
        tell(story, HOTEL, answered(429, retry_after="60"))
        tell(story, FLIGHT, refused())

        assert story.status is SagaStatus.COMPENSATED
        assert story.call(HOTEL).status is CallStatus.FAILED

    def test_a_sibling_that_awaits_a_callback_is_unknown_at_once(self) -> None:
        """It is asked again, by its key."""
        story = side_by_side(action=CALLS_BACK)
        tell(story, HOTEL, accepted())
        tell(story, FLIGHT, refused())

        assert story.effect(HOTEL) is Effect.UNKNOWN
        assert out(story) == [(HOTEL, ACTION)]

    def test_a_retry_is_not_sent_in_the_entry_that_turns_back(self) -> None:
        """Both are due at once; one of them gives up."""
        story = side_by_side(action={"retry": {"max_elapsed": "2s", "max_attempts": 9}})
        tell(story, FLIGHT, answered(429, retry_after="30"))
        tell(story, HOTEL, not_counted := answered(429, retry_after="1"))
        story.later(30).wake()
        tell(story, HOTEL, not_counted, attempt=2)

        assert story.status is SagaStatus.COMPENSATING
        assert out(story) == [(FLIGHT, ACTION)]

    def test_the_reverse_of_the_graph_comes_first(self) -> None:
        """A car that needs both is undone before either."""
        story = side_by_side()
        tell(story, FLIGHT, done())
        tell(story, HOTEL, done())
        story.answer(broken_off())
        story.cancel()
        undone = []
        while story.status is SagaStatus.COMPENSATING:
            (call,) = story.until_out().out
            undone.append((call.step, call.direction.value))
            story.answer(UNDONE if call.direction is COMPENSATION else done())

        assert undone == [
            (CAR, "action"),
            (CAR, "compensation"),
            (HOTEL, "compensation"),
            (FLIGHT, "compensation"),
        ]

    def test_then_the_reverse_of_completion(self) -> None:
        """What was done last is undone first."""
        story = side_by_side()
        tell(story, HOTEL, done())
        tell(story, FLIGHT, done())
        story.answer(refused())

        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_an_unknown_effect_counts_as_last(self) -> None:
        """Whatever was completed after it."""
        story = side_by_side(idempotent=False)
        tell(story, HOTEL, broken_off())
        tell(story, FLIGHT, done())
        waits_for_quiet = (out(story), story.saga.now.due_at)
        story.until_due()

        assert waits_for_quiet == ([], T0 + seconds(10))
        assert out(story) == [(HOTEL, COMPENSATION)]

    def test_late_news_about_a_later_step_holds_up_an_earlier_one(self) -> None:
        """What comes later in the graph is undone before what it needs."""
        story = side_by_side()
        tell(story, FLIGHT, done())
        tell(story, HOTEL, done())
        story.answer(refused())
        story.answer(answered(503))
        story.answer_late(done(), step=CAR, by=HERE)
        story.until_out()

        assert out(story) == [(CAR, COMPENSATION)]

    def test_the_deadline_passes_with_both_out(self) -> None:
        """Both are followed to their end, and undone."""
        story = side_by_side(deadline=3).later(3)
        story.wake()
        tell(story, FLIGHT, done())
        tell(story, HOTEL, refused())

        assert story.saga.now.failure is not None
        assert story.saga.now.failure.cause is Cause.DEADLINE
        assert out(story) == [(FLIGHT, COMPENSATION)]


class TestStandstill:
    """Siblings in flight while a person holds the saga."""

    def test_stuck_follows_what_is_out_and_begins_nothing(self) -> None:
        """The output of the flight cannot be used to undo it."""
        definition = a_definition(
            a_step(FLIGHT) | NONE, a_step(HOTEL) | NONE, a_step(CAR) | {"needs": ["hotel"]}
        )
        story = Story(definition).start()
        tell(story, FLIGHT, answered(201, {}))
        stuck = story.saga.now.stuck
        owner = story.saga.now.owner
        tell(story, HOTEL, done())

        assert stuck is not None
        assert (stuck.question, stuck.step) == (Question.HOW_TO_UNDO, FLIGHT)
        assert stuck.problem.code is Code.INVALID_OUTPUT
        assert owner == HERE
        assert story.status is SagaStatus.STUCK
        assert out(story) == []

    def test_answered_it_goes_on_with_both(self) -> None:
        """A person tells the output that the tool left out."""
        definition = a_definition(
            a_step(FLIGHT) | NONE, a_step(HOTEL) | NONE, a_step(CAR) | {"needs": ["hotel"]}
        )
        story = Story(definition).start()
        tell(story, FLIGHT, answered(201, {}))
        tell(story, HOTEL, done())
        story.resolve(Effect.DONE, output={"id": "F7"})

        assert out(story) == [(CAR, ACTION)]
        assert story.call().output == Output(value={"id": "F7"})

    def test_a_sibling_that_fails_meanwhile_turns_it_back(self) -> None:
        """The rollback asks the same question when its turn comes."""
        definition = a_definition(a_step(FLIGHT) | NONE, a_step(HOTEL) | NONE)
        story = Story(definition).start()
        tell(story, FLIGHT, answered(201, {}))
        tell(story, HOTEL, refused())

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.HOW_TO_UNDO
        assert story.saga.now.stuck.resumes is SagaStatus.COMPENSATING

    def test_paused_follows_both_to_their_end(self) -> None:
        """And opens the next once it is resumed."""
        story = side_by_side()
        story.pause()
        tell(story, FLIGHT, done())
        tell(story, HOTEL, done())
        held = (story.status, story.saga.now.owner, out(story))
        story.resume()

        assert held == (SagaStatus.PAUSED, None, [])
        assert out(story) == [(CAR, ACTION)]

    def test_terminated_waits_for_both(self) -> None:
        """What they did is residue."""
        story = side_by_side()
        story.terminate()
        tell(story, FLIGHT, done())
        waits = story.status
        tell(story, HOTEL, broken_off())

        assert waits is SagaStatus.RUNNING
        assert story.status is SagaStatus.TERMINATED
        assert [(r.step, r.effect) for r in list_residue(story.definition, story.saga)] == [
            (FLIGHT, Effect.DONE),
            (HOTEL, Effect.UNKNOWN),
        ]


class TestWhen:
    """Steps that are skipped."""

    def test_a_false_condition_skips(self) -> None:
        """Its output is null, and what needs it begins."""
        story = Story(
            a_definition(a_step(FLIGHT) | NEVER, a_step(HOTEL, action=USES_FLIGHT))
        ).start()

        assert story.saga.step_status(FLIGHT) is StepStatus.SKIPPED
        assert story.call().output == Output(value=None)
        assert http_of(story.call(HOTEL)).body == '{"f":null}'

    def test_a_true_one_does_not(self) -> None:
        """The step runs."""
        flight = a_step(FLIGHT) | {"when": "${{ input.city == 'Oslo' }}"}

        assert out(Story(a_definition(flight)).start()) == [(FLIGHT, ACTION)]

    def test_all_skipped_is_completed(self) -> None:
        """In the first entry."""
        story = Story(a_definition(a_step(FLIGHT) | NEVER)).start()

        assert (story.status, story.saga.seq) == (SagaStatus.COMPLETED, 1)

    def test_a_condition_that_cannot_be_told_fails_the_step(self) -> None:
        """Without effect: nothing was sent."""
        hotel = a_step(HOTEL) | {"when": "${{ steps.flight.output.price < 9 }}"}
        story = Story(a_definition(a_step(FLIGHT), hotel)).start().book()

        assert story.saga.now.failure is not None
        assert story.saga.now.failure.problem.code is Code.INVALID_EXPRESSION
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_one_that_is_neither_true_nor_false_fails_the_step(self) -> None:
        """It is no condition."""
        hotel = a_step(HOTEL) | {"when": "${{ steps.flight.output.id }}"}
        story = Story(a_definition(a_step(FLIGHT), hotel)).start().book()

        assert story.effect(HOTEL) is Effect.NONE
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_what_was_skipped_is_not_undone(self) -> None:
        """There is nothing."""
        story = Story(a_definition(a_step(FLIGHT) | NEVER, a_step(HOTEL))).start()
        story.answer(refused())

        assert story.status is SagaStatus.COMPENSATED

    def test_a_replica_without_an_engine_skips_nothing(self) -> None:
        """It leaves the saga to one that has."""
        story = Story(a_definition(a_step(FLIGHT) | NEVER)).start(may_open=False)

        assert story.status is SagaStatus.PENDING
        assert story.saga.now.due_at == T0


class TestOptional:
    """Steps that the saga can go on without."""

    def _story(self, *, default: JsonValue = None, **flight: JsonValue) -> Story:
        optional = a_step(FLIGHT, **flight) | OPTIONAL | {"default": default}  # type: ignore[arg-type]
        return Story(a_definition(optional, a_step(HOTEL, action=USES_FLIGHT))).start()

    @pytest.mark.parametrize("default", [None, {"id": "none"}, "${{ input.city }}"])
    def test_its_default_stands_for_its_output(self, default: JsonValue) -> None:
        """The saga goes on."""
        story = self._story(default=default)
        story.answer(refused())

        expected = "Oslo" if isinstance(default, str) else default
        assert story.saga.step_status(FLIGHT) is StepStatus.FAILED
        assert story.call().output == Output(value=expected)
        assert out(story) == [(HOTEL, ACTION)]

    def test_in_doubt_it_does_not_hold_up_the_saga(self) -> None:
        """Its effect is residue of a completed saga."""
        story = self._story(idempotent=False, undo_by="key")
        story.answer(broken_off())
        story.answer(done())

        assert story.status is SagaStatus.COMPLETED
        assert list_residue(story.definition, story.saga) == [
            Residue(step=FLIGHT, effect=Effect.UNKNOWN, why=Why.UNKNOWN_EFFECT)
        ]

    def test_in_doubt_it_is_undone_at_rollback(self) -> None:
        """Its tool is asked, and what exists is undone."""
        story = self._story(action={"retry": ONCE}, undo_by="key")
        story.answer(broken_off())
        story.answer(refused())
        asked = out(story)
        story.answer(done())

        assert asked == [(FLIGHT, ACTION)]
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_its_default_is_nothing_to_undo_it_by(self) -> None:
        """An undo that needs the output asks a person rather than undo the default."""
        story = self._story(idempotent=False, default={"id": "none"})
        story.answer(broken_off())
        story.answer(refused())
        story.until_due()

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.DID_IT_TAKE_EFFECT
        assert out(story) == []

    def test_a_late_success_is_adopted(self) -> None:
        """Its output is what it returned; what begins from now on sees that."""
        story = self._story(idempotent=False)
        story.answer(broken_off())
        story.answer_late(done(), by=HERE)
        story.answer(refused())

        assert story.call().output == Output(value={"id": "X1"})
        assert out(story.until_out()) == [(FLIGHT, COMPENSATION)]

    def test_a_late_success_after_completion_alerts(self) -> None:
        """A person should look: others have seen the default."""
        story = self._story(idempotent=False)
        story.answer(broken_off())
        story.answer(done())
        story.answer_late(done())

        assert (story.status, story.effect()) == (SagaStatus.COMPLETED, Effect.DONE)
        assert story.saga.now.attention

    def test_a_default_that_cannot_be_told_is_null(self) -> None:
        """It undoes nothing, and a person should look."""
        story = self._story(default="${{ input.missing }}")
        story.answer(refused())

        assert story.call().output == Output(value=None)
        assert story.saga.now.attention
        assert out(story) == [(HOTEL, ACTION)]

    def test_none_heard_in_time_does_not_hold_it_up(self) -> None:
        """A callback that comes later is believed."""
        story = self._story(idempotent=False, undo_by="key", action=CALLS_BACK)
        story.answer(accepted())
        story.until_due()
        went_on = out(story)
        story.hear(CallbackOutcome.SUCCEEDED, output={"id": "X1"})

        assert went_on == [(HOTEL, ACTION)]
        assert story.effect() is Effect.DONE


class TestReadOnly:
    """Steps that change nothing."""

    def test_there_is_nothing_to_undo(self) -> None:
        """Its effect is none, though it succeeded."""
        story = Story(a_definition(without_undo(FLIGHT, read_only=True), a_step(HOTEL))).start()
        story.book().answer(refused())

        assert story.saga.step_status(FLIGHT) is StepStatus.SUCCEEDED
        assert story.status is SagaStatus.COMPENSATED

    def test_in_doubt_there_is_nothing_either(self) -> None:
        """Whatever became of it."""
        flight = without_undo(FLIGHT, read_only=True)
        flight["action"] = {**flight["action"], "retry": ONCE}  # type: ignore[dict-item]
        story = Story(a_definition(flight, a_step(HOTEL))).start()
        story.answer(broken_off())

        assert (story.status, story.effect()) == (SagaStatus.COMPENSATED, Effect.NONE)

    @pytest.mark.parametrize("answer", [done(), answered(200, "<html>", readable=False)])
    def test_a_second_answer_says_nothing(self, answer: Observation) -> None:
        """Also after the end: nobody has to look."""
        flight = without_undo(FLIGHT, read_only=True)
        flight["action"] = {**flight["action"], "idempotent": False}  # type: ignore[dict-item]
        story = Story(a_definition(flight)).start().book()
        before = story.saga

        story.answer_late(answer)

        assert story.saga == before


class TestIrreversible:
    """Steps that cannot be undone."""

    def _story(self, **action: JsonValue) -> Story:
        flight = without_undo(FLIGHT, irreversible=True)
        flight["action"] = {**flight["action"], **action}  # type: ignore[dict-item]
        return Story(a_definition(a_step(CAR), flight, a_step(HOTEL))).start().book()

    def test_it_stays_and_what_came_before_is_undone(self) -> None:
        """The saga is only partially compensated, and says of what."""
        story = self._story().book()
        story.answer(refused())
        undoes = out(story)
        story.answer(UNDONE)

        assert undoes == [(CAR, COMPENSATION)]
        assert story.status is SagaStatus.PARTIALLY_COMPENSATED
        assert list_residue(story.definition, story.saga) == [
            Residue(step=FLIGHT, effect=Effect.DONE, why=Why.IRREVERSIBLE)
        ]

    def test_without_effect_it_is_no_residue(self) -> None:
        """Refused, it left nothing."""
        story = self._story()
        story.answer(refused())
        story.answer(UNDONE)

        assert story.status is SagaStatus.COMPENSATED

    def test_in_doubt_it_is_asked_about_first(self) -> None:
        """If there is nothing, there is no residue."""
        story = self._story(retry=ONCE)
        story.answer(broken_off())
        asked = out(story)
        story.answer(refused())
        story.answer(UNDONE)

        assert asked == [(FLIGHT, ACTION)]
        assert story.status is SagaStatus.COMPENSATED

    def test_in_doubt_that_nobody_settles_it_is_residue(self) -> None:
        """It may exist."""
        story = self._story(idempotent=False)
        story.answer(broken_off())
        story.answer(UNDONE)

        assert list_residue(story.definition, story.saga) == [
            Residue(step=FLIGHT, effect=Effect.UNKNOWN, why=Why.IRREVERSIBLE)
        ]

    def test_verify_is_no_step_of_the_saga(self) -> None:
        """A question leaves no residue, and no call of its own in the plan."""
        story = self._story()

        assert story.saga.call(FLIGHT, Direction.VERIFY) is None

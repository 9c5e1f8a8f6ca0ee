"""What people tell a saga: cancel, terminate, pause, resume, retry, resolve, skip, undo."""

from uuid import UUID

import pytest

from app.core.entries import Entry, Ignored
from app.core.errors import VerbRefused
from app.core.events import UndoRequested
from app.core.identity import SagaId, StepId
from app.core.json_value import JsonValue
from app.core.residue import Residue, Why, list_residue
from app.core.saga import (
    CallStatus,
    Cause,
    Effect,
    Output,
    Question,
    SagaStatus,
    StepStatus,
    Wish,
)
from app.core.verbs import may_undo, possible_verbs
from tests.core.builders import (
    ACTION,
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
    answered,
    broken_off,
    done,
    looked,
    refused,
    seconds,
)

CAR = StepId("car")
UNDONE = answered(204)
BARE: dict[str, JsonValue] = {"idempotent": False}


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


def residue(story: Story) -> list[Residue]:
    """What a saga that is over has left."""
    return list_residue(story.definition, story.saga)


def refused_undo() -> Story:
    """A story whose flight is done, and cannot be undone: its undo was refused."""
    story = Story().start().book()
    story.answer(refused())
    story.answer(refused())
    return story


def in_doubt() -> Story:
    """A story whose rollback is stuck: did the hotel, whose undo needs its output, take effect?"""
    story = Story(a_definition(a_step(FLIGHT), a_step(HOTEL, idempotent=False))).start().book()
    story.answer(broken_off())
    story.until_due()
    return story


class TestPauseAndResume:
    """No new call, in either direction."""

    def test_the_call_that_is_out_is_followed_to_its_end(self) -> None:
        """Its result is stored; the next one waits for the resume."""
        story = Story().start()
        story.pause()
        kept = (story.status, story.saga.now.owner, out(story))
        story.book()
        held = (story.saga.now.owner, story.saga.now.due_at, out(story))
        story.resume()

        assert kept == (SagaStatus.PAUSED, HERE, [(FLIGHT, ACTION)])
        assert held == (None, None, [])
        assert out(story) == [(HOTEL, ACTION)]

    def test_going_back_too(self) -> None:
        """The next undo waits."""
        story = Story(a_definition(a_step(FLIGHT), a_step(HOTEL), a_step(CAR))).start()
        story.book().book()
        story.answer(refused())
        story.pause()
        story.answer(UNDONE)
        held = out(story)
        story.resume()

        assert held == []
        assert (story.status, out(story)) == (SagaStatus.COMPENSATING, [(FLIGHT, COMPENSATION)])

    def test_it_says_who_and_why(self) -> None:
        """Audited."""
        story = Story().start()
        story.pause()

        pause = story.saga.now.pause
        assert pause is not None
        assert (pause.actor, pause.reason, pause.resumes) == ("ann", "wait", SagaStatus.RUNNING)

    def test_a_refusal_meanwhile_turns_it_back_once_resumed(self) -> None:
        """The decision is made at once, and carried out later."""
        story = Story().start().book()
        story.pause()
        story.answer(refused())
        held = (story.status, story.saga.now.phase, out(story))
        story.resume()

        assert held == (SagaStatus.PAUSED, SagaStatus.COMPENSATING, [])
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_a_deadline_that_passes_takes_effect_on_resume(self) -> None:
        """Not before: a paused saga has no timer."""
        story = Story().start(request=a_request(deadline=seconds(5))).book()
        story.pause()
        story.answer(done())
        held = story.saga.now.due_at
        story.later(60).resume()

        assert held is None
        assert story.saga.now.failure is None or story.saga.now.failure.cause is Cause.DEADLINE

    def test_a_step_that_backs_off_is_due_on_resume(self) -> None:
        """If its time has come meanwhile."""
        story = Story().start()
        story.answer(answered(429, retry_after="10"))
        story.pause()
        story.later(20).resume()

        assert out(story) == [(FLIGHT, ACTION)]

    def test_a_resume_through_a_replica_without_an_engine_is_due_at_once(self) -> None:
        """Somebody else goes on."""
        story = Story().start()
        story.pause()
        story.book()
        story.later(5).resume(by=ELSEWHERE, may_open=False)
        left = (story.status, story.saga.now.owner, story.saga.now.due_at)
        story.until_due()

        assert left == (SagaStatus.RUNNING, None, T0 + seconds(5))
        assert out(story) == [(HOTEL, ACTION)]

    def test_the_owner_of_a_paused_saga_is_lost(self) -> None:
        """What was out is in doubt; nothing is sent before the resume."""
        story = Story().start()
        story.pause()
        story.later(8).wake(by=THERE, losses=1)
        held = (story.status, story.saga.now.owner, out(story), story.effect())
        story.resume()

        assert held == (SagaStatus.PAUSED, None, [], Effect.UNKNOWN)
        assert out(story) == [(FLIGHT, ACTION)]

    def test_a_question_that_is_out_is_followed_and_not_repeated(self) -> None:
        """A verify is a call, too."""
        flight = a_step(idempotent=False) | {"verify": a_verify()}
        story = Story(a_definition(flight)).start()
        story.answer(broken_off())
        story.pause()
        story.answer(looked(done=False))
        held = (out(story), story.saga.now.due_at)
        story.later(11).resume()

        assert held == ([], None)
        assert out(story) == [(FLIGHT, "verify")]

    def test_a_pending_saga_may_be_paused(self) -> None:
        """It begins once it is resumed."""
        story = Story().start(may_open=False)
        story.pause()
        story.resume()

        assert out(story) == [(FLIGHT, ACTION)]

    def test_a_stuck_saga_cannot_be_paused(self) -> None:
        """It waits already."""
        with pytest.raises(VerbRefused):
            refused_undo().pause()


class TestCancel:
    """Undo, from wherever the saga stands."""

    def test_it_lifts_a_pause(self) -> None:
        """And undoes at once."""
        story = Story().start()
        story.pause()
        story.book()
        story.cancel()

        assert (story.status, out(story)) == (SagaStatus.COMPENSATING, [(FLIGHT, COMPENSATION)])

    def test_it_lifts_a_pause_of_a_rollback(self) -> None:
        """Which then goes on."""
        story = Story().start().book()
        story.answer(broken_off())
        story.cancel()
        story.pause()
        story.cancel()

        assert story.status is SagaStatus.COMPENSATING

    def test_again_changes_nothing(self) -> None:
        """202: it is being undone already."""
        story = Story().start().book()
        story.cancel()

        assert isinstance(story.cancel(), Ignored)

    def test_of_a_saga_that_is_stuck_going_forward(self) -> None:
        """It is undone; what it is stuck at is asked again when its turn comes."""
        story = Story(a_definition(a_step(CAR), a_step(FLIGHT), a_step(HOTEL))).start().book()
        story.answer(answered(201, {}))
        stuck = story.saga.now.stuck
        story.cancel()

        assert stuck is not None
        assert stuck.resumes is SagaStatus.RUNNING
        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.resumes is SagaStatus.COMPENSATING

    def test_of_a_saga_whose_owners_were_lost(self) -> None:
        """A person decides: it goes back at once."""
        story = Story().start().book()
        story.wake(by=THERE, losses=9)
        story.cancel()

        assert story.status is SagaStatus.COMPENSATING


class TestTerminate:
    """The saga ends as it is."""

    def test_the_call_that_is_out_is_followed_to_its_end(self) -> None:
        """Then it is final, and what is live is residue."""
        story = Story().start().book()
        story.terminate()
        waits = (story.status, story.saga.now.owner, possible_verbs(story.definition, story.saga))
        story.book()

        assert waits == (SagaStatus.RUNNING, HERE, ())
        assert story.status is SagaStatus.TERMINATED
        assert residue(story) == [
            Residue(step=FLIGHT, effect=Effect.DONE, why=Why.TERMINATED),
            Residue(step=HOTEL, effect=Effect.DONE, why=Why.TERMINATED),
        ]

    @pytest.mark.parametrize("answer", [refused(), broken_off(), answered(429)])
    def test_whatever_its_answer_is(self, answer: object) -> None:
        """Nothing is tried again, nothing undone."""
        story = Story().start().book()
        story.terminate()
        story.answer(answer)  # type: ignore[arg-type] # they are observations

        assert story.status is SagaStatus.TERMINATED
        assert story.effect() is Effect.DONE

    def test_nothing_out_ends_it_at_once(self) -> None:
        """Also through a replica without an engine."""
        story = Story().start().book()
        story.answer(broken_off())
        story.terminate(by=ELSEWHERE, may_open=False)

        assert story.status is SagaStatus.TERMINATED
        assert story.call(HOTEL).status is CallStatus.FAILED
        assert [(r.step, r.effect) for r in residue(story)] == [
            (FLIGHT, Effect.DONE),
            (HOTEL, Effect.UNKNOWN),
        ]

    def test_a_stuck_saga(self) -> None:
        """Instead of an answer."""
        story = refused_undo()
        story.terminate()

        assert story.status is SagaStatus.TERMINATED

    def test_a_paused_saga_with_a_call_out(self) -> None:
        """It ends with that call."""
        story = Story().start()
        story.pause()
        story.terminate()
        waits = story.status
        story.book()

        assert waits is SagaStatus.PAUSED
        assert story.status is SagaStatus.TERMINATED

    def test_an_undo_that_is_out(self) -> None:
        """It is followed to its end, too."""
        story = Story().start().book()
        story.answer(refused())
        story.terminate()
        story.answer(UNDONE)

        assert story.status is SagaStatus.TERMINATED
        assert residue(story) == []

    def test_its_owner_is_lost(self) -> None:
        """The attempt is in doubt; nobody sends it again."""
        story = Story().start()
        story.terminate()
        story.later(8).wake(by=THERE, losses=1)

        assert story.status is SagaStatus.TERMINATED
        assert [(r.step, r.effect) for r in residue(story)] == [(FLIGHT, Effect.UNKNOWN)]

    def test_again_is_a_duplicate_and_everything_else_is_refused(self) -> None:
        """It is about to end."""
        story = Story().start()
        story.terminate()

        assert isinstance(story.terminate(), Ignored)
        for verb in (story.cancel, story.pause, story.resume, story.retry):
            with pytest.raises(VerbRefused):
                verb()

    def test_it_overrides_a_cancel_that_is_pending(self) -> None:
        """The last word counts."""
        story = Story(a_definition(a_step(FLIGHT) | {"pivot": True})).start()
        story.cancel()
        story.terminate()

        assert story.saga.now.pending is not None
        assert story.saga.now.pending.wish is Wish.TERMINATE

    def test_late_news_alerts(self) -> None:
        """What is found afterwards is for a person."""
        story = Story(a_definition(a_step(idempotent=False))).start()
        story.answer(broken_off())
        story.until_due() if story.status is SagaStatus.COMPENSATING else None
        story.terminate()
        story.answer_late(done())

        assert (story.status, story.effect()) == (SagaStatus.TERMINATED, Effect.DONE)
        assert story.saga.now.attention


class TestRetry:
    """Fresh attempts for what the saga is stuck at."""

    def test_an_undo_without_effect_gets_a_fresh_key(self) -> None:
        """The tool may have stored its refusal under the old one."""
        story = refused_undo()
        before = story.call(direction=COMPENSATION).key
        story.retry()

        assert out(story) == [(FLIGHT, COMPENSATION)]
        assert story.call(direction=COMPENSATION).key != before
        assert story.call(direction=COMPENSATION).failures == 0

    def test_an_undo_in_doubt_keeps_its_key(self) -> None:
        """It may have worked."""
        definition = a_definition(a_step(compensation={"retry": ONCE}), a_step(HOTEL))
        story = Story(definition).start().book()
        story.answer(refused())
        story.answer(broken_off())
        before = story.call(direction=COMPENSATION).key
        story.retry()

        assert story.call(direction=COMPENSATION).key == before
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_an_action_in_doubt_is_settled_again(self) -> None:
        """If there is somebody who can be asked; else it is stuck again."""
        story = in_doubt()
        story.retry()

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.DID_IT_TAKE_EFFECT

    def test_an_unfit_output_is_stuck_again(self) -> None:
        """Nothing has changed: the person has to tell the output."""
        story = Story().start()
        story.answer(answered(201, {}))
        told = story.retry()

        assert isinstance(told, Entry)
        assert story.status is SagaStatus.STUCK

    def test_a_saga_whose_owners_were_lost_goes_on(self) -> None:
        """Nothing else has happened."""
        story = Story().start().book()
        story.wake(by=THERE, losses=9)
        story.retry()

        assert out(story) == [(HOTEL, ACTION)]

    def test_past_the_pivot_a_question_is_asked_again(self) -> None:
        """With fresh limits; and after none there are fresh attempts."""
        hotel = a_step(HOTEL, idempotent=False, action={"retry": ONCE}) | {
            "verify": a_verify(retry=ONCE)
        }
        story = Story(a_definition(a_step(FLIGHT) | {"pivot": True}, hotel)).start().book()
        story.answer(broken_off())
        story.answer(broken_off())
        stuck = story.saga.now.stuck
        story.later(11).retry()
        asked = out(story)
        story.answer(looked(done=True))

        assert stuck is not None
        assert stuck.question is Question.DID_IT_TAKE_EFFECT
        assert asked == [(HOTEL, "verify")]
        assert story.status is SagaStatus.COMPLETED

    def test_through_a_replica_without_an_engine_it_is_due_at_once(self) -> None:
        """Somebody else sends it."""
        story = refused_undo().later(5)
        story.retry(by=ELSEWHERE, may_open=False)
        left = (story.status, story.saga.now.due_at, out(story))
        story.until_due()

        assert left == (SagaStatus.COMPENSATING, T0 + seconds(5), [])
        assert out(story) == [(FLIGHT, COMPENSATION)]


class TestResolve:
    """A person says what became of a step."""

    def test_an_action_in_doubt_that_took_effect_is_undone(self) -> None:
        """With the output that they found."""
        story = in_doubt()
        story.resolve(Effect.DONE, step=HOTEL, output={"id": "H7"})

        (undo,) = story.out
        assert undo.request is not None
        assert getattr(undo.request, "url", "") == "https://hotel.test/orders/H7"

    def test_an_action_in_doubt_that_did_not_is_not(self) -> None:
        """The next one's turn has come."""
        story = in_doubt()
        story.resolve(Effect.NONE, step=HOTEL)

        assert story.effect(HOTEL) is Effect.NONE
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_done_without_the_output_that_the_undo_needs_is_stuck_again(self) -> None:
        """Now the question is how to undo it."""
        story = in_doubt()
        story.resolve(Effect.DONE, step=HOTEL)

        assert story.saga.now.stuck is not None
        assert story.saga.now.stuck.question is Question.HOW_TO_UNDO

    def test_an_undo_that_was_done_by_hand(self) -> None:
        """Nothing remains: the step is compensated."""
        story = refused_undo()
        story.resolve(Effect.NONE)

        assert story.status is SagaStatus.COMPENSATED
        assert story.saga.step_status(FLIGHT) is StepStatus.COMPENSATED

    def test_an_effect_that_is_still_there_is_undone_anew(self) -> None:
        """Under a fresh key, with another output if they say so."""
        story = refused_undo()
        story.resolve(Effect.DONE, output={"id": "F8"})

        (undo,) = story.out
        assert undo.generation == 1
        assert getattr(undo.request, "url", "") == "https://flight.test/orders/F8"

    def test_an_unfit_output_is_replaced(self) -> None:
        """The saga goes on."""
        story = Story().start()
        story.answer(answered(201, {}))
        story.resolve(Effect.DONE, output={"id": "F7"})

        assert story.call().output == Output(value={"id": "F7"})
        assert out(story) == [(HOTEL, ACTION)]

    def test_an_unfit_output_of_nothing(self) -> None:
        """It never took effect: the step has failed."""
        story = Story().start()
        story.answer(answered(201, {}))
        story.resolve(Effect.NONE)

        assert story.status is SagaStatus.COMPENSATED

    def test_it_is_refused_for_a_step_that_never_began(self) -> None:
        """There is nothing to say about it."""
        story = Story().start()
        story.answer(answered(201, {}))

        with pytest.raises(VerbRefused):
            story.resolve(Effect.DONE, step=HOTEL)

    def test_it_is_refused_for_a_step_that_is_under_way(self) -> None:
        """Its tool will say."""
        definition = a_definition(a_step(FLIGHT) | {"needs": []}, a_step(HOTEL) | {"needs": []})
        story = Story(definition).start()
        story.answer_late(answered(201, {}), by=HERE)

        with pytest.raises(VerbRefused):
            story.resolve(Effect.NONE, step=HOTEL)

    def test_it_is_taken_though_a_question_was_left_behind(self) -> None:
        """One that was dropped with its subject is no call under way."""
        hotel = a_step(HOTEL, idempotent=False) | {"verify": a_verify()}
        story = Story(a_definition(a_step(FLIGHT), hotel)).start().book()
        story.answer(broken_off())
        while story.status is not SagaStatus.STUCK:
            story.until_out()
            if story.out:
                story.answer(broken_off())
        story.resolve(Effect.NONE, step=HOTEL)

        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_through_a_replica_without_an_engine(self) -> None:
        """It is due at once."""
        story = in_doubt()
        story.resolve(Effect.NONE, step=HOTEL, by=ELSEWHERE, may_open=False)
        story.until_due()

        assert out(story) == [(FLIGHT, COMPENSATION)]


class TestSkip:
    """The undo of a step is renounced."""

    def test_it_becomes_residue(self) -> None:
        """And the saga goes on at once."""
        story = refused_undo()
        story.skip()

        assert story.status is SagaStatus.PARTIALLY_COMPENSATED
        assert residue(story) == [Residue(step=FLIGHT, effect=Effect.DONE, why=Why.SKIPPED)]

    def test_in_doubt_too(self) -> None:
        """It may exist."""
        story = in_doubt()
        story.skip(HOTEL)
        story.answer(UNDONE)

        assert residue(story) == [Residue(step=HOTEL, effect=Effect.UNKNOWN, why=Why.SKIPPED)]

    def test_an_undo_in_doubt_leaves_the_effect_in_doubt(self) -> None:
        """It may have worked."""
        definition = a_definition(a_step(compensation={"retry": ONCE}), a_step(HOTEL))
        story = Story(definition).start().book()
        story.answer(refused())
        story.answer(broken_off())
        story.skip()

        assert residue(story) == [Residue(step=FLIGHT, effect=Effect.UNKNOWN, why=Why.SKIPPED)]

    def test_only_the_step_in_question(self) -> None:
        """The others can be undone."""
        with pytest.raises(VerbRefused):
            in_doubt().skip(FLIGHT)

    def test_not_while_it_goes_forward(self) -> None:
        """Nothing is being undone."""
        story = Story().start()
        story.answer(answered(201, {}))

        with pytest.raises(VerbRefused):
            story.skip()
        assert "skip" not in possible_verbs(story.definition, story.saga)

    def test_a_late_success_of_the_undo_ends_it_after_all(self) -> None:
        """Nothing remains; final states stay what they are."""
        story = refused_undo()
        story.skip()
        story.answer_late(UNDONE, direction=COMPENSATION)

        assert (story.status, residue(story)) == (SagaStatus.PARTIALLY_COMPENSATED, [])


class TestUndo:
    """An effect that was found after the end."""

    def _found(self) -> Story:
        """A story that is compensated; then its flight turned out to exist."""
        story = Story(a_definition(a_step(idempotent=False, undo_by="key"))).start()
        story.answer(broken_off())
        story.until_due()
        story.answer(UNDONE)
        story.answer_late(done())
        return story

    def test_it_is_listed_and_may_be_undone(self) -> None:
        """A person should look, and has one verb."""
        story = self._found()

        assert (story.status, story.saga.now.attention) == (SagaStatus.COMPENSATED, True)
        assert residue(story) == [Residue(step=FLIGHT, effect=Effect.DONE, why=Why.LATE_SUCCESS)]
        assert possible_verbs(story.definition, story.saga) == ("undo",)
        assert may_undo(story.definition, story.saga, story.definition.step(FLIGHT))

    def test_undone_by_another_saga_nobody_has_to_look_any_more(self) -> None:
        """The journal names that saga."""
        story = self._found()
        verb = UndoRequested(actor="ann", reason="late", step=FLIGHT, saga=SagaId(UUID(int=9)))
        story.tell(verb)

        assert not story.saga.now.attention
        assert story.journal[-1].fact == verb

    def test_it_is_refused_where_nothing_was_found(self) -> None:
        """There is nothing to undo."""
        story = Story().start()
        story.answer(refused())

        with pytest.raises(VerbRefused):
            story.tell(
                UndoRequested(actor="ann", reason="late", step=FLIGHT, saga=SagaId(UUID(int=9)))
            )

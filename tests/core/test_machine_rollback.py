"""Going back: what is settled, what is undone and in which order, and what a person is asked."""

import pytest

from app.core.entries import Entry, Ignored
from app.core.identity import StepId
from app.core.json_value import JsonValue
from app.core.observation import NotSentReason, Observation
from app.core.saga import CallStatus, Code, Effect, Question, SagaStatus, Settling, StepStatus
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
    a_step,
    answered,
    broken_off,
    done,
    http_of,
    not_sent,
    refused,
    seconds,
)

CAR = StepId("car")

GONE = answered(404)
UNDONE = answered(204)

BARE: dict[str, JsonValue] = {"idempotent": False, "undo_by": "key"}
"""A tool that honours no keys, and an undo that needs no output."""


def a_doubt(**step: JsonValue) -> Story:
    """A story whose second step, a hotel as ``step`` says, was given up in doubt."""
    hotel = a_step(HOTEL, **step)  # type: ignore[arg-type] # a_step checks
    story = Story(a_definition(a_step(FLIGHT), hotel)).start().book()
    story.answer(broken_off())
    return story


def going_back(**compensation: JsonValue) -> Story:
    """A story of one step that is done, and whose compensation is out."""
    story = Story(a_definition(a_step(compensation=compensation), a_step(HOTEL))).start().book()
    story.answer(refused())
    return story


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


def question(story: Story) -> tuple[str | None, Question]:
    """The step and the question that a stuck saga asks."""
    stuck = story.saga.now.stuck
    assert stuck is not None, story.told()
    return stuck.step, stuck.question


class TestOrder:
    """Reverse of the way there, one at a time, and only for what may have happened."""

    def test_compensations_go_in_reverse(self) -> None:
        """The last step that was done is undone first."""
        steps = [a_step(step) for step in (FLIGHT, HOTEL, CAR, "ticket")]
        story = Story(a_definition(*steps)).start().book().book().book()
        story.answer(refused())

        order = []
        while story.out:
            order += out(story)
            story.answer(UNDONE)

        assert order == [(step, COMPENSATION) for step in (CAR, HOTEL, FLIGHT)]
        assert story.status is SagaStatus.COMPENSATED

    def test_the_next_waits_until_the_last_is_settled(self) -> None:
        """While an undo fails and is retried, no other is sent."""
        steps = [a_step(step) for step in (FLIGHT, HOTEL, CAR)]
        story = Story(a_definition(*steps)).start().book().book()
        story.answer(refused())

        for _ in range(5):
            story.answer(answered(503))
            story.until_out()

            assert out(story) == [(HOTEL, COMPENSATION)]
        assert story.saga.call(FLIGHT, COMPENSATION) is None

    def test_what_has_no_effect_is_not_undone(self) -> None:
        """A refused step is not undone, and neither is one that never began."""
        story = Story().start()

        story.answer(refused())

        assert story.status is SagaStatus.COMPENSATED
        assert story.saga.call(FLIGHT, COMPENSATION) is None

    def test_the_decision_and_the_first_undo_are_one_entry(self) -> None:
        """The entry that concludes the failure opens the first compensation."""
        story = Story().start().book()

        entry = story.answer(refused())

        assert isinstance(entry, Entry)
        assert entry.now.status is SagaStatus.COMPENSATING
        assert [(call.step, call.direction) for call in entry.calls if call.open] == [
            (FLIGHT, COMPENSATION)
        ]

    def test_an_undone_step_says_so(self) -> None:
        """Its effect is none, its output is kept, and its word is compensated."""
        story = going_back()

        story.answer(UNDONE)

        assert story.effect() is Effect.NONE
        assert story.saga.step_status(FLIGHT) is StepStatus.COMPENSATED
        assert story.call().output is not None

    def test_the_undo_sees_why(self) -> None:
        """A compensation may tell the tool the failure, its own key and the action's."""
        http: JsonValue = {
            "method": "POST",
            "url": "https://flight.test/undo",
            "json": {
                "why": "${{ failure.cause }}/${{ failure.step }}/${{ failure.code }}",
                "mine": "${{ key }}",
                "its": "${{ action.key }}",
                "effect": "${{ action.effect }}",
                "sent": "${{ action.request.body.city }}",
            },
        }
        story = going_back(http=http)

        undo, action = story.call(FLIGHT, COMPENSATION), story.call()
        assert undo.request is not None
        assert http_of(undo).body == (
            '{"why":"step_failed/hotel/refused",'
            f'"mine":"{undo.key}","its":"{action.key}","effect":"done","sent":"Oslo"}}'
        )
        assert undo.key != action.key


class TestSettling:
    """An unknown effect is settled before it is undone."""

    def test_a_keyed_tool_is_asked_by_the_same_key_and_bytes(self) -> None:
        """The action is sent once more as a question, also after the rollback decision."""
        story = a_doubt(action={"retry": ONCE})
        asked = story.call(HOTEL)

        assert story.status is SagaStatus.COMPENSATING
        assert out(story) == [(HOTEL, ACTION)]
        assert asked.settling
        assert asked.attempts == 2

    def test_what_it_created_is_undone(self) -> None:
        """The answer gives the output by which the step is undone."""
        story = a_doubt(action={"retry": ONCE})

        story.answer(done({"id": "H9"}))

        undo = story.call(HOTEL, COMPENSATION)
        assert out(story) == [(HOTEL, COMPENSATION)]
        assert undo.request is not None
        assert http_of(undo).url.endswith("/H9")

    def test_a_refusal_settles_it(self) -> None:
        """A keyed tool that refuses has done nothing: the step is not undone."""
        story = a_doubt(action={"retry": ONCE})

        story.answer(refused(422))

        assert story.effect(HOTEL) is Effect.NONE
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_a_harmless_method_is_asked_too(self) -> None:
        """A PUT may be repeated though the tool honours no keys."""
        story = a_doubt(method="PUT", idempotent=False, action={"retry": ONCE})

        assert out(story) == [(HOTEL, ACTION)]

    def test_the_question_has_a_fresh_policy(self) -> None:
        """It is asked max_attempts times, though the action had used up its own."""
        story = a_doubt(undo_by="key", action={"retry": {"max_attempts": 3}})
        for _ in range(2):
            story.until_out()
            story.answer(broken_off())
        attempts_before = story.call(HOTEL).attempts

        for _ in range(3):
            story.until_out()
            story.answer(broken_off())

        assert (attempts_before, story.call(HOTEL).attempts) == (4, 6)
        assert story.call(HOTEL).status is CallStatus.FAILED

    def test_the_question_is_capped_by_max_elapsed(self) -> None:
        """No question is asked later than max_elapsed after the first."""
        story = a_doubt(
            undo_by="key",
            action={"retry": {"max_attempts": 1000, "max_elapsed": "20s", "initial_delay": "3s"}},
        )
        while story.call(HOTEL).settling is Settling.NOT_ASKED:
            story.until_out()
            story.answer(answered(503))
        began_at = story.at

        while story.call(HOTEL).status is not CallStatus.FAILED:
            story.until_out()
            story.answer(answered(503))

        assert story.at <= began_at + seconds(20)

    def test_an_unsettled_doubt_is_undone_once_quiet(self) -> None:
        """If no answer comes, the undo that needs no output is sent, but not before quiet."""
        story = a_doubt(undo_by="key", action={"retry": ONCE})

        story.answer(broken_off())
        waiting = (out(story), story.saga.now.due_at)
        story.until_due()

        assert waiting == ([], T0 + seconds(10))
        assert out(story) == [(HOTEL, COMPENSATION)]

    def test_an_unsettled_doubt_that_needs_the_output_is_asked_of_a_person(self) -> None:
        """Nothing can be rendered: the saga is stuck, and says which question to answer."""
        story = a_doubt(action={"retry": ONCE})

        story.answer(broken_off())
        story.until_due()

        assert question(story) == (HOTEL, Question.DID_IT_TAKE_EFFECT)
        assert story.effect(HOTEL) is Effect.UNKNOWN
        assert story.saga.call(FLIGHT, COMPENSATION) is None

    def test_a_tool_without_keys_is_not_asked(self) -> None:
        """A bare POST is never sent twice: it is undone as unknown once quiet."""
        story = a_doubt(**BARE)

        waiting = (out(story), story.saga.now.due_at)
        story.until_due()

        assert waiting == ([], T0 + seconds(10))
        assert out(story) == [(HOTEL, COMPENSATION)]
        assert story.call(HOTEL).attempts == 1

    def test_after_the_keys_lifetime_nobody_is_asked(self) -> None:
        """A tool that may have forgotten the key would do it again: it is undone as unknown."""
        hotel = a_step(HOTEL, undo_by="key", action={"retry": ONCE, "key_lifetime": "30s"})
        story = Story(a_definition(a_step(), hotel)).start().book()

        story.later(31).answer(broken_off())
        story.until_due()

        assert story.call(HOTEL).attempts == 1
        assert out(story) == [(HOTEL, COMPENSATION)]

    def test_a_success_needs_no_settling(self) -> None:
        """What is surely done is undone at once."""
        story = Story().start().book()

        story.cancel()
        story.answer(done())

        assert out(story) == [(HOTEL, COMPENSATION)]

    @pytest.mark.parametrize("cancelled", [True, False])
    def test_the_question_waits_for_retry_after_too(self, *, cancelled: bool) -> None:
        """A tool that asked to be left alone is left alone, whoever wants to know what."""
        attempts = 5 if cancelled else 1
        hotel = a_step(HOTEL, action={"retry": {"max_attempts": attempts}})
        story = Story(a_definition(a_step(FLIGHT), hotel)).start().book()

        story.answer(answered(503, retry_after="60"))
        if cancelled:
            story.cancel()

        assert out(story) == []
        assert story.saga.now.due_at == T0 + seconds(60)

    def test_a_retry_asks_again(self) -> None:
        """A person who retries a doubtful step lets the tool be asked once more."""
        story = a_doubt(action={"retry": ONCE})
        story.answer(broken_off())
        story.until_due()

        story.later(60).retry()

        assert out(story) == [(HOTEL, ACTION)]
        assert story.call(HOTEL).generation == 0


class TestQuiet:
    """Until an attempt is quiet it may still take effect."""

    def test_the_late_window_counts_from_the_uncertain_end(self) -> None:
        """Ten seconds after the exchange broke off, unless the call says otherwise."""
        story = a_doubt(**BARE, action={"late_window": "3s"})

        assert story.call(HOTEL).quiet_at == T0 + seconds(3)
        assert story.saga.now.due_at == T0 + seconds(3)

    def test_a_lost_senders_attempt_is_quiet_later(self) -> None:
        """If its sender is lost: at send_by + timeout + late_window."""
        story = Story(a_definition(a_step(), a_step(HOTEL, **BARE))).start().book()  # type: ignore[arg-type] # a_step checks

        story.later(8).wake(by=THERE, losses=1)

        assert story.saga.now.due_at == T0 + seconds(6 + 5 + 10)

    def test_already_gone_counts_when_quiet(self) -> None:
        """A 404 to the undo of a step that surely is quiet settles it at once."""
        story = going_back()

        story.answer(GONE)

        assert story.status is SagaStatus.COMPENSATED
        assert story.at == T0

    def test_already_gone_before_quiet_is_asked_again(self) -> None:
        """While an attempt may still arrive, finding nothing proves nothing."""
        story = Story(a_definition(a_step(), a_step(HOTEL))).start()
        story.later(8).wake(by=THERE, losses=1)
        story.answer(done())
        story.answer(refused())

        story.answer(GONE)
        first = (story.effect(), story.saga.now.due_at)
        story.until_due()
        again = out(story)
        story.answer(GONE)

        assert first == (Effect.DONE, T0 + seconds(21))
        assert again == [(FLIGHT, COMPENSATION)]
        assert story.status is SagaStatus.COMPENSATED

    def test_asking_again_uses_up_no_attempt(self) -> None:
        """The tool did nothing wrong by saying that nothing is there yet."""
        story = Story(a_definition(a_step(compensation={"retry": ONCE}), a_step(HOTEL))).start()
        story.later(8).wake(by=THERE, losses=1)
        story.answer(done())
        story.answer(refused())

        story.answer(GONE)

        assert story.call(FLIGHT, COMPENSATION).failures == 0
        assert story.status is SagaStatus.COMPENSATING

    def test_a_repeatable_action_is_undone_when_its_earlier_attempt_is_quiet(self) -> None:
        """A PUT without keys that is still on its way would create again what the undo removed."""
        put = a_step(method="PUT", idempotent=False, undo_by="key")
        story = Story(a_definition(put, a_step(HOTEL))).start()
        story.later(8).wake(by=THERE, losses=1)
        story.answer(done())

        story.answer(refused())

        assert (out(story), story.saga.now.due_at) == ([], T0 + seconds(21))

    def test_a_keyed_action_is_undone_at_once(self) -> None:
        """A tool that honours keys answers the late arrival from memory: nothing to wait for."""
        story = Story().start()
        story.later(8).wake(by=THERE, losses=1)
        story.answer(done())

        story.answer(refused())

        assert out(story) == [(FLIGHT, COMPENSATION)]


class TestAnUndoThatFails:
    """Patience, then a person."""

    @pytest.mark.parametrize("status", [401, 403, 409, 423, 503, 408, 302])
    def test_passing_refusals_are_retried(self, status: int) -> None:
        """Credentials are rotated and locks released: it is tried again with the same key."""
        story = going_back()
        first = story.call(FLIGHT, COMPENSATION)

        story.answer(answered(status))
        story.until_out()

        again = story.call(FLIGHT, COMPENSATION)
        assert (again.key, again.request) == (first.key, first.request)
        assert (again.attempts, again.failures) == (2, 1)

    @pytest.mark.parametrize("observation", [broken_off(), not_sent(), answered(503)])
    def test_an_undo_is_resent_after_a_doubt(self, observation: Observation) -> None:
        """A compensation must tolerate repetition, whatever its method and its tool."""
        story = going_back(http={"method": "POST", "url": "https://flight.test/undo"})

        story.answer(observation)
        story.until_out()

        assert out(story) == [(FLIGHT, COMPENSATION)]

    @pytest.mark.parametrize("status", [400, 402, 405, 422])
    def test_another_refusal_is_a_persons_question(self, status: int) -> None:
        """The saga is stuck, and earlier compensations wait."""
        story = Story().start().book()
        story.cancel()
        story.answer(done())

        story.answer(refused(status))

        stuck = story.saga.now.stuck
        assert stuck is not None
        assert question(story) == (HOTEL, Question.HOW_TO_UNDO)
        assert (stuck.problem.code, stuck.problem.http_status) == (Code.REFUSED, status)
        assert story.saga.call(FLIGHT, COMPENSATION) is None
        assert story.effect(HOTEL) is Effect.DONE

    def test_attempts_are_limited(self) -> None:
        """After max_attempts a person is asked; it is no endless loop."""
        story = going_back(retry={"max_attempts": 3})

        for _ in range(3):
            story.until_out()
            story.answer(answered(503))

        assert question(story) == (FLIGHT, Question.HOW_TO_UNDO)
        assert story.call(FLIGHT, COMPENSATION).attempts == 3

    def test_the_failure_is_not_overwritten(self) -> None:
        """Why the saga is undone and why the undo fails are told apart."""
        story = Story().start().book()
        story.answer(refused(402))
        story.answer(refused(422))

        now = story.saga.now
        assert now.failure is not None
        assert now.stuck is not None
        assert (now.failure.step, now.failure.problem.http_status) == (HOTEL, 402)
        assert (now.stuck.step, now.stuck.problem.http_status) == (FLIGHT, 422)

    def test_our_own_refusal_changes_nothing(self) -> None:
        """An undo that our transport will not send is a person's question, and had no effect."""
        story = going_back()

        story.answer(not_sent(NotSentReason.FORBIDDEN))

        assert question(story) == (FLIGHT, Question.HOW_TO_UNDO)
        assert story.call(FLIGHT, COMPENSATION).effect is Effect.NONE

    def test_a_doubtful_undo_is_not_sent_after_its_keys_lifetime(self) -> None:
        """It could undo twice: a person is asked instead."""
        story = going_back(key_lifetime="30s")
        story.answer(answered(503, retry_after="20"))

        story.later(60).wake()

        assert question(story) == (FLIGHT, Question.HOW_TO_UNDO)
        assert story.call(FLIGHT, COMPENSATION).attempts == 1

    def test_an_undo_without_doubt_is_sent_whenever(self) -> None:
        """A compensation that surely did nothing may be sent after days."""
        story = going_back(key_lifetime="30s")
        story.answer(answered(429, retry_after="20"))

        story.later(60).wake()

        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_a_wake_up_does_not_move_a_stuck_saga(self) -> None:
        """Only a person, or an answer, does."""
        story = going_back()
        story.answer(refused())

        before = story.saga
        story.later(10**6).wake(by=THERE, losses=9)

        assert (story.status, story.saga.now.stuck) == (before.status, before.now.stuck)
        assert (story.out, story.saga.now.owner) == ([], None)


class TestRetry:
    """A person has mended something."""

    def test_a_refused_undo_gets_a_new_key(self) -> None:
        """The tool may have stored its refusal under the old one."""
        story = going_back()
        story.answer(refused())
        before = story.call(FLIGHT, COMPENSATION)

        story.retry()

        after = story.call(FLIGHT, COMPENSATION)
        assert (before.generation, after.generation) == (0, 1)
        assert before.key != after.key
        assert (after.attempts, after.failures) == (2, 0)

    def test_a_doubtful_undo_keeps_its_key(self) -> None:
        """It may have worked: a new key would undo twice."""
        story = going_back(retry=ONCE)
        story.answer(broken_off())
        before = story.call(FLIGHT, COMPENSATION)

        story.retry()

        after = story.call(FLIGHT, COMPENSATION)
        assert (after.key, after.generation, after.failures) == (before.key, 0, 0)
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_a_refusal_after_a_doubt_keeps_the_key(self) -> None:
        """400 charge_already_refunded, after a timeout: the undo may have worked."""
        story = going_back()
        story.answer(broken_off())
        story.until_out()
        story.answer(refused(400))
        before = story.call(FLIGHT, COMPENSATION)

        story.retry()

        assert before.effect is Effect.UNKNOWN
        assert story.call(FLIGHT, COMPENSATION).key == before.key

    def test_the_new_round_has_all_its_attempts(self) -> None:
        """Fresh attempts, limited as before."""
        story = going_back(retry={"max_attempts": 2})
        for _ in range(2):
            story.until_out()
            story.answer(answered(503))

        story.later(3600).retry()
        for _ in range(2):
            story.until_out()
            story.answer(answered(503))

        assert story.status is SagaStatus.STUCK
        assert story.call(FLIGHT, COMPENSATION).attempts == 4

    def test_it_goes_on_to_the_end(self) -> None:
        """After the retry the rest is undone as usual."""
        story = Story().start().book()
        story.cancel()
        story.answer(done())
        story.answer(refused())

        story.retry()
        story.answer(UNDONE)
        story.answer(UNDONE)

        assert story.status is SagaStatus.COMPENSATED
        assert story.saga.now.stuck is None

    def test_an_api_only_replica_takes_it_down(self) -> None:
        """Where no engine runs, the verb is stored, and the saga is due at once."""
        story = going_back()
        story.answer(refused())

        story.later(60).retry(by=ELSEWHERE, may_open=False)

        now = story.saga.now
        assert (now.status, now.owner, now.due_at) == (SagaStatus.COMPENSATING, None, story.at)

    def test_a_retry_long_after_the_keys_lifetime_does_not_undo_twice(self) -> None:
        """A doubtful undo whose key is forgotten stays a person's question."""
        story = going_back(retry=ONCE, key_lifetime="1h")
        story.answer(broken_off())

        story.later(7200).retry()

        assert story.status is SagaStatus.STUCK
        assert story.call(FLIGHT, COMPENSATION).attempts == 1

    def test_an_effect_that_was_never_settled_is_not_created_by_a_retry(self) -> None:
        """Long after the key's lifetime a retry asks no tool that would take it for a new call."""
        story = a_doubt(action={"retry": ONCE, "key_lifetime": "1h"})
        story.answer(broken_off())
        story.until_due()

        story.later(7200).retry()

        assert question(story) == (HOTEL, Question.DID_IT_TAKE_EFFECT)
        assert story.call(HOTEL).attempts == 2


class TestLateSuccess:
    """A success after we gave up is evidence, and is never dropped."""

    def test_before_the_decision_it_is_adopted(self) -> None:
        """The attempt was thought lost, and its answer comes while the next one is out."""
        story = Story().start()
        story.later(8).wake(by=THERE, losses=1)

        story.answer_late(done({"id": "F1"}))

        assert story.effect() is Effect.DONE
        assert story.call().output is not None
        assert story.status is SagaStatus.RUNNING

    def test_its_owner_goes_on_from_there(self) -> None:
        """The owner, told by nobody, opens the next step when it looks."""
        story = Story().start()
        story.later(8).wake(by=THERE, losses=1)
        story.answer_late(done({"id": "F1"}))

        story.wake(by=THERE)

        assert out(story) == [(HOTEL, ACTION)]

    def test_the_second_success_is_a_duplicate(self) -> None:
        """The answer of the attempt that is no longer awaited opens what is owed, once."""
        story = Story().start()
        story.later(8).wake(by=THERE, losses=1)
        story.answer_late(done({"id": "F1"}))

        story.answer_late(done({"id": "F1"}), attempt=2, by=THERE)
        again = story.answer_late(done({"id": "F1"}), attempt=2, by=THERE)

        assert out(story) == [(HOTEL, ACTION)]
        assert isinstance(again, Ignored)

    def test_during_the_rollback_it_is_undone(self) -> None:
        """A step given up in doubt turns out to be done, before it was undone."""
        story = Story(a_definition(a_step(), a_step(HOTEL, idempotent=False))).start().book()
        story.later(8).wake(by=THERE, losses=1)

        story.answer_late(done({"id": "H1"}), step=HOTEL, by=THERE)

        assert out(story) == [(HOTEL, COMPENSATION)]
        undo = story.call(HOTEL, COMPENSATION)
        assert undo.request is not None
        assert http_of(undo).url.endswith("/H1")

    def test_it_answers_a_stuck_sagas_question(self) -> None:
        """The late answer says that it took effect, and the saga goes on by itself."""
        story = Story(a_definition(a_step(), a_step(HOTEL, idempotent=False))).start().book()
        story.later(8).wake(by=THERE, losses=1)
        story.until_due()
        asked = question(story)

        story.answer_late(done({"id": "H1"}), step=HOTEL)

        assert asked == (HOTEL, Question.DID_IT_TAKE_EFFECT)
        assert story.status is SagaStatus.COMPENSATING
        assert out(story) == [(HOTEL, COMPENSATION)]

    def test_an_api_only_replica_hears_it(self) -> None:
        """The evidence is stored, and the saga is due at once."""
        story = Story(a_definition(a_step(), a_step(HOTEL, idempotent=False))).start().book()
        story.later(8).wake(by=THERE, losses=1)
        story.until_due()

        story.answer_late(done({"id": "H1"}), step=HOTEL, may_open=False)

        now = story.saga.now
        assert (now.status, now.owner, now.due_at) == (SagaStatus.COMPENSATING, None, story.at)

    def undone_as_unknown(self) -> Story:
        """A hotel that was given up in doubt and undone by key; the flight's undo is out."""
        hotel = a_step(HOTEL, idempotent=False, undo_by="key")
        story = Story(a_definition(a_step(), hotel)).start().book()
        story.later(8).wake(by=THERE, losses=1)
        story.until_due(by=THERE)
        story.answer(UNDONE)
        assert out(story) == [(FLIGHT, COMPENSATION)]
        return story

    def test_after_it_was_undone_it_is_undone_again(self) -> None:
        """Once what is out has ended, the next generation undoes it again."""
        story = self.undone_as_unknown()
        first = story.call(HOTEL, COMPENSATION)
        story.answer(answered(503, retry_after="60"))

        story.answer_late(done({"id": "H1"}), step=HOTEL, by=THERE)

        again = story.call(HOTEL, COMPENSATION)
        assert out(story) == [(HOTEL, COMPENSATION)]
        assert (first.generation, again.generation) == (0, 1)
        assert first.key != again.key

    def test_undoing_again_waits_for_the_undo_that_is_out(self) -> None:
        """Compensations go one at a time, also when late news brings one back."""
        story = self.undone_as_unknown()

        story.answer_late(done({"id": "H1"}), step=HOTEL, by=THERE)

        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_after_compensated_it_is_recorded_and_alerts(self) -> None:
        """A finished saga stays finished; a person is asked to look."""
        story = self.undone_as_unknown()
        story.answer(UNDONE)

        story.answer_late(done({"id": "H1"}), step=HOTEL)

        now = story.saga.now
        assert (now.status, now.attention) == (SagaStatus.COMPENSATED, True)
        assert story.effect(HOTEL) is Effect.DONE
        assert story.out == []

    def test_after_compensated_it_is_recorded_once(self) -> None:
        """The same answer again says nothing new."""
        story = self.undone_as_unknown()
        story.answer(UNDONE)
        story.answer_late(done({"id": "H1"}), step=HOTEL)

        assert isinstance(story.answer_late(done({"id": "H1"}), step=HOTEL), Ignored)

    def test_a_late_success_of_an_undone_action_is_never_dropped(self) -> None:
        """Two attempts of a PUT, one answered and undone; the other answers after the end."""
        put = a_step(method="PUT", idempotent=False, undo_by="key")
        story = Story(a_definition(put, a_step(HOTEL))).start()
        story.later(8).wake(by=THERE, losses=1)
        story.answer(done())
        story.answer(refused())
        story.until_out()
        story.answer(UNDONE)
        assert story.status is SagaStatus.COMPENSATED

        story.answer_late(done())

        assert story.saga.now.attention

    def test_what_comes_back_during_the_rollback_is_undone_again(self) -> None:
        """The same, while another undo waits: it is undone first, by a new key."""
        put = a_step(HOTEL, method="PUT", idempotent=False, undo_by="key")
        story = Story(a_definition(a_step(), put, a_step(CAR))).start().book()
        story.later(8).wake(by=THERE, losses=1)
        story.answer(done())
        story.answer(refused())
        story.until_out()
        story.answer(UNDONE)
        story.answer(answered(503, retry_after="60"))

        story.answer_late(done(), step=HOTEL, by=THERE)

        assert out(story) == [(HOTEL, COMPENSATION)]
        assert story.call(HOTEL, COMPENSATION).generation == 1

    @pytest.mark.parametrize(
        "observation",
        [refused(), answered(404), answered(503), broken_off(), not_sent(), answered(429)],
    )
    def test_any_other_late_answer_says_nothing(self, observation: Observation) -> None:
        """Only a success is news."""
        story = self.undone_as_unknown()

        assert isinstance(story.answer_late(observation, step=HOTEL), Ignored)

    def test_a_late_success_of_an_undo_settles_it(self) -> None:
        """The undo was thought lost; its answer comes while the next attempt is out."""
        story = Story().start().book()
        story.cancel()
        story.answer(done())
        story.later(8).wake(by=THERE, losses=1)

        story.answer_late(UNDONE, step=HOTEL, direction=COMPENSATION)
        story.wake(by=THERE)

        assert story.effect(HOTEL) is Effect.NONE
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_a_late_success_of_an_undo_lifts_a_stuck_saga(self) -> None:
        """Once the undo has answered after all, the saga goes on by itself."""
        story = (
            Story(a_definition(a_step(), a_step(HOTEL, compensation={"retry": ONCE})))
            .start()
            .book()
        )
        story.cancel()
        story.answer(done())
        story.later(8).wake(by=THERE, losses=1)
        story.answer(broken_off())
        asked = question(story)

        story.answer_late(UNDONE, step=HOTEL, direction=COMPENSATION)

        assert asked == (HOTEL, Question.HOW_TO_UNDO)
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_an_undo_of_before_does_not_settle_the_one_of_now(self) -> None:
        """The late answer of an older generation is no proof that the new one has worked."""
        hotel = a_step(HOTEL, idempotent=False, undo_by="key")
        story = Story(a_definition(a_step(), hotel)).start().book()
        story.later(8).wake(by=THERE, losses=1)
        story.until_due(by=THERE)
        # The undo's first attempt is lost with its sender, the second one is answered.
        story.later(8).wake(by=HERE, losses=1)
        story.answer(UNDONE)
        story.answer(answered(503, retry_after="60"))
        # Then the action's own answer comes: it is undone again.
        story.answer_late(done({"id": "H1"}), step=HOTEL, by=HERE)
        assert story.call(HOTEL, COMPENSATION).generation == 1

        story.answer_late(UNDONE, step=HOTEL, direction=COMPENSATION, attempt=1)

        assert story.effect(HOTEL) is Effect.DONE


@pytest.mark.parametrize("before", [Effect.DONE, Effect.UNKNOWN])
def test_compensated_is_said_only_if_nothing_remains(before: Effect) -> None:
    """A refused undo, a doubtful one and an unreachable one are all stuck, never compensated."""
    for observation in (refused(), broken_off(), not_sent(), answered(503)):
        hotel = a_step(HOTEL, idempotent=False, undo_by="key", compensation={"retry": ONCE})
        story = Story(a_definition(a_step(), hotel)).start().book()
        if before is Effect.DONE:
            story.cancel()
            story.answer(done())
        else:
            story.answer(broken_off())
            story.until_due()

        story.answer(observation)

        assert story.status is SagaStatus.STUCK
        assert story.effect(HOTEL) is before

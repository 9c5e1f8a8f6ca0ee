"""Who may act: owners, evidence by others, lost senders, and sagas that kill their owners."""

import pytest

from app.core.entries import Entry, Ignored
from app.core.events import RetryRequested
from app.core.machine import decide
from app.core.observation import NotSentReason
from app.core.saga import CallStatus, Cause, Code, Effect, Question, SagaStatus
from tests.core.builders import (
    ACTION,
    COMPENSATION,
    ELSEWHERE,
    FLIGHT,
    HERE,
    HOTEL,
    LEASE,
    T0,
    THERE,
    Story,
    a_definition,
    a_step,
    an_event,
    answered,
    broken_off,
    done,
    not_sent,
    refused,
    seconds,
)

PARKING = answered(429, retry_after="60")


def attempts_out(story: Story) -> list[tuple[str, str, int]]:
    """What is out: step, direction and number."""
    return [(call.step, call.direction.value, call.open.number) for call in story.out if call.open]


class TestOwner:
    """Only the owner opens intents."""

    def test_who_opens_an_intent_owns_the_saga(self) -> None:
        """The entry names the incarnation that sends what it opens."""
        story = Story().start(by=THERE)

        assert story.saga.now.owner == THERE
        assert [call.step for call in story.saga.open_calls(THERE)] == [FLIGHT]
        assert story.saga.open_calls(HERE) == ()

    def test_an_intent_has_a_time_to_be_sent_by(self) -> None:
        """It may not be sent after its sender's lease, and is quiet a while after that."""
        step = a_step(action={"timeout": "3s", "late_window": "4s"})
        story = Story(a_definition(step)).start()

        attempt = story.call().open
        assert attempt is not None
        assert (attempt.send_by, attempt.quiet_at) == (T0 + LEASE, T0 + LEASE + seconds(7))

    @pytest.mark.parametrize("may_open", [True, False])
    def test_anothers_evidence_opens_nothing(self, *, may_open: bool) -> None:
        """The answer is concluded and stored; what follows is the owner's to do."""
        story = Story().start(by=THERE)

        story.answer(done(), by=HERE, may_open=may_open)

        assert story.effect() is Effect.DONE
        assert story.out == []
        assert story.saga.now.owner == THERE

    def test_the_owner_does_what_it_is_owed(self) -> None:
        """When it looks, the owner opens the next intent."""
        story = Story().start(by=THERE)
        story.answer(done(), by=HERE)

        story.wake(by=THERE)

        assert attempts_out(story) == [(HOTEL, "action", 1)]

    @pytest.mark.parametrize("may_open", [True, False])
    def test_anothers_cancel_decides_and_opens_nothing(self, *, may_open: bool) -> None:
        """The rollback is decided at once, though its owner has to carry it out."""
        story = Story().start(by=THERE)
        story.answer(done(), by=HERE)

        story.cancel(by=HERE, may_open=may_open)
        decided = (story.status, story.out, story.saga.now.owner)
        story.wake(by=THERE)

        assert decided == (SagaStatus.COMPENSATING, [], THERE)
        assert attempts_out(story) == [(FLIGHT, "compensation", 1)]

    def test_after_anothers_cancel_no_step_begins(self) -> None:
        """The owner's own result, decided after the cancel, opens no forward intent."""
        story = Story().start(by=THERE)

        story.cancel(by=HERE)
        story.answer(done(), by=THERE)

        assert attempts_out(story) == [(FLIGHT, "compensation", 1)]

    def test_an_owner_that_may_not_open_lets_go(self) -> None:
        """A draining owner stores the result, and leaves the saga parked and due at once."""
        story = Story().start()

        story.later(1).answer(done(), may_open=False)

        now = story.saga.now
        assert (now.status, now.owner, now.due_at) == (SagaStatus.RUNNING, None, story.at)
        assert story.out == []

    def test_what_is_owed_is_due_before_the_deadline(self) -> None:
        """A saga with a deadline hours away is due at once all the same, if it is owed a step."""
        story = Story(a_definition(deadline="2h")).start()

        story.later(1).answer(done(), may_open=False)

        assert story.saga.now.due_at == story.at

    def test_a_draining_owner_keeps_what_is_out(self) -> None:
        """An attempt of its own that is still out is awaited."""
        story = Story(a_definition(deadline="5s")).start()

        story.later(5).wake(may_open=False)

        assert story.saga.now.owner == HERE
        assert story.status is SagaStatus.COMPENSATING

    def test_a_draining_owner_hands_back_a_short_wait(self) -> None:
        """A wait that it would otherwise have kept is parked, due when it was due."""
        story = Story(a_definition(a_step(action={"retry": {"initial_delay": "900ms"}}))).start()
        story.answer(not_sent())
        due_at = story.saga.now.due_at

        story.wake(may_open=False)

        assert (story.saga.now.owner, story.saga.now.due_at) == (None, due_at)


class TestParked:
    """A saga that waits has no owner, but a due time."""

    def parked(self) -> Story:
        """A flight that is done, a hotel that backs off for a minute."""
        story = Story().start().book()
        story.answer(PARKING)
        assert story.saga.now.owner is None
        return story

    def test_an_engine_that_reports_becomes_the_owner(self) -> None:
        """It may act on what it reports, in the same entry."""
        story = self.parked()

        story.cancel(by=THERE)

        assert story.saga.now.owner == THERE
        assert attempts_out(story) == [(FLIGHT, "compensation", 1)]

    def test_an_api_only_reporter_leaves_it_due_now(self) -> None:
        """It stores the decision; whoever claims what is due goes on."""
        story = self.parked()

        story.later(7).cancel(by=THERE, may_open=False)

        now = story.saga.now
        assert (now.status, now.owner, now.due_at) == (SagaStatus.COMPENSATING, None, story.at)

    def test_a_claimer_that_comes_first_hands_it_back(self) -> None:
        """A wake-up before the due time opens nothing, and leaves it parked by an entry."""
        story = self.parked()
        before = story.saga

        assert isinstance(story.wake(by=THERE), Entry)
        assert (story.out, story.saga.now.owner) == ([], None)
        assert story.saga.now.due_at == before.now.due_at

    def test_a_duplicate_answer_of_an_engine_goes_on_with_what_is_due(self) -> None:
        """An engine that hears nothing new still does what it could do by waking the saga."""
        story = self.parked()

        story.later(61).answer_late(done(), step=FLIGHT, by=THERE)

        assert attempts_out(story) == [(HOTEL, "action", 2)]
        assert story.saga.now.owner == THERE

    def test_a_duplicate_answer_before_it_is_due_is_ignored(self) -> None:
        """There is nothing new, and nothing due."""
        story = self.parked()

        assert isinstance(story.answer_late(done(), step=FLIGHT, by=THERE), Ignored)

    def test_two_claimers_open_one_attempt(self) -> None:
        """The second decides on what the first has stored, and finds nothing to do."""
        story = self.parked()
        story.until_due(by=HERE)

        assert isinstance(story.wake(by=HERE), Ignored)
        assert attempts_out(story) == [(HOTEL, "action", 2)]


class TestLostSenders:
    """An intent without a result is unknown, and that is a state, not an error."""

    def test_a_keyed_action_is_sent_again_at_once(self) -> None:
        """The heir resends the same key and bytes, without a pause, uncounted."""
        story = Story().start()
        lost = story.call()

        story.later(8).wake(by=THERE, losses=1)

        heir = story.call()
        assert attempts_out(story) == [(FLIGHT, "action", 2)]
        assert (heir.key, heir.request, heir.failures) == (lost.key, lost.request, 0)
        assert heir.uncertain

    def test_a_bare_action_is_given_up(self) -> None:
        """A POST without keys is never sent twice: the step has failed, with effect unknown."""
        story = Story(a_definition(a_step(idempotent=False, undo_by="key"))).start()

        story.later(8).wake(by=THERE, losses=1)

        failure = story.saga.now.failure
        assert failure is not None
        assert (failure.cause, failure.problem.code) == (Cause.STEP_FAILED, Code.OWNER_LOST)
        assert (story.status, story.effect()) == (SagaStatus.COMPENSATING, Effect.UNKNOWN)
        assert story.out == []

    def test_a_compensation_is_sent_again(self) -> None:
        """Whatever its method: it must tolerate repetition."""
        story = Story(a_definition(a_step(undo_by="key"), a_step(HOTEL))).start().book()
        story.answer(refused())
        first = story.call(FLIGHT, COMPENSATION)

        story.later(8).wake(by=THERE, losses=1)

        again = story.call(FLIGHT, COMPENSATION)
        assert attempts_out(story) == [(FLIGHT, "compensation", 2)]
        assert again.key == first.key

    def test_a_question_is_asked_again(self) -> None:
        """The heir settles the doubt that the lost owner was settling."""
        story = Story().start()
        story.answer(answered(503))
        story.cancel()

        story.later(8).wake(by=THERE, losses=1)

        assert attempts_out(story) == [(FLIGHT, "action", 3)]
        assert story.call().settling

    def test_a_call_lost_after_the_cancel_is_settled(self) -> None:
        """Cancelled while out, then lost: it is asked once more, as a question."""
        story = Story().start()
        story.cancel()

        story.later(8).wake(by=THERE, losses=1)

        assert attempts_out(story) == [(FLIGHT, "action", 2)]
        assert story.call().settling

    def test_a_bare_call_lost_after_the_cancel_is_given_up(self) -> None:
        """Cancelled while out, then lost: it has failed in doubt, and is undone once quiet."""
        story = Story(a_definition(a_step(idempotent=False, undo_by="key"))).start()
        story.cancel()

        story.later(8).wake(by=THERE, losses=1)

        assert (story.call().status, story.effect()) == (CallStatus.FAILED, Effect.UNKNOWN)
        assert story.saga.now.due_at == T0 + seconds(21)

    def test_a_lost_call_is_not_resent_after_the_deadline(self) -> None:
        """No forward attempt begins then; its doubt is settled as a question."""
        story = Story(a_definition(deadline="5s")).start()

        story.later(8).wake(by=THERE, losses=1)

        assert story.saga.now.failure is not None
        assert story.saga.now.failure.cause is Cause.DEADLINE
        assert story.call().settling

    def test_a_lost_call_is_not_resent_after_its_keys_lifetime(self) -> None:
        """The tool may have forgotten it."""
        step = a_step(undo_by="key", action={"key_lifetime": "1h"})
        story = Story(a_definition(step)).start()

        story.later(3601).wake(by=THERE, losses=1)

        assert (story.status, story.effect()) == (SagaStatus.COMPENSATING, Effect.UNKNOWN)
        assert story.call().attempts == 1

    def test_its_own_attempt_is_not_lost(self) -> None:
        """A wake-up by the sender itself changes nothing."""
        story = Story().start()

        assert isinstance(story.wake(), Ignored)

    def test_the_lost_owners_answer_counts_while_its_attempt_is_open(self) -> None:
        """Reported by its next incarnation before anybody took over."""
        story = Story().start()

        story.later(8).answer(done(), by=ELSEWHERE)
        story.wake(by=THERE, losses=1)

        assert attempts_out(story) == [(HOTEL, "action", 1)]
        assert story.call().attempts == 1

    def test_a_late_refusal_of_the_lost_owner_proves_nothing(self) -> None:
        """The second attempt is out: what the first was told is old."""
        story = Story().start()
        story.later(8).wake(by=THERE, losses=1)

        assert isinstance(story.answer_late(refused()), Ignored)
        assert attempts_out(story) == [(FLIGHT, "action", 2)]

    def test_an_expired_intent_is_opened_again_by_the_same_owner(self) -> None:
        """A process that slept past send_by sends nothing, and begins again."""
        story = Story().start()

        story.later(9).answer(not_sent(NotSentReason.EXPIRED))
        story.until_out()

        attempt = story.call().open
        assert attempt is not None
        assert (attempt.number, attempt.send_by) == (2, story.at + LEASE)
        assert not story.call().uncertain

    def test_quiet_is_the_latest_of_all_attempts(self) -> None:
        """An earlier lost attempt may be quiet later than the one that broke off since."""
        story = Story().start()
        story.later(8).wake(by=THERE, losses=1)

        story.answer(broken_off())

        assert story.call().quiet_at == T0 + seconds(21)

    def test_a_waker_that_may_not_open_parks_it(self) -> None:
        """Taken from a lost owner by a replica that drains: it is due at once, and nobody's."""
        story = Story().start()

        story.later(8).wake(by=THERE, losses=1, may_open=False)

        now = story.saga.now
        assert (now.owner, now.due_at) == (None, story.at)


class TestLosses:
    """A saga whose owners are lost again and again may be what kills them."""

    @pytest.mark.parametrize("losses", [0, 1, 2, 3])
    def test_three_losses_go_on(self, losses: int) -> None:
        """Up to three owners in a row may be lost."""
        story = Story().start()

        story.later(8).wake(by=THERE, losses=losses)

        assert story.status is SagaStatus.RUNNING

    @pytest.mark.parametrize("rolling_back", [False, True])
    def test_the_fourth_is_the_last(self, *, rolling_back: bool) -> None:
        """Then the saga is stuck, in either direction, and nothing is out."""
        story = Story().start().book()
        if rolling_back:
            story.answer(refused())

        story.later(8).wake(by=THERE, losses=4)

        stuck = story.saga.now.stuck
        assert stuck is not None
        assert (stuck.step, stuck.question) == (None, Question.HOW_TO_GO_ON)
        assert stuck.problem.code is Code.OWNER_LOST
        resumes = SagaStatus.COMPENSATING if rolling_back else SagaStatus.RUNNING
        assert stuck.resumes is resumes
        assert story.out == []

    @pytest.mark.parametrize("rolling_back", [False, True])
    def test_a_retry_goes_on_from_there(self, *, rolling_back: bool) -> None:
        """A person who has mended the cause lets it go on in the same direction."""
        story = Story().start().book()
        if rolling_back:
            story.answer(refused())
        story.later(8).wake(by=THERE, losses=4)

        story.later(60).retry()

        expected = (FLIGHT, "compensation", 2) if rolling_back else (HOTEL, "action", 2)
        assert attempts_out(story) == [expected]

    def test_a_retry_after_days_does_not_pay_twice(self) -> None:
        """The tool has forgotten the key by then: the doubtful action may not be sent again."""
        story = Story(a_definition(a_step(undo_by="key"))).start()
        story.later(8).wake(by=THERE, losses=4)
        two_days_later = T0 + seconds(2 * 86400)
        retried = RetryRequested(actor="ann", reason="mended")
        event = an_event(retried, at=two_days_later)

        entry = decide(story.definition, story.saga, event)

        assert isinstance(entry, Entry)
        assert [call.attempts for call in entry.calls if call.direction is ACTION] == [1]

    def test_a_cancel_undoes_it(self) -> None:
        """A stuck saga that went forward can be cancelled."""
        story = Story().start().book()
        story.later(8).wake(by=THERE, losses=4)

        story.cancel()

        assert story.status is SagaStatus.COMPENSATING
        assert story.call(HOTEL).settling

    def test_the_lost_owners_success_is_adopted_while_stuck(self) -> None:
        """Evidence is kept; the saga still waits for a person, who then need not resend."""
        story = Story().start().book()
        story.later(8).wake(by=THERE, losses=4)

        story.answer_late(done({"id": "H1"}), step=HOTEL)
        status = story.status
        story.retry()

        assert status is SagaStatus.STUCK
        assert story.status is SagaStatus.COMPLETED
        assert story.call(HOTEL).attempts == 1

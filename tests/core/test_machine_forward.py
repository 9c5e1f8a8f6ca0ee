"""Going forward: intents, retries, limits, deadlines, cancels, and outputs that do not fit."""

import datetime as dt
import json
from dataclasses import replace

import pytest

from app.core.entries import Entry, Ignored
from app.core.events import SagaWoken
from app.core.identity import Direction
from app.core.json_value import JsonValue
from app.core.machine import decide
from app.core.observation import NotSentReason, Observation
from app.core.requests import HttpRequest
from app.core.saga import CallStatus, Cause, Code, Effect, Output, Question, SagaStatus, Settling
from app.core.turn import ENTRIES_MAX, FORWARD_SHARE, WEIGHT_BYTES_MAX
from tests.core.builders import (
    ACTION,
    COMPENSATION,
    FLIGHT,
    HERE,
    HOTEL,
    LEASE,
    ONCE,
    T0,
    THERE,
    Story,
    a_definition,
    a_reporter,
    a_request,
    a_step,
    an_event,
    answered,
    broken_off,
    done,
    http_of,
    not_sent,
    refused,
    seconds,
)

BUSY_FOREVER: JsonValue = {"max_attempts": 1000, "max_elapsed": "300d"}


def one_step(**step: JsonValue) -> Story:
    """A story of one step, started; ``step`` as for ``a_step``."""
    return Story(a_definition(a_step(**step))).start()  # type: ignore[arg-type] # a_step checks


def pauses(story: Story, observation: Observation) -> list[float]:
    """How long the saga would wait after its open attempt came to this, for many seeds."""
    (call,) = story.out
    assert call.open is not None
    found = []
    for seed in range(200):
        from_here = Story(story.definition)
        from_here.at, from_here._saga = story.at, story.saga
        from_here.answer(observation)
        event = an_event(
            from_here.journal[-1].fact,
            at=story.at,
            seed=seed,
            reporter=a_reporter(call.open.incarnation, send_until=story.at + LEASE),
        )
        entry = decide(story.definition, story.saga, event)
        assert isinstance(entry, Entry)
        due_at = entry.calls[0].due_at
        assert due_at is not None
        found.append((due_at - story.at).total_seconds())
    return found


class TestTheWay:
    """All goes well."""

    def test_a_saga_of_two_calls_takes_three_entries(self) -> None:
        """The result of a call and the intent of the next are one entry."""
        story = Story().start().book().book()

        assert story.status is SagaStatus.COMPLETED
        assert story.saga.seq == 3

    def test_steps_go_out_in_order(self) -> None:
        """A step begins when the one before it is done, and not before."""
        story = Story().start()

        first = [call.step for call in story.out]
        story.book()
        second = [call.step for call in story.out]

        assert (first, second) == ([FLIGHT], [HOTEL])

    def test_the_intent_holds_the_request(self) -> None:
        """Before anything leaves, the rendered request is in the journal."""
        story = Story().start()

        assert story.journal[0].calls[0].request == HttpRequest(
            method="POST",
            url="https://flight.test/orders",
            body='{"city":"Oslo"}',
            content_type="application/json",
        )

    def test_the_request_is_stored_once(self) -> None:
        """Later entries of the same call leave the request and the output out."""
        story = one_step()
        story.answer(broken_off())
        story.until_out()
        story.answer(done())

        requests = [entry.calls[0].request for entry in story.journal]
        assert [request is not None for request in requests] == [True, False, False, False]
        assert story.call().request == requests[0]

    def test_a_later_step_sees_earlier_outputs(self) -> None:
        """An output goes into the next request as it is, whatever it holds."""
        step = a_step(
            HOTEL,
            action={
                "http": {
                    "method": "POST",
                    "url": "https://hotel.test/orders",
                    "json": {"flight": "${{ steps.flight.output }}"},
                }
            },
        )
        story = Story(a_definition(a_step(), step)).start()

        story.answer(done({"id": "X1", "note": "${{ vars.secret }}"}))

        request = http_of(story.call(HOTEL))
        assert request.body == '{"flight":{"id":"X1","note":"${{ vars.secret }}"}}'

    def test_a_completed_saga_has_its_output(self) -> None:
        """The definition's output is rendered when all is done."""
        definition = a_definition(a_step(), output={"flight": "${{ steps.flight.output.id }}"})

        story = Story(definition).start().book({"id": "F7"})

        assert story.saga.now.output == Output(value={"flight": "F7"})

    def test_without_an_output_there_is_none(self) -> None:
        """A definition that says no output returns none."""
        assert one_step().book().saga.now.output is None

    @pytest.mark.parametrize("body", [{"id": "X1"}, {"id": "X1", "other": {"id": None}}])
    def test_a_faulty_output_undoes_nothing(self, body: JsonValue) -> None:
        """What happened stays; the saga is completed, and a person is asked to look."""
        definition = a_definition(a_step(), output="${{ steps.flight.output.other.id.name }}")

        story = Story(definition).start().book(body)

        assert story.status is SagaStatus.COMPLETED
        assert story.saga.now.attention
        assert story.saga.now.output is None

    def test_null_is_an_output(self) -> None:
        """A step that returned nothing has succeeded with null."""
        story = one_step(undo_by="key")

        story.answer(answered(204))

        assert story.call().output == Output(value=None)
        assert story.status is SagaStatus.COMPLETED


class TestTryingAgain:
    """Retries and their limits."""

    def test_an_unreachable_tool_is_tried_again_later(self) -> None:
        """A refused connection backs off, and nothing exists out there."""
        story = one_step()

        story.answer(not_sent())

        call = story.call()
        assert (call.status, call.effect, call.failures) == (
            CallStatus.BACKING_OFF,
            Effect.NONE,
            1,
        )
        assert call.error is not None
        assert call.error.code is Code.UNREACHABLE

    def test_a_resend_has_the_same_key_and_bytes(self) -> None:
        """After a doubt the same request goes out again, numbered on."""
        story = one_step()
        first = story.call()

        story.answer(broken_off())
        story.until_due()

        again = story.call()
        assert (again.key, again.request) == (first.key, first.request)
        assert [call.open.number for call in story.out if call.open] == [2]

    def test_attempts_are_limited(self) -> None:
        """After max_attempts the step gives up, and the saga goes back."""
        story = one_step(action={"retry": {"max_attempts": 3}})

        for _ in range(3):
            story.until_out()
            story.answer(not_sent())

        assert story.status is SagaStatus.COMPENSATED
        assert story.call().attempts == 3
        failure = story.saga.now.failure
        assert failure is not None
        assert (failure.cause, failure.step, failure.problem.code) == (
            Cause.STEP_FAILED,
            FLIGHT,
            Code.UNREACHABLE,
        )

    def test_a_single_attempt_is_not_repeated(self) -> None:
        """With max_attempts 1 the first failure is the last."""
        story = one_step(action={"retry": ONCE})

        story.answer(not_sent())

        assert story.status is SagaStatus.COMPENSATED
        assert story.call().attempts == 1

    @pytest.mark.parametrize("failures", [0, 1, 2, 3])
    def test_pauses_grow_with_full_jitter(self, failures: int) -> None:
        """Each pause is drawn between nothing and a ceiling that doubles."""
        story = one_step(
            action={"retry": {"initial_delay": "1s", "max_delay": "1h", "max_attempts": 9}}
        )
        for _ in range(failures):
            story.answer(broken_off())
            story.until_out()

        found = pauses(story, broken_off())

        ceiling = 2**failures
        assert 0 <= min(found) < ceiling * 0.1
        assert ceiling * 0.9 < max(found) <= ceiling

    @pytest.mark.parametrize("status", [425, 429])
    def test_busy_answers_do_not_count(self, status: int) -> None:
        """425 and 429 use up no attempts, though every request is numbered."""
        story = one_step(action={"retry": {"max_attempts": 2}})

        for _ in range(10):
            story.answer(answered(status))
            story.until_out()

        assert story.status is SagaStatus.RUNNING
        assert (story.call().attempts, story.call().failures) == (11, 0)

    @pytest.mark.parametrize("status", [425, 429])
    def test_busy_answers_end_with_max_elapsed(self, status: int) -> None:
        """However patient, a busy tool is given up when max_elapsed is over."""
        story = one_step(
            action={"retry": {"max_elapsed": "30s", "initial_delay": "20s", "max_delay": "20s"}}
        )

        for _ in range(200):
            if not story.out:
                break
            story.answer(answered(status))
            if story.saga.now.due_at and story.status is SagaStatus.RUNNING:
                story.until_out()

        assert story.call().status is CallStatus.FAILED or story.call().settling
        assert story.at <= T0 + seconds(30)
        assert story.saga.now.failure is not None
        assert story.saga.now.failure.problem.code is Code.BUSY

    @pytest.mark.parametrize("direction", [ACTION, COMPENSATION])
    @pytest.mark.parametrize("status", [425, 429])
    def test_busy_answers_lengthen_the_pause(self, status: int, direction: Direction) -> None:
        """A tool that says it is overloaded is asked less and less often, not twice a second."""
        story = one_step(action={"retry": BUSY_FOREVER})
        if direction is COMPENSATION:
            story.cancel()
            story.answer(done())
        for _ in range(8):
            story.answer(answered(status))
            story.until_out()

        found = pauses(story, answered(status))

        assert max(found) > 10

    def test_an_expired_intent_does_not_count(self) -> None:
        """What was never sent for want of time is opened again at no cost."""
        story = one_step(action={"retry": ONCE})

        story.answer(not_sent(NotSentReason.EXPIRED))
        story.until_out()

        assert story.status is SagaStatus.RUNNING
        assert story.call().attempts == 2

    def test_retry_after_is_waited_for(self) -> None:
        """A pause is never shorter than the tool asks for."""
        story = one_step()

        for status in (429, 503, 425):
            asked_at = story.at
            story.answer(answered(status, retry_after="90"))
            story.until_out()

            assert story.at >= asked_at + seconds(90)

    def test_retry_after_beyond_max_elapsed_gives_up_at_once(self) -> None:
        """Nobody waits for an attempt that the limits forbid."""
        story = one_step(action={"retry": {"max_elapsed": "60s"}})

        story.answer(answered(429, retry_after="90"))

        assert story.status is SagaStatus.COMPENSATED
        assert story.at == T0

    def test_max_elapsed_counts_from_the_first_attempt(self) -> None:
        """No attempt starts later than max_elapsed after the first one."""
        story = one_step(
            action={
                "retry": {
                    "max_attempts": 1000,
                    "max_elapsed": "1m",
                    "initial_delay": "10s",
                    "backoff": 1,
                }
            }
        )

        while story.status is SagaStatus.RUNNING:
            story.until_out()
            assert story.at <= T0 + seconds(60)
            story.answer(not_sent())

        assert story.status is SagaStatus.COMPENSATED
        assert story.at > T0 + seconds(30)

    def test_max_elapsed_is_each_calls_own(self) -> None:
        """A step that begins late has as long as the first."""
        story = Story(
            a_definition(a_step(), a_step(HOTEL, action={"retry": {"max_elapsed": "1m"}}))
        )
        story.start().later(3600).book()

        story.answer(not_sent())

        assert story.call(HOTEL).status is CallStatus.BACKING_OFF

    def test_a_short_wait_stays_with_its_owner(self) -> None:
        """A saga that waits for up to a second keeps its owner, with a due time."""
        story = one_step(action={"retry": {"initial_delay": "900ms"}})

        story.answer(not_sent())

        assert story.saga.now.owner == HERE
        assert story.saga.now.due_at == story.call().due_at

    def test_a_long_wait_is_parked(self) -> None:
        """A saga that waits for longer has no owner, only a due time."""
        story = one_step()

        story.answer(answered(429, retry_after="60"))

        assert story.saga.now.owner is None
        assert story.saga.now.due_at == story.call().due_at

    def test_whoever_wakes_a_parked_saga_goes_on_with_it(self) -> None:
        """Any engine may open the next attempt of a parked saga when it is due."""
        story = one_step()
        story.answer(answered(429, retry_after="60"))

        story.until_due(by=THERE)

        assert story.saga.now.owner == THERE
        assert [call.open.number for call in story.out if call.open] == [2]

    def test_nothing_is_sent_before_it_is_due(self) -> None:
        """A wake-up that comes early opens nothing."""
        story = one_step()
        story.answer(answered(429, retry_after="60"))

        story.later(30).wake(by=THERE)

        assert story.out == []
        assert story.saga.now.due_at == T0 + seconds(60)


class TestUnknownEffect:
    """What follows an attempt whose effect is unknown."""

    @pytest.mark.parametrize(
        ("method", "idempotent", "said", "resends"),
        [
            ("POST", True, None, True),
            ("POST", False, None, False),
            ("PATCH", False, None, False),
            ("PUT", False, None, True),
            ("DELETE", False, None, True),
            ("GET", False, None, True),
            ("HEAD", False, None, True),
            ("POST", False, "resend", True),
            ("POST", True, "give_up", False),
            ("PUT", False, "give_up", False),
        ],
    )
    @pytest.mark.parametrize("observation", [broken_off(), answered(503), answered(302)])
    def test_resend_or_give_up(
        self,
        *,
        method: str,
        idempotent: bool,
        said: str | None,
        resends: bool,
        observation: Observation,
    ) -> None:
        """Keyed tools and harmless methods are asked again, others not; the author may say else."""
        action: dict[str, JsonValue] = {} if said is None else {"on_unknown": said}
        story = one_step(method=method, idempotent=idempotent, action=action, undo_by="key")

        story.answer(observation)

        assert (story.status is SagaStatus.RUNNING) == resends
        assert story.call().effect is Effect.UNKNOWN
        if resends:
            assert story.call().status is CallStatus.BACKING_OFF

    @pytest.mark.parametrize("status", [401, 403, 404, 409, 413])
    def test_a_gateways_refusal_after_a_doubt_is_not_believed(self, status: int) -> None:
        """The effect stays unknown, and the call is tried again."""
        story = one_step()
        story.answer(broken_off())
        story.until_out()

        story.answer(refused(status))

        assert story.status is SagaStatus.RUNNING
        assert (story.call().status, story.call().effect) == (
            CallStatus.BACKING_OFF,
            Effect.UNKNOWN,
        )

    def test_a_keyed_tools_refusal_after_a_doubt_is_believed(self) -> None:
        """A tool that honours keys would have answered as before, had it done the work."""
        story = one_step()
        story.answer(broken_off())
        story.until_out()

        story.answer(refused(422))

        assert (story.status, story.effect()) == (SagaStatus.COMPENSATED, Effect.NONE)

    def test_another_tools_refusal_after_a_doubt_is_not_believed(self) -> None:
        """A PUT may have worked the first time, whatever the second is told."""
        story = one_step(method="PUT", idempotent=False)
        story.answer(broken_off())
        story.until_out()

        story.answer(refused(422))

        assert (story.status, story.effect()) == (SagaStatus.RUNNING, Effect.UNKNOWN)

    def test_a_doubt_stays_when_the_tool_is_unreachable(self) -> None:
        """Not reaching the tool says nothing about the attempt before."""
        story = one_step()
        story.answer(broken_off())
        story.until_out()

        story.answer(not_sent())

        assert story.effect() is Effect.UNKNOWN

    def test_a_forbidden_resend_keeps_the_doubt(self) -> None:
        """What our own transport refuses proves nothing about what it sent before."""
        story = one_step(undo_by="key")
        story.answer(broken_off())
        story.until_out()

        story.answer(not_sent(NotSentReason.FORBIDDEN))

        assert story.effect() is Effect.UNKNOWN
        assert story.status is SagaStatus.COMPENSATING

    def test_the_key_is_not_sent_after_its_lifetime(self) -> None:
        """When the tool may have forgotten the key, a doubtful call is not sent again."""
        story = one_step(action={"key_lifetime": "30s"}, undo_by="key")

        story.later(31).answer(broken_off())

        assert story.status is SagaStatus.COMPENSATING
        assert (story.call().status, story.effect()) == (CallStatus.FAILED, Effect.UNKNOWN)
        assert story.out == []

    def test_an_overslept_resend_is_not_sent(self) -> None:
        """A resend that became due within the key's lifetime and is woken after it is not sent."""
        entry = self.woken_after_the_lifetime(cancelled=False)

        assert [call.attempts for call in entry.calls if call.direction is ACTION] == [1]

    def test_an_overslept_question_is_not_sent(self) -> None:
        """Nor is the question that settles a doubt: the tool would take it for a new call."""
        entry = self.woken_after_the_lifetime(cancelled=True)

        assert [call.attempts for call in entry.calls if call.direction is ACTION] == [1]

    def woken_after_the_lifetime(self, *, cancelled: bool) -> Entry:
        """The entry of a wake-up that comes when the tool has forgotten the key."""
        story = one_step(action={"key_lifetime": "30s"}, undo_by="key")
        story.answer(answered(503, retry_after="20"))
        if cancelled:
            story.cancel()
        story.later(60)
        woken = an_event(SagaWoken(), at=story.at, reporter=a_reporter(send_until=story.at + LEASE))
        entry = decide(story.definition, story.saga, woken)
        assert isinstance(entry, Entry)
        return entry

    def test_without_a_doubt_the_lifetime_does_not_bind(self) -> None:
        """A call that surely had no effect may be sent whenever its policy says."""
        story = one_step(action={"key_lifetime": "30s"})

        story.answer(answered(429, retry_after="60"))
        story.until_due()

        assert [call.open.number for call in story.out if call.open] == [2]

    def test_still_working_makes_the_effect_unknown_at_give_up(self) -> None:
        """After a 425 something may still be working on it, whatever else is known."""
        story = one_step(action={"retry": {"max_elapsed": "0s"}}, idempotent=False, undo_by="key")

        story.answer(answered(425, retry_after="1"))

        assert story.status is SagaStatus.COMPENSATING
        assert story.effect() is Effect.UNKNOWN

    @pytest.mark.parametrize("status", [401, 403, 404, 409, 413])
    def test_a_gateways_refusal_after_still_working_is_not_believed(self, status: int) -> None:
        """The tool works on it, and a gateway, or the tool's own lock, refuses the question."""
        story = one_step()
        story.answer(answered(425))
        story.until_out()

        story.answer(refused(status))

        assert (story.status, story.effect()) == (SagaStatus.RUNNING, Effect.UNKNOWN)

    def test_a_refusal_after_still_working_is_believed(self) -> None:
        """A tool that honours keys would have answered with what it has done."""
        story = one_step()
        story.answer(answered(425))
        story.until_out()

        story.answer(refused(422))

        assert (story.status, story.effect()) == (SagaStatus.COMPENSATED, Effect.NONE)


class TestDeadline:
    """The forward phase ends by then, or the saga is undone."""

    def test_it_cuts_a_back_off_short(self) -> None:
        """A saga that backs off beyond its deadline is due at the deadline, and goes back then."""
        story = Story(a_definition(deadline="5s")).start()
        story.book().answer(answered(429, retry_after="60"))

        due_at = story.saga.now.due_at
        story.until_due()

        assert due_at == T0 + seconds(5)
        assert story.status is SagaStatus.COMPENSATING
        assert story.saga.now.failure is not None
        assert story.saga.now.failure.cause is Cause.DEADLINE
        assert [call.step for call in story.out] == [FLIGHT]

    def test_a_call_that_is_out_is_followed_to_its_end(self) -> None:
        """A call in flight at the deadline is not broken off; what it creates is undone."""
        story = Story(a_definition(deadline="5s")).start()

        story.until_due()
        status_while_out = story.status
        story.answer(done())

        assert status_while_out is SagaStatus.COMPENSATING
        assert [(call.step, call.direction) for call in story.out] == [(FLIGHT, COMPENSATION)]

    def test_a_success_that_comes_late_is_undone(self) -> None:
        """All done, but after the deadline and before anybody looked: it is undone."""
        story = one_step()
        story = Story(a_definition(a_step(), deadline="5s")).start()

        story.later(6).book()

        assert story.status is SagaStatus.COMPENSATING

    def test_a_success_in_time_completes(self) -> None:
        """At a moment before the deadline the saga is done, and stays so."""
        story = Story(a_definition(a_step(), deadline="5s")).start()

        story.later(4.9).book()
        story.later(100).wake()

        assert story.status is SagaStatus.COMPLETED

    def test_it_passes_before_anything_began(self) -> None:
        """A saga that nobody took up in time has nothing to undo."""
        story = Story(a_definition(deadline="5s")).start(may_open=False)

        story.later(6).wake()

        assert story.status is SagaStatus.COMPENSATED
        assert not story.saga.calls

    def test_the_callers_deadline_counts(self) -> None:
        """What the caller asks for overrides the definition, and is stored with the saga."""
        story = Story(a_definition(deadline="5s"))

        story.start(request=a_request(deadline=seconds(60)))

        assert story.saga.facts.deadline_at == T0 + seconds(60)

    def test_the_definitions_deadline_is_in_the_journal(self) -> None:
        """Folding reads no definition: the first entry says which deadline holds."""
        story = Story(a_definition(deadline="5s")).start()

        fact = story.journal[0].fact
        assert isinstance(fact, type(a_request()))
        assert fact.deadline == seconds(5)
        assert story.saga.facts.deadline_at == T0 + seconds(5)

    def test_there_need_be_none(self) -> None:
        """Without a deadline nothing is due while a call is out."""
        story = Story().start()

        assert story.saga.facts.deadline_at is None
        assert story.saga.now.due_at is None


class TestCancel:
    """A person wants it undone, at any moment."""

    def test_before_anything_began(self) -> None:
        """A pending saga is undone at once: there is nothing to undo."""
        story = Story().start(may_open=False)

        story.cancel()

        assert story.status is SagaStatus.COMPENSATED

    def test_while_a_call_is_out(self) -> None:
        """The call is followed to its end, and what it creates is undone."""
        story = Story().start()

        story.cancel()
        story.answer(done())

        assert [(call.step, call.direction) for call in story.out] == [(FLIGHT, COMPENSATION)]
        assert story.saga.call(HOTEL, ACTION) is None

    def test_while_a_call_is_out_that_is_refused(self) -> None:
        """If the call had no effect, nothing is undone."""
        story = Story().start()

        story.cancel()
        story.answer(refused())

        assert story.status is SagaStatus.COMPENSATED
        assert story.saga.call(FLIGHT, COMPENSATION) is None

    def test_while_a_call_is_out_that_is_not_sent(self) -> None:
        """Once cancelled, a call that was not sent is not tried again."""
        story = Story().start()

        story.cancel()
        story.answer(not_sent())

        assert story.status is SagaStatus.COMPENSATED
        assert story.call().attempts == 1

    def test_while_it_backs_off_without_effect(self) -> None:
        """A call that only backs off is not waited for, and keeps the effect it has: none."""
        story = Story().start()
        story.answer(not_sent())

        story.cancel()

        assert story.status is SagaStatus.COMPENSATED

    def test_while_it_backs_off_in_doubt(self) -> None:
        """A call that backs off in doubt is settled at once by the same key and bytes."""
        story = Story().start()
        story.answer(answered(503))

        story.cancel()

        assert story.status is SagaStatus.COMPENSATING
        assert [(call.step, call.settling) for call in story.out] == [(FLIGHT, Settling.BY_RESEND)]

    def test_between_steps(self) -> None:
        """With one step done and the next out, both are undone in reverse."""
        story = Story().start().book()

        story.cancel()
        story.answer(done())
        first = [call.step for call in story.out]
        story.answer(answered(204))
        second = [call.step for call in story.out]
        story.answer(answered(204))

        assert (first, second) == ([HOTEL], [FLIGHT])
        assert story.status is SagaStatus.COMPENSATED

    def test_twice(self) -> None:
        """A second cancel changes nothing, and is no error."""
        story = Story().start()
        story.cancel()

        again = story.cancel()

        assert isinstance(again, Ignored)
        assert story.saga.seq == 2

    def test_it_says_who_and_why(self) -> None:
        """The failure names the actor and the reason, and no step."""
        story = Story().start()

        story.cancel()

        failure = story.saga.now.failure
        assert failure is not None
        assert (failure.cause, failure.step, failure.problem.code) == (
            Cause.CANCELLED,
            None,
            Code.CANCELLED,
        )
        assert "ann" in failure.problem.message
        assert "not needed" in failure.problem.message

    def test_the_cause_stays_the_first_one(self) -> None:
        """A cancel after a step has failed does not become the reason."""
        story = Story().start().book()
        story.answer(refused(402))

        story.cancel()

        failure = story.saga.now.failure
        assert failure is not None
        assert (failure.cause, failure.step, failure.problem.http_status) == (
            Cause.STEP_FAILED,
            HOTEL,
            402,
        )

    def test_a_parked_saga_becomes_the_cancellers(self) -> None:
        """An engine that records the cancel of a parked saga goes on with it in the same entry."""
        story = Story().start().book()
        story.answer(answered(429, retry_after="60"))

        story.cancel(by=THERE)

        assert story.saga.now.owner == THERE
        assert [(call.step, call.direction) for call in story.out] == [(FLIGHT, COMPENSATION)]


class TestOutputsThatDoNotFit:
    """A compensation is rendered once, dry, when the result of its action is recorded."""

    @pytest.mark.parametrize("body", [{}, {"id": None}, {"id": ""}, None, "X1", [], {"ID": "X1"}])
    def test_an_output_that_cannot_be_undone_stops_the_saga_now(self, body: JsonValue) -> None:
        """No further step begins; a person is asked how to undo it, while they still can."""
        story = Story().start()

        story.answer(answered(201, body))

        now = story.saga.now
        assert story.status is SagaStatus.STUCK
        assert now.stuck is not None
        assert (now.stuck.step, now.stuck.question) == (FLIGHT, Question.HOW_TO_UNDO)
        assert now.stuck.problem.code is Code.INVALID_OUTPUT
        assert now.failure is not None
        assert now.failure.problem.code is Code.INVALID_OUTPUT
        assert story.saga.call(HOTEL, ACTION) is None
        assert story.effect() is Effect.DONE

    def test_the_output_is_kept(self) -> None:
        """The person who is asked can see what the tool returned."""
        story = Story().start()

        story.answer(answered(201, {"ID": "X1"}))

        assert story.call().output == Output(value={"ID": "X1"})

    def test_trying_again_asks_again(self) -> None:
        """Nothing has changed, so the answer is the same, and no step begins."""
        story = Story().start()
        story.answer(answered(201, {}))

        story.retry()

        assert story.status is SagaStatus.STUCK
        assert story.out == []

    def test_cancelling_it_is_stuck_going_back(self) -> None:
        """The undo cannot be rendered, so the cancel cannot be carried out either."""
        story = Story().start()
        story.answer(answered(201, {}))

        story.cancel()

        stuck = story.saga.now.stuck
        assert stuck is not None
        assert (stuck.step, stuck.resumes) == (FLIGHT, SagaStatus.COMPENSATING)

    def test_going_back_nothing_is_rendered_dry(self) -> None:
        """A late result of a call that was followed to its end is not the forward phase's."""
        story = Story().start()
        story.cancel()

        story.answer(answered(201, {}))

        stuck = story.saga.now.stuck
        assert stuck is not None
        assert (stuck.question, stuck.resumes) == (Question.HOW_TO_UNDO, SagaStatus.COMPENSATING)

    @pytest.mark.parametrize("word", ["cause", "code", "message", "step"])
    def test_a_dry_rendering_knows_a_failure(self, word: str) -> None:
        """An undo that tells the tool why must not stop the saga for want of a failure."""
        http: JsonValue = {
            "method": "DELETE",
            "url": f"https://flight.test/orders?why=${{{{ failure.{word} }}}}",
        }
        story = Story(a_definition(a_step(compensation={"http": http}))).start()

        story.answer(done())

        assert story.status is SagaStatus.COMPLETED


class TestExpressionsThatFail:
    """A request that cannot be rendered is never sent."""

    def a_definition_that_needs(self, expression: str) -> Story:
        """A story whose second step sends what ``expression`` gives."""
        http: JsonValue = {"method": "POST", "url": f"https://hotel.test/{expression}"}
        return Story(a_definition(a_step(), a_step(HOTEL, action={"http": http})))

    @pytest.mark.parametrize("value", [None, "", "..", "."])
    def test_a_url_without_its_value_is_never_sent(self, value: JsonValue) -> None:
        """Null, empty or dots within a URL fail the step, without effect; the rest is undone."""
        story = self.a_definition_that_needs("${{ steps.flight.output.next }}").start()

        story.answer(done({"id": "X1", "next": value}))

        assert story.status is SagaStatus.COMPENSATING
        assert [(call.step, call.direction) for call in story.out] == [(FLIGHT, COMPENSATION)]
        assert (story.call(HOTEL).attempts, story.effect(HOTEL)) == (0, Effect.NONE)
        assert story.saga.now.failure is not None
        assert story.saga.now.failure.step == HOTEL
        assert story.saga.now.failure.problem.code is Code.INVALID_EXPRESSION

    def test_a_first_step_that_cannot_be_rendered_ends_the_saga_at_once(self) -> None:
        """The very entry that starts the saga says that nothing was done."""
        http: JsonValue = {"method": "POST", "url": "https://flight.test/${{ input.missing }}"}
        story = Story(a_definition(a_step(action={"http": http}))).start()

        assert story.status is SagaStatus.COMPENSATED
        assert story.saga.seq == 1

    @pytest.mark.parametrize("city", ["a\x00b", "ü" * 2000, "😀", "${{ x }}", [], {"a": {}}])
    def test_any_value_is_sent_as_it_is(self, city: JsonValue) -> None:
        """Odd characters and nested values go into a body unchanged."""
        story = Story().start(request=a_request(input={"city": city}))

        request = http_of(story.call())
        assert request.body is not None
        assert json.loads(request.body) == {"city": city}

    def test_half_a_character_fails_the_step(self) -> None:
        """A lone surrogate cannot be sent as UTF-8: a typed failure, and no crash."""
        entry = decide(a_definition(), None, an_event(a_request(input={"city": "\ud800"})))

        assert isinstance(entry, Entry)
        assert entry.now.status is SagaStatus.COMPENSATED

    @pytest.mark.parametrize("number", [10**30, 1e308, float("nan"), float("inf"), -0.0])
    def test_any_number_is_rendered_or_refused(self, number: float) -> None:
        """A number that is none in JSON fails the step; a huge one is sent as it is."""
        event = an_event(a_request(input={"city": number}))

        entry = decide(a_definition(), None, event)

        assert isinstance(entry, Entry)
        assert entry.now.status in {SagaStatus.RUNNING, SagaStatus.COMPENSATED}

    def test_a_request_that_is_too_large_fails_the_step(self) -> None:
        """A body beyond the limit is a typed failure, not a wedged saga."""
        story = Story().start(request=a_request(input={"city": "x" * (1024 * 1024 + 1)}))

        assert story.status is SagaStatus.COMPENSATED
        assert story.call().error is not None


class TestLimits:
    """A saga's journal is limited, and its last fifth is kept for undoing."""

    def test_no_step_begins_in_the_last_fifth(self) -> None:
        """A step that would begin there gives up with limit_exceeded, and the rest is undone."""
        story = Story().start()
        story._saga = replace(story.saga, seq=int(ENTRIES_MAX * FORWARD_SHARE))

        story.book()

        assert story.status is SagaStatus.COMPENSATING
        assert story.call(HOTEL).attempts == 0
        assert story.saga.now.failure is not None
        assert story.saga.now.failure.problem.code is Code.LIMIT_EXCEEDED
        assert [call.direction for call in story.out] == [COMPENSATION]

    def test_outputs_weigh(self) -> None:
        """Large outputs bring the limit nearer, by their size as stored."""
        story = Story().start()

        story.answer(answered(201, {"id": "X1"}, body_bytes=int(WEIGHT_BYTES_MAX * FORWARD_SHARE)))

        assert story.status is SagaStatus.COMPENSATING
        assert story.saga.now.failure is not None
        assert story.saga.now.failure.problem.code is Code.LIMIT_EXCEEDED

    def test_no_retry_uses_up_the_last_fifth(self) -> None:
        """A step that fails for ever leaves enough of the journal to undo the others."""
        story = Story(a_definition(a_step(), a_step(HOTEL, action={"retry": BUSY_FOREVER}))).start()
        story.book().answer(answered(429, retry_after="5"))
        story._saga = replace(story.saga, seq=int(ENTRIES_MAX * FORWARD_SHARE) + 1)

        story.until_due()

        assert story.status is SagaStatus.COMPENSATING
        assert [call.direction for call in story.out] == [COMPENSATION]

    def test_no_question_is_asked_in_a_full_journal(self) -> None:
        """Settling a doubt writes entries too, and so has an end."""
        story = Story().start().book()
        story.answer(broken_off())
        story._saga = replace(story.saga, seq=ENTRIES_MAX)

        story.cancel()

        assert story.out == []

    def test_a_full_journal_stops_undoing_visibly(self) -> None:
        """Where nothing more may be written, a person is asked, and nothing is claimed."""
        story = Story().start().book()
        story._saga = replace(story.saga, seq=ENTRIES_MAX)

        story.answer(refused())

        stuck = story.saga.now.stuck
        assert stuck is not None
        assert stuck.problem.code is Code.LIMIT_EXCEEDED
        assert story.effect() is Effect.DONE


def test_time_never_runs_backwards() -> None:
    """A reporter whose clock is behind is dated at the entry before it."""
    story = Story().start().later(10).book()

    story.tell(story.journal[-1].fact, at=T0)
    entry = story.cancel()
    story.tell(story.journal[-1].fact, at=T0 - dt.timedelta(hours=1))

    assert isinstance(entry, Entry)
    assert [entry.at for entry in story.journal] == sorted(entry.at for entry in story.journal)

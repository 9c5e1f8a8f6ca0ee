"""Cases from other projects' bugs, each as a test of the core, by the file and number of its seed.

``tests/cases.toml`` is the register of all cases: which tests are about them, here and elsewhere,
and why some have none.
"""

import itertools

import pytest

from app.core.entries import Entry, Ignored
from app.core.errors import VerbRefused
from app.core.json_value import JsonValue
from app.core.machine import apply
from app.core.observation import BrokenOffReason, Observation
from app.core.saga import (
    CallStatus,
    Cause,
    Code,
    Effect,
    Output,
    Question,
    Saga,
    SagaStatus,
)
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

UNDONE = answered(204)
RESET = broken_off(BrokenOffReason.RESET)


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


def two_done(**compensation: JsonValue) -> Story:
    """Two steps done, a third refused: the second's undo is out."""
    names = ("flight", "hotel", "car")
    story = Story(a_definition(*(a_step(name, compensation=compensation) for name in names)))
    story.start().book().book().answer(refused(402))
    return story


class TestSagaCoordinators:
    """Bugs of dtm, seata, servicecomb-pack, eventuate-tram-sagas and others."""

    def test_saga_coordinators_b1_a_failing_undo_follows_its_policy(self) -> None:
        """An undo that always fails is sent as often and as far apart as its policy says."""
        retry: JsonValue = {"max_attempts": 6, "initial_delay": "1s", "max_delay": "8s"}
        story = two_done(retry=retry)
        moments = []

        while story.status is SagaStatus.COMPENSATING:
            story.until_out()
            moments.append(story.at)
            story.answer(answered(500))

        pauses = [b - a for a, b in itertools.pairwise(moments)]
        assert len(moments) == 6
        assert all(seconds(0) <= pause <= seconds(min(8, 2**n)) for n, pause in enumerate(pauses))

    @pytest.mark.parametrize("status", [200, 201, 202, 204])
    def test_saga_coordinators_b3_any_2xx_is_success(self, status: int) -> None:
        """201, 202, 204 and an empty 200 are successes; an empty body is null."""
        story = Story(a_definition(a_step(undo_by="key"))).start()

        story.answer(answered(status))

        assert story.status is SagaStatus.COMPLETED
        assert story.call().output == Output(value=None)

    def test_saga_coordinators_b5_ambiguous_outcome_is_not_failure(self) -> None:
        """The callee acts and cuts the connection: the same key is resent, the effect undone."""
        story = Story().start()
        first = story.call()

        story.answer(RESET)
        story.until_out()
        again = story.call()
        story.cancel()
        story.answer(done({"id": "F1"}))

        assert (again.key, again.request) == (first.key, first.request)
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_saga_coordinators_b5_a_refused_connection_is_not_undone(self) -> None:
        """What was never sent has no effect to undo."""
        story = Story(a_definition(a_step(action={"retry": ONCE}))).start()

        story.answer(not_sent())

        assert story.status is SagaStatus.COMPENSATED
        assert story.saga.call(FLIGHT, COMPENSATION) is None

    def test_saga_coordinators_b6_the_rollback_decision_is_durable(self) -> None:
        """After a crash behind the first undo the heir goes on undoing, and sends nothing else."""
        story = two_done()
        story.answer(UNDONE)

        story.later(8).wake(by=THERE, losses=1)
        order = []
        while story.out:
            order += out(story)
            story.answer(UNDONE)

        assert order == [(FLIGHT, COMPENSATION)]
        assert story.status is SagaStatus.COMPENSATED

    def test_saga_coordinators_b7_the_deadline_ends_a_back_off(self) -> None:
        """A step that backs off for minutes is undone at the deadline of five seconds."""
        story = Story(a_definition(deadline="5s")).start().book()
        story.answer(answered(503, retry_after="300"))

        story.until_due()

        assert story.at == T0 + seconds(5)
        assert story.status is SagaStatus.COMPENSATING

    def test_saga_coordinators_b8_a_timeout_undoes_what_may_have_happened(self) -> None:
        """Step 2 hangs past the deadline: it is settled, then undone, then step 1 is."""
        story = Story(a_definition(deadline="5s")).start().book()
        story.until_due()
        story.later(1).answer(broken_off())

        asked = out(story)
        story.answer(done({"id": "H1"}))
        order = []
        while story.out:
            order += out(story)
            story.answer(UNDONE)

        assert asked == [(HOTEL, ACTION)]
        assert order == [(HOTEL, COMPENSATION), (FLIGHT, COMPENSATION)]
        assert story.saga.now.failure is not None
        assert story.saga.now.failure.cause is Cause.DEADLINE

    def test_saga_coordinators_b9_a_finished_saga_is_immune(self) -> None:
        """Long after every timeout, with every sweeper run, nothing of a success is undone."""
        story = Story(a_definition(deadline="5s")).start().book().book()
        finished = story.saga

        story.later(10**7)
        for replica in (HERE, THERE, ELSEWHERE):
            story.wake(by=replica, losses=9)

        assert story.saga == finished
        assert finished.status is SagaStatus.COMPLETED

    def test_saga_coordinators_b10_stale_wake_ups_undo_nothing_twice(self) -> None:
        """Any number of wake-ups during a rollback leaves one attempt of each undo."""
        story = two_done()

        while story.out:
            for _ in range(5):
                story.wake()
            story.answer(UNDONE)
            for _ in range(5):
                story.wake()

        attempts = {
            call.step: call.attempts
            for call in story.saga.calls.values()
            if call.direction is COMPENSATION
        }
        assert attempts == {FLIGHT: 1, HOTEL: 1}

    @pytest.mark.parametrize("answer", [done({"id": "H1"}), broken_off()])
    def test_saga_coordinators_b14_a_late_step_does_not_escape(self, answer: Observation) -> None:
        """A step in flight when the cancel comes is in the plan, whenever it ends."""
        story = Story().start().book()

        story.cancel(by=THERE)
        story.answer(answer)
        story.until_out()
        if story.out[0].direction is ACTION:
            story.answer(done({"id": "H1"}))

        assert out(story) == [(HOTEL, COMPENSATION)]

    def test_saga_coordinators_b15_the_undo_does_not_overtake_the_action(self) -> None:
        """A timeout is unknown: the undo waits until the action can no longer arrive."""
        story = Story(a_definition(a_step(idempotent=False, undo_by="key"))).start()

        story.answer(broken_off())
        waits_until = (out(story), story.saga.now.due_at)
        story.until_due()

        assert waits_until == ([], T0 + seconds(10))
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_saga_coordinators_b15_a_success_after_the_undo_is_never_left(self) -> None:
        """A late success after the undo is undone again by a new key, or a person is alerted."""
        story = Story(a_definition(a_step(idempotent=False, undo_by="key"))).start()
        story.answer(broken_off())
        story.until_due()
        story.answer(UNDONE)

        story.answer_late(done())

        assert story.status is SagaStatus.COMPENSATED
        assert story.saga.now.attention
        assert story.effect() is Effect.DONE

    def test_saga_coordinators_b17_the_undo_order_is_strict(self) -> None:
        """In a chain of four whose last undo fails three times no other undo is called before."""
        steps = [a_step(name) for name in ("a", "b", "c", "d", "e")]
        story = Story(a_definition(*steps)).start()
        for _ in range(4):
            story.book()
        story.answer(refused())
        order: list[tuple[str, str]] = []

        for observation in (answered(500), RESET, answered(409), UNDONE, UNDONE, UNDONE, UNDONE):
            story.until_out()
            order += out(story)
            story.answer(observation)

        assert [step for step, _ in order] == ["d", "d", "d", "d", "c", "b", "a"]
        assert story.status is SagaStatus.COMPENSATED

    def test_saga_coordinators_b20_rebuilding_calls_nobody(self) -> None:
        """Each restart during an undo folds the same saga, and each undo keeps its one key."""
        story = two_done()
        key = story.call(HOTEL, COMPENSATION).key

        for restart in range(5):
            folded: Saga | None = None
            for entry in story.journal:
                folded = apply(folded, entry)
            assert folded == story.saga
            story.later(8).wake(by=(THERE, HERE)[restart % 2], losses=1)

            assert story.call(HOTEL, COMPENSATION).key == key

    def test_saga_coordinators_b21_earlier_undos_wait_for_a_failed_one(self) -> None:
        """Undo 2 fails for good: undo 1 is not called."""
        story = two_done()

        story.answer(refused())

        assert story.status is SagaStatus.STUCK
        assert story.saga.call(FLIGHT, COMPENSATION) is None

    def test_saga_coordinators_b23_a_failed_undo_can_be_resumed(self) -> None:
        """The saga names the undo that failed, and a retry leads to compensated."""
        story = two_done()
        story.answer(refused())
        stuck = story.saga.now.stuck

        story.retry()
        while story.out:
            story.answer(UNDONE)

        assert stuck is not None
        assert stuck.step == HOTEL
        assert story.status is SagaStatus.COMPENSATED

    @pytest.mark.parametrize("answer", [refused(), refused(404), not_sent(), RESET, answered(500)])
    def test_saga_coordinators_b24_a_failed_undo_is_never_clean(self, answer: Observation) -> None:
        """Whatever an undo fails with, compensated is not said."""
        http: JsonValue = {"method": "POST", "url": "https://a.test/undo"}
        story = two_done(http=http, retry=ONCE)

        story.answer(answer)

        assert story.status is SagaStatus.STUCK
        assert story.effect(HOTEL) is Effect.DONE

    def test_saga_coordinators_b26_a_crash_between_call_and_result(self) -> None:
        """An undo that needs the missing output is a person's question, not an endless loop."""
        story = Story(a_definition(a_step(idempotent=False))).start()

        story.later(8).wake(by=THERE, losses=1)
        story.until_due(by=THERE)

        stuck = story.saga.now.stuck
        assert stuck is not None
        assert (stuck.question, stuck.step) == (Question.DID_IT_TAKE_EFFECT, FLIGHT)
        assert stuck.problem.code is Code.INVALID_EXPRESSION

    def test_saga_coordinators_b26_an_undo_is_tried_as_often_as_configured(self) -> None:
        """Limit 3 is three attempts."""
        story = two_done(retry={"max_attempts": 3})

        while story.status is SagaStatus.COMPENSATING:
            story.until_out()
            story.answer(answered(500))

        assert story.call(HOTEL, COMPENSATION).attempts == 3

    @pytest.mark.parametrize("crash_after", [0, 1, 2, 3])
    def test_saga_coordinators_b27_a_crash_within_an_undo_recovers(self, crash_after: int) -> None:
        """Wherever the owner is lost while it undoes, the heir ends it."""
        story = two_done()

        for number in range(10):
            if number == crash_after and story.out:
                story.later(8).wake(by=THERE, losses=1)
            if story.out:
                story.answer(UNDONE)

        assert story.status is SagaStatus.COMPENSATED

    def test_saga_coordinators_b31_the_limit_survives_restarts(self) -> None:
        """Limit 3, with restarts between: three calls that count, apart by the back-off."""
        story = Story(a_definition(a_step(action={"retry": {"max_attempts": 3}}))).start()

        for replica in (THERE, ELSEWHERE, HERE):
            story.answer(not_sent())
            if story.status is SagaStatus.RUNNING:
                assert story.saga.now.due_at is not None
                story.later(5).wake(by=replica)

        assert story.call().attempts == 3
        assert story.status is SagaStatus.COMPENSATED

    def test_saga_coordinators_b33_the_first_error_stays(self) -> None:
        """Once all is undone, the failing step, its code, status and words are still there."""
        story = Story().start().book()
        story.answer(answered(402, {"error": "card declined"}))
        story.answer(UNDONE)

        failure = story.saga.now.failure
        assert failure is not None
        assert (failure.step, failure.problem.http_status) == (HOTEL, 402)
        assert "card declined" in failure.problem.message

    def test_saga_coordinators_b40_a_reply_is_matched_with_its_request(self) -> None:
        """A late duplicate reply of step 1 does not advance step 2."""
        story = Story().start().book({"id": "F1"})

        again = story.answer_late(done({"id": "F2"}), step=FLIGHT, by=HERE)

        assert isinstance(again, Ignored)
        assert out(story) == [(HOTEL, ACTION)]
        assert story.call().output == Output(value={"id": "F1"})

    def test_saga_coordinators_b43_a_timer_of_a_finished_saga_is_dropped(self) -> None:
        """The deadline's timer rings after the end."""
        story = Story(a_definition(a_step(), deadline="5s")).start().book()

        assert isinstance(story.later(5).wake(), Ignored)

    def test_saga_coordinators_b47_a_deadline_that_passed_while_all_was_down(self) -> None:
        """At the first wake-up after the outage the undo starts; with nothing done it is over."""
        story = Story(a_definition(deadline="5s")).start().book()
        idle = Story(a_definition(deadline="5s")).start(may_open=False)

        story.later(3600).wake(by=THERE, losses=1)
        idle.later(3600).wake(by=THERE)

        assert story.status is SagaStatus.COMPENSATING
        assert idle.status is SagaStatus.COMPENSATED


class TestAgents:
    """Pains of those who let agents act."""

    def test_agents_b10_not_idempotent_means_one_attempt(self) -> None:
        """The effect is done and the connection reset: one attempt, outcome unknown."""
        step = a_step(idempotent=False, action={"retry": {"max_attempts": 3}})
        story = Story(a_definition(step)).start()

        story.answer(RESET)
        story.until_due()

        assert story.call().attempts == 1
        assert story.effect() is Effect.UNKNOWN
        assert story.status is SagaStatus.STUCK

    @pytest.mark.parametrize("idempotent", [True, False])
    def test_agents_b11_a_timeout_resends_the_same_key_or_nothing(
        self, *, idempotent: bool
    ) -> None:
        """No second plain call; the same key again only where the tool honours it."""
        story = Story(a_definition(a_step(idempotent=idempotent, undo_by="key"))).start()
        key = story.call().key

        story.answer(broken_off())
        story.until_out()

        assert story.call().key == key
        assert story.call().attempts == (2 if idempotent else 1)

    def test_agents_b13_a_timeout_is_not_a_failure(self) -> None:
        """A slow write leaves the effect unknown, with a code that says so."""
        story = Story().start()

        story.answer(broken_off())

        error = story.call().error
        assert error is not None
        assert (error.code, story.effect()) == (Code.TIMED_OUT, Effect.UNKNOWN)

    def test_agents_b16_an_error_after_the_effect_is_undone(self) -> None:
        """The resource was created and 500 answered; later it is found and undone by its id."""
        story = Story().start()
        story.answer(answered(500))
        story.until_out()
        story.answer(done({"id": "R7"}))

        story.answer(refused())

        request = http_of(story.call(FLIGHT, COMPENSATION))
        assert request is not None
        assert request.url.endswith("/R7")

    def test_agents_b17_a_lost_owners_late_result_is_kept(self) -> None:
        """A, paused past its lease, has called; B takes over; A's success is evidence."""
        story = Story().start()
        story.later(8).wake(by=THERE, losses=1)

        story.answer_late(done({"id": "F1"}), by=ELSEWHERE)

        assert story.effect() is Effect.DONE
        assert story.saga.now.owner == THERE
        assert story.out == []

    def test_agents_b21_a_step_that_waits_for_its_retry_never_runs_again(self) -> None:
        """Cancelled while it backs off: its timer, when it rings, sends nothing forward."""
        story = Story().start().book()
        story.answer(answered(429, retry_after="30"))
        story.cancel()

        story.later(31).wake()

        assert out(story) == [(FLIGHT, COMPENSATION)]
        assert story.call(HOTEL).attempts == 1

    def test_agents_b22_exactly_what_completed_is_undone(self) -> None:
        """Cancelled after two of three: those two are undone, the third never begins."""
        steps = [a_step(name) for name in ("a", "b", "c")]
        story = Story(a_definition(*steps)).start().book()

        story.cancel()
        story.answer(done())
        order = []
        while story.out:
            order += out(story)
            story.answer(UNDONE)

        assert order == [("b", COMPENSATION), ("a", COMPENSATION)]

    def test_agents_b23_a_failed_undo_is_not_swallowed(self) -> None:
        """Undo 2 fails for good: a person is asked, a retry is possible, nothing is forgotten."""
        story = two_done()
        story.answer(refused())
        effects = [story.effect(FLIGHT), story.effect(HOTEL)]

        story.later(86400).retry()

        assert effects == [Effect.DONE, Effect.DONE]
        assert out(story) == [(HOTEL, COMPENSATION)]

    @pytest.mark.parametrize(
        "observation", [refused(), broken_off(), not_sent(), answered(500), answered(201, {})]
    )
    def test_agents_b24_no_failure_leaves_a_saga_running(self, observation: Observation) -> None:
        """Every way to fail ends in a state of rest, with the reason in the saga itself."""
        step = a_step(HOTEL, idempotent=False, action={"retry": ONCE})
        story = Story(a_definition(a_step(), step)).start().book()

        story.answer(observation)
        for _ in range(20):
            story.until_out()
            if story.out:
                story.answer(UNDONE)

        assert story.status.is_at_rest
        assert story.saga.now.failure is not None

    def test_agents_b25_the_undo_reads_the_stored_result(self) -> None:
        """After a restart between forward and undo the stored output is used."""
        story = Story().start().book({"id": "F9"})
        story.later(8).wake(by=THERE, losses=1)

        story.answer(refused())

        request = http_of(story.call(FLIGHT, COMPENSATION))
        assert request is not None
        assert request.url == "https://flight.test/orders/F9"

    def test_agents_b27_a_failing_undo_is_bounded(self) -> None:
        """An undo that always fails ends with a person, and no new rollback begins."""
        story = two_done(retry={"max_attempts": 4})
        for _ in range(4):
            story.until_out()
            story.answer(refused(409))

        again = story.cancel()

        assert isinstance(again, Ignored)
        assert story.status is SagaStatus.STUCK
        assert story.call(HOTEL, COMPENSATION).attempts == 4

    def test_agents_b29_exhausted_retries_do_not_stop_the_rollback(self) -> None:
        """A step with retries exhausts them: the others are undone."""
        step = a_step(HOTEL, action={"retry": {"max_attempts": 2}})
        story = Story(a_definition(a_step(), step)).start().book()

        for _ in range(2):
            story.until_out()
            story.answer(not_sent())

        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_agents_g1_a_duplicate_success_advances_one_step(self) -> None:
        """The same reply twice, for three steps: the third has not begun."""
        steps = [a_step(name) for name in ("flight", "b", "c")]
        story = Story(a_definition(*steps)).start().book()

        story.answer_late(done(), by=HERE)

        assert out(story) == [("b", ACTION)]

    def test_agents_g2_a_stale_timer_fails_no_later_attempt(self) -> None:
        """The wake-up meant for attempt 1's pause comes again while attempt 2 is out."""
        story = Story().start()
        story.answer(broken_off())
        story.until_out()

        assert isinstance(story.wake(), Ignored)
        assert story.call().attempts == 2

    def test_agents_g5_the_timed_out_step_itself_is_undone(self) -> None:
        """Its effect is unknown, so it belongs to what is undone."""
        step = a_step(HOTEL, idempotent=False, undo_by="key")
        story = Story(a_definition(a_step(), step)).start().book()

        story.answer(broken_off())
        story.until_due()

        assert out(story) == [(HOTEL, COMPENSATION)]

    @pytest.mark.parametrize("index", range(4))
    @pytest.mark.parametrize("failure", ["before", "after"])
    def test_agents_h1_the_world_is_as_it_was(self, index: int, failure: str) -> None:
        """Whichever step fails, before or after its effect: what was done is undone in reverse."""
        names = ["a", "b", "c", "d"]
        steps = [a_step(name, action={"retry": ONCE}) for name in names]
        story = Story(a_definition(*steps)).start()
        for _ in range(index):
            story.book()

        if failure == "before":
            story.answer(refused())
        else:
            story.answer(RESET)
            story.answer(done({"id": "X9"}))
        order = []
        while story.out:
            order += [step for step, _ in out(story)]
            story.answer(UNDONE)

        happened = names[: index + (failure == "after")]
        assert order == happened[::-1]
        assert story.status is SagaStatus.COMPENSATED


class TestDurableEngines:
    """Bugs of DBOS, Temporal, Conductor, Hatchet and others."""

    def test_durable_engines_b06_a_crash_after_the_effect(self) -> None:
        """Killed between the tool's 200 and our commit: the same key and body go out again."""
        story = Story().start()
        first = story.call()

        story.later(8).wake(by=THERE, losses=1)

        again = story.call()
        assert (again.key, again.request) == (first.key, first.request)
        assert again.uncertain

    def test_durable_engines_b06_parked_where_keys_are_not_honoured(self) -> None:
        """The restart does not repeat the step: it is undone as unknown, or asked of a person."""
        story = Story(a_definition(a_step(idempotent=False))).start()

        story.later(8).wake(by=THERE, losses=1)

        assert story.call().attempts == 1
        assert story.call().status is CallStatus.FAILED

    def test_durable_engines_b16_a_step_whose_workers_die_reaches_a_state(self) -> None:
        """After the fourth lost owner in a row the saga is stuck, and tells why."""
        story = Story().start()

        for losses in range(1, 5):
            story.later(8).wake(by=(HERE, THERE)[losses % 2], losses=losses)

        stuck = story.saga.now.stuck
        assert stuck is not None
        assert (stuck.question, stuck.problem.code) == (Question.HOW_TO_GO_ON, Code.OWNER_LOST)

    def test_durable_engines_b21_null_is_a_result(self) -> None:
        """A body that is JSON null is a valid output, now and when it is read again."""
        story = Story(a_definition(a_step(undo_by="key"), a_step(HOTEL))).start()

        story.answer(answered(200, None))

        assert story.call().output == Output(value=None)
        assert out(story) == [(HOTEL, ACTION)]

    @pytest.mark.parametrize("observation", [broken_off(), answered(500)])
    def test_durable_engines_b29_an_effect_that_reported_an_error(
        self, observation: Observation
    ) -> None:
        """Times out or answers 500 on every try: it is undone as unknown, with the forward key."""
        step = a_step(undo_by="key", action={"retry": ONCE})
        story = Story(a_definition(step)).start()
        story.answer(observation)
        story.answer(observation)

        story.until_due()

        undo = story.call(FLIGHT, COMPENSATION)
        assert undo.request is not None
        assert http_of(undo).body == f'{{"undo":"{story.call().key}"}}'
        assert story.effect() is Effect.UNKNOWN

    @pytest.mark.parametrize(
        "point", ["queued", "in call", "between", "backing off", "unwinding", "stuck", "twice"]
    )
    def test_durable_engines_b30_cancel_at_each_point(self, point: str) -> None:
        """Every effect that may exist is undone; a second cancel does nothing."""
        story = Story().start(may_open=point != "queued")
        if point in {"backing off", "unwinding", "stuck"}:
            story.book()
        match point:
            case "between":
                story.answer(done(), may_open=False)
            case "backing off":
                story.answer(answered(503))
            case "unwinding":
                story.answer(refused())
            case "stuck":
                story.later(8).wake(by=THERE, losses=4)
            case "twice":
                story.cancel()
            case _:
                pass

        story.cancel()
        while story.out:
            story.answer(done({"id": "X1"}))

        assert story.status is SagaStatus.COMPENSATED
        assert {story.effect(FLIGHT), story.effect(HOTEL)} == {Effect.NONE}

    def test_durable_engines_b32_error_and_undo_are_told_apart(self) -> None:
        """A clean undo does not look like a failure, nor does it hide the error."""
        story = two_done()
        while story.out:
            story.answer(UNDONE)

        undo = story.call(HOTEL, COMPENSATION)
        assert (undo.status, undo.error) == (CallStatus.SUCCEEDED, None)
        assert story.saga.now.failure is not None
        assert story.saga.now.failure.problem.http_status == 402

    @pytest.mark.parametrize(
        ("status", "expected"),
        [(404, SagaStatus.COMPENSATED), (409, SagaStatus.STUCK), (500, SagaStatus.STUCK)],
    )
    def test_durable_engines_b33_an_undo_that_answers_an_error(
        self, status: int, expected: SagaStatus
    ) -> None:
        """Gone is undone; anything else for ever is a person's question."""
        story = two_done(retry={"max_attempts": 3})

        for _ in range(6):
            story.until_out()
            if story.out:
                story.answer(answered(status))

        assert story.status is expected

    def test_durable_engines_b34_undo_attempts_are_counted_across_restarts(self) -> None:
        """They are in the journal, so no restart begins anew."""
        story = two_done(retry={"max_attempts": 3})

        for restart in range(3):
            story.until_out()
            story.answer(answered(500))
            story.later(400).wake(by=(HERE, THERE)[restart % 2])

        assert story.status is SagaStatus.STUCK
        assert story.call(HOTEL, COMPENSATION).attempts == 3

    @pytest.mark.parametrize("attempts", [1, 2, 5])
    def test_durable_engines_b36_the_undo_is_the_same_for_any_number_of_retries(
        self, attempts: int
    ) -> None:
        """However many retries, the undo begins in the entry that gives up."""
        step = a_step(HOTEL, action={"retry": {"max_attempts": attempts}})
        story = Story(a_definition(a_step(), step)).start().book()

        for _ in range(attempts):
            story.until_out()
            story.answer(not_sent())

        statuses = [entry.now.status for entry in story.journal]
        assert statuses.index(SagaStatus.COMPENSATING) == len(statuses) - 1
        assert out(story) == [(FLIGHT, COMPENSATION)]

    def test_durable_engines_b37_a_retry_during_an_undo_is_refused(self) -> None:
        """During = refused; after it is complete = only as a new saga."""
        story = two_done()

        with pytest.raises(VerbRefused):
            story.retry()
        while story.out:
            story.answer(UNDONE)
        with pytest.raises(VerbRefused):
            story.retry()

    def test_durable_engines_b39_a_cancel_wakes_a_back_off_at_once(self) -> None:
        """Nobody waits for the pause to end."""
        story = Story().start().book()
        story.answer(answered(429, retry_after="300"))

        entry = story.cancel(by=THERE)

        assert isinstance(entry, Entry)
        assert out(story) == [(FLIGHT, COMPENSATION)]
        assert story.at == T0

    def test_durable_engines_b51_one_key_for_all_attempts(self) -> None:
        """The same across resets, 429s, lost owners and settling; recorded before the call."""
        story = Story().start()
        keys = {story.call().key}

        story.answer(RESET)
        story.until_out()
        keys.add(story.call().key)
        story.answer(answered(429))
        story.until_out()
        story.later(8).wake(by=THERE, losses=1)
        keys.add(story.call().key)
        story.cancel(by=THERE)
        story.answer(answered(503))
        keys.add(story.call().key)

        assert len(keys) == 1
        assert story.call().settling

    def test_durable_engines_b52_retry_after_is_obeyed(self) -> None:
        """A tool that answers 429 with 30 s is not called for 30 s."""
        story = Story().start()

        story.answer(answered(429, retry_after="30"))
        for moment in (1, 10, 29):
            story.at = T0 + seconds(moment)
            story.wake(by=THERE)

            assert story.out == []
        story.at = T0 + seconds(30)
        story.wake(by=THERE)

        assert out(story) == [(FLIGHT, ACTION)]

    def test_durable_engines_b56_giving_up_and_the_first_undo_are_one(self) -> None:
        """No entry says failed without an undo that is out or due."""
        story = Story().start().book()

        story.later(1).answer(refused(), may_open=False)

        now = story.journal[-1].now
        assert (now.status, now.owner, now.due_at) == (SagaStatus.COMPENSATING, None, story.at)

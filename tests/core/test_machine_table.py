"""The table of the machine: every (status, fact) moves, is ignored for a reason, or is refused."""

import itertools
import typing
from uuid import UUID

import pytest

from app.core.entries import Entry, Ignored
from app.core.errors import IllegalEvent, VerbRefused
from app.core.events import (
    AttemptObserved,
    CallbackReceived,
    CancelRequested,
    Fact,
    PauseRequested,
    ResolveRequested,
    ResumeRequested,
    RetryRequested,
    SagaRequested,
    SagaWoken,
    SkipRequested,
    TerminateRequested,
    UndoRequested,
)
from app.core.identity import SagaId
from app.core.machine import TABLE, apply, decide
from app.core.saga import CallbackOutcome, Effect, SagaStatus
from app.core.verbs import NAMES, possible_verbs
from tests.core.builders import (
    ACTION,
    COMPENSATION,
    ELSEWHERE,
    FLIGHT,
    HOTEL,
    THERE,
    Story,
    a_definition,
    a_reporter,
    a_request,
    a_saga,
    a_story,
    an_entry,
    an_event,
    answered,
    broken_off,
    done,
    refused,
)

FACTS: tuple[type[Fact], ...] = typing.get_args(Fact.__value__)

FACT: dict[type[Fact], Fact] = {
    SagaRequested: a_request(),
    AttemptObserved: AttemptObserved(
        step=FLIGHT, direction=COMPENSATION, attempt=9, observation=broken_off()
    ),
    SagaWoken: SagaWoken(),
    CallbackReceived: CallbackReceived(
        step=FLIGHT,
        direction=ACTION,
        generation=0,
        outcome=CallbackOutcome.SUCCEEDED,
        output={"id": "X9"},
        digest="a",
    ),
    CancelRequested: CancelRequested(actor="ann", reason="not needed"),
    TerminateRequested: TerminateRequested(actor="ann", reason="enough"),
    PauseRequested: PauseRequested(actor="ann", reason="wait"),
    ResumeRequested: ResumeRequested(actor="ann", reason="go"),
    RetryRequested: RetryRequested(actor="ann", reason="mended"),
    ResolveRequested: ResolveRequested(
        actor="ann", reason="I asked", step=FLIGHT, effect=Effect.NONE
    ),
    SkipRequested: SkipRequested(actor="ann", reason="let it be", step=FLIGHT),
    UndoRequested: UndoRequested(actor="ann", reason="late", step=FLIGHT, saga=SagaId(UUID(int=9))),
}


def outcome(story: Story, fact: Fact) -> str:
    """What comes of a fact: moved, ignored, refused or illegal."""
    try:
        told = story.tell(fact)
    except VerbRefused:
        return "refused"
    except IllegalEvent:
        return "illegal"
    return "moved" if isinstance(told, Entry) else "ignored"


def test_the_table_is_total() -> None:
    """There is a row for every status and fact, and for nothing else."""
    assert set(TABLE) == set(itertools.product(SagaStatus, FACTS))


def test_what_is_ignored_has_a_reason() -> None:
    """Each row that ignores says why."""
    ignored = [row for row in TABLE.values() if isinstance(row, Ignored)]

    assert ignored
    assert all(len(row.reason) > 10 for row in ignored)


@pytest.mark.parametrize("fact", [fact for kind, fact in FACT.items() if kind is not SagaRequested])
def test_nothing_but_a_request_begins_a_saga(fact: Fact) -> None:
    """A saga that does not exist can meet nothing else."""
    with pytest.raises(IllegalEvent, match=type(fact).__name__):
        decide(a_definition(), None, an_event(fact))


@pytest.mark.parametrize("status", SagaStatus)
def test_a_saga_is_requested_once(status: SagaStatus) -> None:
    """A second request of a saga that exists is a bug of ours."""
    with pytest.raises(IllegalEvent):
        a_story(status).tell(a_request())


MOVED = {
    # An engine that hears of it takes it up, whatever it heard.
    SagaStatus.PENDING: "woken heard cancel terminate pause",
    SagaStatus.RUNNING: "heard cancel terminate pause",
    SagaStatus.COMPENSATING: "heard terminate pause",
    SagaStatus.PAUSED: "heard resume cancel terminate",
    # Whoever wakes one that is at rest has claimed it, and lets go of it.
    SagaStatus.STUCK: "woken heard retry resolve skip terminate",
    SagaStatus.COMPLETED: "heard",
    SagaStatus.COMPENSATED: "heard",
    SagaStatus.PARTIALLY_COMPENSATED: "heard",
    # What is left of it can still be undone, by a saga of its own.
    SagaStatus.TERMINATED: "heard undo",
}
IGNORED = {
    SagaStatus.PENDING: "",
    SagaStatus.RUNNING: "woken",
    SagaStatus.COMPENSATING: "woken cancel",
    SagaStatus.PAUSED: "woken pause",
    SagaStatus.STUCK: "cancel",
    SagaStatus.COMPLETED: "woken",
    SagaStatus.COMPENSATED: "woken",
    SagaStatus.PARTIALLY_COMPENSATED: "woken",
    SagaStatus.TERMINATED: "woken",
}
NAMED = {**NAMES, SagaWoken: "woken", CallbackReceived: "heard"}


@pytest.mark.parametrize("status", SagaStatus)
def test_wakes_callbacks_and_verbs(status: SagaStatus) -> None:
    """Each moves what it can move, repeats nothing, and is refused elsewhere."""
    outcomes = {name: outcome(a_story(status), FACT[kind]) for kind, name in NAMED.items()}

    expected = dict.fromkeys(NAMED.values(), "refused")
    expected |= dict.fromkeys(MOVED[status].split(), "moved")
    expected |= dict.fromkeys(IGNORED[status].split(), "ignored")
    assert outcomes == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (SagaStatus.RUNNING, "moved"),
        (SagaStatus.COMPENSATING, "ignored"),
        (SagaStatus.STUCK, "ignored"),
        (SagaStatus.COMPLETED, "ignored"),
        (SagaStatus.COMPENSATED, "ignored"),
        (SagaStatus.PAUSED, "ignored"),
        (SagaStatus.PARTIALLY_COMPENSATED, "ignored"),
        (SagaStatus.TERMINATED, "ignored"),
    ],
)
def test_the_answer_of_the_first_attempt(status: SagaStatus, expected: str) -> None:
    """An answer moves the saga while its attempt is out; the same again proves nothing new."""
    facts = [
        AttemptObserved(step=FLIGHT, direction=ACTION, attempt=1, observation=observation)
        for observation in (done(), refused(), broken_off())
    ]

    outcomes = {outcome(a_story(status), fact) for fact in facts}

    assert outcomes == {expected}


def test_an_observation_before_anything_began_is_illegal() -> None:
    """Of a pending saga nothing was ever sent."""
    with pytest.raises(IllegalEvent):
        a_story(SagaStatus.PENDING).tell(FACT[AttemptObserved])


def test_an_observation_of_a_call_that_never_was_is_illegal() -> None:
    """An answer to what was never sent is a bug of ours, and says so."""
    with pytest.raises(IllegalEvent):
        a_story(SagaStatus.RUNNING).answer_late(done(), step=HOTEL)


def test_an_observation_of_an_attempt_that_never_was_is_illegal() -> None:
    """Nor can an attempt be answered that was never opened."""
    with pytest.raises(IllegalEvent):
        a_story(SagaStatus.RUNNING).answer_late(done(), attempt=2)


def test_a_refused_verb_says_what_is_possible() -> None:
    """The caller learns the status, the verb, and the verbs that would be taken."""
    with pytest.raises(VerbRefused) as caught:
        a_story(SagaStatus.COMPENSATING).retry()

    error = caught.value
    assert (error.verb, error.status) == ("retry", "compensating")
    assert error.possible == ("cancel", "pause", "terminate")


@pytest.mark.parametrize("status", SagaStatus)
def test_possible_verbs_are_those_not_refused(status: SagaStatus) -> None:
    """What is offered is taken; what is taken is offered, or is so already."""
    outcomes = {name: outcome(a_story(status), FACT[verb]) for verb, name in NAMES.items()}

    offered = set(possible_verbs(a_definition(), a_story(status).saga))
    moved = {name for name, told in outcomes.items() if told == "moved"}
    refused = {name for name, told in outcomes.items() if told == "refused"}
    assert moved <= offered
    assert offered.isdisjoint(refused)


@pytest.mark.parametrize("status", [status for status in SagaStatus if status.is_final])
def test_final_states_absorb(status: SagaStatus) -> None:
    """No wake-up, no late answer and no lost replica moves a finished saga."""
    story = a_story(status)
    before = story.saga

    for losses in (0, 1, 99):
        story.later(10**6).wake(by=THERE, losses=losses)
    for observation in (done(), refused(), broken_off(), answered(404)):
        story.answer_late(observation, by=ELSEWHERE)

    assert story.saga == before


def test_folding_refuses_a_gap() -> None:
    """An entry whose predecessor is missing is never folded."""
    saga = a_saga()

    with pytest.raises(AssertionError):
        apply(saga, an_entry(SagaWoken(), seq=3))


def test_folding_reads_nothing_but_its_arguments() -> None:
    """The fold of a story's journal is the saga that deciding has led to."""
    story = a_story(SagaStatus.COMPENSATED)

    saga = None
    for entry in story.journal:
        saga = apply(saga, entry)

    assert saga == story.saga


def test_an_api_only_replica_starts_a_saga_that_is_due_at_once() -> None:
    """Where no engine runs, the saga is stored pending, owned by nobody, and due now."""
    saga = a_saga(may_open=False)

    assert saga.status is SagaStatus.PENDING
    assert (saga.now.owner, saga.now.due_at) == (None, saga.updated_at)
    assert not saga.calls


def test_the_first_intent_is_in_the_first_entry() -> None:
    """Where an engine runs, the saga is stored with its first intent, and is its own."""
    saga = a_saga()

    (call,) = saga.open_calls(a_reporter().incarnation)
    assert saga.seq == 1
    assert (call.step, call.attempts) == (FLIGHT, 1)
    assert saga.now.owner == a_reporter().incarnation

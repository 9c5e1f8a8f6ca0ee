"""An entry of the journal as people see it."""

from collections.abc import Mapping
from typing import Literal, assert_never

from app.core.entries import Entry, Reception
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
    Verb,
)
from app.core.observation import Answered, BrokenOff, Claimed, NotSent, Observation
from app.core.saga import CallState, CallStatus, SagaStatus
from app.schemas.events import (
    CallbackReport,
    CallChange,
    EventDetail,
    EventResponse,
    EventType,
    ObservationResponse,
    OpenedAttempt,
    Resolution,
)
from app.schemas.saga_view import show_failure, show_problem


def show_event(entry: Entry) -> EventResponse:
    """One entry: what was reported, and what followed."""
    fact = entry.fact
    verb = fact if isinstance(fact, Verb) else None
    return EventResponse(
        seq=entry.seq,
        at=entry.at,
        type=event_type(entry),
        step=getattr(fact, "step", None),
        direction=(
            fact.direction if isinstance(fact, AttemptObserved | CallbackReceived) else None
        ),
        attempt=fact.attempt if isinstance(fact, AttemptObserved) else None,
        status=entry.now.status,
        summary=f"{_what_happened(fact)}; {_what_follows(entry)}",
        detail=EventDetail(
            observation=_show_observation_of(fact),
            callback=_show_callback(entry),
            resolution=_show_resolution(fact),
            undo_saga=str(fact.saga) if isinstance(fact, UndoRequested) else None,
            actor=None if verb is None else verb.actor,
            reason=None if verb is None else verb.reason,
            losses=fact.losses if isinstance(fact, SagaWoken) else None,
            opened=[_show_opened(call) for call in entry.calls if call.open is not None],
            changes=[_show_change(call) for call in entry.calls],
            failure=show_failure(entry.now.failure),
        ),
    )


EVENT_TYPES: Mapping[type[Fact], EventType] = {
    SagaRequested: "saga_requested",
    AttemptObserved: "attempt_observed",
    CallbackReceived: "callback_received",
    SagaWoken: "saga_woken",
    CancelRequested: "cancel_requested",
    TerminateRequested: "terminate_requested",
    PauseRequested: "pause_requested",
    ResumeRequested: "resume_requested",
    RetryRequested: "retry_requested",
    ResolveRequested: "resolve_requested",
    SkipRequested: "skip_requested",
    UndoRequested: "undo_requested",
}


def event_type(entry: Entry) -> EventType:
    """The public name of what was reported."""
    return EVENT_TYPES[type(entry.fact)]


def _show_observation_of(fact: Fact) -> ObservationResponse | None:
    return _show_observation(fact.observation) if isinstance(fact, AttemptObserved) else None


def _show_observation(observation: Observation) -> ObservationResponse:
    match observation:
        case Answered():
            return ObservationResponse(
                kind="answered",
                reason=None if observation.readable else "unreadable",
                message=None,
                http_status=observation.status,
                retry_after=observation.retry_after,
            )
        case NotSent():
            return _show_words("not_sent", observation.reason.value, observation.message)
        case BrokenOff():
            return _show_words("broken_off", observation.reason.value, observation.message)
        case Claimed():
            return _show_words("claimed", observation.claim.value, observation.message)
        case _:
            assert_never(observation)


def _show_words(
    kind: Literal["not_sent", "broken_off", "claimed"], reason: str, message: str
) -> ObservationResponse:
    return ObservationResponse(
        kind=kind, reason=reason, message=message, http_status=None, retry_after=None
    )


def _show_callback(entry: Entry) -> CallbackReport | None:
    fact = entry.fact
    if not isinstance(fact, CallbackReceived):
        return None
    return CallbackReport(
        outcome=fact.outcome,
        error=fact.error,
        effect=fact.effect,
        reception=entry.reception or Reception.ACCEPTED,
    )


def _show_resolution(fact: Fact) -> Resolution | None:
    if not isinstance(fact, ResolveRequested):
        return None
    return Resolution(effect=fact.effect, evidence=fact.evidence)


def _show_opened(call: CallState) -> OpenedAttempt:
    assert call.open is not None, call.step
    return OpenedAttempt(
        step=call.step,
        direction=call.direction,
        attempt=call.open.number,
        idempotency_key=str(call.key),
    )


def _show_change(call: CallState) -> CallChange:
    return CallChange(
        step=call.step,
        direction=call.direction,
        status=call.status,
        effect=call.effect,
        retry_at=call.due_at if call.status is CallStatus.BACKING_OFF else None,
        error=show_problem(call.error),
    )


_VERBS: Mapping[type[Fact], str] = {
    CancelRequested: "cancelled it",
    TerminateRequested: "terminated it",
    PauseRequested: "paused it",
    ResumeRequested: "resumed it",
    RetryRequested: "let it go on",
}


def _what_happened(fact: Fact) -> str:
    match fact:
        case SagaRequested():
            name, version = fact.definition.name, fact.definition.version
            which = f"version {version}" if version > 0 else "(a document of its own)"
            return f"{name} {which} was asked for"
        case AttemptObserved():
            call = f"{fact.step} {fact.direction}, attempt {fact.attempt}"
            return f"{call}: {_what_was_seen(fact.observation)}"
        case CallbackReceived():
            return f"{fact.step} {fact.direction}: its tool reported {fact.outcome}"
        case SagaWoken(losses=0):
            return "an engine took it up"
        case SagaWoken():
            return f"an engine took it up after {fact.losses} replica(s) had been lost with it"
        case ResolveRequested():
            return f"{fact.actor} said that the effect of {fact.step} is {fact.effect}"
        case SkipRequested():
            return f"{fact.actor} let what {fact.step} did stay"
        case UndoRequested():
            return f"{fact.actor} had {fact.step} undone by saga {fact.saga}"
        case _:
            return f"{fact.actor} {_VERBS[type(fact)]}"


def _what_was_seen(observation: Observation) -> str:
    match observation:
        case Answered(readable=False):
            return f"answered {observation.status}, and the body cannot be read"
        case Answered():
            return f"answered {observation.status}"
        case NotSent():
            return f"not sent ({observation.reason})"
        case BrokenOff():
            return f"broken off ({observation.reason})"
        case Claimed():
            return f"said {observation.claim}"
        case _:
            assert_never(observation)


def _what_follows(entry: Entry) -> str:
    """What the entry leads to: what is sent, what is waited for, or how it ends."""
    opened = [call for call in entry.calls if call.open is not None]
    if opened:
        sent = [f"{call.step} {call.direction}, attempt {call.attempts}" for call in opened]
        return f"sends {' and '.join(sent)}"
    if entry.now.status is SagaStatus.STUCK:
        return "it is stuck, and a person has to help"
    waits = [call for call in entry.calls if call.status is CallStatus.BACKING_OFF]
    if waits and waits[-1].due_at is not None and not entry.now.status.is_at_rest:
        return f"tries again at {waits[-1].due_at:%H:%M:%S}"
    return f"it is {entry.now.status}"

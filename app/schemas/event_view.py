"""An entry of the journal as people see it."""

from typing import assert_never

from app.core.entries import Entry
from app.core.events import (
    AttemptObserved,
    CancelRequested,
    RetryRequested,
    SagaRequested,
    SagaWoken,
)
from app.core.observation import Answered, BrokenOff, NotSent, Observation
from app.core.saga import CallState, CallStatus, SagaStatus
from app.schemas.events import (
    CallChange,
    EventDetail,
    EventResponse,
    EventType,
    ObservationResponse,
    OpenedAttempt,
)
from app.schemas.saga_view import show_failure, show_problem


def show_event(entry: Entry) -> EventResponse:
    """One entry: what was reported, and what followed."""
    fact = entry.fact
    observed = fact if isinstance(fact, AttemptObserved) else None
    asked = fact if isinstance(fact, CancelRequested | RetryRequested) else None
    return EventResponse(
        seq=entry.seq,
        at=entry.at,
        type=event_type(entry),
        step=None if observed is None else observed.step,
        direction=None if observed is None else observed.direction,
        attempt=None if observed is None else observed.attempt,
        status=entry.now.status,
        summary=f"{_what_happened(entry)}; {_what_follows(entry)}",
        detail=EventDetail(
            observation=None if observed is None else _show_observation(observed.observation),
            actor=None if asked is None else asked.actor,
            reason=None if asked is None else asked.reason,
            losses=fact.losses if isinstance(fact, SagaWoken) else None,
            opened=[_show_opened(call) for call in entry.calls if call.open is not None],
            changes=[_show_change(call) for call in entry.calls],
            failure=show_failure(entry.now.failure),
        ),
    )


def event_type(entry: Entry) -> EventType:
    """The public name of what was reported."""
    match entry.fact:
        case SagaRequested():
            return "saga_requested"
        case AttemptObserved():
            return "attempt_observed"
        case SagaWoken():
            return "saga_woken"
        case CancelRequested():
            return "cancel_requested"
        case RetryRequested():
            return "retry_requested"
        case _:
            assert_never(entry.fact)


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
            return ObservationResponse(
                kind="not_sent",
                reason=observation.reason.value,
                message=observation.message,
                http_status=None,
                retry_after=None,
            )
        case BrokenOff():
            return ObservationResponse(
                kind="broken_off",
                reason=observation.reason.value,
                message=observation.message,
                http_status=None,
                retry_after=None,
            )
        case _:
            assert_never(observation)


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


def _what_happened(entry: Entry) -> str:
    match entry.fact:
        case SagaRequested() as fact:
            return f"{fact.definition.name} version {fact.definition.version} was asked for"
        case AttemptObserved() as fact:
            call = f"{fact.step} {fact.direction}, attempt {fact.attempt}"
            return f"{call}: {_what_was_seen(fact.observation)}"
        case SagaWoken(losses=0):
            return "an engine took it up"
        case SagaWoken() as fact:
            return f"an engine took it up after {fact.losses} replica(s) had been lost with it"
        case CancelRequested() as fact:
            return f"{fact.actor} cancelled it"
        case RetryRequested() as fact:
            return f"{fact.actor} let it go on"
        case _:
            assert_never(entry.fact)


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
        case _:
            assert_never(observation)


def _what_follows(entry: Entry) -> str:
    """What the entry leads to: what is sent, what is waited for, or how it ends."""
    opened = [call for call in entry.calls if call.open is not None]
    if opened:
        sent = [f"{call.step} {call.direction}, attempt {call.attempts}" for call in opened]
        return f"sends {' and '.join(sent)}"
    match entry.now.status:
        case SagaStatus.COMPLETED | SagaStatus.COMPENSATED:
            return f"it is {entry.now.status}"
        case SagaStatus.STUCK:
            return "it is stuck, and a person has to help"
        case SagaStatus.PENDING | SagaStatus.RUNNING | SagaStatus.COMPENSATING:
            waits = [call for call in entry.calls if call.status is CallStatus.BACKING_OFF]
            if waits and waits[-1].due_at is not None:
                return f"tries again at {waits[-1].due_at:%H:%M:%S}"
            return f"it is {entry.now.status}"

"""The journal as a timeline: what was reported, and what followed from it."""

import datetime as dt
from typing import Literal

from pydantic import Field

from app.core.entries import Reception
from app.core.identity import Direction
from app.core.saga import CallbackOutcome, CallStatus, Effect, SagaStatus
from app.schemas.sagas import CallError, Failure
from app.schemas.shapes import VERSION_MAX, AnyJson, QueryShape, Shape

EVENTS = 100
EVENTS_MAX = 1000

type EventType = Literal[
    "saga_requested",
    "attempt_observed",
    "callback_received",
    "saga_woken",
    "cancel_requested",
    "terminate_requested",
    "pause_requested",
    "resume_requested",
    "retry_requested",
    "resolve_requested",
    "skip_requested",
    "undo_requested",
]


class ObservationResponse(Shape):
    """What was seen of an attempt; not yet what it means."""

    kind: Literal["answered", "not_sent", "broken_off", "claimed"]
    reason: str | None = Field(description="Why it was not sent, or how it broke off.")
    message: str | None
    http_status: int | None
    retry_after: str | None = Field(description="As the tool sent it.")


class CallbackReport(Shape):
    """What a tool told by webhook, and what became of that."""

    outcome: CallbackOutcome
    error: str | None
    effect: Effect | None = Field(description="Of a failure, if the tool told.")
    reception: Reception


class OpenedAttempt(Shape):
    """A request that this entry allows to be sent."""

    step: str
    direction: Direction
    attempt: int
    idempotency_key: str


class CallChange(Shape):
    """Where a call stands after this entry, which changed it."""

    step: str
    direction: Direction
    status: CallStatus
    effect: Effect = Field(description="Of this very call, on the outside world.")
    retry_at: dt.datetime | None
    error: CallError | None


class Resolution(Shape):
    """What a person said became of a step."""

    effect: Effect
    evidence: AnyJson


class EventDetail(Shape):
    """The facts; what does not apply is null, or empty."""

    observation: ObservationResponse | None
    callback: CallbackReport | None
    resolution: Resolution | None
    undo_saga: str | None = Field(description="The saga that undoes what was found too late.")
    actor: str | None = Field(description="Who asked for it.")
    reason: str | None = Field(description="Why, in their words.")
    losses: int | None = Field(description="Replicas lost in a row while they ran the saga.")
    opened: list[OpenedAttempt]
    changes: list[CallChange]
    failure: Failure | None = Field(description="Why the saga is being undone by now.")


class EventResponse(Shape):
    """One entry of the journal."""

    seq: int = Field(description="From 1, without gaps.")
    at: dt.datetime
    type: EventType
    step: str | None
    direction: Direction | None
    attempt: int | None
    status: SagaStatus = Field(description="Of the saga, after it.")
    summary: str = Field(description="The same in a sentence; may change.")
    detail: EventDetail


class EventPage(Shape):
    """Entries in their order."""

    items: list[EventResponse]
    next: int | None = Field(description="`after` for the next page; null if that was all so far.")


class EventQuery(QueryShape):
    """Which entries to show."""

    after: int = Field(default=0, ge=0, le=VERSION_MAX, description="Only entries after this seq.")
    limit: int = Field(default=EVENTS, ge=1, le=EVENTS_MAX)

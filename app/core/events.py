"""Events: what is reported to the core. Past tense; none of them says what follows.

An ``Event`` is an envelope (when, by whom, with which id and seed) around a ``Fact``. Everything
that the core may not make up comes in through it: time, ids, randomness, and whether the reporter
may send calls.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from app.core.identity import Direction, EntryId, Incarnation, SagaId, StepId, TenantId
from app.core.json_value import JsonValue
from app.core.observation import Observation
from app.core.saga import CallbackOutcome, DefinitionRef, Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaRequested:
    """Somebody asked for a saga; the input fits the definition's schema.

    Attributes:
        deadline: overrides the definition's.
        key_seed: the saga's idempotency keys follow from it (``derive_key_seed``).
        forward_only: it has no way back: a step that gives up leaves it stuck, and a person helps.
    """

    id: SagaId
    tenant: TenantId
    definition: DefinitionRef
    input: JsonValue
    vars: Mapping[str, JsonValue]
    key_seed: bytes
    business_key: str | None
    labels: Mapping[str, str]
    deadline: dt.timedelta | None
    forward_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptObserved:
    """A connector is done with an attempt."""

    step: StepId
    direction: Direction
    attempt: int
    observation: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaWoken:
    """An engine took the saga up: it was due, its owner was lost, or others moved it.

    Attributes:
        losses: owners lost in a row without progress.
    """

    losses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackReceived:
    """A tool reports by webhook; its token names the call and proves that it may.

    Attributes:
        generation: of the call that the token was made for.
        output: of a success.
        error: of a failure, in the tool's words.
        effect: of a failure, if the tool says it; else there is none.
        progress: of work that goes on.
        body_bytes: size of all that it said.
        digest: of all that it said: the same report has the same.
    """

    step: StepId
    direction: Direction
    generation: int
    outcome: CallbackOutcome
    output: JsonValue = None
    error: str | None = None
    effect: Effect | None = None
    progress: JsonValue = None
    body_bytes: int = 0
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Somebody tells a saga something.

    Attributes:
        actor: who; for the record.
        reason: why, in their words.
    """

    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(Verb):
    """The saga shall be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateRequested(Verb):
    """The saga shall end as it is, without undo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested(Verb):
    """No new call shall be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested(Verb):
    """A paused saga shall go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRequested(Verb):
    """A stuck saga shall go on, with fresh attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequested(Verb):
    """A person found out what became of a step.

    Attributes:
        step: whose effect it is.
        effect: done or none.
        output: what the action returned, if that is known; only with ``done``.
        output_bytes: its size.
        evidence: what it rests on; for the record.
    """

    step: StepId
    effect: Effect
    output: JsonValue = None
    output_bytes: int = 0
    evidence: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRequested(Verb):
    """What a step did shall stay: its compensation is renounced."""

    step: StepId


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRequested(Verb):
    """An effect that was found after the end is undone by a saga of its own.

    Attributes:
        step: whose effect it is.
        saga: the one that undoes it.
    """

    step: StepId
    saga: SagaId


type SagaVerb = (
    CancelRequested
    | TerminateRequested
    | PauseRequested
    | ResumeRequested
    | RetryRequested
    | ResolveRequested
    | SkipRequested
    | UndoRequested
)
"""What a saga can be told."""

type Fact = (
    SagaRequested
    | AttemptObserved
    | CallbackReceived
    | SagaWoken
    | CancelRequested
    | TerminateRequested
    | PauseRequested
    | ResumeRequested
    | RetryRequested
    | ResolveRequested
    | SkipRequested
    | UndoRequested
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Who reports an event, and whether it may act on it.

    Attributes:
        incarnation: of the reporting replica.
        may_open: it runs an engine that is not draining, and nothing else waits to be decided:
            it may open intents and own sagas.
        send_until: intents that it opens may not be sent later (its lease ends then).
        callbacks_url: where tools report, up to the token.
    """

    incarnation: Incarnation
    may_open: bool
    send_until: dt.datetime
    callbacks_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something reported.

    Attributes:
        at: by the database's clock, UTC.
        entry_id: the id that the entry will have (UUIDv7, new for every event).
        seed: any integer; jitter follows from it.
        reporter: who reports it.
        fact: what is reported.
    """

    at: dt.datetime
    entry_id: EntryId
    seed: int
    reporter: Reporter
    fact: Fact

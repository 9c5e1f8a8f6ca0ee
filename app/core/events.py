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
from app.core.saga import DefinitionRef


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaRequested:
    """Somebody asked for a saga; the input fits the definition's schema.

    Attributes:
        deadline: overrides the definition's.
        key_seed: the saga's idempotency keys follow from it (``derive_key_seed``).
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
class CancelRequested:
    """A person or program wants the saga undone."""

    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRequested:
    """A person wants a stuck saga to go on, with fresh attempts."""

    actor: str
    reason: str


type Fact = SagaRequested | AttemptObserved | SagaWoken | CancelRequested | RetryRequested


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Who reports an event, and whether it may act on it.

    Attributes:
        incarnation: of the reporting replica.
        may_open: it runs an engine that is not draining, and nothing else waits to be decided:
            it may open intents and own sagas.
        send_until: intents that it opens may not be sent later (its lease ends then).
    """

    incarnation: Incarnation
    may_open: bool
    send_until: dt.datetime


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

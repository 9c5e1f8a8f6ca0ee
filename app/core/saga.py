"""What is known of one saga: the fold of its journal. Values only; ``machine`` decides.

Per step and direction there is one ``CallState``, from its first intent on. The effect is
three-valued: *none* (surely nothing exists out there), *done* (surely it exists), *unknown* (it
may). "Failed" says nothing about effect; retry, undo and reporting follow from effect.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.core.identity import CallKey, Direction, EntryId, Incarnation, SagaId, StepId, TenantId
from app.core.json_value import JsonValue
from app.core.requests import Request


class Effect(StrEnum):
    """What is known of a call's effect on the world."""

    NONE = "none"
    DONE = "done"
    UNKNOWN = "unknown"


class SagaStatus(StrEnum):
    """Where a saga stands."""

    PENDING = "pending"
    """Accepted; no engine has taken it up yet."""
    RUNNING = "running"
    COMPENSATING = "compensating"
    PAUSED = "paused"
    """A person wants no new call to be made."""
    STUCK = "stuck"
    """A person has to answer a question; see ``Conclusion.stuck``."""
    COMPLETED = "completed"
    COMPENSATED = "compensated"
    """Undone; no effect remains."""
    PARTIALLY_COMPENSATED = "partially_compensated"
    """Undone but for what is irreversible or was skipped."""
    TERMINATED = "terminated"
    """Stopped by a person without undo."""

    @property
    def is_final(self) -> bool:
        """Final states never change."""
        return self in _FINAL

    @property
    def is_at_rest(self) -> bool:
        """Nothing is begun by itself: final, or waiting for a person."""
        return self.is_final or self in {SagaStatus.STUCK, SagaStatus.PAUSED}


_FINAL = frozenset(
    {
        SagaStatus.COMPLETED,
        SagaStatus.COMPENSATED,
        SagaStatus.PARTIALLY_COMPENSATED,
        SagaStatus.TERMINATED,
    }
)


class CallStatus(StrEnum):
    """Where one direction of one step stands."""

    RUNNING = "running"
    """An attempt is out, or the next is to be opened at once."""
    BACKING_OFF = "backing_off"
    """The next attempt waits for ``due_at``."""
    WAITING = "waiting"
    """Accepted by the tool; the outcome comes by callback, until ``due_at``."""
    VERIFYING = "verifying"
    """Its effect is unknown, and its verify is asked."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Given up; ``effect`` says what may exist."""
    SKIPPED = "skipped"
    """Never made: an action whose ``when`` is false, a compensation that a person renounced."""

    @property
    def is_under_way(self) -> bool:
        """The call has begun, and is not concluded."""
        return self not in {CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.SKIPPED}


class StepStatus(StrEnum):
    """A step as people see it: both directions in one word."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    BACKING_OFF = "backing_off"
    VERIFYING = "verifying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"


class Cause(StrEnum):
    """Why a saga is undone."""

    STEP_FAILED = "step_failed"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


class Code(StrEnum):
    """What went wrong, in a word that programs may rely on."""

    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    UNKNOWN_OUTCOME = "unknown_outcome"
    BUSY = "busy"
    INVALID_OUTPUT = "invalid_output"
    INVALID_EXPRESSION = "invalid_expression"
    INVALID_REQUEST = "invalid_request"
    EXPIRED = "expired"
    LIMIT_EXCEEDED = "limit_exceeded"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    CALLBACK_FAILED = "callback_failed"
    CALLBACK_TIMED_OUT = "callback_timed_out"
    OWNER_LOST = "owner_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error of one call, for people and programs.

    Attributes:
        code: stable.
        message: may change; at most 500 characters, no secrets.
        http_status: of the answer, if one came.
    """

    code: Code
    message: str
    http_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the saga is undone, or could not go on. Set once, by the rollback decision."""

    cause: Cause
    step: StepId | None
    problem: Problem


class Question(StrEnum):
    """What a stuck saga asks of a person."""

    DID_IT_TAKE_EFFECT = "did_it_take_effect"
    """The action's effect is unknown and cannot be settled, and no undo fits both cases: its
    template needs the output, or the action is the pivot or comes after it."""
    HOW_TO_UNDO = "how_to_undo"
    """The compensation was refused, ran out of attempts or cannot be rendered."""
    HOW_TO_GO_ON = "how_to_go_on"
    """A step after the pivot gave up; or replicas were lost again and again while they ran it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """Why nothing moves, and what to ask.

    Attributes:
        step: the step in question; None if it is the saga as a whole.
        question: what a person has to answer.
        problem: what led here.
        resumes: the status that ``retry`` returns to.
    """

    step: StepId | None
    question: Question
    problem: Problem
    resumes: SagaStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who paused the saga, and the status that ``resume`` returns to."""

    actor: str
    reason: str
    resumes: SagaStatus


class Wish(StrEnum):
    """What a saga is to do as soon as it can."""

    CANCEL = "cancel"
    DEADLINE = "deadline"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A wish that has to wait: for the pivot's outcome, or for the calls that are out.

    Attributes:
        failure: why the saga will be undone; None for ``TERMINATE``.
        lapsed: the pivot was passed, so that it came to nothing.
    """

    wish: Wish
    actor: str | None
    reason: str | None
    failure: Failure | None
    lapsed: bool = False


class Settling(StrEnum):
    """How far the question about an unknown effect is."""

    NOT_ASKED = "not_asked"
    BY_VERIFY = "by_verify"
    BY_RESEND = "by_resend"
    """The same key and bytes again: a question, whose effect, if any, is undone."""
    EXHAUSTED = "exhausted"
    """Whoever could be asked has been."""


class CallbackOutcome(StrEnum):
    """What a tool reports by webhook."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The callback that decided a call; ``digest`` is of all that it said."""

    outcome: CallbackOutcome
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An intent without a result: committed before any byte leaves.

    Attributes:
        number: from 1, over all generations of its call.
        incarnation: who sends it.
        send_by: no first byte later than this.
        quiet_at: if the sender is lost, the attempt can have no effect after this moment.
        known_before: the call's effect as it was known when the attempt was opened.
    """

    number: int
    incarnation: Incarnation
    send_by: dt.datetime
    quiet_at: dt.datetime
    known_before: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """An attempt that ended without a definite answer: it may take effect until it is quiet."""

    attempt: int
    quiet_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a call returned; wrapped, since null is an output too."""

    value: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class CallState:
    """One direction of one step, from its first intent on.

    Attributes:
        step, direction: which call.
        status: see ``CallStatus``.
        effect: of this call; unknown while an attempt is out. An action's becomes none again
            when its compensation succeeded.
        generation: part of the key; grows only where a fresh key is needed.
        key: the idempotency key of this generation.
        request: rendered once a generation; every attempt carries the same bytes.
        attempts: every request, over all generations (``Amends-Attempt``).
        first_attempt: the number of this generation's first attempt.
        tries: attempts of this round that are over: the pauses grow with them.
        failures: those of them that count against ``max_attempts``.
        round_started_at: from when ``max_elapsed`` counts; a person's retry and settling begin a
            new round.
        first_sent_at: first intent of this generation, from when ``key_lifetime`` counts.
        open: the attempt that is out; None if none is.
        due_at: when the next attempt may start; set while backing off.
        not_before: the tool asked not to be called before; None if it did not.
        uncertain: some attempt of this generation may have taken effect unseen.
        doubts: the attempts of this generation that may still take effect.
        settling: of an action whose effect is unknown, and matters now.
        output: what it returned; None while it has not succeeded. What an optional step that
            failed stands for, too.
        accepted: the body that acknowledged it, where the outcome comes by callback.
        progress: what the last ``in_progress`` told.
        heard: the callback that decided it; None if none has.
        error: of the last attempt that failed.
        started_at, finished_at: first intent, and last conclusion.
        concluded_seq: the journal entry that concluded it: the order of completion.
    """

    step: StepId
    direction: Direction
    status: CallStatus
    effect: Effect
    generation: int
    key: CallKey
    request: Request | None
    attempts: int
    first_attempt: int
    tries: int
    failures: int
    round_started_at: dt.datetime
    first_sent_at: dt.datetime
    open: Attempt | None
    due_at: dt.datetime | None
    not_before: dt.datetime | None
    uncertain: bool
    doubts: tuple[Doubt, ...]
    settling: Settling
    output: Output | None
    accepted: Output | None
    progress: Output | None
    heard: Heard | None
    error: Problem | None
    started_at: dt.datetime
    finished_at: dt.datetime | None
    concluded_seq: int | None

    @property
    def quiet_at(self) -> dt.datetime | None:
        """When no doubtful attempt can take effect any more; None if there is none."""
        return max((doubt.quiet_at for doubt in self.doubts), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The saga as a whole after an entry; every entry carries one.

    Attributes:
        status: see ``SagaStatus``.
        owner: the incarnation that sends what is open; None while parked.
        due_at: the earliest moment at which something is to be done; None if only an answer or a
            person moves it.
        failure: why it is undone; None while it goes forward.
        stuck: set exactly while the status is stuck.
        pause: set exactly while the status is paused.
        pending: what is to happen as soon as it can.
        forward_only: the pivot is done: nothing is undone any more.
        undone_by: steps whose effect was found after the end, each with the saga that undoes it.
        output: of a completed saga.
        attention: a person should look, though nothing waits for it.
        finished_at: when it became final.
        weight_bytes: what its journal holds, roughly: requests and outputs.
    """

    status: SagaStatus
    owner: Incarnation | None
    due_at: dt.datetime | None
    failure: Failure | None
    stuck: Stuck | None
    output: Output | None
    attention: bool
    finished_at: dt.datetime | None
    weight_bytes: int
    pause: Pause | None = None
    pending: Pending | None = None
    forward_only: bool = False
    undone_by: tuple[tuple[StepId, SagaId], ...] = ()

    @property
    def phase(self) -> SagaStatus:
        """The status, or the one that a saga at a standstill returns to."""
        if self.stuck is not None:
            return self.stuck.resumes
        return self.status if self.pause is None else self.pause.resumes


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRef:
    """A published definition: its name and version."""

    name: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was fixed when the saga was started, for its whole life and both directions.

    Attributes:
        vars: a copy of the service's variables.
        key_seed: its idempotency keys follow from it.
        deadline_at: the forward phase ends by then.
    """

    id: SagaId
    tenant: TenantId
    definition: DefinitionRef
    input: JsonValue
    vars: Mapping[str, JsonValue]
    key_seed: bytes
    business_key: str | None
    labels: Mapping[str, str]
    deadline_at: dt.datetime | None
    created_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    """One saga, folded from its journal up to entry ``seq``."""

    facts: Facts
    seq: int
    entry_id: EntryId
    updated_at: dt.datetime
    now: Conclusion
    calls: Mapping[tuple[StepId, Direction], CallState] = field(default_factory=dict)

    @property
    def id(self) -> SagaId:
        """The saga's id."""
        return self.facts.id

    @property
    def status(self) -> SagaStatus:
        """Where it stands."""
        return self.now.status

    def call(self, step: StepId, direction: Direction) -> CallState | None:
        """The state of one call, or None if no intent of it was ever written."""
        return self.calls.get((step, direction))

    @property
    def has_open_calls(self) -> bool:
        """Whether any attempt is out, whoever sent it."""
        return any(call.open is not None for call in self.calls.values())

    def open_calls(self, incarnation: Incarnation) -> tuple[CallState, ...]:
        """The calls whose open attempt is to be sent by ``incarnation``."""
        return tuple(
            call
            for call in self.calls.values()
            if call.open is not None and call.open.incarnation == incarnation
        )

    def step_status(self, step: StepId) -> StepStatus:
        """Both directions of a step in one word."""
        compensation = self.call(step, Direction.COMPENSATION)
        if compensation is not None:
            match compensation.status:
                case CallStatus.SUCCEEDED:
                    return StepStatus.COMPENSATED
                case CallStatus.FAILED | CallStatus.SKIPPED:
                    return StepStatus.COMPENSATION_FAILED
                case _:
                    return StepStatus.COMPENSATING
        action = self.call(step, Direction.ACTION)
        return StepStatus.PENDING if action is None else StepStatus(action.status.value)

    def step_effect(self, step: StepId) -> Effect:
        """What of the step exists out there now."""
        action = self.call(step, Direction.ACTION)
        return Effect.NONE if action is None else action.effect

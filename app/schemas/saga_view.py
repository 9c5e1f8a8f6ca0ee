"""A saga of the core as people see it.

Nothing here reads a clock: the same revision is always shown in the same words, so that it can
stand for them as an ETag.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Literal

from app.core.definition import Definition
from app.core.identity import Direction, StepId
from app.core.machine import possible_verbs
from app.core.saga import (
    CallState,
    CallStatus,
    DefinitionRef,
    Effect,
    Failure as CoreFailure,
    Problem,
    Saga,
    SagaStatus,
)
from app.schemas.sagas import (
    CallError,
    Compensation,
    DefinitionReference,
    Failure,
    Residue,
    SagaResponse,
    StepResponse,
    Stuck,
    Waiting,
)


def show_saga(saga: Saga, definition: Definition) -> SagaResponse:
    """A saga with its steps.

    Args:
        saga: as folded from its journal.
        definition: the version that it pins; its order is that of the steps.
    """
    facts, now = saga.facts, saga.now
    return SagaResponse(
        id=str(saga.id),
        definition=show_reference(facts.definition),
        status=now.status,
        revision=saga.seq,
        business_key=facts.business_key,
        labels=dict(facts.labels),
        input=facts.input,
        output=None if now.output is None else now.output.value,
        failure=show_failure(now.failure),
        steps=[_show_step(saga, step.id) for step in definition.steps],
        residue=list(_residue(saga, definition)),
        waiting_for=list(_waits(saga)),
        stuck=_show_stuck(saga),
        attention=needs_attention(now.status, is_alerting=now.attention),
        created_at=facts.created_at,
        updated_at=saga.updated_at,
        finished_at=now.finished_at,
    )


def show_reference(reference: DefinitionRef) -> DefinitionReference:
    """The name and version of a definition."""
    return DefinitionReference(name=reference.name, version=reference.version)


def show_failure(failure: CoreFailure | None) -> Failure | None:
    """Why a saga is undone; None while it goes forward."""
    if failure is None:
        return None
    return Failure(
        cause=failure.cause,
        step=failure.step,
        code=failure.problem.code,
        http_status=failure.problem.http_status,
        message=failure.problem.message,
    )


def show_problem(problem: Problem | None) -> CallError | None:
    """The error of one call, if there is one."""
    if problem is None:
        return None
    return CallError(code=problem.code, message=problem.message, http_status=problem.http_status)


def needs_attention(status: SagaStatus, *, is_alerting: bool) -> bool:
    """Whether a person should look: a stuck saga waits for one, others may only say so."""
    return is_alerting or status is SagaStatus.STUCK


def effect_of_step(saga: Saga, step: StepId) -> Effect:
    """What of a step exists out there.

    An undo whose outcome is not known leaves it open whether the effect is still there.
    """
    effect = saga.step_effect(step)
    undo = saga.call(step, Direction.COMPENSATION)
    if effect is Effect.DONE and undo is not None and undo.effect is Effect.UNKNOWN:
        return Effect.UNKNOWN
    return effect


def _show_step(saga: Saga, step: StepId) -> StepResponse:
    action = saga.call(step, Direction.ACTION)
    undo = saga.call(step, Direction.COMPENSATION)
    output = None if action is None else action.output
    undone = undo if undo is not None and undo.status is CallStatus.SUCCEEDED else None
    return StepResponse(
        id=step,
        status=saga.step_status(step),
        effect=effect_of_step(saga, step),
        attempts=0 if action is None else action.attempts,
        output=None if output is None else output.value,
        error=None if action is None else show_problem(action.error),
        idempotency_key=None if action is None else str(action.key),
        compensation=None if undo is None else _show_compensation(undo),
        started_at=None if action is None else action.started_at,
        finished_at=None if action is None else action.finished_at,
        compensated_at=None if undone is None else undone.finished_at,
    )


def _show_compensation(undo: CallState) -> Compensation:
    return Compensation(
        status=undo.status,
        attempts=undo.attempts,
        error=show_problem(undo.error),
        idempotency_key=str(undo.key),
    )


def _residue(saga: Saga, definition: Definition) -> Iterator[Residue]:
    """What a saga that is over has left, against its purpose."""
    if not saga.status.is_final:
        return
    for step in definition.steps:
        match effect_of_step(saga, step.id), saga.status:
            case Effect.UNKNOWN, _:
                effect = Effect.UNKNOWN
                yield Residue(step=step.id, effect=effect, reason="unknown_effect")
            case Effect.DONE, SagaStatus.COMPENSATED:
                yield Residue(step=step.id, effect=Effect.DONE, reason="late_success")
            case _:
                pass


def _waits(saga: Saga) -> Iterator[Waiting]:
    """What the saga waits for; nothing while it is at rest."""
    if saga.status.is_at_rest:
        return
    waits = [wait for call in saga.calls.values() if (wait := _wait_of(saga, call)) is not None]
    yield from waits
    if not waits:
        yield Waiting(what="engine", step=None, direction=None, until=saga.now.due_at)


def _wait_of(saga: Saga, call: CallState) -> Waiting | None:
    """What one call waits for, or None if it does not."""
    due_at = saga.now.due_at
    if call.open is not None:
        return _waiting("answer", call, until=call.open.quiet_at)
    match call.status:
        case CallStatus.BACKING_OFF:
            return _waiting("retry", call, until=call.due_at)
        case CallStatus.RUNNING:
            return _waiting("engine", call, until=due_at)
        case CallStatus.FAILED | CallStatus.SUCCEEDED:
            # Undoing waits for the moment at which the action can have no effect any more: then,
            # and only then, that moment is when something is to be done.
            is_next = call.quiet_at is not None and call.quiet_at == due_at
            if call.direction is Direction.ACTION and call.effect is Effect.UNKNOWN and is_next:
                return _waiting("quiet", call, until=due_at)
            return None


def _waiting(
    what: Literal["answer", "retry", "quiet", "engine"],
    call: CallState,
    *,
    until: dt.datetime | None,
) -> Waiting:
    return Waiting(what=what, step=call.step, direction=call.direction, until=until)


def _show_stuck(saga: Saga) -> Stuck | None:
    stuck = saga.now.stuck
    if stuck is None:
        return None
    return Stuck(
        step=stuck.step,
        question=stuck.question,
        message=stuck.problem.message,
        verbs=list(possible_verbs(saga)),
    )

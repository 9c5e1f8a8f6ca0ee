"""A saga of the core as people see it.

Nothing here reads a clock: the same revision is always shown in the same words, so that it can
stand for them as an ETag.
"""

import datetime as dt
from collections.abc import Iterator

from app.core.definition import Definition
from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.residue import list_residue
from app.core.saga import (
    CallState,
    CallStatus,
    DefinitionRef,
    Effect,
    Failure as CoreFailure,
    Output,
    Problem,
    Saga,
    SagaStatus,
    Wish,
)
from app.core.verbs import possible_verbs
from app.schemas.sagas import (
    CallError,
    Compensation,
    DefinitionReference,
    Failure,
    Paused,
    Pending,
    Residue,
    SagaResponse,
    StepResponse,
    Stuck,
    Terminated,
    Waiting,
    WaitsFor,
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
        residue=[
            Residue(
                step=left.step,
                effect=left.effect,
                reason=left.why,
                undo_saga=None if left.undone_by is None else str(left.undone_by),
            )
            for left in list_residue(definition, saga)
        ],
        waiting_for=list(_waits(saga)),
        stuck=_show_stuck(saga, definition),
        paused=_show_pause(saga),
        pending=_show_pending(saga),
        terminated=_show_end(saga),
        verbs=list(possible_verbs(definition, saga)),
        attention=needs_attention(now.status, is_alerting=now.attention),
        created_at=facts.created_at,
        updated_at=saga.updated_at,
        finished_at=now.finished_at,
    )


def show_reference(reference: DefinitionRef) -> DefinitionReference:
    """The name and version of a definition."""
    version = reference.version if reference.version > 0 else None
    return DefinitionReference(name=reference.name, version=version)


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
    undone = undo if undo is not None and undo.status is CallStatus.SUCCEEDED else None
    return StepResponse(
        id=step,
        status=saga.step_status(step),
        effect=effect_of_step(saga, step),
        attempts=0 if action is None else action.attempts,
        output=_value(None if action is None else action.output),
        error=None if action is None else show_problem(action.error),
        idempotency_key=None if action is None else str(action.key),
        progress=_value(None if action is None else action.progress),
        compensation=None if undo is None else _show_compensation(undo),
        started_at=None if action is None else action.started_at,
        finished_at=None if action is None else action.finished_at,
        compensated_at=None if undone is None else undone.finished_at,
    )


def _value(output: Output | None) -> JsonValue:
    return None if output is None else output.value


def _show_compensation(undo: CallState) -> Compensation:
    return Compensation(
        status=undo.status,
        attempts=undo.attempts,
        error=show_problem(undo.error),
        idempotency_key=str(undo.key),
    )


def _waits(saga: Saga) -> Iterator[Waiting]:
    """What the saga waits for; nothing once it is over.

    At a standstill that is a person, and the calls that are out, which are followed to their end.
    """
    if saga.status.is_final:
        return
    if saga.status.is_at_rest:
        stuck = saga.now.stuck
        step = None if stuck is None else stuck.step
        yield Waiting(what="person", step=step, direction=None, until=None)
        yield from (_wait_of_open(call) for call in saga.calls.values() if call.open is not None)
        return
    waits = [wait for call in saga.calls.values() if (wait := _wait_of(saga, call)) is not None]
    yield from waits
    if not waits:
        yield Waiting(what="engine", step=None, direction=None, until=saga.now.due_at)


def _wait_of_open(call: CallState) -> Waiting:
    assert call.open is not None, call.step
    return _waiting("answer", call, until=call.open.quiet_at)


def _wait_of(saga: Saga, call: CallState) -> Waiting | None:
    """What one call waits for, or None if it does not."""
    due_at = saga.now.due_at
    if call.open is not None:
        return _wait_of_open(call)
    match call.status:
        case CallStatus.BACKING_OFF:
            return _waiting("retry", call, until=call.due_at)
        case CallStatus.WAITING:
            return _waiting("callback", call, until=call.due_at)
        case CallStatus.RUNNING:
            return _waiting("engine", call, until=due_at)
        case CallStatus.FAILED | CallStatus.SUCCEEDED:
            # Undoing waits for the moment at which the action can have no effect any more: then,
            # and only then, that moment is when something is to be done.
            is_next = call.quiet_at is not None and call.quiet_at == due_at
            if call.direction is Direction.ACTION and call.effect is Effect.UNKNOWN and is_next:
                return _waiting("quiet", call, until=due_at)
            return None
        case CallStatus.VERIFYING | CallStatus.SKIPPED:
            return None  # the question has a call of its own


def _waiting(what: WaitsFor, call: CallState, *, until: dt.datetime | None) -> Waiting:
    return Waiting(what=what, step=call.step, direction=call.direction, until=until)


def _show_stuck(saga: Saga, definition: Definition) -> Stuck | None:
    stuck = saga.now.stuck
    if stuck is None:
        return None
    return Stuck(
        step=stuck.step,
        question=stuck.question,
        message=stuck.problem.message,
        verbs=list(possible_verbs(definition, saga)),
    )


def _show_pause(saga: Saga) -> Paused | None:
    pause = saga.now.pause
    if pause is None:
        return None
    return Paused(actor=pause.actor, reason=pause.reason, resumes=pause.resumes)


def _show_pending(saga: Saga) -> Pending | None:
    """The wish that waits, or that has lapsed; not one that was carried out."""
    pending = saga.now.pending
    if pending is None:
        return None
    is_undone = pending.wish is not Wish.TERMINATE and saga.now.phase is SagaStatus.COMPENSATING
    if not pending.lapsed and (is_undone or saga.status.is_final):
        return None
    return Pending(
        wish=pending.wish, actor=pending.actor, reason=pending.reason, lapsed=pending.lapsed
    )


def _show_end(saga: Saga) -> Terminated | None:
    pending = saga.now.pending
    if saga.status is not SagaStatus.TERMINATED or pending is None:
        return None
    return Terminated(actor=pending.actor or "", reason=pending.reason or "")

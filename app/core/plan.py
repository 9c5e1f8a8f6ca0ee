"""The rollback plan: what would be undone if the saga were undone now, and what could not be."""

from dataclasses import dataclass
from enum import StrEnum

from app.core.definition import Definition, Step
from app.core.expressions import ExpressionFailed
from app.core.identity import Direction, StepId
from app.core.rendering import render_request, undo_roots
from app.core.residue import first_to_undo, is_left, live_steps
from app.core.saga import CallState, CallStatus, Effect, Saga, Settling


class How(StrEnum):
    """What would be done about a step."""

    COMPENSATE = "compensate"
    """Its compensation is sent."""
    SETTLE_FIRST = "settle_first"
    """Its effect is not known: first it is asked whether there is one."""
    LEAVE = "leave"
    """It stays: it is irreversible, or a person renounced its undo."""
    BLOCKED = "blocked"
    """The saga would get stuck at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedUndo:
    """One step of the plan; ``reason`` says why it stays or is blocked."""

    step: StepId
    effect: Effect
    how: How
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """What would be undone, in this order.

    Attributes:
        refused: why the saga cannot be undone at all; None if it can.
        undos: every step of which something exists, or may exist.
    """

    refused: str | None
    undos: tuple[PlannedUndo, ...]


def plan_rollback(definition: Definition, saga: Saga) -> RollbackPlan:
    """What undoing the saga as it is now would do. Calls that are out may change it."""
    waiting = list(live_steps(definition, saga))
    ordered: list[tuple[Step, CallState]] = []
    while waiting:
        chosen = first_to_undo(definition, saga, waiting)
        assert chosen is not None, "a graph without cycles has a last step"
        waiting.remove(chosen)
        ordered.append(chosen)
    return RollbackPlan(
        refused=_refused(saga),
        undos=tuple(_plan(saga, step, action) for step, action in ordered),
    )


def _refused(saga: Saga) -> str | None:
    if saga.status.is_final:
        return f"the saga is {saga.status}"
    return "the point of no return was passed" if saga.now.forward_only else None


def _plan(saga: Saga, step: Step, action: CallState) -> PlannedUndo:
    def planned(how: How, reason: str | None = None) -> PlannedUndo:
        return PlannedUndo(step=step.id, effect=action.effect, how=how, reason=reason)

    undo = saga.call(step.id, Direction.COMPENSATION)
    if is_left(step, action, undo) or step.compensation is None:
        is_skipped = undo is not None and undo.status is CallStatus.SKIPPED
        return planned(How.LEAVE, "its undo was renounced" if is_skipped else "it is irreversible")
    if undo is not None and undo.status is CallStatus.FAILED:
        return planned(How.BLOCKED, "its compensation has failed")
    fault = _fault(saga, step, action)
    if action.effect is not Effect.UNKNOWN:
        return planned(How.COMPENSATE) if fault is None else planned(How.BLOCKED, fault)
    call = step.action
    may_ask = call.verify is not None or call.may_be_asked_again
    if may_ask and action.settling is not Settling.EXHAUSTED:
        return planned(How.SETTLE_FIRST)
    return planned(How.COMPENSATE) if fault is None else planned(How.BLOCKED, fault)


def _fault(saga: Saga, step: Step, action: CallState) -> str | None:
    """Why the compensation cannot be rendered now; None if it can."""
    # The action's key stands in for the compensation's: both have the same form.
    roots = undo_roots(
        action, key=action.key, callback_url="https://callback.invalid/", failure=saga.now.failure
    )
    try:
        render_request(step.call(Direction.COMPENSATION).request, saga, roots)
    except ExpressionFailed as error:
        return str(error)
    return None

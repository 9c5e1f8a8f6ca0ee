"""What exists out there because of a saga: what is to be undone, in which order, and what stays."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from app.core.definition import Definition, Step
from app.core.identity import Direction, SagaId, StepId
from app.core.saga import CallState, CallStatus, Effect, Saga, SagaStatus, Settling


class Why(StrEnum):
    """Why an effect is left behind."""

    IRREVERSIBLE = "irreversible"
    SKIPPED = "skipped"
    """A person renounced its undo."""
    TERMINATED = "terminated"
    """The saga was stopped before it could be undone."""
    LATE_SUCCESS = "late_success"
    """It was found after the end; ``undo`` undoes it."""
    UNKNOWN_EFFECT = "unknown_effect"
    """It may exist, and the saga ended without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residue:
    """One step's effect that a saga which is over has left, against its purpose.

    Attributes:
        undone_by: the saga that undoes it after all; None if none was asked to.
    """

    step: StepId
    effect: Effect
    why: Why
    undone_by: SagaId | None = None


def live_steps(definition: Definition, saga: Saga) -> Iterator[tuple[Step, CallState]]:
    """Steps of which something exists, or may exist, with their actions; in the file's order."""
    for step in definition.steps:
        action = saga.call(step.id, Direction.ACTION)
        if action is not None and action.effect is not Effect.NONE and not step.read_only:
            yield step, action


def is_left(step: Step, action: CallState, undo: CallState | None) -> bool:
    """Whether a step's effect stays: it cannot be undone, or a person renounced that."""
    if undo is not None and undo.status is CallStatus.SKIPPED:
        return True
    known = action.effect is Effect.DONE or action.settling is Settling.EXHAUSTED
    return step.irreversible and known


def undo_rank(saga: Saga, action: CallState, *, index: int) -> tuple[bool, int, int]:
    """The rank of a step among those that are free to be undone: the greatest comes first."""
    return action.effect is Effect.UNKNOWN, action.concluded_seq or saga.seq, index


def list_residue(definition: Definition, saga: Saga) -> list[Residue]:
    """What a saga that is over has left; of a completed one only what it should not have."""
    if not saga.status.is_final:
        return []
    undone_by = dict(saga.now.undone_by)
    found: list[Residue] = []
    for step, action in live_steps(definition, saga):
        undo = saga.call(step.id, Direction.COMPENSATION)
        in_doubt = undo is not None and undo.effect is Effect.UNKNOWN
        effect = Effect.UNKNOWN if in_doubt else action.effect
        why = _why(saga, step, action, undo)
        if why is not None:
            other = undone_by.get(step.id)
            found.append(Residue(step=step.id, effect=effect, why=why, undone_by=other))
    return found


def _why(saga: Saga, step: Step, action: CallState, undo: CallState | None) -> Why | None:
    match saga.status:
        case SagaStatus.COMPLETED:
            return Why.UNKNOWN_EFFECT if action.effect is Effect.UNKNOWN else None
        case SagaStatus.TERMINATED:
            return Why.TERMINATED
        case _ if undo is not None and undo.status is CallStatus.SKIPPED:
            return Why.SKIPPED
        case _ if step.irreversible:
            return Why.IRREVERSIBLE
        case _:
            return Why.LATE_SUCCESS

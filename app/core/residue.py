"""What exists out there because of a saga: what is to be undone, in which order, and what stays."""

from collections.abc import Callable, Iterator, Sequence
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


def first_to_undo(
    definition: Definition,
    saga: Saga,
    waiting: Sequence[tuple[Step, CallState]],
    *,
    is_begun: Callable[[CallState], bool] = lambda _: False,
) -> tuple[Step, CallState] | None:
    """Which of some steps is undone first: none that needs it waits, too.

    Of those that are free to go, one that was begun comes first, then one of unknown effect, then
    the one that was completed last.

    Args:
        definition: for the graph.
        saga: whose steps they are.
        waiting: the steps with their actions, in the order of the file.
        is_begun: whether the undo of a step, by its action, is under way.
    """
    ids = {step.id for step, _ in waiting}
    free = [
        (index, each)
        for index, each in enumerate(waiting)
        if ids.isdisjoint(definition.graph.descendants[each[0].id])
    ]

    def rank(place: tuple[int, tuple[Step, CallState]]) -> tuple[bool, bool, int, int]:
        index, (_, action) = place
        unknown = action.effect is Effect.UNKNOWN
        return is_begun(action), unknown, action.concluded_seq or saga.seq, index

    return max(free, key=rank)[1] if free else None


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

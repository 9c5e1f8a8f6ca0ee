"""Verbs: what people and programs tell a saga.

A verb that asks for what is so already changes nothing. One that the saga does not allow now is
refused, with those that it does allow. While the pivot is open or its effect unknown nothing is
decided: a cancel waits for its outcome.
"""

from collections.abc import Mapping
from dataclasses import replace

from app.core import actions, attempts, backward, verifying
from app.core.definition import Definition, Step
from app.core.entries import Ignored
from app.core.errors import VerbRefused
from app.core.events import (
    CancelRequested,
    Fact,
    PauseRequested,
    ResolveRequested,
    ResumeRequested,
    RetryRequested,
    SkipRequested,
    TerminateRequested,
    UndoRequested,
    Verb,
)
from app.core.identity import Direction
from app.core.residue import Why, list_residue
from app.core.saga import (
    CallState,
    CallStatus,
    Cause,
    Code,
    Effect,
    Failure,
    Output,
    Pause,
    Pending,
    Problem,
    Saga,
    SagaStatus,
    Settling,
    Wish,
)
from app.core.turn import Turn

type Told = Ignored | None
"""Why a verb changes nothing; None if it has changed the saga."""

NAMES: Mapping[type[Fact], str] = {
    CancelRequested: "cancel",
    TerminateRequested: "terminate",
    PauseRequested: "pause",
    ResumeRequested: "resume",
    RetryRequested: "retry",
    ResolveRequested: "resolve",
    SkipRequested: "skip",
    UndoRequested: "undo",
}


def possible_verbs(definition: Definition, saga: Saga) -> tuple[str, ...]:
    """The verbs that the saga allows now; some of them for some steps only."""
    now = saga.now
    is_ending = now.pending is not None and now.pending.wish is Wish.TERMINATE
    if is_ending and not saga.status.is_final:
        return ()
    backward_now = now.phase is SagaStatus.COMPENSATING
    undoing = () if now.forward_only else ("cancel",)
    match saga.status:
        case SagaStatus.PENDING | SagaStatus.RUNNING | SagaStatus.COMPENSATING:
            return (*undoing, "pause", "terminate")
        case SagaStatus.PAUSED:
            return ("resume", *undoing, "terminate")
        case SagaStatus.STUCK:
            on_a_step = now.stuck is not None and now.stuck.step is not None
            resolving = ("resolve",) if on_a_step else ()
            skipping = ("skip",) if on_a_step and backward_now else ()
            return ("retry", *resolving, *skipping, *undoing, "terminate")
        case SagaStatus.COMPENSATED | SagaStatus.PARTIALLY_COMPENSATED | SagaStatus.TERMINATED:
            undoable = any(may_undo(definition, saga, step) for step in definition.steps)
            return ("undo",) if undoable else ()
        case SagaStatus.COMPLETED:
            return ()


def refuse(turn: Turn) -> Told:
    """The saga does not allow what was asked."""
    raise _refusal(turn, turn.saga)


def cancel(turn: Turn) -> Told:
    """Undo, from wherever the saga stands; lifts a pause."""
    fact = turn.event.fact
    assert isinstance(fact, CancelRequested), fact
    _check_allowed(turn)
    pause = turn.saga.now.pause
    if pause is not None:
        turn.become(pause.resumes)
    if turn.is_rolling_back:
        reason = "duplicate: the saga is being undone already"
        return None if pause is not None else Ignored(reason=reason)
    message = f"cancelled by {fact.actor}: {fact.reason}"
    problem = Problem(code=Code.CANCELLED, message=message[:500])
    failure = Failure(cause=Cause.CANCELLED, step=None, problem=problem)
    told = want(turn, failure, Wish.CANCEL, by=fact)
    return told if pause is None else None


def want(turn: Turn, failure: Failure, wish: Wish, *, by: Verb | None = None) -> Told:
    """Undo now, or, if the pivot is being passed, as soon as it is known not to be."""
    if not actions.is_pivot_in_doubt(turn):
        actions.roll_back(turn, failure)
        return None
    if turn.saga.now.pending is not None:
        return Ignored(reason="duplicate: it is to be undone already if the pivot fails")
    actor, reason = (by.actor, by.reason) if by is not None else (None, None)
    turn.conclude(pending=Pending(wish=wish, actor=actor, reason=reason, failure=failure))
    return None


def terminate(turn: Turn) -> Told:
    """Make no new call, and end once those that are out have ended."""
    fact = turn.event.fact
    assert isinstance(fact, TerminateRequested), fact
    if turn.is_terminating:
        return Ignored(reason="duplicate: it is about to end already")
    turn.conclude(
        pending=Pending(wish=Wish.TERMINATE, actor=fact.actor, reason=fact.reason, failure=None)
    )
    return None


def end(turn: Turn) -> None:
    """End a saga that is to be terminated, once nothing is out; what is live is residue."""
    if turn.saga.has_open_calls:
        return
    for state in tuple(turn.saga.calls.values()):
        if state.status.is_under_way:
            turn.put(attempts.given_up(turn, state, effect=state.effect, problem=state.error))
    turn.become(SagaStatus.TERMINATED)


def pause(turn: Turn) -> Told:
    """Make no new call, in either direction; those that are out are followed to their end."""
    fact = turn.event.fact
    assert isinstance(fact, PauseRequested), fact
    _check_allowed(turn)
    held = Pause(actor=fact.actor, reason=fact.reason, resumes=turn.saga.status)
    turn.conclude(status=SagaStatus.PAUSED, pause=held)
    return None


def resume(turn: Turn) -> Told:
    """Go on where the saga was paused."""
    held = turn.saga.now.pause
    assert held is not None, turn.saga.id
    _check_allowed(turn)
    turn.become(held.resumes)
    return None


def retry(turn: Turn) -> Told:
    """A person has mended something: fresh attempts for what the saga is stuck at."""
    stuck = turn.saga.now.stuck
    assert stuck is not None, turn.saga.id
    _check_allowed(turn)
    _go_on(turn)
    if stuck.step is None:
        return None
    step = turn.definition.step(stuck.step)
    action = turn.saga.call(step.id, Direction.ACTION)
    assert action is not None, step.id
    if turn.is_rolling_back:
        _retry_undo(turn, step, action)
    elif action.status is CallStatus.SUCCEEDED:
        actions.prove_undo(turn, step)
    elif action.effect is Effect.NONE:
        actions.begin_anew(turn, step, action)
    else:
        _retry_action(turn, step, action)
    return None


def resolve(turn: Turn) -> Told:
    """A person says what became of a step: believed, as nobody else can know."""
    fact = turn.event.fact
    assert isinstance(fact, ResolveRequested), fact
    _check_allowed(turn)
    step = turn.definition.step(fact.step)
    action = turn.saga.call(fact.step, Direction.ACTION)
    undo = turn.saga.call(fact.step, Direction.COMPENSATION)
    is_under_way = any(call is not None and call.status.is_under_way for call in (action, undo))
    if action is None or is_under_way:
        raise _refusal(turn, turn.saga)
    stuck = turn.saga.now.stuck
    if stuck is not None and stuck.step == fact.step:
        _go_on(turn)
    # A person vouches for it: nothing is in doubt any more.
    known = replace(action, doubts=(), uncertain=False, settling=Settling.NOT_ASKED)
    if fact.effect is Effect.DONE:
        turn.weigh(fact.output_bytes)
        said = None if fact.output is None else Output(value=fact.output)
        output = said or action.output or Output(value=None)
        actions.succeed(turn, step, known, output=output)
        if undo is not None and undo.status is CallStatus.FAILED and turn.is_rolling_back:
            backward.begin_anew(turn, step)
        return None
    if turn.is_rolling_back:
        turn.put(replace(known, effect=Effect.NONE))
    else:
        problem = action.error or attempts.NOT_KNOWN
        actions.give_up(turn, step, known, effect=Effect.NONE, problem=problem)
    return None


def skip(turn: Turn) -> Told:
    """What the step that the saga is stuck at did shall stay."""
    fact = turn.event.fact
    assert isinstance(fact, SkipRequested), fact
    stuck = turn.saga.now.stuck
    _check_allowed(turn)
    if stuck is None or stuck.step != fact.step:
        raise _refusal(turn, turn.saga)
    _go_on(turn)
    backward.renounce(turn, turn.definition.step(fact.step))
    return None


def undo(turn: Turn) -> Told:
    """An effect that was found after the end is undone by another saga."""
    fact = turn.event.fact
    assert isinstance(fact, UndoRequested), fact
    _check_allowed(turn)
    if not may_undo(turn.definition, turn.saga, turn.definition.step(fact.step)):
        raise _refusal(turn, turn.saga)
    turn.conclude(undone_by=(*turn.saga.now.undone_by, (fact.step, fact.saga)))
    found = list_residue(turn.definition, turn.saga)
    waits = any(each.why is Why.LATE_SUCCESS and each.undone_by is None for each in found)
    turn.conclude(attention=turn.saga.now.attention and waits)
    return None


def may_undo(definition: Definition, saga: Saga, step: Step) -> bool:
    """Whether a step left something that an undo could still remove, and nobody does that yet."""
    if saga.status is SagaStatus.COMPLETED or step.compensation is None:
        return False
    return any(
        each.step == step.id and each.why in _UNDOABLE and each.undone_by is None
        for each in list_residue(definition, saga)
    )


_UNDOABLE = frozenset({Why.LATE_SUCCESS, Why.TERMINATED})


def _retry_undo(turn: Turn, step: Step, action: CallState) -> None:
    undo = turn.saga.call(step.id, Direction.COMPENSATION)
    if undo is not None and undo.status is CallStatus.FAILED:
        if undo.effect is Effect.NONE or undo.request is None:
            # Proved to be without effect, it gets a new key: the tool may have stored its refusal
            # under the old one.
            backward.begin_anew(turn, step)
        else:
            turn.put(attempts.fresh_round(turn, undo))  # it may have worked: the same key again
    if action.effect is Effect.UNKNOWN:
        turn.put(replace(action, settling=Settling.NOT_ASKED))


def _retry_action(turn: Turn, step: Step, action: CallState) -> None:
    """An action of unknown effect once more, if that is harmless, or the question about it."""
    asked = replace(action, settling=Settling.NOT_ASKED)
    if step.action.may_be_asked_again and attempts.may_resend(asked, step.action, at=turn.at):
        turn.put(attempts.fresh_round(turn, asked))
    elif step.action.verify is not None:
        learned = verifying.ask(turn, step, attempts.fresh_round(turn, asked))
        if learned is not None:
            turn.put(asked)
            attempts.close_question(turn, asked)
    else:
        turn.put(asked)


def _go_on(turn: Turn) -> None:
    """Leave the standstill that a person has ended."""
    stuck = turn.saga.now.stuck
    assert stuck is not None, turn.saga.id
    turn.become(stuck.resumes)
    if stuck.resumes is SagaStatus.RUNNING:
        turn.fail(None)


def _check_allowed(turn: Turn) -> None:
    if NAMES[type(turn.event.fact)] in possible_verbs(turn.definition, turn.before):
        return
    raise _refusal(turn, turn.before)


def _refusal(turn: Turn, saga: Saga) -> VerbRefused:
    return VerbRefused(
        verb=NAMES[type(turn.event.fact)],
        status=saga.status.value,
        possible=possible_verbs(turn.definition, saga),
    )

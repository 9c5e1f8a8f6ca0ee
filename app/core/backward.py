"""Going back: settle what is unknown, then undo in reverse, one at a time.

What is undone is every step whose effect is done or unknown, never one whose effect is none. The
next compensation is sent only when the one before is settled.
"""

from dataclasses import replace

from app.core import attempts
from app.core.definition import Step
from app.core.events import AttemptObserved
from app.core.expressions import ExpressionFailed
from app.core.identity import Direction
from app.core.outcome import (
    AlreadyGone,
    Refused,
    Succeeded,
    TryAgain,
    Unclear,
    classify_compensation,
)
from app.core.rendering import render_compensation
from app.core.saga import (
    CallState,
    CallStatus,
    Code,
    Effect,
    Problem,
    Question,
    SagaStatus,
)
from app.core.turn import Turn


def advance(turn: Turn) -> None:
    """Do what is due going back: wait, settle, open the next compensation, or finish."""
    if _follows_a_call(turn):
        return
    for step in reversed(turn.definition.steps):
        action = turn.saga.call(step.id, Direction.ACTION)
        if action is None or action.effect is Effect.NONE:
            continue
        _undo(turn, step, action)
        return
    turn.become(SagaStatus.COMPENSATED)


def observe(turn: Turn, step: Step, state: CallState, fact: AttemptObserved) -> None:
    """Conclude the answer to the attempt of a compensation that is out."""
    call = step.compensation
    action = turn.saga.call(step.id, Direction.ACTION)
    assert action is not None, step.id
    verdict = classify_compensation(call, fact.observation, now=turn.at)
    match verdict:
        case Succeeded():
            undone(turn, replace(state, open=None), action)
        case AlreadyGone():
            if attempts.is_quiet(action, at=turn.at):
                undone(turn, replace(state, open=None), action)
            else:
                # Nothing is there yet; the action may still arrive. Ask again once it cannot.
                _ask_again_when_quiet(turn, state, action, verdict.problem)
        case Refused():
            assert state.open is not None, state
            effect = Effect.NONE if verdict.proves_none else state.open.known_before
            if state.uncertain:
                effect = Effect.UNKNOWN
            _give_up(turn, state, effect=effect, problem=verdict.problem)
        case TryAgain() | Unclear():
            after = attempts.closed(state, call, verdict, at=turn.at)
            again = attempts.backing_off(turn, after, call)
            if again is not None:
                turn.put(again)
            else:
                _give_up(turn, after, effect=after.effect, problem=verdict.problem)


def undone(turn: Turn, state: CallState, action: CallState) -> None:
    """The compensation worked: nothing of the step remains."""
    turn.put(attempts.succeeded(turn, state, None))
    turn.put(replace(action, effect=Effect.NONE))


def lose(turn: Turn, state: CallState) -> None:
    """Conclude that the sender of a compensation's attempt was lost.

    A compensation must tolerate repetition, so it is sent again, while the tool remembers its key.
    """
    turn.put(attempts.lost(turn, state))


def _follows_a_call(turn: Turn) -> bool:
    """Whatever is out is followed to its end: an action, or the compensation of another step."""
    return any(call.open is not None for call in turn.saga.calls.values())


def _undo(turn: Turn, step: Step, action: CallState) -> None:
    """Bring one step nearer to having no effect."""
    state = turn.saga.call(step.id, Direction.COMPENSATION)
    if state is not None and state.status in {CallStatus.RUNNING, CallStatus.BACKING_OFF}:
        _resume(turn, step, state)
        return
    if action.effect is Effect.UNKNOWN and _settle(turn, step, action):
        return
    # A tool that honours keys answers a late arrival from memory; any other would act on it, and
    # so bring back what was undone before it came.
    may_come_back = action.effect is Effect.UNKNOWN or not step.action.idempotent
    if may_come_back and not attempts.is_quiet(action, at=turn.at):
        turn.wake_at(action.quiet_at)
        return
    _begin(turn, step, action, before=state)


def _settle(turn: Turn, step: Step, action: CallState) -> bool:
    """Ask the tool about an unknown effect by sending the same key and bytes again.

    It is a question: what it creates is undone. Returns whether there is, or will be, an answer.
    """
    call = step.action
    if action.settling:
        if action.status is CallStatus.FAILED:
            return False
        too_late = turn.limit_reached or not attempts.may_resend(action, call, at=turn.at)
        if turn.is_due(action) and too_late:
            problem = attempts.FULL if turn.limit_reached else attempts.FORGOTTEN
            turn.put(attempts.given_up(turn, action, effect=action.effect, problem=problem))
            return False
        turn.resume(action, call)
        return True
    possible = (
        not turn.limit_reached
        and call.may_be_asked_again
        and action.request is not None
        and attempts.may_resend(action, call, at=turn.at)
    )
    if possible:
        question = replace(attempts.fresh_round(turn, action), settling=True)
        turn.put(question)
        turn.resume(question, call)
    return possible


def _begin(turn: Turn, step: Step, action: CallState, *, before: CallState | None) -> None:
    """Render the compensation and open its first intent, or its first of a new generation."""
    if not turn.may_open:
        turn.owed = True
        return
    # An undo that succeeded and is owed again was overtaken: its key would replay the old answer.
    generation = 0 if before is None else before.generation + 1
    state = turn.begin(step.id, Direction.COMPENSATION, generation=generation, before=before)
    if turn.limit_reached:
        _give_up(turn, state, effect=Effect.NONE, problem=attempts.FULL)
        return
    try:
        request = render_compensation(
            step.compensation.request,
            turn.saga,
            step=step.id,
            key=state.key,
            failure=turn.saga.now.failure,
        )
    except ExpressionFailed as error:
        unknown = action.effect is Effect.UNKNOWN
        question = Question.DID_IT_TAKE_EFFECT if unknown else Question.HOW_TO_UNDO
        problem = Problem(code=Code.INVALID_EXPRESSION, message=str(error))
        turn.get_stuck(question, step=step.id, problem=problem)
        return
    turn.open_first(state, step.compensation, request)


def _resume(turn: Turn, step: Step, state: CallState) -> None:
    """Open the next attempt of a compensation, unless the tool may have forgotten its key."""
    if turn.limit_reached:
        _give_up(turn, state, effect=state.effect, problem=attempts.FULL)
    elif attempts.may_resend(state, step.compensation, at=turn.at):
        turn.resume(state, step.compensation)
    else:
        _give_up(turn, state, effect=Effect.UNKNOWN, problem=attempts.FORGOTTEN)


def _ask_again_when_quiet(
    turn: Turn, state: CallState, action: CallState, problem: Problem
) -> None:
    assert state.open is not None, state
    turn.put(
        replace(
            state,
            status=CallStatus.BACKING_OFF,
            effect=state.open.known_before,
            open=None,
            due_at=action.quiet_at,
            error=problem,
        )
    )


def _give_up(turn: Turn, state: CallState, *, effect: Effect, problem: Problem) -> None:
    """The compensation failed: a person has to help; earlier compensations wait."""
    turn.put(attempts.given_up(turn, state, effect=effect, problem=problem))
    turn.get_stuck(Question.HOW_TO_UNDO, step=state.step, problem=problem)

"""Asking about an unknown effect: a step's ``verify``, for either direction.

A question has no effect, so that losing it costs nothing, and it is asked again under another key:
a tool that remembers answers by key must not answer from memory. Who asked goes on with what was
learned (``Learned``); until then its status is ``verifying``.
"""

import datetime as dt
from dataclasses import dataclass, replace

from app.core import attempts
from app.core.definition import Step, Verify
from app.core.events import AttemptObserved
from app.core.expressions import ExpressionFailed, Template
from app.core.identity import Direction
from app.core.observation import Answered
from app.core.outcome import Known, TryAgain, classify_verify
from app.core.rendering import (
    Roots,
    holds,
    render_request,
    render_value,
    response_root,
    verify_roots,
)
from app.core.saga import CallState, CallStatus, Code, Effect, Output, Problem
from app.core.turn import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What asking came to.

    Attributes:
        effect: unknown if nobody could say.
        output: of a call that took effect.
        problem: why it is not known, or that the call took no effect.
    """

    effect: Effect
    output: Output | None
    problem: Problem


def ask(turn: Turn, step: Step, subject: CallState) -> Learned | None:
    """Begin to ask about a call's effect, with fresh limits."""
    asked = replace(subject, status=CallStatus.VERIFYING, due_at=None)
    turn.put(replace(asked, finished_at=None, concluded_seq=None))
    before = turn.saga.call(step.id, subject.direction.verifier)
    if before is not None and before.open is None:
        turn.put(attempts.fresh_round(turn, before))
    return follow(turn, step, subject)


def follow(turn: Turn, step: Step, subject: CallState) -> Learned | None:
    """Ask, or ask again, when it is due; returns what is known once nothing more can be asked."""
    direction = subject.direction.verifier
    before = turn.saga.call(step.id, direction)
    if before is not None and before.open is not None:
        return None
    if before is not None and not turn.is_due(before):
        turn.wake_at(before.due_at)
        return None
    if turn.limit_reached:
        return _nothing(attempts.FULL)
    if not turn.may_open:
        turn.owed = True
        return None
    generation = 0 if before is None else before.generation + 1
    state = turn.begin(step.id, direction, generation=generation, before=before)
    if before is not None:
        state = attempts.in_round_of(before, state)
    try:
        roots = _roots(turn, step, state)
        request = render_request(_verify_of(step, subject.direction).call.request, turn.saga, roots)
    except ExpressionFailed as error:
        return _nothing(Problem(code=Code.INVALID_EXPRESSION, message=str(error)))
    turn.open_first(state, step.call(direction), request)
    return None


def observe(turn: Turn, step: Step, state: CallState, fact: AttemptObserved) -> Learned | None:
    """Conclude the answer to a question; returns what is known, if that is all there is to ask.

    That the call took no effect counts only once it can take none any more.
    """
    assert state.direction.subject is not None, state
    subject = turn.saga.call(step.id, state.direction.subject)
    assert subject is not None, step.id
    verify = _verify_of(step, subject.direction)
    roots = _roots(turn, step, state)

    def is_so(condition: Template, answer: Answered) -> bool:
        return holds(condition, turn.saga, {**roots, **response_root(answer)})

    seen = classify_verify(verify, fact.observation, holds=is_so, now=turn.at)
    match seen:
        case Known(is_done=True):
            turn.weigh(seen.answer.body_bytes)
            turn.put(_answered(turn, state))
            return _done(turn, verify, {**roots, **response_root(seen.answer)})
        case Known() if attempts.is_quiet(subject, at=turn.at):
            turn.put(_answered(turn, state))
            message = "the tool says that it did not take effect"
            return Learned(
                effect=Effect.NONE,
                output=None,
                problem=subject.error or Problem(code=Code.UNKNOWN_OUTCOME, message=message),
            )
        case Known():
            turn.put(_waits_until(state, subject.quiet_at))
            return None
        case TryAgain():
            after = attempts.closed(state, verify.call, seen, at=turn.at)
            again = attempts.backing_off(turn, after, verify.call)
            if again is not None:
                turn.put(again)
                return None
            turn.put(attempts.given_up(turn, after, effect=Effect.NONE, problem=seen.problem))
            return _nothing(seen.problem)


def lose(turn: Turn, state: CallState) -> None:
    """Conclude that the sender of a question was lost: it is asked again."""
    turn.put(replace(state, open=None, status=CallStatus.RUNNING, effect=Effect.NONE))


def _done(turn: Turn, verify: Verify, roots: Roots) -> Learned:
    try:
        value = None if verify.output is None else render_value(verify.output, turn.saga, roots)
    except ExpressionFailed as error:
        message = f"it took effect, but its output cannot be told: {error}"
        problem = Problem(code=Code.INVALID_OUTPUT, message=message[:500])
        return Learned(effect=Effect.DONE, output=None, problem=problem)
    found = Problem(code=Code.UNKNOWN_OUTCOME, message="the tool says that it took effect")
    return Learned(effect=Effect.DONE, output=Output(value=value), problem=found)


def _nothing(problem: Problem) -> Learned:
    return Learned(effect=Effect.UNKNOWN, output=None, problem=problem)


def _answered(turn: Turn, state: CallState) -> CallState:
    return replace(
        state,
        open=None,
        status=CallStatus.SUCCEEDED,
        error=None,
        finished_at=turn.at,
        concluded_seq=turn.seq,
    )


def _waits_until(state: CallState, moment: dt.datetime | None) -> CallState:
    return replace(state, open=None, status=CallStatus.BACKING_OFF, due_at=moment, error=None)


def _roots(turn: Turn, step: Step, state: CallState) -> Roots:
    action = turn.saga.call(step.id, Direction.ACTION)
    assert action is not None, step.id
    undo = None
    if state.direction is Direction.COMPENSATION_VERIFY:
        undo = turn.saga.call(step.id, Direction.COMPENSATION)
    return verify_roots(action, undo, key=state.key, failure=turn.saga.now.failure)


def _verify_of(step: Step, direction: Direction) -> Verify:
    verify = step.call(direction).verify
    assert verify is not None, step.id
    return verify

"""Going forward: actions, in the definition's order, until all are done or one gives up."""

from dataclasses import replace

from app.core import attempts
from app.core.definition import Call, OnUnknown, Step
from app.core.events import AttemptObserved
from app.core.expressions import ExpressionFailed
from app.core.identity import Direction
from app.core.outcome import (
    AlreadyGone,
    Refused,
    Succeeded,
    TryAgain,
    Unclear,
    classify_action,
)
from app.core.rendering import render_action, render_compensation, render_output
from app.core.saga import (
    CallState,
    CallStatus,
    Cause,
    Code,
    Effect,
    Failure,
    Output,
    Problem,
    Question,
    SagaStatus,
)
from app.core.turn import Turn


def advance(turn: Turn) -> None:
    """Do what is due going forward: open the next intent, wait, or complete."""
    for step in turn.definition.steps:
        state = turn.saga.call(step.id, Direction.ACTION)
        if state is None:
            _begin(turn, step)
            return
        match state.status:
            case CallStatus.SUCCEEDED:
                continue
            case CallStatus.RUNNING | CallStatus.BACKING_OFF:
                if state.open is None:
                    _resume(turn, step, state)
                return
            case CallStatus.FAILED:
                raise AssertionError(f"{step.id} failed, and no rollback was decided")
    _complete(turn)


def observe(turn: Turn, step: Step, state: CallState, fact: AttemptObserved) -> None:
    """Conclude the answer to the attempt of an action that is out."""
    call = step.action
    verdict = classify_action(call, fact.observation, uncertain=state.uncertain, now=turn.at)
    match verdict:
        case Succeeded():
            turn.weigh(_body_bytes(fact))
            answered = replace(state, open=None)
            succeed(turn, step, answered, output=Output(value=verdict.output))
        case Refused():
            assert state.open is not None, state
            effect = Effect.NONE if verdict.proves_none else state.open.known_before
            _give_up(turn, state, effect=effect, problem=verdict.problem)
        case TryAgain() | Unclear():
            after = attempts.closed(state, call, verdict, at=turn.at)
            _try_again(turn, after, call, verdict)
        case AlreadyGone():
            raise AssertionError("an action cannot find its effect gone")


def succeed(turn: Turn, step: Step, state: CallState, *, output: Output) -> None:
    """The action's effect surely exists; going forward, its undo must be possible too."""
    turn.put(attempts.succeeded(turn, state, output))
    if not turn.is_rolling_back:
        prove_undo(turn, step)


def prove_undo(turn: Turn, step: Step) -> None:
    """Render the compensation once, dry: if that fails, a person can still help now.

    At rollback it would be too late: everything that came after would have to be undone first.
    """
    state = turn.saga.call(step.id, Direction.ACTION)
    assert state is not None, step.id
    try:
        # The action's key stands in for the compensation's: both have the same form.
        render_compensation(
            step.compensation.request, turn.saga, step=step.id, key=state.key, failure=None
        )
    except ExpressionFailed as error:
        message = f"the output of {step.id!r} does not fit its compensation: {error}"
        problem = Problem(code=Code.INVALID_OUTPUT, message=message)
        turn.put(replace(state, error=problem))
        turn.fail(Failure(cause=Cause.STEP_FAILED, step=step.id, problem=problem))
        turn.get_stuck(Question.HOW_TO_UNDO, step=step.id, problem=problem)


def lose(turn: Turn, step: Step, state: CallState) -> None:
    """Conclude that the sender of an action's attempt was lost: resend, or give up."""
    after = attempts.lost(turn, state)
    if _may_follow_unknown(turn, after, step.action):
        turn.put(after)
    else:
        message = "the replica that sent it was lost before an answer was stored"
        problem = Problem(code=Code.OWNER_LOST, message=message)
        _give_up(turn, after, effect=Effect.UNKNOWN, problem=problem)


def roll_back(turn: Turn, failure: Failure) -> None:
    """Decide to undo. From here on no forward effect is begun.

    Calls that are out are followed to their end; one that only backs off is not waited for, and
    keeps the effect it has.
    """
    turn.fail(failure)
    turn.become(SagaStatus.COMPENSATING)
    for state in tuple(turn.saga.calls.values()):
        waits = state.status in {CallStatus.RUNNING, CallStatus.BACKING_OFF}
        if waits and state.open is None:
            problem = state.error or failure.problem
            turn.put(attempts.given_up(turn, state, effect=state.effect, problem=problem))


def _begin(turn: Turn, step: Step) -> None:
    """Render a step's action and open its first intent."""
    if not turn.may_open:
        turn.owed = True
        return
    turn.become(SagaStatus.RUNNING)
    state = turn.begin(step.id, Direction.ACTION, generation=0, before=None)
    if turn.forward_limit_reached:
        _give_up(turn, state, effect=Effect.NONE, problem=attempts.NEARLY_FULL)
        return
    try:
        request = render_action(step.action.request, turn.saga, key=state.key)
    except ExpressionFailed as error:
        problem = Problem(code=Code.INVALID_EXPRESSION, message=str(error))
        _give_up(turn, state, effect=Effect.NONE, problem=problem)
        return
    turn.open_first(state, step.action, request)


def _resume(turn: Turn, step: Step, state: CallState) -> None:
    """Open the next attempt when it is due, unless it has become too late for one."""
    is_due = turn.is_due(state)
    if is_due and turn.forward_limit_reached:
        _give_up(turn, state, effect=state.effect, problem=attempts.NEARLY_FULL)
    elif is_due and not attempts.may_resend(state, step.action, at=turn.at):
        _give_up(turn, state, effect=state.effect, problem=attempts.FORGOTTEN)
    else:
        turn.resume(state, step.action)


def _complete(turn: Turn) -> None:
    """All actions are done: render the output. A faulty output undoes nothing that happened."""
    template = turn.definition.output
    try:
        output = None if template is None else Output(value=render_output(template, turn.saga))
    except ExpressionFailed:
        output = None
        turn.alert()
    turn.finish(output)


def _try_again(turn: Turn, state: CallState, call: Call, verdict: TryAgain | Unclear) -> None:
    """Back off for the next attempt, unless the limits or the kind of answer forbid one."""
    known_safe = isinstance(verdict, TryAgain)
    if turn.is_rolling_back and not state.settling:
        allowed = False
    elif state.settling:
        allowed = True
    else:
        allowed = known_safe or call.on_unknown is OnUnknown.RESEND
    again = attempts.backing_off(turn, state, call) if allowed else None
    if again is not None:
        turn.put(again)
        return
    _give_up(turn, state, effect=state.effect, problem=verdict.problem)


def _may_follow_unknown(turn: Turn, state: CallState, call: Call) -> bool:
    """Whether a lost attempt is sent again at once."""
    if not attempts.may_resend(state, call, at=turn.at):
        return False
    if turn.is_rolling_back:
        return state.settling
    return call.on_unknown is OnUnknown.RESEND


def _give_up(turn: Turn, state: CallState, *, effect: Effect, problem: Problem) -> None:
    """The action has failed; unless a rollback is under way, this decides one."""
    turn.put(attempts.given_up(turn, state, effect=effect, problem=problem))
    if not turn.is_rolling_back:
        roll_back(turn, Failure(cause=Cause.STEP_FAILED, step=state.step, problem=problem))


def _body_bytes(fact: AttemptObserved) -> int:
    return getattr(fact.observation, "body_bytes", 0)

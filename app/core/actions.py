"""Actions: what is concluded of one, and what that means for the saga.

An action that gives up turns the saga back, unless the saga can go on without it. Past the point of
no return, and while it is not known whether that was passed, nothing is turned back.
"""

from dataclasses import replace

from app.core import attempts, settling, verifying
from app.core.definition import Call, OnUnknown, Step
from app.core.events import AttemptObserved
from app.core.expressions import ExpressionFailed
from app.core.identity import Direction
from app.core.outcome import (
    Acknowledged,
    AlreadyGone,
    Refused,
    Succeeded,
    TryAgain,
    Unclear,
    classify_action,
)
from app.core.rendering import render_request, render_value, undo_roots
from app.core.saga import (
    CallState,
    CallStatus,
    Cause,
    Code,
    Effect,
    Failure,
    Output,
    Problem,
    SagaStatus,
    Settling,
    Wish,
)
from app.core.turn import Turn
from app.core.verifying import Learned


def observe(turn: Turn, step: Step, state: CallState, fact: AttemptObserved) -> None:
    """Conclude the answer to the attempt of an action that is out."""
    assert state.open is not None, state
    call = step.action
    verdict = classify_action(call, fact.observation, uncertain=state.uncertain, now=turn.at)
    match verdict:
        case Succeeded():
            turn.weigh(_body_bytes(fact))
            answered = replace(state, open=None)
            succeed(turn, step, answered, output=Output(value=verdict.output))
        case Acknowledged():
            turn.weigh(_body_bytes(fact))
            _wait_for_callback(turn, step, state, verdict)
        case Refused():
            effect = Effect.NONE if verdict.proves_none else state.open.known_before
            give_up(turn, step, state, effect=effect, problem=verdict.problem)
        case TryAgain() | Unclear():
            after = attempts.closed(state, call, verdict, at=turn.at)
            _try_again(turn, step, after, verdict)
        case AlreadyGone():
            raise AssertionError("an action cannot find its effect gone")


def succeed(turn: Turn, step: Step, state: CallState, *, output: Output) -> None:
    """The action's effect surely exists; going forward, its undo must be possible too."""
    done = attempts.succeeded(turn, state, output)
    turn.put(replace(done, effect=Effect.NONE) if step.read_only else done)
    if turn.is_rolling_back:
        return
    if step.pivot:
        _pass_pivot(turn)
    prove_undo(turn, step)


def prove_undo(turn: Turn, step: Step) -> None:
    """Render the compensation once, dry: if that fails, a person can still help now.

    At rollback it would be too late: everything that came after would have to be undone first.
    """
    state = turn.saga.call(step.id, Direction.ACTION)
    assert state is not None, step.id
    if step.compensation is None or turn.saga.now.forward_only:
        return
    # The action's key and callback stand in for the compensation's: both have the same form.
    roots = undo_roots(state, key=state.key, callback_url=turn.callback_url(state), failure=None)
    try:
        render_request(step.compensation.request, turn.saga, roots)
    except ExpressionFailed as error:
        message = f"the output of {step.id!r} does not fit its compensation: {error}"
        problem = Problem(code=Code.INVALID_OUTPUT, message=message[:500])
        turn.put(replace(state, error=problem))
    else:
        if state.error is not None:
            turn.put(replace(state, error=None))


def lose(turn: Turn, step: Step, state: CallState) -> None:
    """Conclude that the sender of an action's attempt was lost: resend, ask, or give up."""
    after = attempts.lost(turn, state)
    if _may_follow_unknown(turn, after, step.action):
        turn.put(after)
        return
    message = "the replica that sent it was lost before an answer was stored"
    problem = Problem(code=Code.OWNER_LOST, message=message)
    ask_or_give_up(turn, step, replace(after, error=problem), problem=problem)


def learn(turn: Turn, step: Step, action: CallState, learned: Learned) -> None:
    """Go on with what asking about an action's effect has come to."""
    match learned.effect:
        case Effect.DONE if learned.output is not None:
            succeed(turn, step, action, output=learned.output)
        case Effect.DONE:
            give_up(turn, step, action, effect=Effect.DONE, problem=learned.problem)
        case Effect.NONE:
            clear = replace(action, uncertain=False, doubts=(), effect=Effect.NONE)
            is_asked = turn.is_rolling_back or action.settling is not Settling.NOT_ASKED
            again = None if is_asked else attempts.backing_off(turn, clear, step.action)
            if again is not None:
                turn.put(again)
            else:
                give_up(turn, step, clear, effect=Effect.NONE, problem=learned.problem)
        case Effect.UNKNOWN if action.settling is Settling.BY_VERIFY:
            settling.ask_again(turn, step, replace(action, error=learned.problem))
        case Effect.UNKNOWN:
            give_up(turn, step, action, effect=Effect.UNKNOWN, problem=learned.problem)


def give_up(turn: Turn, step: Step, state: CallState, *, effect: Effect, problem: Problem) -> None:
    """The action has failed; unless the saga can go on without it, this decides a rollback."""
    if step.read_only:
        effect = Effect.NONE
    failed = attempts.given_up(turn, state, effect=effect, problem=problem)
    if state.settling is Settling.BY_RESEND:
        failed = replace(failed, settling=Settling.EXHAUSTED)
    elif state.settling is Settling.BY_VERIFY:
        failed = replace(failed, settling=Settling.NOT_ASKED)  # something else has ended the asking
    turn.put(failed)
    if turn.is_rolling_back or turn.before.status.is_final:
        return
    if step.optional:
        turn.put(replace(failed, output=_default(turn, step)))
    elif step.pivot and effect is Effect.DONE:
        _pass_pivot(turn)  # a person has to tell its output
    elif step.pivot and effect is Effect.UNKNOWN:
        pass  # nothing is decided before it is settled
    elif not turn.saga.now.forward_only:
        roll_back(turn, Failure(cause=Cause.STEP_FAILED, step=step.id, problem=problem))


def roll_back(turn: Turn, failure: Failure) -> None:
    """Decide to undo. From here on no forward effect is begun.

    Calls that are out are followed to their end; one that only waits is not waited for, and keeps
    the effect it has.
    """
    turn.fail(failure)
    turn.turn_to(SagaStatus.COMPENSATING)
    for state in tuple(turn.saga.calls.values()):
        if state.direction is not Direction.ACTION:
            continue
        if not state.status.is_under_way or state.open is not None:
            continue
        step = turn.definition.step(state.step)
        question = turn.saga.call(state.step, Direction.VERIFY)
        is_asked = question is not None and question.open is not None
        if state.status is CallStatus.VERIFYING and is_asked and not step.read_only:
            turn.put(replace(state, settling=Settling.BY_VERIFY))
            continue
        if state.status is CallStatus.WAITING:
            state = attempts.in_late_window(state, step.action, at=turn.at)  # noqa: PLW2901
        problem = state.error or failure.problem
        effect = Effect.NONE if step.read_only else state.effect
        turn.put(attempts.given_up(turn, state, effect=effect, problem=problem))


def begin_anew(turn: Turn, step: Step, before: CallState) -> None:
    """Run a step that failed without effect once more, under a fresh key, as soon as it may be."""
    generation = before.generation + 1
    turn.put(turn.begin(step.id, Direction.ACTION, generation=generation, before=before))


def is_pivot_in_doubt(turn: Turn) -> bool:
    """Whether the point of no return is being passed: then nothing may be decided."""
    pivot = turn.definition.pivot
    state = None if pivot is None else turn.saga.call(pivot.id, Direction.ACTION)
    return state is not None and state.effect is Effect.UNKNOWN


def not_heard(turn: Turn, step: Step, state: CallState) -> None:
    """No callback has told the action's outcome in time."""
    after = attempts.not_heard(state, step.action, at=turn.at)
    _try_again(turn, step, after, attempts.NOT_HEARD)


def _wait_for_callback(turn: Turn, step: Step, state: CallState, seen: Acknowledged) -> None:
    """The tool has taken it on. Nobody waits for a callback once the saga is going back."""
    after = attempts.acknowledged(state, step.action, seen=seen, at=turn.at)
    if turn.is_rolling_back or state.settling is Settling.BY_RESEND:
        problem = attempts.NOT_WAITED_FOR
        give_up(turn, step, after, effect=Effect.UNKNOWN, problem=problem)
    else:
        turn.put(after)


def _try_again(turn: Turn, step: Step, state: CallState, verdict: TryAgain | Unclear) -> None:
    """Back off for the next attempt, unless the limits or the kind of answer forbid one."""
    known_safe = isinstance(verdict, TryAgain)
    if turn.is_rolling_back and state.settling is not Settling.BY_RESEND:
        allowed = False
    elif state.settling is Settling.BY_RESEND:
        allowed = True
    else:
        allowed = known_safe or step.action.on_unknown is OnUnknown.RESEND
    again = attempts.backing_off(turn, state, step.action) if allowed else None
    if again is not None:
        turn.put(again)
    else:
        ask_or_give_up(turn, step, state, problem=verdict.problem)


def ask_or_give_up(turn: Turn, step: Step, state: CallState, *, problem: Problem) -> None:
    """Nothing more is sent: ask what became of it, if somebody can be asked, or give up."""
    call = step.action
    may_ask = call.verify is not None and call.on_unknown is not OnUnknown.GIVE_UP
    is_forward = not turn.is_rolling_back and state.settling is Settling.NOT_ASKED
    if state.effect is Effect.UNKNOWN and may_ask and is_forward:
        learned = verifying.ask(turn, step, state)
        if learned is None:
            return
        problem = learned.problem
    give_up(turn, step, state, effect=state.effect, problem=problem)


def _may_follow_unknown(turn: Turn, state: CallState, call: Call) -> bool:
    """Whether a lost attempt is sent again at once."""
    if not attempts.may_resend(state, call, at=turn.at):
        return False
    if turn.is_rolling_back or state.settling is not Settling.NOT_ASKED:
        return state.settling is Settling.BY_RESEND
    return call.on_unknown is OnUnknown.RESEND


def _pass_pivot(turn: Turn) -> None:
    pending = turn.saga.now.pending
    if pending is not None and pending.wish is not Wish.TERMINATE:
        pending = replace(pending, lapsed=True)
    turn.conclude(forward_only=True, pending=pending)


def _default(turn: Turn, step: Step) -> Output:
    """What stands for the output of an optional step that failed."""
    try:
        value = None if step.default is None else render_value(step.default, turn.saga)
    except ExpressionFailed:
        value = None
        turn.alert()
    return Output(value=value)


def _body_bytes(fact: AttemptObserved) -> int:
    return getattr(fact.observation, "body_bytes", 0)

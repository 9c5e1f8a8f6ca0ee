"""Going back: settle what is unknown, then undo in reverse, one at a time.

What is undone is every step whose effect is done or unknown, never one whose effect is none. The
order is the reverse of the graph; among steps that are free to go, the one that was completed last
comes first, and one of unknown effect counts as last. The next compensation is sent only when the
one before is settled. What is irreversible, or whose undo a person renounced, is left: residue.
"""

from dataclasses import replace

from app.core import attempts, verifying
from app.core.definition import Step
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
    classify_compensation,
)
from app.core.rendering import render_request, undo_roots
from app.core.residue import first_to_undo, is_left, live_steps
from app.core.saga import (
    CallState,
    CallStatus,
    Code,
    Effect,
    Problem,
    Question,
    SagaStatus,
    Settling,
)
from app.core.settling import settle
from app.core.turn import Turn
from app.core.verifying import Learned


def advance(turn: Turn) -> None:
    """Do what is due going back: wait, settle, open the next compensation, or finish."""
    if turn.saga.has_open_calls:
        return  # whatever is out is followed to its end
    _end_needless(turn)
    while (step := _next(turn)) is not None:
        if not _undo(turn, step):
            _check(turn, step)
            return
    remains = any(True for _ in live_steps(turn.definition, turn.saga))
    turn.become(SagaStatus.PARTIALLY_COMPENSATED if remains else SagaStatus.COMPENSATED)


def _end_needless(turn: Turn) -> None:
    """An undo is over, too, once it is known that there is nothing to be undone."""
    for state in tuple(turn.saga.calls.values()):
        is_wanted = state.status not in {CallStatus.SUCCEEDED, CallStatus.SKIPPED}
        if state.direction is not Direction.COMPENSATION or not is_wanted:
            continue
        if turn.saga.step_effect(state.step) is Effect.NONE:
            turn.put(attempts.succeeded(turn, state, None))


def _check(turn: Turn, step: Step) -> None:
    """A compensation that has failed needs a person; the earlier ones wait."""
    undo = turn.saga.call(step.id, Direction.COMPENSATION)
    failed = undo is not None and undo.status is CallStatus.FAILED
    if undo is not None and failed and turn.saga.status is SagaStatus.COMPENSATING:
        problem = undo.error or attempts.NOT_KNOWN
        turn.get_stuck(Question.HOW_TO_UNDO, step=step.id, problem=problem)


def observe(turn: Turn, step: Step, state: CallState, fact: AttemptObserved) -> None:
    """Conclude the answer to the attempt of a compensation that is out."""
    assert state.open is not None, state
    call = step.call(Direction.COMPENSATION)
    action = _action(turn, step)
    verdict = classify_compensation(call, fact.observation, now=turn.at)
    match verdict:
        case Succeeded():
            undone(turn, replace(state, open=None), action)
        case Acknowledged():
            turn.put(attempts.acknowledged(state, call, seen=verdict, at=turn.at))
        case AlreadyGone():
            if attempts.is_quiet(action, at=turn.at):
                undone(turn, replace(state, open=None), action)
            else:
                # Nothing is there yet; the action may still arrive. Ask again once it cannot.
                _ask_again_when_quiet(turn, state, action, verdict.problem)
        case Refused():
            effect = Effect.NONE if verdict.proves_none else state.open.known_before
            if state.uncertain:
                effect = Effect.UNKNOWN
            give_up(turn, state, effect=effect, problem=verdict.problem)
        case TryAgain() | Unclear():
            after = attempts.closed(state, call, verdict, at=turn.at)
            _try_again(turn, step, after, problem=verdict.problem)


def undone(turn: Turn, state: CallState, action: CallState) -> None:
    """The compensation worked: nothing of the step remains."""
    turn.put(attempts.succeeded(turn, state, None))
    turn.put(replace(action, effect=Effect.NONE))


def lose(turn: Turn, state: CallState) -> None:
    """Conclude that the sender of a compensation's attempt was lost.

    A compensation must tolerate repetition, so it is sent again, while the tool remembers its key.
    """
    turn.put(attempts.lost(turn, state))


def learn(turn: Turn, step: Step, state: CallState, learned: Learned) -> None:
    """Go on with what asking about a compensation's effect has come to."""
    action = _action(turn, step)
    match learned.effect:
        case Effect.DONE:
            undone(turn, state, action)
        case Effect.NONE if _may_try_more(turn, step, state):
            # Surely without effect, and its key may be forgotten: once more, under a fresh one.
            turn.put(attempts.in_round_of(state, _fresh(turn, step, before=state)))
        case effect:
            give_up(turn, state, effect=effect, problem=learned.problem)


def not_heard(turn: Turn, step: Step, state: CallState) -> None:
    """No callback has told the compensation's outcome in time: it is sent again."""
    after = attempts.not_heard(state, step.call(Direction.COMPENSATION), at=turn.at)
    _try_again(turn, step, after, problem=attempts.NOT_HEARD.problem)


def begin_anew(turn: Turn, step: Step) -> None:
    """Undo a step under a fresh key, with fresh limits, as soon as that may be sent."""
    before = turn.saga.call(step.id, Direction.COMPENSATION)
    turn.put(_fresh(turn, step, before=before))


def _next(turn: Turn) -> Step | None:
    """The step to be undone now; None once nothing is left to undo.

    Of those that are free to go, one that was begun comes before one that was not; but what comes
    back later in the graph holds up even that.
    """
    waiting = [
        (step, action)
        for step, action in live_steps(turn.definition, turn.saga)
        if not is_left(step, action, turn.saga.call(step.id, Direction.COMPENSATION))
    ]
    found = first_to_undo(
        turn.definition, turn.saga, waiting, is_begun=lambda action: _is_begun(turn, action)
    )
    return None if found is None else found[0]


def _is_begun(turn: Turn, action: CallState) -> bool:
    """Whether a step is being undone, or its effect being settled for that."""
    undo = turn.saga.call(action.step, Direction.COMPENSATION)
    if undo is not None and undo.status.is_under_way:
        return True
    return (
        action.settling in {Settling.BY_VERIFY, Settling.BY_RESEND} and action.status.is_under_way
    )


def _undo(turn: Turn, step: Step) -> bool:
    """Bring one step nearer to having no effect; True if the next one's turn has come."""
    action = _action(turn, step)
    state = turn.saga.call(step.id, Direction.COMPENSATION)
    if state is not None and state.status.is_under_way:
        _follow(turn, step, state)
        return False
    if state is not None and state.status is CallStatus.FAILED:
        return False
    if action.effect is Effect.UNKNOWN and settle(turn, step, action):
        return False
    if step.irreversible:
        return True
    action = _action(turn, step)
    # A tool that honours keys answers a late arrival from memory; any other would act on it, and
    # so bring back what was undone before it came.
    may_come_back = action.effect is Effect.UNKNOWN or not step.action.idempotent
    if may_come_back and not attempts.is_quiet(action, at=turn.at):
        turn.wake_at(action.quiet_at)
        return False
    _send_first(turn, step, _fresh(turn, step, before=state))
    return False


def _follow(turn: Turn, step: Step, state: CallState) -> None:
    """Do what is due for a compensation that has begun."""
    match state.status:
        case CallStatus.WAITING if not turn.is_due(state):
            turn.wake_at(state.due_at)
        case CallStatus.WAITING:
            not_heard(turn, step, state)
            after = turn.saga.call(step.id, Direction.COMPENSATION)
            if after is not None and after.status is CallStatus.BACKING_OFF:
                _resume(turn, step, after)
        case CallStatus.VERIFYING:
            learned = verifying.follow(turn, step, state)
            if learned is not None:
                learn(turn, step, state, learned)
        case _ if state.request is None:
            _send_first(turn, step, state)
        case _:
            _resume(turn, step, state)


def _fresh(turn: Turn, step: Step, *, before: CallState | None) -> CallState:
    """The compensation, not yet sent, in its first or next generation.

    An undo that succeeded and is owed again was overtaken: its key would replay the old answer.
    """
    generation = 0 if before is None else before.generation + 1
    return turn.begin(step.id, Direction.COMPENSATION, generation=generation, before=before)


def _send_first(turn: Turn, step: Step, state: CallState) -> None:
    """Render the compensation and open the first intent of its generation."""
    if not turn.may_open:
        turn.owed = True
        return
    if turn.limit_reached:
        give_up(turn, state, effect=Effect.NONE, problem=attempts.FULL)
        return
    action = _action(turn, step)
    call = step.call(Direction.COMPENSATION)
    url = turn.callback_url(state)
    failure = turn.saga.now.failure
    try:
        roots = undo_roots(action, key=state.key, callback_url=url, failure=failure)
        request = render_request(call.request, turn.saga, roots)
    except ExpressionFailed as error:
        unknown = action.effect is Effect.UNKNOWN
        question = Question.DID_IT_TAKE_EFFECT if unknown else Question.HOW_TO_UNDO
        problem = Problem(code=Code.INVALID_EXPRESSION, message=str(error))
        turn.get_stuck(question, step=step.id, problem=problem)
        return
    turn.open_first(state, call, request)


def _resume(turn: Turn, step: Step, state: CallState) -> None:
    """Open the next attempt of a compensation, unless the tool may have forgotten its key."""
    call = step.call(Direction.COMPENSATION)
    if turn.limit_reached:
        give_up(turn, state, effect=state.effect, problem=attempts.FULL)
    elif attempts.may_resend(state, call, at=turn.at):
        turn.resume(state, call)
    else:
        _ask_or_give_up(turn, step, state, problem=attempts.FORGOTTEN)


def _try_again(turn: Turn, step: Step, state: CallState, *, problem: Problem) -> None:
    again = attempts.backing_off(turn, state, step.call(Direction.COMPENSATION))
    if again is not None:
        turn.put(again)
    else:
        _ask_or_give_up(turn, step, state, problem=problem)


def _ask_or_give_up(turn: Turn, step: Step, state: CallState, *, problem: Problem) -> None:
    """Nothing more is sent: ask what became of it, if somebody can be asked, or give up."""
    if state.effect is Effect.UNKNOWN and step.call(Direction.COMPENSATION).verify is not None:
        learned = verifying.ask(turn, step, replace(state, error=problem))
        if learned is None:
            return
        problem = learned.problem
    give_up(turn, state, effect=state.effect, problem=problem)


def _may_try_more(turn: Turn, step: Step, state: CallState) -> bool:
    """Whether a compensation that had no effect may be sent once more within its limits."""
    clear = replace(state, uncertain=False)
    return attempts.backing_off(turn, clear, step.call(Direction.COMPENSATION)) is not None


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


def renounce(turn: Turn, step: Step) -> None:
    """Leave a step's effect as it is: a person does not want it undone."""
    state = turn.saga.call(step.id, Direction.COMPENSATION) or _fresh(turn, step, before=None)
    ended = replace(state, due_at=None, finished_at=turn.at, concluded_seq=turn.seq)
    turn.put(replace(ended, status=CallStatus.SKIPPED))


def _action(turn: Turn, step: Step) -> CallState:
    """The action of a step that has begun."""
    action = turn.saga.call(step.id, Direction.ACTION)
    assert action is not None, step.id
    return action


def give_up(turn: Turn, state: CallState, *, effect: Effect, problem: Problem) -> None:
    """The compensation failed: a person has to help; earlier compensations wait."""
    turn.put(attempts.given_up(turn, state, effect=effect, problem=problem))

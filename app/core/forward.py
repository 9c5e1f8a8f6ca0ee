"""Going forward: actions, each once what it needs is done, until all are done or one gives up."""

from dataclasses import replace

from app.core import actions, attempts, settling, verifying
from app.core.definition import Call, Step
from app.core.expressions import ExpressionFailed
from app.core.identity import Direction
from app.core.rendering import action_roots, holds, render_request, render_value
from app.core.requests import Request
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
    Settling,
)
from app.core.turn import Turn

type Opening = tuple[CallState, Call, Request | None]
"""What is to be sent; with its request, if it is the first of a generation."""


def advance(turn: Turn) -> None:
    """Do what is due going forward: begin steps, follow what is under way, or complete.

    A step that gives up turns the saga back, or leaves it stuck: then nothing more is begun, not
    even in the same entry. So what is to be sent is sent at the end.
    """
    if _holds_at_pivot(turn):
        return
    due: list[Opening] = []
    for step in turn.definition.in_order:
        state = turn.saga.call(step.id, Direction.ACTION)
        if state is not None:
            _follow(turn, step, state, due)
        elif _is_ready(turn, step):
            _begin(turn, step, due)
        if turn.saga.status not in {SagaStatus.PENDING, SagaStatus.RUNNING}:
            return
    if _holds_at_pivot(turn) or _is_stuck(turn):
        return
    for state, call, request in due:
        turn.become(SagaStatus.RUNNING)
        if request is None:
            turn.open(state, call)
        else:
            turn.open_first(state, call, request)
    if all(_is_satisfied(turn, step) for step in turn.definition.steps):
        _complete(turn)


def _holds_at_pivot(turn: Turn) -> bool:
    """Settle the pivot, where it gave up or a wish waits for its outcome; True while it is unknown.

    A wish that waits no longer for anything is carried out.
    """
    pending = turn.saga.now.pending
    if pending is not None and not pending.lapsed and not actions.is_pivot_in_doubt(turn):
        assert pending.failure is not None, pending
        actions.roll_back(turn, pending.failure)
        return True
    pivot = turn.definition.pivot
    state = None if pivot is None else turn.saga.call(pivot.id, Direction.ACTION)
    if pivot is None or state is None or state.effect is not Effect.UNKNOWN:
        return False
    if state.open is not None:
        return True
    gave_up = state.status is CallStatus.FAILED or state.settling is not Settling.NOT_ASKED
    if not gave_up and (pending is None or pending.lapsed):
        return False
    if state.status is CallStatus.WAITING and not turn.is_due(state):
        turn.wake_at(state.due_at)
        return True
    if state.status is CallStatus.WAITING:
        state = attempts.not_heard(state, pivot.action, at=turn.at)
    if not settling.settle(turn, pivot, state):
        state = turn.saga.call(pivot.id, Direction.ACTION) or state
        _get_stuck(turn, pivot, state, Question.DID_IT_TAKE_EFFECT)
    return True


def _is_ready(turn: Turn, step: Step) -> bool:
    return all(_is_satisfied(turn, turn.definition.step(each)) for each in step.needs)


def _is_satisfied(turn: Turn, step: Step) -> bool:
    """Whether what needs this step may begin."""
    state = turn.saga.call(step.id, Direction.ACTION)
    match None if state is None else state.status:
        case CallStatus.SUCCEEDED:
            return state is not None and state.error is None
        case CallStatus.FAILED:
            return step.optional
        case status:
            return status is CallStatus.SKIPPED


def _begin(turn: Turn, step: Step, due: list[Opening]) -> None:
    """Render a step's action, to be sent now, unless the step is to be skipped."""
    if not turn.may_open:
        turn.owed = True
        return
    state = turn.saga.call(step.id, Direction.ACTION)
    if state is None:
        state = turn.begin(step.id, Direction.ACTION, generation=0, before=None)
    if turn.forward_limit_reached:
        problem = attempts.NEARLY_FULL
        actions.give_up(turn, step, state, effect=Effect.NONE, problem=problem)
        return
    try:
        if step.when is not None and not holds(step.when, turn.saga):
            turn.become(SagaStatus.RUNNING)
            skipped = attempts.given_up(turn, state, effect=Effect.NONE, problem=None)
            turn.put(replace(skipped, status=CallStatus.SKIPPED, output=Output(value=None)))
            return
        roots = action_roots(key=state.key, callback_url=turn.callback_url(state))
        request = render_request(step.action.request, turn.saga, roots)
    except ExpressionFailed as error:
        problem = Problem(code=Code.INVALID_EXPRESSION, message=str(error))
        actions.give_up(turn, step, state, effect=Effect.NONE, problem=problem)
        return
    due.append((state, step.action, request))


def _follow(turn: Turn, step: Step, state: CallState, due: list[Opening]) -> None:
    """Do what is due for a step that has begun."""
    if state.open is not None:
        return
    match state.status:
        case CallStatus.RUNNING if state.request is None:
            _begin(turn, step, due)
        case CallStatus.RUNNING | CallStatus.BACKING_OFF:
            _resume(turn, step, state, due)
        case CallStatus.WAITING if turn.is_due(state):
            actions.not_heard(turn, step, state)
            again = turn.saga.call(step.id, Direction.ACTION)
            if again is not None and again.status is not CallStatus.WAITING:
                _follow(turn, step, again, due)
        case CallStatus.WAITING:
            turn.wake_at(state.due_at)
        case CallStatus.VERIFYING:
            learned = verifying.follow(turn, step, state)
            if learned is not None:
                actions.learn(turn, step, state, learned)
        case CallStatus.SUCCEEDED | CallStatus.FAILED | CallStatus.SKIPPED:
            pass


def _is_stuck(turn: Turn) -> bool:
    """Ask a person about the first step that has ended in a way with which nothing can go on."""
    for step in turn.definition.in_order:
        state = turn.saga.call(step.id, Direction.ACTION)
        if state is None or state.status.is_under_way or _is_satisfied(turn, step):
            continue
        if state.status is CallStatus.SUCCEEDED:
            question = Question.HOW_TO_UNDO
        elif state.effect is Effect.UNKNOWN:
            question = Question.DID_IT_TAKE_EFFECT
        else:
            question = Question.HOW_TO_GO_ON
        _get_stuck(turn, step, state, question)
        return True
    return False


def _get_stuck(turn: Turn, step: Step, state: CallState, question: Question) -> None:
    problem = state.error or attempts.NOT_KNOWN
    turn.fail(Failure(cause=Cause.STEP_FAILED, step=step.id, problem=problem))
    turn.get_stuck(question, step=step.id, problem=problem)


def _resume(turn: Turn, step: Step, state: CallState, due: list[Opening]) -> None:
    """Have the next attempt sent when it is due, unless it has become too late for one."""
    if not turn.is_due(state):
        turn.wake_at(state.due_at)
    elif turn.forward_limit_reached:
        problem = attempts.NEARLY_FULL
        actions.give_up(turn, step, state, effect=state.effect, problem=problem)
    elif not attempts.may_resend(state, step.action, at=turn.at):
        actions.ask_or_give_up(turn, step, state, problem=attempts.FORGOTTEN)
    elif turn.may_open:
        due.append((state, step.action, None))
    else:
        turn.owed = True


def _complete(turn: Turn) -> None:
    """All actions are done: render the output. A faulty output undoes nothing that happened."""
    template = turn.definition.output
    try:
        output = None if template is None else Output(value=render_value(template, turn.saga))
    except ExpressionFailed:
        output = None
        turn.alert()
    turn.finish(output)

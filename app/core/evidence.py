"""Evidence: what attempts and tools report, in time or late.

An answer to an attempt that is no longer out is evidence. A late success of an action is adopted
while the saga goes forward; while it goes back, the effect becomes done and is undone, with a new
generation if it was undone before; after the end it is recorded and alerts. Any other late answer
says nothing new.

A callback is believed from the moment its intent is committed: it cannot come too early. The first
that says how the call ended decides it; what contradicts that is kept, and alerts, and a success
counts for the undo.
"""

from dataclasses import replace

from app.core import actions, attempts, backward, verifying
from app.core.definition import Step
from app.core.entries import Ignored, Reception
from app.core.errors import IllegalEvent
from app.core.events import AttemptObserved, CallbackReceived
from app.core.identity import Direction
from app.core.observation import Answered
from app.core.outcome import is_refusal, is_success, is_unreadable_success
from app.core.saga import (
    CallbackOutcome,
    CallState,
    CallStatus,
    Code,
    Effect,
    Heard,
    Output,
    Problem,
    SagaStatus,
    Settling,
)
from app.core.turn import Turn

type Told = Ignored | None
"""Why a report changes nothing; None if it has changed the saga."""

_DUPLICATE = Ignored(
    reason="duplicate: the same was reported before", reception=Reception.DUPLICATE
)


def observe(turn: Turn) -> Told:
    """An attempt's answer: of the one that is out, or of one that was given up."""
    fact = turn.event.fact
    assert isinstance(fact, AttemptObserved), fact
    state = turn.saga.call(fact.step, fact.direction)
    if state is None or fact.attempt > state.attempts:
        raise IllegalEvent(state=turn.saga.status.value, fact=type(fact).__name__)
    step = turn.definition.step(fact.step)
    is_out = state.open is not None and state.open.number == fact.attempt
    told: Told = None
    if fact.direction.subject is not None:
        told = _observe_question(turn, step, state, fact, is_out=is_out)
    elif not is_out:
        told = _observe_late(turn, step, state, fact)
    elif fact.direction is Direction.ACTION:
        actions.observe(turn, step, state, fact)
    else:
        backward.observe(turn, step, state, fact)
    _lift(turn, step)
    return told


def hear(turn: Turn) -> Told:
    """A callback: in time, again, or late."""
    fact = turn.event.fact
    assert isinstance(fact, CallbackReceived), fact
    state = turn.saga.call(fact.step, fact.direction)
    if state is None or fact.generation > state.generation:
        # The database has lost the intent that it was made for (a failover).
        return _late("the call that it is about is not known")
    step = turn.definition.step(fact.step)
    turn.reception = Reception.ACCEPTED
    if fact.generation < state.generation:
        told = _hear_old(turn, step, state, fact)
    elif state.heard is not None and state.heard.digest == fact.digest:
        told = _DUPLICATE
    elif state.status.is_under_way:
        # If a callback had failed it before, it is tried anew.
        told = _hear_in_time(turn, step, state, fact)
    elif state.heard is not None:
        told = _hear_again(turn, step, state, fact, heard=state.heard)
    else:
        told = _hear_late(turn, step, state, fact)
    # A contradiction is kept as evidence, though nothing else may follow from it.
    is_kept = turn.reception is Reception.CONTRADICTION and not turn.forward_limit_reached
    if told is None and turn.is_untouched and not is_kept:
        told = Ignored(reason="duplicate: it says nothing new", reception=turn.reception)
    if told is None:
        turn.weigh(max(1, fact.body_bytes))
    _lift(turn, step)
    return told


def _observe_question(
    turn: Turn, step: Step, state: CallState, fact: AttemptObserved, *, is_out: bool
) -> Told:
    if not is_out:
        return Ignored(reason="late: the question is answered, or was given up")
    assert fact.direction.subject is not None, fact
    subject = turn.saga.call(step.id, fact.direction.subject)
    assert subject is not None, step.id
    assert subject.status is CallStatus.VERIFYING, subject
    learned = verifying.observe(turn, step, state, fact)
    if learned is not None and subject.direction is Direction.ACTION:
        actions.learn(turn, step, subject, learned)
    elif learned is not None:
        backward.learn(turn, step, subject, learned)
    return None


def _observe_late(turn: Turn, step: Step, state: CallState, fact: AttemptObserved) -> Told:
    """Only a success says something new of an attempt that was given up."""
    answer, call = fact.observation, step.call(fact.direction)
    if fact.attempt < state.first_attempt:
        return _observe_old(turn, step, state, fact)
    if is_unreadable_success(call, answer):
        return _suspect(turn, step, state)
    if not is_success(call, answer):
        heard = state.heard
        if heard and heard.outcome is CallbackOutcome.SUCCEEDED and is_refusal(call, answer):
            turn.alert()
            return None
        return Ignored(reason="late: the attempt was given up, and its answer proves nothing")
    assert isinstance(answer, Answered), answer
    if state.status is CallStatus.SUCCEEDED and not _came_back(step, state):
        return Ignored(reason="duplicate: the call has succeeded already")
    turn.weigh(answer.body_bytes)
    # This attempt is in doubt no more.
    doubts = tuple(doubt for doubt in state.doubts if doubt.attempt != fact.attempt)
    _adopt(turn, step, replace(state, doubts=doubts), output=Output(value=answer.body))
    if state.heard is not None and state.heard.outcome is CallbackOutcome.FAILED:
        turn.alert()
    return None


def _observe_old(turn: Turn, step: Step, state: CallState, fact: AttemptObserved) -> Told:
    """An answer to a generation that was given up for another: only a success matters."""
    answer = fact.observation
    if fact.direction is not Direction.ACTION or not is_success(step.action, answer):
        return Ignored(reason="late: the attempt was of an earlier generation")
    assert isinstance(answer, Answered), answer
    turn.weigh(answer.body_bytes)
    _adopt_old(turn, step, state, output=Output(value=answer.body))
    return None


def _adopt_old(turn: Turn, step: Step, state: CallState, *, output: Output) -> None:
    """What was believed not to exist does; if it was done once more, it may exist twice."""
    turn.alert()
    if state.effect is Effect.NONE and not state.status.is_under_way:
        _adopt(turn, step, state, output=output)


def _suspect(turn: Turn, step: Step, state: CallState) -> Told:
    """A late success that cannot be read: what was believed not to exist may exist."""
    is_news = state.direction is Direction.ACTION and state.effect is Effect.NONE
    if not is_news or step.read_only:
        return Ignored(reason="late: the answer cannot be read")
    unsure = replace(state, effect=Effect.UNKNOWN, uncertain=True, settling=Settling.NOT_ASKED)
    turn.put(unsure)
    if turn.before.status.is_final:
        turn.alert()
    return None


def _came_back(step: Step, state: CallState) -> bool:
    """Whether a second success may be a second effect: what was undone may be there again.

    A tool that honours keys has answered it from memory.
    """
    undone = state.effect is Effect.NONE and not step.read_only
    return state.direction is Direction.ACTION and undone and not step.action.idempotent


def _adopt(turn: Turn, step: Step, state: CallState, *, output: Output) -> None:
    """Take a success for true, whatever was concluded before."""
    if state.direction is Direction.ACTION:
        actions.succeed(turn, step, state, output=output)
    else:
        _undone(turn, step, state)
    if turn.before.status.is_final:
        turn.alert()


def _hear_in_time(turn: Turn, step: Step, state: CallState, fact: CallbackReceived) -> Told:
    heard = replace(state, heard=Heard(outcome=fact.outcome, digest=fact.digest))
    match fact.outcome:
        case CallbackOutcome.IN_PROGRESS:
            return _hear_progress(turn, step, state, fact)
        case CallbackOutcome.SUCCEEDED:
            _adopt(turn, step, heard, output=Output(value=fact.output))
        case CallbackOutcome.FAILED:
            _fail(turn, step, heard, fact)
    return None


def _fail(turn: Turn, step: Step, state: CallState, fact: CallbackReceived) -> None:
    """Take a failure for true; an exchange that is still out is in doubt until it is quiet."""
    effect, problem = fact.effect or Effect.NONE, _failed(fact)
    after = state if state.open is None else attempts.lost(turn, state)
    if effect is Effect.NONE:
        after = replace(after, uncertain=False)
    if fact.direction is Direction.ACTION:
        actions.give_up(turn, step, after, effect=effect, problem=problem)
    else:
        backward.give_up(turn, after, effect=effect, problem=problem)


def _hear_progress(turn: Turn, step: Step, state: CallState, fact: CallbackReceived) -> Told:
    """The tool is at work: it gets more time, unless nobody waits for it any more."""
    if turn.forward_limit_reached:
        message = "accepted: the journal is nearly full, and keeps no more progress"
        return Ignored(reason=message, reception=Reception.ACCEPTED)
    told = replace(state, progress=Output(value=fact.progress))
    call = step.call(state.direction)
    is_waited_for = fact.direction is Direction.COMPENSATION or not turn.is_rolling_back
    is_idle = state.status in {CallStatus.WAITING, CallStatus.BACKING_OFF}
    if call.callback is not None and is_waited_for and is_idle:
        told = attempts.waiting(turn, told, call)
    turn.put(told)
    return None


def _hear_again(
    turn: Turn, step: Step, state: CallState, fact: CallbackReceived, *, heard: Heard
) -> Told:
    """A callback after another one that has decided the call."""
    if fact.outcome is CallbackOutcome.IN_PROGRESS:
        return _late("the outcome is known already")
    turn.reception = Reception.CONTRADICTION
    turn.alert()
    failed_before = heard.outcome is CallbackOutcome.FAILED
    is_new = state.effect is not Effect.DONE and state.status is not CallStatus.SUCCEEDED
    if fact.outcome is CallbackOutcome.SUCCEEDED and failed_before and is_new:
        _adopt(turn, step, state, output=Output(value=fact.output))
    return None


def _hear_late(turn: Turn, step: Step, state: CallState, fact: CallbackReceived) -> Told:
    """The first callback of a call that something else has concluded."""
    if fact.outcome is CallbackOutcome.IN_PROGRESS:
        return _late("the call is over")
    turn.reception = Reception.LATE
    told = replace(state, heard=Heard(outcome=fact.outcome, digest=fact.digest))
    if fact.outcome is CallbackOutcome.SUCCEEDED:
        if state.status is CallStatus.SUCCEEDED:
            turn.put(told)
        else:
            _adopt(turn, step, told, output=Output(value=fact.output))
    elif state.effect is Effect.UNKNOWN and state.status is CallStatus.FAILED:
        _fail(turn, step, told, fact)
    else:
        turn.put(told)
        if state.effect is Effect.DONE or state.status is CallStatus.SUCCEEDED:
            turn.reception = Reception.CONTRADICTION
            turn.alert()
    return None


def _hear_old(turn: Turn, step: Step, state: CallState, fact: CallbackReceived) -> Told:
    """A callback for a generation that was given up for another: only a success matters."""
    is_action = fact.direction is Direction.ACTION
    if fact.outcome is not CallbackOutcome.SUCCEEDED or not is_action:
        return _late("it is about an earlier generation of the call")
    turn.reception = Reception.LATE
    _adopt_old(turn, step, state, output=Output(value=fact.output))
    return None


def _undone(turn: Turn, step: Step, state: CallState) -> None:
    action = turn.saga.call(step.id, Direction.ACTION)
    assert action is not None, step.id
    backward.undone(turn, state, action)


def _failed(fact: CallbackReceived) -> Problem:
    message = fact.error or "the tool reported a failure by callback"
    return Problem(code=Code.CALLBACK_FAILED, message=message[:500])


def _late(reason: str) -> Ignored:
    return Ignored(reason=f"late: {reason}", reception=Reception.LATE)


def _lift(turn: Turn, step: Step) -> None:
    """A stuck saga looks again once something was learned about the step in question."""
    stuck = turn.saga.now.stuck
    if stuck is None or stuck.step != step.id:
        return
    if any(
        turn.saga.call(step.id, direction) is not turn.before.call(step.id, direction)
        for direction in Direction
    ):
        turn.become(stuck.resumes)
        if stuck.resumes is SagaStatus.RUNNING:
            turn.fail(None)

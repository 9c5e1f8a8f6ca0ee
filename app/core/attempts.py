"""What follows a concluded attempt within its call: again, or give up. Either direction."""

import datetime as dt
from dataclasses import replace

from app.core.definition import Call
from app.core.identity import Direction
from app.core.outcome import Acknowledged, TryAgain, Unclear
from app.core.retry import backoff_delay
from app.core.saga import (
    CallState,
    CallStatus,
    Code,
    Doubt,
    Effect,
    Output,
    Problem,
    Settling,
)
from app.core.turn import Turn

FORGOTTEN = Problem(
    code=Code.UNKNOWN_OUTCOME,
    message="the tool may have forgotten the key: to send it again could act twice",
)
"""Why an uncertain call is not sent again after its ``key_lifetime``."""

NOT_HEARD = Unclear(
    problem=Problem(
        code=Code.CALLBACK_TIMED_OUT, message="no callback told the outcome in the time for it"
    ),
    wait=None,
)
"""What an awaited callback that does not come means."""

NOT_KNOWN = Problem(code=Code.UNKNOWN_OUTCOME, message="nobody can say whether it took effect")

NOT_WAITED_FOR = Problem(
    code=Code.UNKNOWN_OUTCOME,
    message="the tool has taken it on, and the saga does not wait for its callback any more",
)

SENT_WITHIN = dt.timedelta(seconds=10)
"""An attempt leaves within about its sender's lease, or not at all."""

NEARLY_FULL = Problem(
    code=Code.LIMIT_EXCEEDED,
    message="the saga's journal is nearly full; the rest is kept for undoing",
)
FULL = Problem(code=Code.LIMIT_EXCEEDED, message="the saga's journal is full")
"""Why nothing more is begun, or sent again, going forward and going back."""


def closed(
    state: CallState, call: Call, verdict: TryAgain | Unclear, *, at: dt.datetime
) -> CallState:
    """The call after an attempt that brought no decision; it may be tried again.

    ``effect`` is what is known now: as before the attempt, or unknown.
    """
    assert state.open is not None, state
    counts = verdict.counts if isinstance(verdict, TryAgain) else True
    still_working = isinstance(verdict, TryAgain) and verdict.still_working
    after = replace(
        state,
        open=None,
        effect=state.open.known_before,
        tries=state.tries + 1,
        failures=state.failures + 1 if counts else state.failures,
        not_before=None if verdict.wait is None else at + verdict.wait,
        error=verdict.problem,
    )
    if isinstance(verdict, Unclear) or still_working:
        # Whatever works on it may yet succeed.
        return in_late_window(after, call, at=at)
    return after


def acknowledged(state: CallState, call: Call, *, seen: Acknowledged, at: dt.datetime) -> CallState:
    """The call once the tool has taken it on: the outcome comes by callback, or not in time.

    The effect may come at any time now. What was told before an answer that was long under way
    counts from the answer.
    """
    assert state.open is not None, state
    assert call.callback is not None, state
    return replace(
        in_late_window(replace(state, open=None), call, at=at),
        status=CallStatus.WAITING,
        accepted=Output(value=seen.accepted),
        due_at=at + call.callback.within,
        error=None,
    )


def waiting(turn: Turn, state: CallState, call: Call) -> CallState:
    """The call once the tool has told that it is at work: it gets more time.

    But not beyond the deadline, by which an action has to be done.
    """
    assert call.callback is not None, state
    due_at = turn.at + call.callback.within
    deadline_at = turn.saga.facts.deadline_at
    is_bound = state.direction is Direction.ACTION and not turn.saga.now.forward_only
    if is_bound and deadline_at is not None:
        due_at = max(min(due_at, deadline_at), state.due_at or turn.at)
    after = in_late_window(state, call, at=turn.at)
    return replace(after, status=CallStatus.WAITING, due_at=due_at)


def in_late_window(state: CallState, call: Call, *, at: dt.datetime) -> CallState:
    """The call while its last attempt may still take effect: for ``late_window`` from ``at`` on."""
    doubt = Doubt(attempt=state.attempts, quiet_at=at + call.late_window)
    return in_doubt(state, doubt, at=at)


def not_heard(state: CallState, call: Call, *, at: dt.datetime) -> CallState:
    """The call after no callback came in time: that attempt has failed, its effect is unknown."""
    return replace(
        in_late_window(state, call, at=at),
        status=CallStatus.RUNNING,
        tries=state.tries + 1,
        failures=state.failures + 1,
        due_at=None,
        error=NOT_HEARD.problem,
    )


def lost(turn: Turn, state: CallState) -> CallState:
    """The call after its sender was lost: the attempt may or may not have left.

    It does not count as failed: a crash of ours says nothing about the tool.
    """
    assert state.open is not None, state
    doubt = Doubt(attempt=state.open.number, quiet_at=state.open.quiet_at)
    return in_doubt(replace(state, open=None), doubt, at=turn.at)


def in_doubt(state: CallState, doubt: Doubt, *, at: dt.datetime) -> CallState:
    """The call once an attempt may have taken effect unseen. What is quiet by now is left out."""
    doubts = (*(known for known in state.doubts if known.quiet_at > at), doubt)
    return replace(state, effect=Effect.UNKNOWN, uncertain=True, doubts=doubts)


def backing_off(turn: Turn, state: CallState, call: Call) -> CallState | None:
    """The call with its next attempt set, or None if its limits are reached.

    Args:
        turn: for the time and the seed.
        state: closed, its failures counted. Lost attempts do not count.
        call: for the limits.
    """
    if state.failures >= call.retry.max_attempts:
        return None
    delay = backoff_delay(call.retry, failures=max(state.tries, 1), seed=turn.event.seed)
    due_at = max(turn.at + delay, state.not_before or turn.at)
    elapsed_max = call.retry.max_elapsed
    if elapsed_max is not None and due_at > state.round_started_at + elapsed_max:
        return None
    if not may_resend(state, call, at=due_at):
        return None
    return replace(state, status=CallStatus.BACKING_OFF, due_at=due_at)


def may_resend(state: CallState, call: Call, *, at: dt.datetime) -> bool:
    """Whether the key may still be sent: an uncertain one only while the tool remembers it.

    It must arrive before the tool forgets it: it may be sent later than it is decided, and be
    under way for as long as an exchange may take. Of a brief lifetime a tenth is kept for that.
    """
    margin = min(call.timeout + SENT_WITHIN, call.key_lifetime / 10)
    return not state.uncertain or at <= state.first_sent_at + call.key_lifetime - margin


def close_question(turn: Turn, subject: CallState) -> None:
    """Ask no more about a call: something else has told, or nobody waits for the answer."""
    question = turn.saga.call(subject.step, subject.direction.verifier)
    if question is not None and question.status.is_under_way:
        turn.put(given_up(turn, question, effect=Effect.NONE, problem=question.error))


def fresh_round(turn: Turn, state: CallState) -> CallState:
    """The call with its attempts counted anew: by a person's retry, or to settle its effect.

    What the tool asked for still holds: it is not called before.
    """
    waits = state.not_before is not None and state.not_before > turn.at
    return replace(
        state,
        status=CallStatus.BACKING_OFF if waits else CallStatus.RUNNING,
        tries=0,
        failures=0,
        round_started_at=turn.at,
        due_at=state.not_before if waits else None,
        finished_at=None,
        concluded_seq=None,
    )


def in_round_of(before: CallState, fresh: CallState) -> CallState:
    """A call of the next generation whose attempts are counted on from the one before."""
    return replace(
        fresh,
        tries=before.tries,
        failures=before.failures,
        round_started_at=before.round_started_at,
    )


def succeeded(turn: Turn, state: CallState, output: Output | None) -> CallState:
    """The call once its effect surely exists. An attempt still out can do so until it is quiet."""
    if state.direction.subject is None:
        close_question(turn, state)
    return replace(
        state if state.open is None else lost(turn, state),
        status=CallStatus.SUCCEEDED,
        effect=Effect.DONE,
        due_at=None,
        settling=Settling.NOT_ASKED,
        output=output,
        error=None,
        finished_at=turn.at,
        concluded_seq=turn.seq,
    )


def given_up(turn: Turn, state: CallState, *, effect: Effect, problem: Problem | None) -> CallState:
    """The call once nothing more is tried."""
    if state.direction.subject is None:
        close_question(turn, state)
    return replace(
        state,
        status=CallStatus.FAILED,
        effect=effect,
        open=None,
        due_at=None,
        error=problem,
        finished_at=turn.at,
        concluded_seq=turn.seq,
    )


def is_quiet(state: CallState, *, at: dt.datetime) -> bool:
    """Whether no attempt of the call can take effect any more."""
    return state.open is None and (state.quiet_at is None or at >= state.quiet_at)

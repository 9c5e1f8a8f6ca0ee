"""What follows a concluded attempt within its call: again, or give up. Either direction."""

import datetime as dt
from dataclasses import replace

from app.core.definition import Call
from app.core.outcome import TryAgain, Unclear
from app.core.retry import backoff_delay
from app.core.saga import CallState, CallStatus, Effect, Output, Problem
from app.core.turn import Turn


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
        failures=state.failures + 1 if counts else state.failures,
        error=verdict.problem,
    )
    if isinstance(verdict, Unclear):
        return unclear(after, quiet_at=at + call.late_window)
    if still_working:
        # Whatever works on it may yet succeed; but the tool has answered, so a later refusal by
        # the same tool is believed: the call does not become uncertain.
        return replace(unclear(after, quiet_at=at + call.late_window), uncertain=state.uncertain)
    return after


def lost(state: CallState) -> CallState:
    """The call after its sender was lost: the attempt may or may not have left.

    It does not count as failed: a crash of ours says nothing about the tool.
    """
    assert state.open is not None, state
    return unclear(replace(state, open=None), quiet_at=state.open.quiet_at)


def unclear(state: CallState, *, quiet_at: dt.datetime) -> CallState:
    """The call once an attempt may have taken effect unseen, at the latest at ``quiet_at``."""
    later = quiet_at if state.quiet_at is None else max(state.quiet_at, quiet_at)
    return replace(state, effect=Effect.UNKNOWN, uncertain=True, quiet_at=later)


def backing_off(
    turn: Turn, state: CallState, call: Call, *, wait: dt.timedelta | None
) -> CallState | None:
    """The call with its next attempt set, or None if its limits are reached.

    Args:
        turn: for the time and the seed.
        state: closed, its failures counted.
        call: for the limits.
        wait: the least pause, if the tool asked for one.
    """
    if state.failures >= call.retry.max_attempts:
        return None
    delay = backoff_delay(call.retry, failures=max(state.failures, 1), seed=turn.event.seed)
    due_at = turn.at + max(delay, wait or dt.timedelta(0))
    elapsed_max = call.retry.max_elapsed
    if elapsed_max is not None and due_at > state.round_started_at + elapsed_max:
        return None
    if not may_resend(state, call, at=due_at):
        return None
    return replace(state, status=CallStatus.BACKING_OFF, due_at=due_at)


def may_resend(state: CallState, call: Call, *, at: dt.datetime) -> bool:
    """Whether the key may still be sent: an uncertain one only while the tool remembers it."""
    return not state.uncertain or at <= state.first_sent_at + call.key_lifetime


def fresh_round(turn: Turn, state: CallState) -> CallState:
    """The call with its attempts counted anew: by a person's retry, or to settle its effect."""
    return replace(
        state,
        status=CallStatus.RUNNING,
        failures=0,
        round_started_at=turn.at,
        due_at=None,
        finished_at=None,
        concluded_seq=None,
    )


def succeeded(turn: Turn, state: CallState, output: Output | None) -> CallState:
    """The call once its effect surely exists. An attempt still out can do so until it is quiet."""
    after = state
    if state.open is not None:
        after = replace(unclear(state, quiet_at=state.open.quiet_at), open=None)
    return replace(
        after,
        status=CallStatus.SUCCEEDED,
        effect=Effect.DONE,
        due_at=None,
        output=output,
        error=None,
        finished_at=turn.at,
        concluded_seq=turn.seq,
    )


def given_up(turn: Turn, state: CallState, *, effect: Effect, problem: Problem) -> CallState:
    """The call once nothing more is tried."""
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

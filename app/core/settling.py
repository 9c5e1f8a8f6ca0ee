"""Settling an action's unknown effect, where it matters: before undoing, and at the pivot.

Whoever can say is asked: the step's ``verify``; else, where that is harmless and the tool still
remembers the key, the tool itself, by the same key and bytes again. That is a question: one
exchange, no waiting for a callback; what it creates is undone.
"""

from dataclasses import replace

from app.core import attempts, verifying
from app.core.definition import Step
from app.core.saga import CallState, Effect, Settling
from app.core.turn import Turn


def settle(turn: Turn, step: Step, action: CallState) -> bool:
    """Bring an unknown effect nearer to being known; returns False if nobody can say any more."""
    assert action.effect is Effect.UNKNOWN, action
    assert action.open is None, action
    match action.settling:
        case Settling.NOT_ASKED if step.action.verify is not None:
            asked = replace(action, settling=Settling.BY_VERIFY)
            return verifying.ask(turn, step, asked) is None or ask_again(turn, step, asked)
        case Settling.NOT_ASKED:
            return ask_again(turn, step, action)
        case Settling.BY_VERIFY:
            return verifying.follow(turn, step, action) is None or ask_again(turn, step, action)
        case Settling.BY_RESEND:
            return _follow(turn, step, action)
        case Settling.EXHAUSTED:
            return False


def ask_again(turn: Turn, step: Step, action: CallState) -> bool:
    """Send the same once more, now that no verify can say; returns False if that may not be."""
    call = step.action
    possible = (
        not turn.limit_reached
        and call.may_be_asked_again
        and action.request is not None
        and attempts.may_resend(action, call, at=turn.at)
    )
    if not possible:
        exhaust(turn, action)
        return False
    question = replace(attempts.fresh_round(turn, action), settling=Settling.BY_RESEND)
    turn.put(question)
    turn.resume(question, call)
    return True


def exhaust(turn: Turn, action: CallState) -> None:
    """Conclude that nobody can say."""
    problem = action.error or attempts.NOT_KNOWN
    failed = attempts.given_up(turn, action, effect=Effect.UNKNOWN, problem=problem)
    turn.put(replace(failed, settling=Settling.EXHAUSTED))


def _follow(turn: Turn, step: Step, action: CallState) -> bool:
    if turn.is_due(action):
        too_late = not attempts.may_resend(action, step.action, at=turn.at)
        if turn.limit_reached or too_late:
            problem = attempts.FULL if turn.limit_reached else attempts.FORGOTTEN
            exhaust(turn, replace(action, error=problem))
            return False
    turn.resume(action, step.action)
    return True

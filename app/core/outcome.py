"""What a tool's answer means: from an observation to a verdict.

This is the table of section 4 of the design, in code. It knows whether an earlier attempt of the
same key may have taken effect (``uncertain``), since that changes what a refusal proves: a gateway
in front of the tool may refuse today what the tool did yesterday. It knows nothing of sagas.
"""

import datetime as dt
from dataclasses import dataclass
from typing import assert_never

from app.core.definition import Call
from app.core.json_value import JsonValue
from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    NotSent,
    NotSentReason,
    Observation,
)
from app.core.retry import parse_retry_after
from app.core.saga import Code, Problem

GATEWAY_REFUSALS = frozenset({401, 403, 404, 413})
"""Statuses that a gateway answers without asking the tool."""

COMPENSATION_RETRIED = frozenset({401, 403, 409, 423})
"""Refusals of an undo that pass: credentials get rotated, locks released."""

EXCERPT_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The effect surely exists."""

    output: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyGone:
    """A compensation found nothing to undo."""

    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No retry helps.

    Attributes:
        proves_none: the effect surely does not exist; else it is as it was known before.
    """

    problem: Problem
    proves_none: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAgain:
    """This attempt had no effect, and the tool, or the way to it, may be better later.

    Attributes:
        counts: against ``max_attempts``.
        wait: what the tool asked for; None if it did not.
        still_working: an earlier request with this key is being worked on.
    """

    problem: Problem
    counts: bool
    wait: dt.timedelta | None
    still_working: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclear:
    """This attempt may have had its effect."""

    problem: Problem
    wait: dt.timedelta | None


type Verdict = Succeeded | AlreadyGone | Refused | TryAgain | Unclear


def classify_action(
    call: Call, observation: Observation, *, uncertain: bool, now: dt.datetime
) -> Verdict:
    """What an attempt of an action came to.

    Args:
        call: the action.
        observation: of this attempt.
        uncertain: an earlier attempt with this key may have taken effect.
        now: for ``Retry-After`` dates.
    """
    match observation:
        case NotSent():
            return _not_sent(observation)
        case BrokenOff():
            return _broken_off(observation)
        case Answered():
            common = _common(observation, now=now)
            if common is not None:
                return common
            return _refused_action(call, observation, uncertain=uncertain)
        case _:
            assert_never(observation)


def classify_compensation(call: Call, observation: Observation, *, now: dt.datetime) -> Verdict:
    """What an attempt of a compensation came to; arguments as for ``classify_action``."""
    match observation:
        case NotSent():
            return _not_sent(observation)
        case BrokenOff():
            return _broken_off(observation)
        case Answered(status=status):
            gone = status == 410 or (status == 404 and call.request.method == "DELETE")
            if gone:
                return AlreadyGone(problem=_problem(Code.REFUSED, observation))
            common = _common(observation, now=now)
            if common is not None:
                return common
            if status in COMPENSATION_RETRIED:
                return TryAgain(problem=_problem(Code.BUSY, observation), counts=True, wait=None)
            return Refused(problem=_problem(Code.REFUSED, observation), proves_none=True)
        case _:
            assert_never(observation)


def _not_sent(observation: NotSent) -> Verdict:
    match observation.reason:
        case NotSentReason.UNREACHABLE:
            problem = Problem(code=Code.UNREACHABLE, message=observation.message)
            return TryAgain(problem=problem, counts=True, wait=None)
        case NotSentReason.EXPIRED:
            problem = Problem(code=Code.EXPIRED, message=observation.message)
            return TryAgain(problem=problem, counts=False, wait=None)
        case NotSentReason.FORBIDDEN:
            problem = Problem(code=Code.INVALID_REQUEST, message=observation.message)
            return Refused(problem=problem, proves_none=False)
        case _:
            assert_never(observation.reason)


def _broken_off(observation: BrokenOff) -> Unclear:
    timed_out = observation.reason is BrokenOffReason.TIMED_OUT
    code = Code.TIMED_OUT if timed_out else Code.UNKNOWN_OUTCOME
    return Unclear(problem=Problem(code=code, message=observation.message), wait=None)


def _common(answer: Answered, *, now: dt.datetime) -> Verdict | None:
    """The rows that action and compensation share; None for a plain 4xx."""
    wait = parse_retry_after(answer.retry_after, now=now)
    if 200 <= answer.status < 300:
        if answer.readable:
            return Succeeded(output=answer.body)
        return Unclear(problem=_problem(Code.UNKNOWN_OUTCOME, answer), wait=wait)
    if answer.status == 425:
        busy = _problem(Code.BUSY, answer)
        return TryAgain(problem=busy, counts=False, wait=wait, still_working=True)
    client_error = 400 <= answer.status < 500 and answer.status != 408
    if answer.status == 429 or (client_error and wait is not None):
        return TryAgain(problem=_problem(Code.BUSY, answer), counts=False, wait=wait)
    if not client_error:  # 1xx, 3xx, 408, 5xx, and what HTTP does not know
        return Unclear(problem=_problem(Code.UNKNOWN_OUTCOME, answer), wait=wait)
    return None


def _refused_action(call: Call, answer: Answered, *, uncertain: bool) -> Verdict:
    """A plain 4xx to an action."""
    refused = _problem(Code.REFUSED, answer)
    if not uncertain:
        return Refused(problem=refused, proves_none=True)
    if answer.status in {404, 410} and call.request.method == "DELETE":
        return Succeeded(output=answer.body if answer.readable else None)
    if answer.status in GATEWAY_REFUSALS or answer.status == 409:
        return TryAgain(problem=_problem(Code.BUSY, answer), counts=True, wait=None)
    if call.idempotent:
        return Refused(problem=refused, proves_none=True)
    return Unclear(problem=refused, wait=None)


def _problem(code: Code, answer: Answered) -> Problem:
    excerpt = "" if answer.body is None else f": {_excerpt(answer.body)}"
    unreadable = "" if answer.readable else " with a body that cannot be read"
    message = f"the tool answered {answer.status}{unreadable}{excerpt}"
    return Problem(code=code, message=message, http_status=answer.status)


def _excerpt(body: JsonValue) -> str:
    text = body if isinstance(body, str) else repr(body)
    text = "".join(c if c.isprintable() else " " for c in text[: EXCERPT_CHARACTERS_MAX * 2])
    return text if len(text) <= EXCERPT_CHARACTERS_MAX else text[:EXCERPT_CHARACTERS_MAX] + "..."

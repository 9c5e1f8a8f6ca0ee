"""What a tool's answer means: from an observation to a verdict.

This is the table of section 4 of the design, in code. It knows whether an earlier attempt of the
same key may have taken effect (``uncertain``), since that changes what a refusal proves: a gateway
in front of the tool may refuse today what the tool did yesterday. It knows nothing of sagas.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from app.core.definition import Call, Means, Response, Verify
from app.core.expressions import ExpressionFailed, Scope, Template
from app.core.json_value import JsonValue
from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    Claim,
    Claimed,
    NotSent,
    NotSentReason,
    Observation,
)
from app.core.retry import RETRY_AFTER_MAX, parse_retry_after
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
class Acknowledged:
    """The tool has taken it on, and reports the outcome by callback."""

    accepted: JsonValue


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


type Verdict = Succeeded | Acknowledged | AlreadyGone | Refused | TryAgain | Unclear


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
        case Claimed():
            return _claimed(call, observation, uncertain=uncertain)
        case Answered():
            rule = _find_rule(call, observation)
            if rule is not None:
                return _ruled(call, rule, observation, uncertain=uncertain, now=now)
            common = _common(call, observation, now=now)
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
        case Claimed():
            return _claimed(call, observation, uncertain=False)
        case Answered(status=status):
            rule = _find_rule(call, observation)
            if rule is not None:
                return _ruled(call, rule, observation, uncertain=False, now=now)
            gone = status == 410 or (status == 404 and call.method == "DELETE")
            if gone:
                return AlreadyGone(problem=_problem(Code.REFUSED, observation))
            common = _common(call, observation, now=now)
            if common is not None:
                return common
            if status in COMPENSATION_RETRIED:
                return TryAgain(problem=_problem(Code.BUSY, observation), counts=True, wait=None)
            return Refused(problem=_problem(Code.REFUSED, observation), proves_none=True)
        case _:
            assert_never(observation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A verify's answer says that the effect exists, or that it does not."""

    is_done: bool
    answer: Answered


def classify_verify(
    verify: Verify,
    observation: Observation,
    *,
    holds: Callable[[Template, Answered], bool],
    now: dt.datetime,
) -> Known | TryAgain:
    """What an attempt to ask came to.

    Args:
        verify: the question.
        observation: of this attempt.
        holds: whether a condition of it is true for an answer; raises ``ExpressionFailed``.
        now: for ``Retry-After`` dates.
    """
    wait = None
    if isinstance(observation, Answered):
        wait = parse_retry_after(observation.retry_after, now=now)
    match observation:
        case Answered(readable=True):
            try:
                done, none = holds(verify.done, observation), holds(verify.none, observation)
            except ExpressionFailed as error:
                problem = Problem(code=Code.INVALID_EXPRESSION, message=str(error)[:500])
                return TryAgain(problem=problem, counts=True, wait=wait)
            if done is not none:
                return Known(is_done=done, answer=observation)
            problem = _problem(Code.UNKNOWN_OUTCOME, observation)
        case Answered():
            problem = _problem(Code.UNKNOWN_OUTCOME, observation)
        case NotSent():
            problem = _not_sent(observation).problem
        case BrokenOff():
            problem = _broken_off(observation).problem
        case Claimed():
            problem = Problem(code=Code.UNKNOWN_OUTCOME, message=observation.message)
        case _:
            assert_never(observation)
    return TryAgain(problem=problem, counts=True, wait=wait)


def _find_rule(call: Call, answer: Answered) -> Response | None:
    """The definition's own rule for an answer, if it has one."""
    return next((rule for rule in call.responses if _fits(rule, answer)), None)


def _fits(rule: Response, answer: Answered) -> bool:
    if rule.status is not None and rule.status != answer.status:
        return False
    if rule.when is None:
        return True
    if not answer.readable:
        return False
    try:
        scope = Scope({"response": {"status": answer.status, "body": answer.body}})
        return rule.when.render(scope) is True
    except ExpressionFailed:
        return False  # the answer has not what the rule speaks of


def _ruled(
    call: Call, rule: Response, answer: Answered, *, uncertain: bool, now: dt.datetime
) -> Verdict:
    """What an answer means by the definition's own words."""
    wait = parse_retry_after(answer.retry_after, now=now)
    match rule.means:
        case Means.SUCCEEDED if not answer.readable:
            return Unclear(problem=_problem(Code.UNKNOWN_OUTCOME, answer), wait=wait)
        case Means.SUCCEEDED:
            return Succeeded(output=answer.body)
        case Means.WAITING:
            return Acknowledged(accepted=answer.body if answer.readable else None)
        case Means.REFUSED:
            refused = _problem(Code.REFUSED, answer)
            return _definite(call, refused, uncertain=uncertain)
        case Means.RETRY:
            return TryAgain(problem=_problem(Code.BUSY, answer), counts=True, wait=wait)
        case Means.UNKNOWN:
            return Unclear(problem=_problem(Code.UNKNOWN_OUTCOME, answer), wait=wait)
        case _:
            assert_never(rule.means)


def _claimed(call: Call, claimed: Claimed, *, uncertain: bool) -> Verdict:
    """What a function said in so many words."""
    match claimed.claim:
        case Claim.REFUSED:
            refused = Problem(code=Code.REFUSED, message=claimed.message)
            return _definite(call, refused, uncertain=uncertain)
        case Claim.RETRY:
            problem = Problem(code=Code.BUSY, message=claimed.message)
            seconds, longest = claimed.retry_after_seconds, RETRY_AFTER_MAX.total_seconds()
            wait = None if seconds is None else dt.timedelta(seconds=min(seconds, longest))
            return TryAgain(problem=problem, counts=True, wait=wait)
        case Claim.UNKNOWN:
            problem = Problem(code=Code.UNKNOWN_OUTCOME, message=claimed.message)
            return Unclear(problem=problem, wait=None)
        case _:
            assert_never(claimed.claim)


def _definite(call: Call, refused: Problem, *, uncertain: bool) -> Verdict:
    """A refusal that comes from the tool itself: of this attempt, and, under its key, of all."""
    if uncertain and not call.idempotent:
        return Unclear(problem=refused, wait=None)
    return Refused(problem=refused, proves_none=True)


def _not_sent(observation: NotSent) -> TryAgain | Refused:
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


def _common(call: Call, answer: Answered, *, now: dt.datetime) -> Verdict | None:
    """The rows that action and compensation share; None for a plain 4xx."""
    wait = parse_retry_after(answer.retry_after, now=now)
    if 200 <= answer.status < 300:
        if call.callback is not None:
            return Acknowledged(accepted=answer.body if answer.readable else None)
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
    if answer.status in {404, 410} and call.method == "DELETE":
        return Succeeded(output=answer.body if answer.readable else None)
    if answer.status in GATEWAY_REFUSALS or answer.status == 409:
        return TryAgain(problem=_problem(Code.BUSY, answer), counts=True, wait=None)
    return _definite(call, refused, uncertain=True)


def _problem(code: Code, answer: Answered) -> Problem:
    excerpt = "" if answer.body is None else f": {_excerpt(answer.body)}"
    unreadable = "" if answer.readable else " with a body that cannot be read"
    message = f"the tool answered {answer.status}{unreadable}{excerpt}"
    return Problem(code=code, message=message, http_status=answer.status)


def _excerpt(body: JsonValue) -> str:
    text = body if isinstance(body, str) else repr(body)
    text = "".join(c if c.isprintable() else " " for c in text[: EXCERPT_CHARACTERS_MAX * 2])
    return text if len(text) <= EXCERPT_CHARACTERS_MAX else text[:EXCERPT_CHARACTERS_MAX] + "..."


def is_success(call: Call, observation: Observation) -> bool:
    """Whether an answer proves that the call took effect; an acknowledgement does not."""
    if not isinstance(observation, Answered) or not observation.readable:
        return False
    rule = _find_rule(call, observation)
    if rule is not None:
        return rule.means is Means.SUCCEEDED
    return 200 <= observation.status < 300 and call.callback is None


def is_unreadable_success(call: Call, observation: Observation) -> bool:
    """Whether an answer says that the call took effect, and cannot be read."""
    if not isinstance(observation, Answered) or observation.readable:
        return False
    return is_success(call, replace(observation, readable=True))


def is_refusal(call: Call, observation: Observation) -> bool:
    """Whether an answer says that the tool did, and will do, nothing."""
    if isinstance(observation, Claimed):
        return observation.claim is Claim.REFUSED
    if not isinstance(observation, Answered):
        return False
    rule = _find_rule(call, observation)
    if rule is not None:
        return rule.means is Means.REFUSED
    return 400 <= observation.status < 500 and observation.status not in {408, 425, 429}

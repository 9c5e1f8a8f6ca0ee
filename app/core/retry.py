"""When to try again: policies, full jitter, and what ``Retry-After`` asks for. Pure arithmetic."""

import contextlib
import datetime as dt
import email.utils
import random
from dataclasses import dataclass

RETRY_AFTER_MAX = dt.timedelta(hours=1)
"""A tool may ask us to wait, but not for ever: longer demands are cut to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, how long apart, and for how long a call is tried.

    Attributes:
        max_attempts: attempts that count, the first included; at least 1.
        initial_delay: upper bound of the first pause.
        backoff: factor from one pause's upper bound to the next; at least 1.
        max_delay: the upper bound never grows past this.
        max_elapsed: no attempt starts later than this after the first; None for no such limit.
    """

    max_attempts: int
    initial_delay: dt.timedelta
    backoff: float
    max_delay: dt.timedelta
    max_elapsed: dt.timedelta | None


ACTION_RETRY = RetryPolicy(
    max_attempts=5,
    initial_delay=dt.timedelta(milliseconds=500),
    backoff=2.0,
    max_delay=dt.timedelta(seconds=30),
    max_elapsed=dt.timedelta(minutes=10),
)
"""Rides out the restart of a tool (a few seconds) before a trip is undone for it."""

COMPENSATION_RETRY = RetryPolicy(
    max_attempts=20,
    initial_delay=dt.timedelta(seconds=1),
    backoff=2.0,
    max_delay=dt.timedelta(minutes=5),
    max_elapsed=None,
)
"""Far more patient: giving up on an undo wakes a person."""


def backoff_delay(policy: RetryPolicy, *, failures: int, seed: int) -> dt.timedelta:
    """The pause before the next attempt, with full jitter.

    Uniform between zero and ``initial_delay * backoff ** (failures - 1)``, capped by
    ``max_delay``. Full jitter spreads a crowd of callers best for the least work (AWS
    Architecture Blog, "Exponential Backoff And Jitter", 2015).

    Args:
        policy: the bounds.
        failures: attempts so far in this round; at least 1.
        seed: the randomness, from the caller, so that concluding twice concludes the same.
    """
    assert failures >= 1, failures
    ceiling = policy.max_delay.total_seconds()
    # A power past the largest float is past max_delay too.
    with contextlib.suppress(OverflowError):
        ceiling = min(
            ceiling, policy.initial_delay.total_seconds() * policy.backoff ** (failures - 1)
        )
    fraction = random.Random(seed).random()  # noqa: S311 - jitter, not a secret
    return dt.timedelta(seconds=ceiling * fraction)


def parse_retry_after(header: str | None, *, now: dt.datetime) -> dt.timedelta | None:
    """What a ``Retry-After`` header asks for, or None if there is none or it is nonsense.

    Both forms of RFC 9110 section 10.2.3 are understood: seconds and an HTTP date. A date in the
    past asks for no wait. Longer waits are cut to ``RETRY_AFTER_MAX``.
    """
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        if len(text) > 9:
            return RETRY_AFTER_MAX
        return min(dt.timedelta(seconds=int(text)), RETRY_AFTER_MAX)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return max(dt.timedelta(0), min(moment - now, RETRY_AFTER_MAX))

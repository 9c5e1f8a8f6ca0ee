"""Limits of a call, field by field: what it says, over ``defaults``, over what is built in."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from app.core.identity import Direction
from app.core.language.durations import format_duration
from app.core.language.kinds import Duration, Number, Whole
from app.core.language.shapes import Fields, Member, Shape
from app.core.retry import ACTION_RETRY, COMPENSATION_RETRY, RetryPolicy

ATTEMPTS_MAX = 1000

TIMEOUT_MAX = dt.timedelta(minutes=5)
"""Longer work is not waited for on an open connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What ``defaults`` can set of a call; see ``Call``."""

    timeout: dt.timedelta
    retry: RetryPolicy
    key_lifetime: dt.timedelta
    late_window: dt.timedelta


BUILT_IN: Mapping[Direction, Limits] = {
    direction: Limits(
        # Long enough for a tool that books something, short enough to notice a dead one while
        # somebody waits.
        timeout=dt.timedelta(seconds=5),
        retry=retry,
        # What Stripe promises at least, and most tools that follow it:
        # https://docs.stripe.com/api/idempotent_requests.
        key_lifetime=dt.timedelta(hours=24),
        # What was broken off may still be in a proxy's queue; after this it is not.
        late_window=dt.timedelta(seconds=10),
    )
    for direction, retry in {
        Direction.ACTION: ACTION_RETRY,
        Direction.COMPENSATION: COMPENSATION_RETRY,
    }.items()
}


def _retry_shape(direction: Direction) -> Shape:
    """The policy, with what is built in for calls of a direction."""
    policy = BUILT_IN[direction].retry
    elapsed = policy.max_elapsed
    return Shape(
        name=f"{direction}_retry",
        says="When to try again, with full jitter, and when to give up.",
        members={
            "max_attempts": Member(
                kind=Whole(least=1, most=ATTEMPTS_MAX),
                says="Attempts that count, the first included.",
                default=policy.max_attempts,
            ),
            "initial_delay": Member(
                kind=Duration(),
                says="The longest that the first pause can be.",
                default=format_duration(policy.initial_delay),
            ),
            "backoff": Member(
                kind=Number(least=1),
                says="Each pause can be so many times as long as the one before.",
                default=policy.backoff,
            ),
            "max_delay": Member(
                kind=Duration(),
                says="The longest that any pause can be.",
                default=format_duration(policy.max_delay),
            ),
            "max_elapsed": Member(
                kind=Duration(),
                says="No attempt begins later than this after the first"
                + ("; by default there is no such limit." if elapsed is None else "."),
                default=None if elapsed is None else format_duration(elapsed),
            ),
        },
    )


def _limit_members(direction: Direction) -> Mapping[str, Member]:
    built_in = BUILT_IN[direction]
    return {
        "timeout": Member(
            kind=Duration(most=TIMEOUT_MAX, may_be_zero=False),
            says="Of one exchange with the tool.",
            default=format_duration(built_in.timeout),
        ),
        "retry": Member(
            kind=_retry_shape(direction),
            says="When to try again; merged field by field over the defaults.",
        ),
        "key_lifetime": Member(
            kind=Duration(),
            says="How long the tool remembers an idempotency key. After it, an attempt whose "
            "effect is unknown is never sent again.",
            default=format_duration(built_in.key_lifetime),
        ),
        "late_window": Member(
            kind=Duration(),
            says="How long after its uncertain end an attempt may still take effect.",
            default=format_duration(built_in.late_window),
        ),
    }


LIMITS: Mapping[Direction, Mapping[str, Member]] = {
    direction: _limit_members(direction) for direction in BUILT_IN
}
"""The fields of a call that ``read_limits`` reads, by direction."""

DEFAULTS = Shape(
    name="defaults",
    says="Limits for all calls that do not set their own.",
    members={
        str(direction): Member(
            kind=Shape(
                name=f"{direction}_defaults",
                says=f"Limits of every {direction}.",
                members=members,
                refused=dict.fromkeys(
                    ("http", "python", "idempotent", "on_unknown", "completion", "responses"),
                    "has no default: it belongs to a call",
                ),
            ),
            says=f"Limits of every {direction}.",
        )
        for direction, members in LIMITS.items()
    },
)


def read_defaults(fields: Fields | None) -> Mapping[Direction, Limits]:
    """The limits of each direction, over what is built in.

    Args:
        fields: of shape ``DEFAULTS``; None if there are none.
    """
    if fields is None:
        return BUILT_IN
    limits: dict[Direction, Limits] = {}
    for direction, built_in in BUILT_IN.items():
        section = fields.object(direction)
        limits[direction] = built_in if section is None else read_limits(section, built_in)
    return limits


def read_limits(fields: Fields, base: Limits) -> Limits:
    """The limits of a call, over ``base``.

    Args:
        fields: with those of ``LIMITS``.
        base: what holds where the call says nothing.
    """
    return Limits(
        timeout=fields.duration("timeout", fallback=base.timeout),
        retry=read_retry(fields, base.retry),
        key_lifetime=fields.duration("key_lifetime", fallback=base.key_lifetime),
        late_window=fields.duration("late_window", fallback=base.late_window),
    )


def read_retry(fields: Fields, base: RetryPolicy) -> RetryPolicy:
    """The ``retry`` of a call, over ``base``."""
    policy = fields.object("retry")
    if policy is None:
        return base
    return RetryPolicy(
        max_attempts=policy.whole("max_attempts", fallback=base.max_attempts),
        initial_delay=policy.duration("initial_delay", fallback=base.initial_delay),
        backoff=policy.number("backoff", fallback=base.backoff),
        max_delay=policy.duration("max_delay", fallback=base.max_delay),
        max_elapsed=policy.duration("max_elapsed", fallback=base.max_elapsed),
    )

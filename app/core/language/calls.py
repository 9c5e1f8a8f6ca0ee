"""A call of a step: from its fields to a ``Call``, or to all its faults.

Limits are merged field by field: what the call says, over ``defaults``, over what is built in.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from app.core.definition import SAFE_TO_RESEND, Call, HttpTemplate, OnUnknown
from app.core.identity import Direction
from app.core.language.fields import Field, Fields, read_fields
from app.core.language.http import read_http
from app.core.language.references import Place
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

_CONNECTORS_NOT_YET = ("python", "mcp", "worker", "saga", "sleep", "approval")
_NOT_YET: Mapping[str, str] = {
    **dict.fromkeys(("verify", "responses", "completion"), "is not supported in this release"),
    **dict.fromkeys(_CONNECTORS_NOT_YET, "is a connector that is not supported yet"),
}
_LIMITS = ("timeout", "retry", "key_lifetime", "late_window")
_RETRY = ("max_attempts", "initial_delay", "backoff", "max_delay", "max_elapsed")
_FIELDS: Mapping[Direction, tuple[str, ...]] = {
    Direction.ACTION: ("http", "idempotent", "on_unknown", *_LIMITS),
    Direction.COMPENSATION: ("http", "idempotent", *_LIMITS),
}
_REFUSED: Mapping[Direction, Mapping[str, str]] = {
    Direction.ACTION: _NOT_YET,
    Direction.COMPENSATION: {
        **_NOT_YET,
        "on_unknown": "is for actions only: a compensation is always sent again",
    },
}
_ON_UNKNOWN = tuple(each.value for each in OnUnknown)
_DEFAULTS_REFUSED: Mapping[str, str] = dict.fromkeys(
    ("http", "idempotent", "on_unknown"), "has no default: it belongs to a call"
)


def read_defaults(at: Field) -> Mapping[Direction, Limits]:
    """Read ``defaults``: for each direction, over what is built in."""
    fields = read_fields(at, tuple(direction.value for direction in BUILT_IN))
    if fields is None:
        return BUILT_IN
    limits: dict[Direction, Limits] = {}
    for direction, built_in in BUILT_IN.items():
        section = read_fields(fields.find(direction), _LIMITS, refused=_DEFAULTS_REFUSED)
        limits[direction] = built_in if section is None else _read_limits(section, built_in)
    return limits


def read_call(at: Field, *, direction: Direction, limits: Limits, place: Place) -> Call | None:
    """Read a call; None if none could be made of it.

    Args:
        at: the object.
        direction: compensations have no ``on_unknown``.
        limits: what holds where the call says nothing.
        place: what its expressions may refer to.
    """
    fields = read_fields(at, _FIELDS[direction], refused=_REFUSED[direction])
    if fields is None:
        return None
    request = _read_request(fields, place)
    limits = _read_limits(fields, limits)
    idempotent = fields.find("idempotent").flag(fallback=False)
    said = fields.find("on_unknown").choice(_ON_UNKNOWN, fallback="")
    if request is None:
        return None
    harmless = idempotent or request.method in SAFE_TO_RESEND
    resend = harmless or direction is Direction.COMPENSATION
    on_unknown = OnUnknown.RESEND if resend else OnUnknown.GIVE_UP
    return Call(
        request=request,
        timeout=limits.timeout,
        retry=limits.retry,
        idempotent=idempotent,
        on_unknown=OnUnknown(said) if said else on_unknown,
        key_lifetime=limits.key_lifetime,
        late_window=limits.late_window,
    )


def _read_request(fields: Fields, place: Place) -> HttpTemplate | None:
    """The one connector of a call."""
    given = fields.at.value
    assert isinstance(given, dict), given
    if "http" not in given and given.keys().isdisjoint(_CONNECTORS_NOT_YET):
        fields.at.fault("the call has no connector", accepted="exactly one: http")
    return read_http(fields.find("http"), place)


def _read_limits(fields: Fields, base: Limits) -> Limits:
    return Limits(
        timeout=fields.find("timeout").duration(
            fallback=base.timeout, most=TIMEOUT_MAX, may_be_zero=False
        ),
        retry=_read_retry(fields.find("retry"), base.retry),
        key_lifetime=fields.find("key_lifetime").duration(fallback=base.key_lifetime),
        late_window=fields.find("late_window").duration(fallback=base.late_window),
    )


def _read_retry(at: Field, base: RetryPolicy) -> RetryPolicy:
    fields = read_fields(at, _RETRY)
    if fields is None:
        return base
    return RetryPolicy(
        max_attempts=fields.find("max_attempts").whole(
            least=1, most=ATTEMPTS_MAX, fallback=base.max_attempts
        ),
        initial_delay=fields.find("initial_delay").duration(fallback=base.initial_delay),
        backoff=fields.find("backoff").number(least=1, fallback=base.backoff),
        max_delay=fields.find("max_delay").duration(fallback=base.max_delay),
        max_elapsed=fields.find("max_elapsed").duration(fallback=base.max_elapsed),
    )

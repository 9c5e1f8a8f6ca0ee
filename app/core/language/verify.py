"""A verify: the question to a tool whether a call took effect, and what its answers mean."""

import datetime as dt

from app.core.definition import Call, OnUnknown, Verify
from app.core.identity import Direction
from app.core.language.connectors import (
    CONNECTOR_RULES,
    CONNECTORS,
    CONNECTORS_REFUSED,
    read_request,
)
from app.core.language.durations import DURATION_MAX
from app.core.language.kinds import AnyTemplate, Condition
from app.core.language.limits import LIMITS, Limits, read_retry
from app.core.language.places import Place
from app.core.language.references import compile_condition, compile_field
from app.core.language.shapes import Fields, Member, Shape

_NO_EFFECT = "is not for a verify: it has no effect itself"

VERIFY = Shape(
    name="verify",
    says="A question to the tool: did the call take effect? It has no effect itself. Where its "
    "answer meets neither condition, it is asked again.",
    members={
        **CONNECTORS,
        "timeout": LIMITS[Direction.ACTION]["timeout"],
        "retry": LIMITS[Direction.ACTION]["retry"],
        "done": Member(
            kind=Condition(),
            says="A condition over 'response.status' and 'response.body', and all that the "
            "request sees: the call took effect.",
            is_required=True,
        ),
        "none": Member(
            kind=Condition(),
            says="The same: the call surely took no effect.",
            is_required=True,
        ),
        "output": Member(
            kind=AnyTemplate(),
            says="What the call returned, out of the answer. Null where it is left out.",
        ),
    },
    refused={
        **CONNECTORS_REFUSED,
        **dict.fromkeys(
            ("idempotent", "on_unknown", "key_lifetime", "late_window", "completion", "verify"),
            _NO_EFFECT,
        ),
        "responses": "is not for a verify: 'done' and 'none' say what its answers mean",
    },
    rules=CONNECTOR_RULES,
)


def read_verify(fields: Fields, *, limits: Limits, place: Place) -> Verify | None:
    """Read a verify; None if none could be made of it.

    Args:
        fields: of shape ``VERIFY``.
        limits: of actions: what holds where it says nothing.
        place: what its request may refer to.
    """
    request = read_request(fields, place)
    timeout = fields.duration("timeout", fallback=limits.timeout)
    retry = read_retry(fields, limits.retry)
    judging = place.of_its_answer
    done = compile_condition(fields.find("done"), judging)
    none = compile_condition(fields.find("none"), judging)
    output = fields.find("output")
    returned = compile_field(output, judging) if output.is_given else None
    if request is None or done is None or none is None:
        return None
    call = Call(
        request=request,
        timeout=timeout,
        retry=retry,
        # A question may always be asked again, and nothing can come of it late.
        idempotent=True,
        on_unknown=OnUnknown.RESEND,
        key_lifetime=DURATION_MAX,
        late_window=dt.timedelta(0),
    )
    return Verify(call=call, done=done, none=none, output=returned)

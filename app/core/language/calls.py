"""A call with an effect: from the fields of an action or a compensation to a ``Call``."""

from dataclasses import replace

from app.core.definition import Call, OnUnknown, Verify
from app.core.identity import Direction
from app.core.language.answers import COMPLETION, RESPONSES, read_callback, read_responses
from app.core.language.connectors import (
    CONNECTOR_RULES,
    CONNECTORS,
    CONNECTORS_REFUSED,
    read_request,
)
from app.core.language.kinds import Choice, Flag
from app.core.language.limits import LIMITS, Limits, read_limits
from app.core.language.places import Place
from app.core.language.shapes import Fields, Member, Shape
from app.core.language.verify import VERIFY

_ON_UNKNOWN = Choice(tuple(each.value for each in OnUnknown))
_IDEMPOTENT = Member(
    kind=Flag(),
    says="The tool honours Idempotency-Key: a second request with the same key has no second "
    "effect, and is answered like the first.",
    default=False,
)

ACTION = Shape(
    name="action",
    says="What the step does: one call of a tool.",
    members={
        **CONNECTORS,
        "idempotent": _IDEMPOTENT,
        "on_unknown": Member(
            kind=_ON_UNKNOWN,
            says="What follows an attempt that may or may not have taken effect. 'resend': the "
            "same request under the same key; the default where the call is idempotent, the step "
            "is read_only, or the method is GET, HEAD, PUT or DELETE. 'verify': the step's verify "
            "is asked; else the default where there is one. 'give_up': the step has failed with "
            "its effect unknown; else the default.",
        ),
        "completion": COMPLETION,
        "responses": RESPONSES,
        **LIMITS[Direction.ACTION],
    },
    refused={
        **CONNECTORS_REFUSED,
        "verify": "stands on the step, beside its action",
    },
    rules=CONNECTOR_RULES,
)

COMPENSATION = Shape(
    name="compensation",
    says="What undoes the action. It must tolerate being sent again with the same key, and may be "
    "asked to undo what never took effect.",
    members={
        **CONNECTORS,
        "idempotent": _IDEMPOTENT,
        "completion": COMPLETION,
        "responses": RESPONSES,
        "verify": Member(
            kind=VERIFY, says="Asked when it is unknown whether the compensation took effect."
        ),
        **LIMITS[Direction.COMPENSATION],
    },
    refused={
        **CONNECTORS_REFUSED,
        "on_unknown": "is for actions only: a compensation is always sent again",
    },
    rules=CONNECTOR_RULES,
)


def read_action(
    fields: Fields, *, limits: Limits, place: Place, verify: Verify | None, step: Fields
) -> Call | None:
    """Read an action; None if none could be made of it.

    Args:
        fields: of shape ``ACTION``.
        limits: what holds where it says nothing.
        place: what its expressions may refer to.
        verify: the question about its effect.
        step: the fields of its step.
    """
    said = fields.choice("on_unknown")
    has_verify = step.find("verify").is_given
    if said == OnUnknown.VERIFY and not has_verify:
        fields.find("on_unknown").fault(
            "the step has no 'verify' to ask", accepted="'verify' on the step; or resend, give_up"
        )
    call = read_call(fields, limits=limits, place=place, verify=verify)
    if call is None:
        return None
    if said:
        return replace(call, on_unknown=OnUnknown(said))
    if call.may_be_asked_again or step.find("read_only").value is True:
        return call
    return replace(call, on_unknown=OnUnknown.VERIFY if has_verify else OnUnknown.GIVE_UP)


def read_call(
    fields: Fields, *, limits: Limits, place: Place, verify: Verify | None
) -> Call | None:
    """Read a call that is sent again, as compensations are; None if none could be made of it.

    Args:
        fields: of shape ``COMPENSATION``, or ``ACTION``.
        limits: what holds where it says nothing.
        place: what its expressions may refer to, but for ``callback``.
        verify: the question about its effect.
    """
    if fields.find("completion").is_given:
        place = place.seeing("callback")
    request = read_request(fields, place)
    limits = read_limits(fields, limits)
    idempotent = fields.flag("idempotent")
    callback = read_callback(fields)
    responses = read_responses(fields, place)
    if request is None:
        return None
    return Call(
        request=request,
        timeout=limits.timeout,
        retry=limits.retry,
        idempotent=idempotent,
        on_unknown=OnUnknown.RESEND,
        key_lifetime=limits.key_lifetime,
        late_window=limits.late_window,
        responses=responses,
        callback=callback,
        verify=verify,
    )

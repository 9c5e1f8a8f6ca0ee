"""What a tool's answer means where a definition says so: ``responses`` and ``completion``."""

from app.core.definition import Callback, Means, Response
from app.core.language.kinds import Choice, Condition, Duration, Whole
from app.core.language.places import Place
from app.core.language.references import compile_condition
from app.core.language.shapes import Fields, ListOf, Member, OneNeeded, Shape

RESPONSES_MAX = 50
"""A tool that needs more rules needs a façade."""

_MEANS = tuple(each.value for each in Means)

_RESPONSE = Shape(
    name="response",
    says="A rule for answers: which ones, and what they mean.",
    members={
        "status": Member(
            kind=Whole(least=100, most=599), says="The HTTP status that the answer has."
        ),
        "when": Member(
            kind=Condition(),
            says="A condition over 'response.status' and 'response.body' that the answer meets.",
        ),
        "means": Member(
            kind=Choice(_MEANS),
            says="What such an answer means. 'succeeded': the call took effect. 'refused': it did "
            "not, and is not tried again. 'retry': it did not, and is tried again. 'unknown': it "
            "may have. 'waiting': accepted, the outcome comes by callback.",
            is_required=True,
        ),
    },
    rules=(
        OneNeeded(
            names=("status", "when"),
            at=None,
            message="the rule does not say for which answers it is",
            accepted="'status', 'when', or both",
        ),
    ),
)

RESPONSES = Member(
    kind=ListOf(
        item=_RESPONSE,
        least=0,
        most=RESPONSES_MAX,
        accepted=f"a list of at most {RESPONSES_MAX} rules, as {{status: 409, means: succeeded}}",
    ),
    says="Rules for answers, before those that are built in; the first that fits holds.",
)

_CALLBACK = Shape(
    name="callback",
    says="The outcome comes by callback, to the URL in Amends-Callback-Url.",
    members={
        "within": Member(
            kind=Duration(may_be_zero=False),
            says="How long to wait for it, from the answer, or from the last sign of progress.",
            is_required=True,
        )
    },
)

COMPLETION = Member(
    kind=Shape(
        name="completion",
        says="How the outcome is learnt where the answer only acknowledges the call.",
        members={
            "callback": Member(
                kind=_CALLBACK,
                says="The outcome comes by callback.",
                is_required=True,
                accepted="{within: ...}, the only way so far",
            )
        },
    ),
    says="How the outcome is learnt where the answer only acknowledges the call.",
)


def read_responses(fields: Fields, place: Place) -> tuple[Response, ...]:
    """The rules of a call for answers.

    Args:
        fields: with ``responses`` and ``completion``.
        place: where the call stands.
    """
    responses: list[Response] = []
    for rule in fields.objects("responses"):
        if rule is None:
            continue
        status = rule.whole("status", fallback=None)
        when = compile_condition(rule.find("when"), place.of_answers)
        means = rule.choice("means")
        if means == Means.WAITING and not fields.find("completion").is_given:
            others = ", ".join(each for each in _MEANS if each != Means.WAITING)
            rule.find("means").fault(
                "'waiting' is for calls whose outcome comes by callback",
                accepted=f"'completion: {{callback: {{within: ...}}}}' on the call; or {others}",
            )
        if means:
            responses.append(Response(status=status, when=when, means=Means(means)))
    return tuple(responses)


def read_callback(fields: Fields) -> Callback | None:
    """How long a call waits for its outcome; None if the answer is the outcome."""
    completion = fields.object("completion")
    callback = None if completion is None else completion.object("callback")
    within = None if callback is None else callback.duration("within", fallback=None)
    return None if within is None else Callback(within=within)

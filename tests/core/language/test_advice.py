"""What is valid, and yet warned of: each with where it stands and what to do about it."""

from typing import Any

import pytest

from app.core.errors import Fault
from app.core.language import parse_definition, warnings
from tests.core.language.documents import (
    WAITING_FOR_CALLBACK,
    a_document,
    a_read_only_step,
    a_step,
    a_verify,
    without,
)

POST = {"method": "POST", "url": "https://tool.test/bookings"}
BLIND: dict[str, Any] = {"http": POST}
"""An action that nobody may send again."""

IDEMPOTENT: dict[str, Any] = {"http": POST, "idempotent": True}
WAITING: dict[str, Any] = {**IDEMPOTENT, "completion": WAITING_FOR_CALLBACK}


def undo_by(expression: str) -> dict[str, Any]:
    """A compensation that needs a value."""
    url = f"https://tool.test/bookings/${{{{ {expression} }}}}"
    return {"http": {"method": "DELETE", "url": url}}


def warned(**step: Any) -> list[Fault]:
    """What is warned of in a document whose middle step has these fields."""
    steps = [a_step("flight"), a_step("hotel", **step), a_step("charge")]
    return warnings(parse_definition(a_document(steps=steps)))


@pytest.mark.parametrize("output", ["action.output.id", "steps.hotel.output"])
def test_an_undo_that_needs_a_lost_answer(output: str) -> None:
    """A POST without idempotency, undone by its output, is stuck if its answer is lost."""
    assert warned(action=BLIND, compensation=undo_by(output)) == [
        Fault(
            path="steps[1].compensation",
            message=f"if the answer to this step's action is lost, there is no {output!r} to undo "
            "it by, and the saga is stuck until a person helps",
            accepted="'idempotent: true' on the action if the tool honours Idempotency-Key, or "
            "'verify' with 'output' on the step, or an undo by 'action.key', 'action.request' or "
            "'input'",
        )
    ]


def test_an_undo_that_needs_a_callback_that_does_not_come() -> None:
    """To send the same again tells that it was accepted, not what came of it."""
    assert warned(action=WAITING, compensation=undo_by("action.output.id")) == [
        Fault(
            path="steps[1].compensation",
            message="if no callback comes, there is no 'action.output.id' to undo it by, and the "
            "saga is stuck until a person helps",
            accepted="'verify' with 'output' on the step, or an undo by 'action.key', "
            "'action.request' or 'input'",
        )
    ]


@pytest.mark.parametrize("verify", [{}, {"verify": a_verify(output=1)}])
def test_an_undo_that_needs_a_lost_acknowledgement(verify: dict[str, Any]) -> None:
    """No verify tells it, only the same request again."""
    action = {**BLIND, "completion": WAITING_FOR_CALLBACK}

    (warning,) = warned(action=action, compensation=undo_by("action.accepted.id"), **verify)

    assert warning.path == "steps[1].compensation"
    assert "no 'action.accepted.id'" in warning.message
    assert "verify" not in warning.accepted


@pytest.mark.parametrize(
    "step",
    [
        {"action": IDEMPOTENT, "compensation": undo_by("action.output.id")},
        {"action": BLIND, "compensation": undo_by("action.key")},
        {"action": BLIND, "compensation": undo_by("steps.flight.output.id")},
        {"action": BLIND, "compensation": undo_by("action.request.url")},
        {
            "action": {"http": {"method": "PUT", "url": "https://tool.test/"}},
            "compensation": undo_by("action.output.id"),
        },
        {
            "action": BLIND,
            "compensation": undo_by("action.output.id"),
            "verify": a_verify(output="${{ response.body }}"),
        },
        {
            "action": WAITING,
            "compensation": undo_by("action.output.id"),
            "verify": a_verify(output="${{ response.body }}"),
        },
        {"action": WAITING, "compensation": undo_by("action.accepted.id")},
        {"action": WAITING, "compensation": undo_by("action.key")},
    ],
    ids=[
        *("idempotent", "key", "another step", "request", "safe method", "verify"),
        *("callback, verify", "callback, accepted", "callback, key"),
    ],
)
def test_an_undo_that_is_always_possible(step: dict[str, Any]) -> None:
    """No warning where what the undo needs is known in any case, or can be had again."""
    assert warned(**step) == []


@pytest.mark.parametrize(
    ("index", "changes", "where", "needed"),
    [
        (
            1,
            {"compensation": undo_by("action.output.id")},
            "steps[1].compensation",
            "action.output.id",
        ),
        (
            1,
            {"compensation": undo_by("steps.hotel.output.id")},
            "steps[1].compensation",
            "steps.hotel.output.id",
        ),
        (
            2,
            {"when": "${{ steps.hotel.output.id == 1 }}"},
            "steps[2].when",
            "steps.hotel.output.id",
        ),
        (
            2,
            {"optional": True, "default": "${{ steps.hotel.output }}"},
            "steps[2].default",
            "steps.hotel.output",
        ),
        (
            2,
            {"action": {**IDEMPOTENT, "http": {**POST, "json": "${{ steps.hotel.output }}"}}},
            "steps[2].action",
            "steps.hotel.output",
        ),
        (
            2,
            {"verify": a_verify(output="${{ steps.hotel.output }}")},
            "steps[2].verify",
            "steps.hotel.output",
        ),
        (
            2,
            {"compensation": undo_by("steps.hotel.output.id")},
            "steps[2].compensation",
            "steps.hotel.output.id",
        ),
        (
            2,
            {
                "compensation": {
                    **undo_by("key"),
                    "verify": a_verify(done="${{ steps.hotel.output.x == 1 }}"),
                }
            },
            "steps[2].compensation.verify",
            "steps.hotel.output.x",
        ),
    ],
)
def test_a_verify_without_an_output_that_is_needed(
    index: int, changes: dict[str, Any], where: str, needed: str
) -> None:
    """What takes effect by its word has the output null, which others cannot work with."""
    steps = [a_step("flight"), a_step("hotel", verify=a_verify()), a_step("charge")]
    steps[index] |= changes

    assert warnings(parse_definition(a_document(steps=steps))) == [
        Fault(
            path="steps[1].verify",
            message=f"where this says that the action took effect, {where} has no {needed!r}",
            accepted="'output', out of the answer, as \"${{ response.body.items[0] }}\"",
        )
    ]


def test_a_verify_without_an_output_that_the_saga_returns() -> None:
    """The output of the saga counts like a step that needs it."""
    steps = [a_step("flight", verify=a_verify())]
    document = a_document(steps=steps, output={"id": "${{ steps.flight.output.id }}"})

    (warning,) = warnings(parse_definition(document))

    assert warning.path == "steps[0].verify"
    assert "output has no 'steps.flight.output.id'" in warning.message


@pytest.mark.parametrize("expression", ["steps.flight.output.id", "steps.hotel.effect"])
def test_a_verify_without_an_output_that_nobody_needs(expression: str) -> None:
    """The effect is known, and the outputs of other steps are others'."""
    steps = [a_step("flight"), a_step("hotel", verify=a_verify()), a_step("charge")]
    steps[2]["compensation"] = undo_by(expression)

    assert warnings(parse_definition(a_document(steps=steps))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"http": {"method": "GET", "url": "https://tool.test/${{ action.output.id }}"}},
        {"done": "${{ response.body.id == action.output.id }}"},
        {"none": "${{ response.body.id != action.output.id }}"},
    ],
)
def test_a_verify_that_asks_by_what_is_not_known(changes: dict[str, Any]) -> None:
    """Where there is something to ask, there is no output."""
    assert warned(verify=a_verify(**changes)) == [
        Fault(
            path="steps[1].verify",
            message="there is no 'action.output.id' yet where it is unknown whether the action "
            "took effect",
            accepted="a question by 'action.key', 'action.request' or 'input'",
        )
    ]


@pytest.mark.parametrize(
    ("action", "accepted"),
    [
        (BLIND, "'verify' on the step, or 'idempotent: true' on the action"),
        (WAITING, "'verify' on the step"),
    ],
)
@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ({"irreversible": True}, "irreversible"),
        ({"pivot": True}, "a pivot"),
        ({"pivot": True, "irreversible": True}, "a pivot"),
    ],
)
def test_what_stays_and_may_not_be_known(
    flags: dict[str, Any], kind: str, action: dict[str, Any], accepted: str
) -> None:
    """Of a step that is never undone nobody can say whether it took effect."""
    step = a_step("hotel", action=action, **flags)
    if "irreversible" in flags:
        step = without(step, "compensation")

    found = warnings(parse_definition(a_document(steps=[step])))

    assert found == [
        Fault(
            path="steps[0]",
            message=f"this step is {kind}: an unknown effect of it ends in a question to a person",
            accepted=accepted,
        )
    ]


@pytest.mark.parametrize(
    "step",
    [
        without(a_step("a", action=IDEMPOTENT, irreversible=True), "compensation"),
        without(a_step("a", action=BLIND, irreversible=True, verify=a_verify()), "compensation"),
        a_step("a", action=WAITING, pivot=True, verify=a_verify()),
        a_read_only_step("a", action=BLIND, pivot=True),
        a_read_only_step("a", action=BLIND),
    ],
    ids=["idempotent", "verify", "callback, verify", "read-only pivot", "read-only"],
)
def test_what_stays_and_is_known(step: dict[str, Any]) -> None:
    """No warning where somebody can be asked, or nothing happened at all."""
    assert warnings(parse_definition(a_document(steps=[step]))) == []


def test_a_request_that_may_take_effect_twice() -> None:
    """To send it again is its author's word, and told."""
    assert warned(action={**BLIND, "on_unknown": "resend"}) == [
        Fault(
            path="steps[1].action.on_unknown",
            message="the same request again may take effect again",
            accepted="'idempotent: true' if the tool honours Idempotency-Key, or 'on_unknown: "
            "give_up', or 'verify' on the step",
        )
    ]
    assert warned(action={**IDEMPOTENT, "on_unknown": "resend"}) == []


def with_callback(*, within: str, deadline: str, pivot: int | None = None) -> list[Fault]:
    """What is warned of in a document whose middle step waits so long."""
    waiting = {**IDEMPOTENT, "completion": {"callback": {"within": within}}}
    steps = [a_step("flight"), a_step("hotel", action=waiting), a_step("charge")]
    if pivot is not None:
        steps[pivot] |= {"pivot": True, "verify": a_verify()}
    return warnings(parse_definition(a_document(steps=steps, deadline=deadline)))


def test_a_callback_that_may_come_after_the_deadline() -> None:
    """A wait that is longer than the saga is never waited out."""
    assert with_callback(within="3h", deadline="2h") == [
        Fault(
            path="steps[1].action.completion.callback.within",
            message="the deadline, 2h, ends the wait before this has passed",
            accepted="a shorter wait, or a longer deadline",
        )
    ]
    assert len(with_callback(within="3h", deadline="2h", pivot=2)) == 1
    assert len(with_callback(within="3h", deadline="2h", pivot=1)) == 1


def test_a_callback_that_the_deadline_does_not_cut_off() -> None:
    """Nor is one of the same length, nor one after the point of no return."""
    assert with_callback(within="2h", deadline="2h") == []
    assert with_callback(within="3h", deadline="2h", pivot=0) == []


@pytest.mark.parametrize(
    ("step", "paths"),
    [
        ({"action": {**IDEMPOTENT, "key_lifetime": "5m"}}, ["steps[1].action.key_lifetime"]),
        ({"action": {**IDEMPOTENT, "key_lifetime": "10m"}}, []),
        ({"action": {**BLIND, "key_lifetime": "5m"}}, []),
        ({"compensation": {**undo_by("key"), "key_lifetime": "5m"}}, []),
        (
            {"compensation": {**undo_by("key"), "retry": {"max_elapsed": "25h"}}},
            ["steps[1].compensation.key_lifetime"],
        ),
    ],
)
def test_a_key_that_is_forgotten_before_the_attempts_end(
    step: dict[str, Any], paths: list[str]
) -> None:
    """Attempts that may not be sent any more are no attempts."""
    assert [warning.path for warning in warned(**step)] == paths


def test_a_key_that_is_forgotten_is_told_with_its_times() -> None:
    """Both durations are there to compare."""
    (warning,) = warned(action={**IDEMPOTENT, "key_lifetime": "90s"})

    assert warning.message == (
        "after 90s nothing uncertain is sent again, although 'max_elapsed' is 10m"
    )
    assert warning.accepted == "a 'key_lifetime' that is not shorter than 'retry.max_elapsed'"


def test_warnings_are_in_the_order_of_the_document() -> None:
    """An author goes through them from top to bottom."""
    risky = {"action": {**BLIND, "on_unknown": "resend"}, "compensation": undo_by("action.output")}
    steps = [dict(reversed(a_step("a", **risky).items())), a_step("b", **risky)]

    found = [warning.path for warning in warnings(parse_definition(a_document(steps=steps)))]

    assert found == [
        "steps[0].compensation",
        "steps[0].action.on_unknown",
        "steps[1].action.on_unknown",
        "steps[1].compensation",
    ]

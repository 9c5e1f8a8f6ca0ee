"""Every way for a call to be wrong: connectors, answers, callbacks and questions."""

from typing import Any

import pytest

from app.core.errors import Fault
from app.core.language.answers import RESPONSES_MAX
from app.core.language.python import PARAMETERS_MAX
from tests.core.language.documents import (
    ACTION,
    COMPENSATION,
    VERIFY,
    WAITING_FOR_CALLBACK,
    Place,
    a_verify,
    faults_of,
    with_value,
    without,
)
from tests.core.language.test_document_faults import ACTION_FIELDS, VERIFY_FIELDS

ONE_CONNECTOR = "exactly one: http, python"
FUNCTION = "the name of a function and of its module, as in travel.book_flight"
PARAMETER = "at most 100 letters, digits and underscores, no digit first"
RULES = "a list of at most 50 rules, as {status: 409, means: succeeded}"
STATUS = "a whole number from 100 to 599"
CONDITION = 'one expression alone, as "${{ input.paid == true }}"'
WITHIN = "a duration like 250ms, 1.5s, 10m, 2h or 3d; more than 0s and at most 365d"
COMPENSATION_VERIFY: Place = (*COMPENSATION, "verify")


def path_of(place: Place) -> str:
    """A place within the steps as a path."""
    return f"steps[{place[1]}]." + ".".join(map(str, place[2:]))


def calling(**python: Any) -> dict[str, Any]:
    """A call of a function."""
    return {"python": {"function": "travel.book", **python}}


@pytest.mark.parametrize(
    ("call", "path", "message", "accepted"),
    [
        ({}, "", "the call has no connector", ONE_CONNECTOR),
        (
            {"http": {"method": "GET", "url": "https://tool.test/"}, **calling()},
            ".python",
            "'http' and 'python' exclude each other",
            ONE_CONNECTOR,
        ),
        (
            {"python": "travel.book"},
            ".python",
            "'travel.book' is not an object",
            "an object with the fields function, arguments",
        ),
        ({"python": {}}, ".python.function", "'function' is missing", FUNCTION),
        *(
            (
                calling(function=name),
                ".python.function",
                f"{name!r} is not accepted here",
                FUNCTION,
            )
            for name in ("book", "", "travel.", ".book", "1a.b", "a.b()", "a-b.c", "a..b", "a.b ")
        ),
        (
            calling(arguments=["a"]),
            ".python.arguments",
            '["a"] is not an object',
            "an object from parameter names to any JSON",
        ),
        (
            calling(arguments="${{ input }}"),
            ".python.arguments",
            "'${{ input }}' is not an object",
            "an object from parameter names to any JSON",
        ),
        (
            calling(arguments={"a-b": 1}),
            ".python.arguments.a-b",
            "'a-b' is not a parameter name",
            PARAMETER,
        ),
        (
            calling(arguments={f"a{number}": 1 for number in range(PARAMETERS_MAX + 1)}),
            ".python.arguments",
            "there are 101 parameters",
            "at most 100 parameters",
        ),
        (
            calling(args={}),
            ".python.args",
            "'args' is no field here; did you mean 'arguments'?",
            "the fields function, arguments",
        ),
    ],
)
@pytest.mark.parametrize("place", [ACTION, COMPENSATION, VERIFY, COMPENSATION_VERIFY])
def test_a_fault_of_a_connector(
    place: Place, call: dict[str, Any], path: str, message: str, accepted: str
) -> None:
    """Every call has one connector, and all have the same ones."""
    if "verify" in place:
        call = without(a_verify(), "http") | call

    assert faults_of(with_value(place, call)) == [
        Fault(path=path_of(place) + path, message=message, accepted=accepted)
    ]


@pytest.mark.parametrize("connector", ["mcp", "worker", "saga", "sleep", "approval"])
def test_a_connector_of_later_releases_is_known_as_that(connector: str) -> None:
    """A verify refuses it like any call, and says nothing else of it."""
    (fault,) = faults_of(with_value(VERIFY, without(a_verify(), "http") | {connector: {}}))

    assert fault.path == f"steps[1].verify.{connector}"
    assert fault.message == f"{connector!r} is a connector that is not supported yet"
    assert fault.accepted == VERIFY_FIELDS


# ---------------------------------------------------------------------- what follows the unknown


def test_nobody_is_asked_without_a_question() -> None:
    """``on_unknown: verify`` needs a verify on the step."""
    assert faults_of(with_value((*ACTION, "on_unknown"), "verify")) == [
        Fault(
            path="steps[1].action.on_unknown",
            message="the step has no 'verify' to ask",
            accepted="'verify' on the step; or resend, give_up",
        )
    ]


def test_the_question_about_an_action_stands_on_its_step() -> None:
    """Whoever writes it within the action is told where it belongs."""
    assert faults_of(with_value((*ACTION, "verify"), a_verify())) == [
        Fault(
            path="steps[1].action.verify",
            message="'verify' stands on the step, beside its action",
            accepted=ACTION_FIELDS,
        )
    ]


@pytest.mark.parametrize(
    "name",
    ["idempotent", "on_unknown", "key_lifetime", "late_window", "completion", "verify"],
)
@pytest.mark.parametrize("place", [VERIFY, COMPENSATION_VERIFY])
def test_a_question_has_no_effect_to_care_for(place: Place, name: str) -> None:
    """What is about effects is refused in a verify, with the reason."""
    (fault,) = faults_of(with_value(place, a_verify(**{name: {}})))

    assert fault.path == f"{path_of(place)}.{name}"
    assert fault.message == f"{name!r} is not for a verify: it has no effect itself"


def test_a_question_has_its_own_rules_for_answers() -> None:
    """``responses`` is refused, too."""
    (fault,) = faults_of(with_value(VERIFY, a_verify(responses=[])))

    assert fault.message == (
        "'responses' is not for a verify: 'done' and 'none' say what its answers mean"
    )


@pytest.mark.parametrize(
    ("changes", "path", "accepted"),
    [
        ({"timeout": "0s"}, "timeout", "more than 0s and at most 5m"),
        ({"retry": {"max_attempts": 0}}, "retry.max_attempts", "a whole number from 1 to 1000"),
        ({"done": "x"}, "done", CONDITION),
        ({"none": "${{ key }} "}, "none", CONDITION),
        ({"output": "${{ steps.x }}"}, "output", "a step that has run by then: flight, hotel"),
    ],
)
@pytest.mark.parametrize("place", [VERIFY, COMPENSATION_VERIFY])
def test_a_fault_of_a_question(
    place: Place, changes: dict[str, Any], path: str, accepted: str
) -> None:
    """What stands in a verify is checked like what stands elsewhere."""
    (fault,) = faults_of(with_value(place, a_verify(**changes)))

    assert fault.path == f"{path_of(place)}.{path}"
    assert fault.accepted.endswith(accepted)


# ---------------------------------------------------------------------------------- the answers


@pytest.mark.parametrize(
    ("responses", "path", "message", "accepted"),
    [
        ({}, "", "{} is not a list", RULES),
        (
            [{"status": 409, "means": "retry"}] * (RESPONSES_MAX + 1),
            "",
            "the list has 51 items",
            RULES,
        ),
        (
            ["refused"],
            "[0]",
            "'refused' is not an object",
            "an object with the fields status, when, means",
        ),
        (
            [{"means": "refused"}],
            "[0]",
            "the rule does not say for which answers it is",
            "'status', 'when', or both",
        ),
        (
            [{"status": 409}],
            "[0].means",
            "'means' is missing",
            "one of: succeeded, refused, retry, unknown, waiting",
        ),
        (
            [{"status": 409, "means": "refuse"}],
            "[0].means",
            "'refuse' is not accepted here; did you mean 'refused'?",
            "one of: succeeded, refused, retry, unknown, waiting",
        ),
        *(
            (
                [{"status": status, "means": "refused"}],
                "[0].status",
                f"{shown} is not {STATUS}",
                STATUS,
            )
            for status, shown in ((99, "99"), (600, "600"), ("409", "'409'"), (True, "true"))
        ),
        (
            [{"when": True, "means": "refused"}],
            "[0].when",
            "true is not a condition",
            CONDITION,
        ),
        (
            [{"status": 200, "means": "refused", "then": 1}],
            "[0].then",
            "'then' is no field here; did you mean 'when'?",
            "the fields status, when, means",
        ),
        (
            [{"status": 200, "means": "refused"}, {"status": 202, "means": "waiting"}],
            "[1].means",
            "'waiting' is for calls whose outcome comes by callback",
            (
                "'completion: {callback: {within: ...}}' on the call; or succeeded, refused, "
                "retry, unknown"
            ),
        ),
    ],
)
@pytest.mark.parametrize("place", [ACTION, COMPENSATION])
def test_a_fault_of_a_rule_for_answers(
    place: Place, responses: Any, path: str, message: str, accepted: str
) -> None:
    """Rules are checked in both directions, and each says when it holds and what it means."""
    assert faults_of(with_value((*place, "responses"), responses)) == [
        Fault(path=f"{path_of(place)}.responses{path}", message=message, accepted=accepted)
    ]


@pytest.mark.parametrize(
    ("completion", "path", "message", "accepted"),
    [
        ("callback", "", "'callback' is not an object", "an object with the fields callback"),
        ({}, ".callback", "'callback' is missing", "{within: ...}, the only way so far"),
        (
            {"callback": True},
            ".callback",
            "true is not an object",
            "an object with the fields within",
        ),
        ({"callback": {}}, ".callback.within", "'within' is missing", WITHIN),
        ({"callback": {"within": "0s"}}, ".callback.within", "'0s' is too short", WITHIN),
        ({"callback": {"within": 60}}, ".callback.within", "60 is a number without a unit", WITHIN),
    ],
)
@pytest.mark.parametrize("place", [ACTION, COMPENSATION])
def test_a_fault_of_a_completion(
    place: Place, completion: Any, path: str, message: str, accepted: str
) -> None:
    """A callback has a time by which it comes; a faulty one has no follow-ups."""
    document = with_value((*place, "completion"), completion)
    call = document["steps"][1][place[2]]
    call["http"]["headers"] = {"X-Callback": "${{ callback.url }}"}
    call["responses"] = [{"status": 202, "means": "waiting"}]

    assert faults_of(document) == [
        Fault(path=f"{path_of(place)}.completion{path}", message=message, accepted=accepted)
    ]


def test_the_callback_of_an_action_is_not_that_of_its_compensation() -> None:
    """Each call says for itself how its outcome is learnt."""
    document = with_value((*ACTION, "completion"), WAITING_FOR_CALLBACK)
    document["steps"][1]["compensation"]["responses"] = [{"status": 202, "means": "waiting"}]

    (fault,) = faults_of(document)

    assert fault.path == "steps[1].compensation.responses[0].means"

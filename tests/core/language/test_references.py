"""What the expressions of a definition may refer to, and where."""

import copy
from typing import Any, cast

import pytest

from app.core.definition import Definition
from app.core.errors import Fault
from app.core.faults import FAULTS_MAX
from app.core.json_value import JsonValue
from app.core.language import parse_definition
from tests.core.language.documents import (
    ACTION,
    COMPENSATION,
    HTTP,
    STEP,
    VERIFY,
    WAITING_FOR_CALLBACK,
    Place,
    a_document,
    a_step,
    a_verify,
    faults_of,
    with_value,
)

IN_WHEN: Place = (*STEP, "when")
IN_ACTION: Place = (*HTTP, "json")
IN_PYTHON: Place = (*ACTION, "python", "arguments", "x")
IN_RULE: Place = (*ACTION, "responses", 0, "when")
IN_VERIFY: Place = (*VERIFY, "http", "body")
IN_DONE: Place = (*VERIFY, "done")
IN_NONE: Place = (*VERIFY, "none")
IN_VERIFIED: Place = (*VERIFY, "output", "x")
IN_COMPENSATION: Place = (*COMPENSATION, "http", "body")
IN_COMPENSATION_RULE: Place = (*COMPENSATION, "responses", 0, "when")
IN_COMPENSATION_VERIFY: Place = (*COMPENSATION, "verify", "http", "body")
IN_COMPENSATION_DONE: Place = (*COMPENSATION, "verify", "done")
IN_COMPENSATION_NONE: Place = (*COMPENSATION, "verify", "none")
IN_COMPENSATION_VERIFIED: Place = (*COMPENSATION, "verify", "output", "x")
IN_DEFAULT: Place = (*STEP, "default", "x")
IN_OUTPUT: Place = ("output",)

STATE = {"input", "steps", "saga", "vars"}
UNDO = STATE | {"key", "action", "failure"}
SENT = {"secrets"}
ROOTS: dict[Place, set[str]] = {
    IN_WHEN: STATE,
    IN_DEFAULT: STATE,
    IN_OUTPUT: STATE,
    IN_ACTION: STATE | {"key"} | SENT,
    IN_PYTHON: STATE | {"key"} | SENT,
    IN_RULE: {"response"},
    IN_COMPENSATION: UNDO | SENT,
    IN_COMPENSATION_RULE: {"response"},
    IN_VERIFY: UNDO | SENT,
    IN_DONE: UNDO | {"response"},
    IN_NONE: UNDO | {"response"},
    IN_VERIFIED: UNDO | {"response"},
    IN_COMPENSATION_VERIFY: UNDO | {"compensation"} | SENT,
    IN_COMPENSATION_DONE: UNDO | {"compensation", "response"},
    IN_COMPENSATION_NONE: UNDO | {"compensation", "response"},
    IN_COMPENSATION_VERIFIED: UNDO | {"compensation", "response"},
}
ALL_ROOTS = [
    *("input", "steps", "saga", "vars", "key", "action", "failure", "response", "compensation"),
    *("callback", "secrets"),
]
SEEING_ONLY_BEFORE = [IN_WHEN, IN_DEFAULT, IN_ACTION, IN_PYTHON]
SEEING_ITSELF = [
    *(IN_COMPENSATION, IN_VERIFY, IN_DONE, IN_NONE, IN_VERIFIED, IN_COMPENSATION_VERIFY),
    *(IN_COMPENSATION_DONE, IN_COMPENSATION_NONE, IN_COMPENSATION_VERIFIED),
]

BEFORE = "a step that has run by then: flight"
BEFORE_OR_THIS = "a step that has run by then: flight, hotel"
ANY = "a step that has run by then: flight, hotel, charge"
WHY_NOT = {
    "key": "only a call that is sent has one",
    "action": "only a compensation and a verify see it",
    "failure": "only a compensation and a verify see it",
    "compensation": "only the verify of a compensation sees it",
    "response": "only what judges an answer sees it: 'responses', and 'done', 'none' and "
    "'output' of a verify",
    "callback": "only a call with 'completion: {callback: {within: ...}}' has it",
    "secrets": "only a request that is sent may hold them",
    **dict.fromkeys(STATE, "a rule for answers sees the answer alone"),
}


def name_of(place: Place) -> str:
    """A place as a path, for the name of a test too."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)[1:]


def document_with(place: Place, expression: str, **changes: Any) -> dict[str, Any]:
    """A document whose middle step has everything, and the expression in its place."""
    rules = [{"status": 200, "when": "${{ true }}", "means": "refused"}]
    verify = a_verify(output={"x": 1})
    verify["http"] |= {"method": "POST", "body": ""}
    step = a_step("hotel", verify=verify, optional=True, default={"x": 1})
    step["action"]["responses"] = rules
    step["compensation"] |= {"responses": copy.deepcopy(rules), "verify": copy.deepcopy(verify)}
    if "python" in place:
        step["action"] = {"python": {"function": "a.b", "arguments": {"x": 1}}}
    document: Any = a_document(steps=[a_step("flight"), step, a_step("charge")], **changes)
    parent = document
    for name in place[:-1]:
        parent = parent[name]
    parent[place[-1]] = f"${{{{ {expression} }}}}"
    return cast("dict[str, Any]", document)


@pytest.mark.parametrize("root", ALL_ROOTS)
@pytest.mark.parametrize("place", ROOTS, ids=name_of)
def test_each_place_has_its_roots(place: Place, root: str) -> None:
    """What a place does not see is told as that, with the reason and what it does see."""
    expression = "secrets.x" if root == "secrets" else f"{root} == 1"
    document = document_with(place, expression)
    if root in ROOTS[place]:
        assert isinstance(parse_definition(document), Definition)
        return

    why = f"there is no {root!r} here: {WHY_NOT.get(root)}"
    assert faults_of(document) == [
        Fault(
            path=name_of(place),
            message=f"{why}, in {expression!r}",
            accepted=f"an expression over {', '.join(sorted(ROOTS[place]))}",
        )
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "secrets",
        "secrets.x + 'y'",
        "secrets['x']",
        "base64.encode(bytes(secrets.x))",
        "secrets.x.y",
    ],
)
def test_a_secret_can_only_be_named(expression: str) -> None:
    """There is nothing to compute with before it is sent."""
    (fault,) = faults_of(document_with(IN_ACTION, expression))

    assert fault.message.startswith("a secret can only be named, not computed with")
    assert fault.accepted == "an expression like ${{ secrets.bank_key }}"


def test_each_root_that_is_out_of_place_is_told_once() -> None:
    """Two of them in one expression are two faults, however often they stand there."""
    faults = faults_of(document_with(IN_ACTION, "[failure.code, action.key, failure.cause]"))

    assert [fault.message.split(":")[0] for fault in faults] == [
        "there is no 'action' here",
        "there is no 'failure' here",
    ]


@pytest.mark.parametrize("place", [IN_ACTION, IN_COMPENSATION], ids=name_of)
def test_a_call_that_waits_for_a_callback_sees_its_url(place: Place) -> None:
    """``callback.url`` is for the calls whose outcome comes that way, in either direction."""
    document = document_with(place, "callback.url")
    document["steps"][1][place[2]]["completion"] = WAITING_FOR_CALLBACK

    assert isinstance(parse_definition(document), Definition)


def test_a_callback_has_nothing_but_its_url() -> None:
    """The members of ``callback`` are known, too."""
    document = document_with(IN_ACTION, "callback.token")
    document["steps"][1]["action"]["completion"] = WAITING_FOR_CALLBACK

    (fault,) = faults_of(document)

    assert fault.message == "'callback' has no 'token'"
    assert fault.accepted == "callback.url"


@pytest.mark.parametrize("place", SEEING_ITSELF, ids=name_of)
def test_what_acknowledged_an_action_is_there_where_its_outcome_comes_later(place: Place) -> None:
    """``action.accepted`` is the body of an answer that is not the outcome."""
    document = document_with(place, "action.accepted.id == 1")

    assert faults_of(document) == [
        Fault(
            path=name_of(place),
            message="there is no 'action.accepted': the answer to this step's action is its "
            "outcome",
            accepted="'action.output'; or 'completion: {callback: {within: ...}}' on the action",
        )
    ]
    document["steps"][1]["action"]["completion"] = WAITING_FOR_CALLBACK
    assert isinstance(parse_definition(document), Definition)


@pytest.mark.parametrize("place", SEEING_ONLY_BEFORE, ids=name_of)
def test_what_comes_before_a_step_is_what_it_sees(place: Place) -> None:
    """What stands instead of a step, or is sent by it, refers to those before it alone."""
    assert isinstance(
        parse_definition(document_with(place, "steps.flight.output.id == 1")), Definition
    )
    assert faults_of(document_with(place, "steps.hotel.output.id == 1")) == [
        Fault(
            path=name_of(place),
            message="'hotel' is this step itself, which has not run by then",
            accepted=BEFORE,
        )
    ]
    assert faults_of(document_with(place, "steps.charge.output.id == 1")) == [
        Fault(
            path=name_of(place),
            message="the step 'charge' has not run by then: it comes after this one",
            accepted=BEFORE,
        )
    ]


@pytest.mark.parametrize("place", SEEING_ITSELF, ids=name_of)
def test_what_undoes_or_asks_sees_its_own_step(place: Place) -> None:
    """It is rendered when the step's action has begun, before any later one."""
    assert isinstance(
        parse_definition(document_with(place, "steps.flight.output.id == 1")), Definition
    )
    assert isinstance(
        parse_definition(document_with(place, "steps.hotel.output.id == 1")), Definition
    )
    assert faults_of(document_with(place, "steps['charge'].output.id == 1")) == [
        Fault(
            path=name_of(place),
            message="the step 'charge' has not run by then: it comes after this one",
            accepted=BEFORE_OR_THIS,
        )
    ]


@pytest.mark.parametrize("place", [IN_ACTION, IN_COMPENSATION, IN_WHEN], ids=name_of)
def test_a_step_beside_this_one_may_not_have_run(place: Place) -> None:
    """Where two steps run at the same time, whoever refers to the other has to wait for it."""
    document = document_with(place, "steps.flight.output.id == 1")
    document["steps"][1]["needs"] = []

    (fault,) = faults_of(document)

    assert fault.path == name_of(place)
    assert fault.message == ("the step 'flight' may not have run by then: it runs beside this one")
    assert fault.accepted.endswith("; or 'flight' among the 'needs' of this step")


def test_a_step_sees_all_that_it_waits_for() -> None:
    """Also what is not needed directly, and what comes later in the file."""
    document = document_with(IN_ACTION, "[steps.charge.output, steps.flight.output]")
    document["steps"][1]["needs"] = ["charge"]
    document["steps"][2]["needs"] = ["flight"]

    assert parse_definition(document).graph.order == ("flight", "charge", "hotel")


def test_the_output_sees_all_steps() -> None:
    """A saga that is completed has run them all."""
    everything = "[steps.flight.output, steps.hotel.output, steps.charge.effect]"

    assert parse_definition(document_with(IN_OUTPUT, everything)).output is not None


@pytest.mark.parametrize(
    ("place", "expression", "message", "accepted"),
    [
        (
            IN_ACTION,
            "steps.flihgt.output",
            "no step has the id 'flihgt'; did you mean 'flight'?",
            BEFORE,
        ),
        (IN_COMPENSATION, "steps.x.output", "no step has the id 'x'", BEFORE_OR_THIS),
        (IN_OUTPUT, "steps.x.output", "no step has the id 'x'", ANY),
        (
            IN_ACTION,
            "steps.flight.outptu.id",
            "'steps.flight' has no 'outptu'; did you mean 'output'?",
            "steps.flight.output, steps.flight.effect",
        ),
        (
            IN_ACTION,
            "steps.flight.key",
            "'steps.flight' has no 'key'",
            "steps.flight.output, steps.flight.effect",
        ),
        (IN_ACTION, "saga.name", "'saga' has no 'name'", "saga.id, saga.business_key"),
        (
            IN_COMPENSATION,
            "action.body",
            "'action' has no 'body'",
            "action.output, action.accepted, action.effect, action.key, action.request",
        ),
        (
            IN_COMPENSATION,
            "failure.reason",
            "'failure' has no 'reason'",
            "failure.cause, failure.step, failure.code, failure.message, failure.http_status",
        ),
        (
            IN_COMPENSATION_VERIFY,
            "compensation.output",
            "'compensation' has no 'output'",
            "compensation.key, compensation.request",
        ),
        (
            IN_RULE,
            "response.headers",
            "'response' has no 'headers'",
            "response.status, response.body",
        ),
        (
            IN_DONE,
            "response.code == 1",
            "'response' has no 'code'",
            "response.status, response.body",
        ),
    ],
)
def test_a_reference_that_can_have_no_value_is_a_fault(
    place: Place, expression: str, message: str, accepted: str
) -> None:
    """A reference to what is not there, or not yet, is found before anything runs."""
    document = document_with(place, expression)

    assert faults_of(document) == [Fault(path=name_of(place), message=message, accepted=accepted)]


@pytest.mark.parametrize(
    ("place", "expression"),
    [
        (IN_ACTION, "steps['flight']"),
        (IN_ACTION, "steps[input.which].output"),
        (IN_ACTION, "vars.anything.at_all"),
        (IN_ACTION, "input.anything.at_all"),
        (IN_ACTION, "[saga.id, saga.business_key]"),
        (IN_COMPENSATION, "[action.output, action.effect, action.key, action.request.url]"),
        (IN_COMPENSATION, "failure.cause + failure.step"),
        (IN_COMPENSATION_VERIFY, "[compensation.key, compensation.request]"),
        (IN_RULE, "response.status == 200 && response.body.ok"),
        # A loop may name its variable as it likes, if nothing here has this name.
        (IN_OUTPUT, "[1].map(response, response)"),
        (IN_OUTPUT, "[1].map(secrets, secrets)"),
    ],
)
def test_a_reference_that_can_have_a_value_is_none(place: Place, expression: str) -> None:
    """What may be there is allowed; a computed index cannot be checked."""
    assert isinstance(parse_definition(document_with(place, expression)), Definition)


@pytest.mark.parametrize(
    ("place", "expression"),
    [
        (IN_ACTION, "1 +"),
        (IN_ACTION, ""),
        (IN_WHEN, "1 +"),
        (IN_DONE, "1 +"),
        (IN_RULE, "nonsense.x"),
        ((*HTTP, "url"), "1 +"),
    ],
)
def test_an_expression_that_cannot_be_compiled_is_a_fault(place: Place, expression: str) -> None:
    """What the compiler says is passed on, with the path and the source."""
    (fault,) = faults_of(document_with(place, expression))

    assert fault.path == name_of(place)
    assert fault.message.startswith("line 1") or expression == ""
    assert fault.accepted


def test_a_wrong_reference_is_found_where_it_stands() -> None:
    """Of a large body the very field is named, and each of several."""
    body = {"fine": "${{ key }}", "list": [1, "a ${{ steps.x.output }} b"], "a b": "${{ saga.x }}"}

    found = [fault.path for fault in faults_of(with_value(IN_ACTION, body))]

    assert found == [
        "steps[1].action.http.json.list[1]",
        'steps[1].action.http.json["a b"]',
    ]


@pytest.mark.parametrize("expression", ["secrets.x", "steps.x.output"])
def test_expressions_that_are_all_wrong_are_counted(expression: str) -> None:
    """Those beyond the limit are not explained any more, and not forgotten either."""
    faults = faults_of(a_document(output=[f"${{{{ {expression} }}}}"] * (FAULTS_MAX + 1)))

    assert len(faults) == FAULTS_MAX + 1
    assert faults[-1].message == "1 more faults are not listed"


CLOSED = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "city": {"type": "string"},
        "open": {"type": "object", "properties": {"x": {}}},
        "closed": {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
    },
}


@pytest.mark.parametrize(
    ("expression", "message", "accepted"),
    [
        (
            "input.citi",
            "the input schema of 'input' has no 'citi'; did you mean 'city'?",
            "input.city, input.open, input.closed",
        ),
        ("input.closed.y", "the input schema of 'input.closed' has no 'y'", "input.closed.x"),
    ],
)
def test_an_input_that_the_schema_excludes_is_a_fault(
    expression: str, message: str, accepted: str
) -> None:
    """Where the schema allows no other fields, a reference to another one can have no value."""
    document = with_value(IN_ACTION, f"${{{{ {expression} }}}}", input=CLOSED)

    assert faults_of(document) == [
        Fault(path="steps[1].action.http.json", message=message, accepted=accepted)
    ]


@pytest.mark.parametrize(
    ("expression", "schema"),
    [
        ("input.city", CLOSED),
        ("input.open.y", CLOSED),
        ("input.city.whatever", CLOSED),
        ("input.x", {"properties": {"city": {}}}),
        ("input.x", {"additionalProperties": False, "patternProperties": {"^x": {}}}),
        ("input.x", True),
        ("input.x", {"additionalProperties": False, "properties": []}),
    ],
)
def test_an_input_that_the_schema_may_allow_is_none(expression: str, schema: JsonValue) -> None:
    """Schemas are open unless they say otherwise."""
    document = with_value(IN_ACTION, f"${{{{ {expression} }}}}", input=schema)

    assert parse_definition(document).input_schema == schema

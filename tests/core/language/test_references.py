"""What the expressions of a definition may refer to, and where."""

import pytest

from app.core.definition import Definition
from app.core.errors import Fault
from app.core.json_value import JsonValue
from app.core.language import parse_definition
from tests.core.language.documents import COMPENSATION, HTTP, Place, faults_of, with_value

IN_ACTION = (*HTTP, "json")
IN_COMPENSATION: Place = (*COMPENSATION, "http", "body")
IN_OUTPUT: Place = ("output",)

BEFORE = "a step that has run by then: flight"
BEFORE_OR_THIS = "a step that has run by then: flight, hotel"
ANY = "a step that has run by then: flight, hotel, charge"


@pytest.mark.parametrize(
    ("place", "expression", "message", "accepted"),
    [
        (
            IN_ACTION,
            "steps.flihgt.output",
            "no step has the id 'flihgt'; did you mean 'flight'?",
            BEFORE,
        ),
        (
            IN_ACTION,
            "steps.charge.output",
            "the step 'charge' has not run by then: it does not come before this",
            BEFORE,
        ),
        (
            IN_ACTION,
            "steps.hotel.output",
            "the step 'hotel' has not run by then: it does not come before this",
            BEFORE,
        ),
        (
            IN_COMPENSATION,
            "steps['charge'].output",
            "the step 'charge' has not run by then: it does not come before this",
            BEFORE_OR_THIS,
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
            "action.accepted.id",
            "'action.accepted' is not supported in this release",
            "action.output",
        ),
        (
            IN_COMPENSATION,
            "action.body",
            "'action' has no 'body'",
            "action.output, action.effect, action.key, action.request",
        ),
        (
            IN_COMPENSATION,
            "failure.reason",
            "'failure' has no 'reason'",
            "failure.cause, failure.step, failure.code, failure.message, failure.http_status",
        ),
    ],
)
def test_a_reference_that_can_have_no_value_is_a_fault(
    place: Place, expression: str, message: str, accepted: str
) -> None:
    """A reference to what is not there, or not yet, is found before anything runs."""
    document = with_value(place, f"${{{{ {expression} }}}}")
    path = place[0] if len(place) == 1 else f"steps[1].{'.'.join(map(str, place[2:]))}"

    assert faults_of(document) == [Fault(path=str(path), message=message, accepted=accepted)]


@pytest.mark.parametrize(
    ("place", "expression"),
    [
        (IN_ACTION, "steps.flight.output.id"),
        (IN_ACTION, "steps.flight.effect"),
        (IN_ACTION, "steps['flight']"),
        (IN_ACTION, "steps[input.which].output"),
        (IN_ACTION, "key"),
        (IN_ACTION, "vars.anything.at_all"),
        (IN_ACTION, "input.anything.at_all"),
        (IN_ACTION, "[saga.id, saga.business_key]"),
        (IN_COMPENSATION, "steps.hotel.output.id"),
        (IN_COMPENSATION, "[action.output, action.effect, action.key, action.request.url]"),
        (IN_COMPENSATION, "failure.cause + failure.step"),
        (IN_OUTPUT, "[steps.flight.output, steps.hotel.output, steps.charge.output]"),
    ],
)
def test_a_reference_that_can_have_a_value_is_none(place: Place, expression: str) -> None:
    """What may be there is allowed; a computed index cannot be checked."""
    definition = parse_definition(with_value(place, f"${{{{ {expression} }}}}"))

    assert isinstance(definition, Definition)


@pytest.mark.parametrize(
    ("place", "expression"),
    [
        (IN_ACTION, "action.output"),
        (IN_ACTION, "failure.code"),
        (IN_OUTPUT, "key"),
        (IN_OUTPUT, "action.key"),
        (IN_ACTION, "secrets.token"),
        (IN_ACTION, "1 +"),
        (IN_ACTION, ""),
        ((*HTTP, "url"), "1 +"),
    ],
)
def test_an_expression_that_cannot_be_compiled_is_a_fault(place: Place, expression: str) -> None:
    """What the compiler says is passed on, with the path and the source."""
    document = with_value(place, f"${{{{ {expression} }}}}")
    path = place[0] if len(place) == 1 else f"steps[1].{'.'.join(map(str, place[2:]))}"

    (fault,) = faults_of(document)

    assert fault.path == path
    assert fault.message
    assert fault.accepted


def test_a_wrong_reference_is_found_where_it_stands() -> None:
    """Of a large body the very field is named, and each of several."""
    body = {"fine": "${{ key }}", "list": [1, "a ${{ steps.x.output }} b"], "a b": "${{ saga.x }}"}

    found = [fault.path for fault in faults_of(with_value(IN_ACTION, body))]

    assert found == [
        "steps[1].action.http.json.list[1]",
        'steps[1].action.http.json["a b"]',
    ]


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

"""The language of definitions: what is read, what is filled in, and what can be said of it."""

import copy
import datetime as dt
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from app.core.definition import Call, Definition, OnUnknown
from app.core.errors import InvalidDefinition
from app.core.json_value import JsonValue
from app.core.language.document import STEPS_MAX, canonical_bytes, parse_definition, warnings
from app.core.retry import ACTION_RETRY, COMPENSATION_RETRY
from tests.core.language.documents import (
    ACTION,
    COMPENSATION,
    Place,
    a_document,
    a_step,
    with_value,
)


def parsed(document: JsonValue) -> Definition | None:
    """The definition, or None if the document has faults; any other error is passed on."""
    try:
        return parse_definition(document)
    except InvalidDefinition:
        return None


def action_of(**fields: Any) -> Call:
    """The action of a step whose action has these fields beside a plain POST."""
    http = {"method": "POST", "url": "https://tool.test/bookings"}
    document = with_value(ACTION, {"http": http, **fields})
    return parse_definition(document).steps[1].action


# ---------------------------------------------------------------------------------- what is read


def test_a_definition_is_what_its_document_says() -> None:
    """Every field of the document is found in the definition, compiled where it is a template."""
    document = a_document(
        description="for people",
        input={"type": "object"},
        deadline="2h",
        output={"flight": "${{ steps.flight.output.id }}"},
    )

    definition = parse_definition(document, version=3)

    assert definition.name == "book_trip"
    assert definition.version == 3
    assert definition.description == "for people"
    assert definition.input_schema == {"type": "object"}
    assert definition.deadline == dt.timedelta(hours=2)
    assert [step.id for step in definition.steps] == ["flight", "hotel", "charge"]
    assert definition.output is not None
    assert definition.output.references == {("steps", "flight", "output", "id")}
    assert definition.document is document


def test_what_is_left_out_has_a_default() -> None:
    """The shortest document has no description, input schema, deadline or output."""
    definition = parse_definition(a_document())

    assert definition.version == 0
    assert definition.description == ""
    assert definition.input_schema is None
    assert definition.deadline is None
    assert definition.output is None


def test_a_call_has_the_built_in_limits() -> None:
    """Actions and compensations differ in their patience alone."""
    step = parse_definition(a_document()).steps[0]

    assert step.action.retry == ACTION_RETRY
    assert step.compensation.retry == COMPENSATION_RETRY
    for call in (step.action, step.compensation):
        assert call.timeout == dt.timedelta(seconds=5)
        assert call.key_lifetime == dt.timedelta(hours=24)
        assert call.late_window == dt.timedelta(seconds=10)


def test_defaults_are_merged_field_by_field() -> None:
    """What a call says goes over the defaults, and these over what is built in."""
    document = with_value(
        (*ACTION, "retry"),
        {"max_attempts": 9, "max_elapsed": "0s"},
        defaults={
            "action": {"timeout": "1s", "retry": {"max_attempts": 3, "backoff": 3}},
            "compensation": {"key_lifetime": "1h", "retry": {"max_elapsed": "3d"}},
        },
    )

    first, second, _ = parse_definition(document).steps

    assert first.action.retry.max_attempts == 3
    assert second.action.retry.max_attempts == 9
    assert second.action.retry.max_elapsed == dt.timedelta(0)
    assert second.action.retry.backoff == 3.0
    assert second.action.retry.initial_delay == ACTION_RETRY.initial_delay
    assert second.action.timeout == dt.timedelta(seconds=1)
    assert second.compensation.timeout == dt.timedelta(seconds=5)
    assert second.compensation.key_lifetime == dt.timedelta(hours=1)
    assert second.compensation.retry.max_elapsed == dt.timedelta(days=3)
    assert second.compensation.retry.max_attempts == COMPENSATION_RETRY.max_attempts


def test_every_limit_of_a_call_can_be_set() -> None:
    """A call that says everything is taken at its word."""
    call = action_of(
        timeout="5m",
        idempotent=True,
        on_unknown="give_up",
        key_lifetime="0s",
        late_window="1500ms",
        retry={
            "max_attempts": 1000,
            "initial_delay": "0s",
            "backoff": 1,
            "max_delay": "365d",
            "max_elapsed": "1.5h",
        },
    )

    assert call.timeout == dt.timedelta(minutes=5)
    assert call.on_unknown is OnUnknown.GIVE_UP
    assert call.key_lifetime == dt.timedelta(0)
    assert call.late_window == dt.timedelta(seconds=1.5)
    assert call.retry.max_attempts == 1000
    assert call.retry.initial_delay == dt.timedelta(0)
    assert call.retry.backoff == 1.0
    assert call.retry.max_delay == dt.timedelta(days=365)
    assert call.retry.max_elapsed == dt.timedelta(minutes=90)


@pytest.mark.parametrize(
    ("method", "idempotent", "expected"),
    [
        ("GET", False, OnUnknown.RESEND),
        ("HEAD", False, OnUnknown.RESEND),
        ("PUT", False, OnUnknown.RESEND),
        ("DELETE", False, OnUnknown.RESEND),
        ("POST", False, OnUnknown.GIVE_UP),
        ("PATCH", False, OnUnknown.GIVE_UP),
        ("POST", True, OnUnknown.RESEND),
        ("PATCH", True, OnUnknown.RESEND),
    ],
)
def test_what_is_harmless_is_resent(
    method: str,
    idempotent: bool,  # noqa: FBT001 - a column of the table
    expected: OnUnknown,
) -> None:
    """By default an unknown action is sent again only where repeating it does no harm."""
    call = action_of(http={"method": method, "url": "https://tool.test/"}, idempotent=idempotent)

    assert call.on_unknown is expected


def test_a_call_may_be_resent_on_its_authors_word() -> None:
    """``on_unknown`` goes over the default, whatever the method."""
    assert action_of(on_unknown="resend").on_unknown is OnUnknown.RESEND


def test_a_compensation_is_always_resent() -> None:
    """A compensation must tolerate repetition, a POST that knows no keys too."""
    http = {"method": "POST", "url": "https://tool.test/undo"}
    document = with_value(COMPENSATION, {"http": http})

    assert parse_definition(document).steps[1].compensation.on_unknown is OnUnknown.RESEND


def test_a_request_may_have_headers_and_a_body() -> None:
    """Templates stand in the URL, in header values, and in the body."""
    http = {
        "method": "PATCH",
        "url": "${{ vars.base }}/x?for=${{ input.who }}",
        "headers": {"X-Trip": "${{ saga.id }}", "Authorization": "Bearer ${{ vars.token }}"},
        "json": {"list": [1, None, "${{ steps.flight.output }}"]},
    }

    request = action_of(http=http).request

    assert request.method == "PATCH"
    assert [name for name, _ in request.headers] == ["X-Trip", "Authorization"]
    assert request.body is None
    assert request.references == {
        ("vars", "base"),
        ("input", "who"),
        ("saga", "id"),
        ("vars", "token"),
        ("steps", "flight", "output"),
    }


@pytest.mark.parametrize("body", [None, False, 0, "", [], {}])
def test_any_json_can_be_a_body(body: JsonValue) -> None:
    """A body of null is a body, unlike none at all."""
    http = {"method": "POST", "url": "https://tool.test/", "json": body}

    assert action_of(http=http).request.json is not None
    assert action_of().request.json is None


def test_a_text_body_is_a_template() -> None:
    """``body`` is text, and sent as it is."""
    http = {"method": "POST", "url": "https://tool.test/", "body": "city=${{ input.city }}"}

    request = action_of(http=http).request

    assert request.body is not None
    assert request.json is None


def test_an_output_of_null_is_an_output() -> None:
    """``output`` may be any JSON, with or without expressions."""
    assert parse_definition(a_document(output=None)).output is not None


def test_as_many_steps_as_allowed() -> None:
    """The limit itself is allowed."""
    steps = [a_step(f"s{number}") for number in range(STEPS_MAX)]

    assert len(parse_definition(a_document(steps=steps)).steps) == STEPS_MAX


# ----------------------------------------------------------------------------------- properties

JSON_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
WORDS = st.sampled_from(
    [
        *("amends", "name", "steps", "id", "action", "compensation", "http", "method", "url"),
        *("headers", "json", "body", "retry", "timeout", "output", "input", "properties", "POST"),
        *("${{key}}", "${{steps.flight.output}}", "5s", "https://tool.test/"),
    ]
)
JSON = st.recursive(
    JSON_LEAVES | WORDS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


def places_in(value: JsonValue, place: Place = ()) -> list[Place]:
    """Every place in a document but the top."""
    inner: list[tuple[str | int, JsonValue]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    below = [places_in(each, (*place, name)) for name, each in inner]
    return [*((*place, name) for name, _ in inner), *itertools.chain.from_iterable(below)]


FULL = a_document(
    description="",
    input={"type": "object"},
    deadline="1h",
    defaults={"action": {"timeout": "1s", "retry": {"backoff": 2}}},
    output={"x": "${{ steps.flight.output }}"},
)


@given(document=JSON)
def test_any_json_is_a_definition_or_has_faults(document: JsonValue) -> None:
    """Arbitrary JSON raises nothing but InvalidDefinition, with at least one fault."""
    assert parsed(document) is None or isinstance(document, dict)


@settings(max_examples=300)
@given(place=st.sampled_from(places_in(FULL)), value=JSON)
def test_anything_anywhere_is_a_definition_or_has_faults(place: Place, value: JsonValue) -> None:
    """A definition in which one thing was replaced at random is read, or has faults."""
    document = copy.deepcopy(FULL)
    parent: Any = document
    for name in place[:-1]:
        parent = parent[name]
    parent[place[-1]] = value

    definition = parsed(document)
    if definition is not None:
        assert definition.document is document
        assert all(warning.path for warning in warnings(definition))
        assert json.loads(canonical_bytes(document)) == document


# ------------------------------------------------------------------------------ canonical bytes


def test_layout_does_not_change_the_bytes() -> None:
    """The order of fields is layout; the order of items is content."""
    document = a_document(description="x")
    turned = dict(reversed(document.items()))

    assert canonical_bytes(turned) == canonical_bytes(document)
    assert canonical_bytes([1, 2]) != canonical_bytes([2, 1])


def test_the_bytes_are_compact_utf8() -> None:
    """No spaces, no escapes that are not needed, keys sorted at every level."""
    assert canonical_bytes({"b": [1, {"z": 1.5, "a": None}], "a": "ü"}) == (
        '{"a":"ü","b":[1,{"a":null,"z":1.5}]}'.encode()
    )


@given(JSON)
def test_the_bytes_say_the_whole_document(document: JsonValue) -> None:
    """What is read back from the bytes is the document, if it is sound."""
    try:
        encoded = canonical_bytes(document)
    except ValueError:
        return

    assert json.loads(encoded) == document


# ------------------------------------------------------------------------------------- warnings


def a_risky_document(*, url: str, **action: Any) -> dict[str, Any]:
    """A document whose middle step is undone by ``url``."""
    http = {"method": "POST", "url": "https://tool.test/bookings"}
    step = a_step(
        "hotel",
        action={"http": http, **action},
        compensation={"http": {"method": "DELETE", "url": url}},
    )
    return a_document(steps=[a_step("flight"), step, a_step("charge")])


@pytest.mark.parametrize("output", ["action.output.id", "steps.hotel.output"])
def test_an_undo_that_needs_a_lost_answer_is_warned_of(output: str) -> None:
    """A POST without idempotency, undone by its output, is stuck if its answer is lost."""
    document = a_risky_document(url=f"https://tool.test/bookings/${{{{ {output} }}}}")

    (warning,) = warnings(parse_definition(document))

    assert warning.path == "steps[1].compensation"
    assert repr(output) in warning.message
    assert "idempotent: true" in warning.accepted


@pytest.mark.parametrize(
    "document",
    [
        a_risky_document(url="https://tool.test/${{ action.output.id }}", idempotent=True),
        a_risky_document(url="https://tool.test/${{ action.key }}"),
        a_risky_document(url="https://tool.test/${{ steps.flight.output.id }}"),
        a_risky_document(url="https://tool.test/${{ action.request.url }}"),
        a_risky_document(
            url="https://tool.test/${{ action.output.id }}",
            http={"method": "PUT", "url": "https://tool.test/"},
        ),
    ],
    ids=["idempotent", "key", "another step", "request", "safe method"],
)
def test_an_undo_that_is_always_possible_is_not_warned_of(document: dict[str, Any]) -> None:
    """No warning where the action may be asked again, or its output is not needed."""
    assert warnings(parse_definition(document)) == []

"""The language of definitions: what is read, what is filled in, and what can be said of it."""

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given, settings

from app.core.definition import (
    Call,
    Callback,
    Definition,
    FunctionTemplate,
    HttpTemplate,
    Means,
    OnUnknown,
    Step,
    Verify,
)
from app.core.errors import InvalidDefinition
from app.core.expressions import Scope
from app.core.identity import Direction
from app.core.json_value import JsonValue
from app.core.language import canonical_bytes, parse_definition, warnings
from app.core.language.durations import DURATION_MAX
from app.core.language.steps import STEPS_MAX
from app.core.retry import ACTION_RETRY, COMPENSATION_RETRY
from tests.core.language.documents import (
    ACTION,
    CHANGED,
    COMPENSATION,
    JSON,
    STEP,
    WAITING_FOR_CALLBACK,
    a_document,
    a_read_only_step,
    a_step,
    a_verify,
    with_value,
    without,
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


def step_of(**fields: Any) -> Step:
    """A step that has these fields, too."""
    return parse_definition(with_value(STEP, a_step("hotel", **fields))).steps[1]


def compensation_of(**fields: Any) -> Call:
    """A compensation that has these fields beside a plain POST."""
    http = {"method": "POST", "url": "https://tool.test/undo"}
    step = parse_definition(with_value(COMPENSATION, {"http": http, **fields})).steps[1]
    return step.call(Direction.COMPENSATION)


def http_of(call: Call) -> HttpTemplate:
    """What a call sends, over HTTP."""
    assert isinstance(call.request, HttpTemplate)
    return call.request


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

    compensation = step.call(Direction.COMPENSATION)
    assert step.action.retry == ACTION_RETRY
    assert compensation.retry == COMPENSATION_RETRY
    for call in (step.action, compensation):
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
    compensation = second.call(Direction.COMPENSATION)
    assert compensation.timeout == dt.timedelta(seconds=5)
    assert compensation.key_lifetime == dt.timedelta(hours=1)
    assert compensation.retry.max_elapsed == dt.timedelta(days=3)
    assert compensation.retry.max_attempts == COMPENSATION_RETRY.max_attempts


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
    assert compensation_of().on_unknown is OnUnknown.RESEND
    assert compensation_of(verify=a_verify()).on_unknown is OnUnknown.RESEND


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ({"http": {"method": "POST", "url": "https://tool.test/"}}, OnUnknown.VERIFY),
        ({"http": {"method": "GET", "url": "https://tool.test/"}}, OnUnknown.RESEND),
        ({"python": {"function": "a.b"}}, OnUnknown.VERIFY),
        ({"python": {"function": "a.b"}, "idempotent": True}, OnUnknown.RESEND),
        ({"python": {"function": "a.b"}, "on_unknown": "give_up"}, OnUnknown.GIVE_UP),
        ({"python": {"function": "a.b"}, "on_unknown": "resend"}, OnUnknown.RESEND),
        (
            {"python": {"function": "a.b"}, "idempotent": True, "on_unknown": "verify"},
            OnUnknown.VERIFY,
        ),
    ],
)
def test_who_can_be_asked_is_asked(action: dict[str, Any], expected: OnUnknown) -> None:
    """Where a verify is declared, it is asked unless the same request is harmless."""
    assert step_of(action=action, verify=a_verify()).action.on_unknown is expected


def test_a_function_is_called_once_unless_it_says_more() -> None:
    """A Python function has no method that would say that repeating it is harmless."""
    call = step_of(action={"python": {"function": "a.b"}}).action

    assert call.on_unknown is OnUnknown.GIVE_UP
    assert call.method is None


def test_to_look_again_is_harmless() -> None:
    """The action of a read-only step is sent again, whatever its method."""
    http = {"method": "POST", "url": "https://tool.test/search"}
    steps = [
        a_read_only_step("plain", action={"http": http}),
        a_read_only_step("asked", action={"http": http}, verify=a_verify()),
    ]

    definition = parse_definition(a_document(steps=steps))

    assert [step.action.on_unknown for step in definition.steps] == [OnUnknown.RESEND] * 2


def test_a_request_may_have_headers_and_a_body() -> None:
    """Templates stand in the URL, in header values, and in the body."""
    http = {
        "method": "PATCH",
        "url": "${{ vars.base }}/x?for=${{ input.who }}",
        "headers": {"X-Trip": "${{ saga.id }}", "Authorization": "Bearer ${{ vars.token }}"},
        "json": {"list": [1, None, "${{ steps.flight.output }}"]},
    }

    request = http_of(action_of(http=http))

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

    assert http_of(action_of(http=http)).json is not None
    assert http_of(action_of()).json is None


def test_a_text_body_is_a_template() -> None:
    """``body`` is text, and sent as it is."""
    http = {"method": "POST", "url": "https://tool.test/", "body": "city=${{ input.city }}"}

    request = http_of(action_of(http=http))

    assert request.body is not None
    assert request.json is None


def test_an_output_of_null_is_an_output() -> None:
    """``output`` may be any JSON, with or without expressions."""
    assert parse_definition(a_document(output=None)).output is not None


def test_as_many_steps_as_allowed() -> None:
    """The limit itself is allowed."""
    steps = [a_step(f"s{number}") for number in range(STEPS_MAX)]

    assert len(parse_definition(a_document(steps=steps)).steps) == STEPS_MAX


# ----------------------------------------------------------------------- steps and what they need


def test_a_plain_list_is_a_sequence() -> None:
    """A step that does not say what it needs waits for the one before it in the file."""
    definition = parse_definition(a_document())

    assert [step.needs for step in definition.steps] == [(), ("flight",), ("hotel",)]
    assert [step.id for step in definition.in_order] == ["flight", "hotel", "charge"]


def test_steps_make_a_graph() -> None:
    """What is needed may stand anywhere in the file, and a step may need nothing at all."""
    steps = [
        a_step("a", needs=["c", "d"]),
        a_step("b", needs=[]),
        a_step("c"),
        a_step("d", needs=[]),
    ]

    definition = parse_definition(a_document(steps=steps))

    assert [step.needs for step in definition.steps] == [("c", "d"), (), ("b",), ()]
    assert definition.graph.ancestors[definition.steps[0].id] == {"b", "c", "d"}
    assert [step.id for step in definition.in_order] == ["b", "c", "d", "a"]


def test_a_step_says_when_it_is_its_turn_and_what_if_it_cannot() -> None:
    """Conditions and defaults are templates, flags are flags."""
    step = step_of(
        when="${{ steps.flight.output.stops > 1 }}",
        optional=True,
        default={"id": "${{ input.hotel }}"},
    )

    assert step.when is not None
    assert step.when.references == {("steps", "flight", "output", "stops")}
    assert step.optional
    assert step.default is not None
    assert step.default.references == {("input", "hotel")}


@pytest.mark.parametrize("default", [None, False, 0, "", [], {}])
def test_any_json_can_be_a_default(default: JsonValue) -> None:
    """A default of null is one, unlike none at all."""
    assert step_of(optional=True, default=default).default is not None
    assert step_of(optional=True).default is None


@pytest.mark.parametrize("name", ["read_only", "irreversible", "pivot", "optional"])
def test_each_flag_is_its_own(name: str) -> None:
    """A flag that is set sets no other; one that is false says nothing."""
    step = a_step("hotel", **{name: True})
    if name in {"read_only", "irreversible"}:
        step = without(step, "compensation")

    parsed_step = parse_definition(with_value(STEP, step)).steps[1]

    flags = ("read_only", "irreversible", "pivot", "optional")
    assert [flag for flag in flags if getattr(parsed_step, flag)] == [name]
    assert (parsed_step.compensation is None) == (name in {"read_only", "irreversible"})
    assert step_of(**{name: False}) == step_of()


# ------------------------------------------------------------------------------ calls in general


def test_a_call_of_a_function() -> None:
    """Its arguments are a template; there are none if none are given."""
    python = {"function": "travel.hotels.book", "arguments": {"city": "${{ input.city }}", "n": 2}}

    request = step_of(action={"python": python}).action.request
    without_arguments = step_of(action={"python": {"function": "a.b"}}).action.request

    assert isinstance(request, FunctionTemplate)
    assert request.function == "travel.hotels.book"
    assert request.references == {("input", "city")}
    assert isinstance(without_arguments, FunctionTemplate)
    assert without_arguments.arguments.render(Scope({})) == {}


def test_rules_for_answers_are_kept_in_their_order() -> None:
    """Each has a status, a condition, or both."""
    rules = [
        {"status": 200, "when": "${{ response.body.ok == false }}", "means": "refused"},
        {"status": 404, "means": "succeeded"},
        {"when": "${{ response.status > 500 }}", "means": "retry"},
    ]

    for call in (action_of(responses=rules), compensation_of(responses=rules)):
        assert [rule.status for rule in call.responses] == [200, 404, None]
        assert [rule.means for rule in call.responses] == [
            *(Means.REFUSED, Means.SUCCEEDED, Means.RETRY)
        ]
        assert [rule.when is not None for rule in call.responses] == [True, False, True]


def test_an_answer_may_only_acknowledge() -> None:
    """Then there is a time by which the outcome comes, and a rule may say which answers do."""
    rules = [{"status": 202, "means": "waiting"}]

    for call in (
        action_of(completion=WAITING_FOR_CALLBACK, responses=rules),
        compensation_of(completion=WAITING_FOR_CALLBACK, responses=rules),
    ):
        assert call.callback == Callback(within=dt.timedelta(hours=1))
        assert call.responses[0].means is Means.WAITING
    assert action_of().callback is None


def test_a_question_is_a_call_without_effect() -> None:
    """It may always be asked again, and its limits are those of actions."""
    document = with_value(
        STEP,
        a_step("hotel", verify=a_verify(retry={"max_attempts": 7}, output="${{ response.body }}")),
        defaults={"action": {"timeout": "2s", "late_window": "1m", "retry": {"backoff": 3}}},
    )

    verify = parse_definition(document).steps[1].action.verify

    assert isinstance(verify, Verify)
    assert verify.call.timeout == dt.timedelta(seconds=2)
    assert verify.call.retry.max_attempts == 7
    assert verify.call.retry.backoff == 3
    assert verify.call.idempotent
    assert verify.call.on_unknown is OnUnknown.RESEND
    assert verify.call.key_lifetime == DURATION_MAX
    assert verify.call.late_window == dt.timedelta(0)
    assert verify.done.references == verify.none.references == {("response", "status")}
    assert verify.output is not None
    assert verify.output.references == {("response", "body")}


def test_each_call_has_its_own_question() -> None:
    """That of the action stands on the step, that of the compensation within it."""
    asking = a_verify(timeout="9s", output=None)
    step = a_step("hotel", verify=a_verify())
    step["compensation"]["verify"] = asking

    read = parse_definition(with_value(STEP, step)).steps[1]
    verify, undo_verify = read.action.verify, read.call(Direction.COMPENSATION).verify

    assert verify is not None
    assert verify.output is None
    assert verify.call.timeout == dt.timedelta(seconds=5)
    assert undo_verify is not None
    assert undo_verify.output is not None
    assert undo_verify.call.timeout == dt.timedelta(seconds=9)
    assert read.find_call(Direction.VERIFY) is verify.call
    assert read.find_call(Direction.COMPENSATION_VERIFY) is undo_verify.call
    assert step_of().action.verify is None


# ----------------------------------------------------------------------------------- properties


@given(document=JSON)
def test_any_json_is_a_definition_or_has_faults(document: JsonValue) -> None:
    """Arbitrary JSON raises nothing but InvalidDefinition, with at least one fault."""
    assert parsed(document) is None or isinstance(document, dict)


@settings(max_examples=300)
@given(document=CHANGED)
def test_anything_anywhere_is_a_definition_or_has_faults(document: JsonValue) -> None:
    """A definition in which one thing was replaced at random is read, or has faults."""
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

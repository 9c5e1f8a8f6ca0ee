"""The language as JSON Schema: true to what is read, and a help to whoever writes."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings

from app.core.errors import InvalidDefinition
from app.core.json_value import JsonValue
from app.core.language import language_schema, parse_definition
from tests.core.language.documents import (
    ACTION,
    CHANGED,
    COMPENSATION,
    FULL,
    HTTP,
    MISSING,
    STEP,
    VERIFY,
    Place,
    a_document,
    a_read_only_step,
    a_step,
    a_verify,
    faults_of,
    with_value,
    without,
)

ROOT = Path(__file__).resolve().parents[3]
VALIDATOR = jsonschema.Draft202012Validator(language_schema())
RULES: Place = (*ACTION, "responses")


def is_valid(document: JsonValue) -> bool:
    """Whether the schema takes a document."""
    return bool(VALIDATOR.is_valid(document))


def test_the_schema_is_one() -> None:
    """It is valid by its own dialect."""
    jsonschema.Draft202012Validator.check_schema(language_schema())


def test_the_published_schema_is_that_of_the_language() -> None:
    """``scripts/definition-schema`` was run after the language had changed."""
    published = json.loads((ROOT / "docs" / "definition.schema.json").read_text(encoding="utf-8"))

    assert published == language_schema()


def test_each_call_makes_a_schema_of_its_own() -> None:
    """Whoever changes what was returned changes nothing for others."""
    first: Any = language_schema()
    first["properties"].clear()

    assert language_schema() != first


def walk(schema: Any) -> Any:
    """Every schema within a schema, of those that it is made of."""
    if isinstance(schema, dict):
        yield schema
        for each in schema.values():
            yield from walk(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from walk(each)


def test_every_field_is_described() -> None:
    """An editor has something to say about each."""
    schema: Any = language_schema()
    objects = [schema, *schema["$defs"].values()]

    for each in objects:
        assert each["additionalProperties"] is False
        assert each["description"].endswith(".")
        for name, member in each["properties"].items():
            assert member["description"].endswith("."), name


def test_every_reference_leads_somewhere() -> None:
    """All definitions are there, and all are used."""
    schema: Any = language_schema()
    used = {each["$ref"] for each in walk(schema) if "$ref" in each}

    assert used == {f"#/$defs/{name}" for name in schema["$defs"]}


def test_what_is_built_in_is_told() -> None:
    """The defaults that an editor shows are those of the direction."""
    defined: Any = language_schema()
    defined = defined["$defs"]

    assert defined["action"]["properties"]["timeout"]["default"] == "5s"
    assert defined["action"]["properties"]["key_lifetime"]["default"] == "1d"
    assert defined["action_retry"]["properties"]["max_attempts"]["default"] == 5
    assert defined["action_retry"]["properties"]["max_elapsed"]["default"] == "10m"
    assert defined["compensation_retry"]["properties"]["max_attempts"]["default"] == 20
    assert "default" not in defined["compensation_retry"]["properties"]["max_elapsed"]


@pytest.mark.parametrize("path", sorted((ROOT / "sagas").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_shipped_definitions_are_valid(path: Path) -> None:
    """They are what others copy."""
    assert is_valid(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_a_document_that_says_everything_is_valid() -> None:
    """So is one that says next to nothing."""
    assert parse_definition(FULL).document is FULL
    assert is_valid(FULL)
    assert is_valid(a_document())


@settings(max_examples=300)
@given(CHANGED)
def test_what_can_be_read_is_valid(document: JsonValue) -> None:
    """The schema refuses nothing that the reader takes."""
    try:
        parse_definition(document)
    except InvalidDefinition:
        return

    assert is_valid(document)


@pytest.mark.parametrize(
    "value", ["0s", "250ms", "1.5s", "0.5h", "365d", "000000000000001d", "0.000000001d"]
)
def test_durations_that_can_be_read_are_valid(value: str) -> None:
    """In all their forms."""
    document = with_value((*ACTION, "late_window"), value)

    assert parse_definition(document).document is document
    assert is_valid(document)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("amends",), MISSING),
        (("amends",), 2),
        (("amends",), "1"),
        (("name",), MISSING),
        (("name",), "Book-Trip"),
        (("name",), "a" * 101),
        (("description",), None),
        (("input",), "object"),
        (("deadline",), 30),
        (("deadline",), "0s"),
        (("deadline",), "0.0h"),
        (("deadline",), "1y"),
        (("step",), []),
        (("steps",), MISSING),
        (("steps",), []),
        (("steps",), {}),
        (("steps",), [a_step(f"s{number}") for number in range(501)]),
        (("defaults",), {"actions": {}}),
        (("defaults",), {"action": {"idempotent": True}}),
        (("defaults",), {"compensation": {"retry": {"max_delay": "soon"}}}),
        (STEP, "x"),
        ((*STEP, "id"), MISSING),
        ((*STEP, "id"), "Hotel"),
        ((*STEP, "id"), "a" * 65),
        ((*STEP, "needs"), "flight"),
        ((*STEP, "needs"), [1]),
        ((*STEP, "when"), True),
        ((*STEP, "when"), "input.x"),
        ((*STEP, "when"), " ${{ input.x }}"),
        ((*STEP, "read_only"), 1),
        ((*STEP, "read_only"), True),
        ((*STEP, "irreversible"), True),
        (STEP, without(a_step("hotel"), "compensation")),
        (STEP, without(a_step("hotel", read_only=False), "compensation")),
        (STEP, a_read_only_step("hotel", irreversible=True)),
        (STEP, a_step("hotel", pivot=True, optional=True)),
        (STEP, a_step("hotel", default=1)),
        (STEP, a_step("hotel", default=1, optional=False)),
        ((*STEP, "timeout"), "5s"),
        (ACTION, MISSING),
        (ACTION, {}),
        (ACTION, {"http": {"method": "GET", "url": "x"}, "python": {"function": "a.b"}}),
        (ACTION, {"mcp": {}}),
        (ACTION, {"python": {}}),
        (ACTION, {"python": {"function": "book"}}),
        (ACTION, {"python": {"function": "a.b", "arguments": []}}),
        (ACTION, {"python": {"function": "a.b", "arguments": {"a-b": 1}}}),
        ((*ACTION, "idempotent"), "yes"),
        ((*ACTION, "on_unknown"), "giveup"),
        ((*ACTION, "timeout"), "0s"),
        ((*ACTION, "retry"), {"max_attempts": 0}),
        ((*ACTION, "retry"), {"max_attempts": 1001}),
        ((*ACTION, "retry"), {"max_attempts": 1.5}),
        ((*ACTION, "retry"), {"backoff": 0.5}),
        ((*ACTION, "verify"), a_verify()),
        ((*ACTION, "completion"), {}),
        ((*ACTION, "completion"), {"callback": {}}),
        ((*ACTION, "completion"), {"callback": {"within": "0s"}}),
        (RULES, {}),
        (RULES, [{"means": "refused"}]),
        (RULES, [{"status": 409}]),
        (RULES, [{"status": 99, "means": "refused"}]),
        (RULES, [{"status": 600, "means": "refused"}]),
        (RULES, [{"status": 409, "means": "no"}]),
        (RULES, [{"status": 409, "means": "refused"}] * 51),
        ((*COMPENSATION, "on_unknown"), "resend"),
        (VERIFY, without(a_verify(), "http")),
        (VERIFY, without(a_verify(), "done")),
        (VERIFY, without(a_verify(), "none")),
        (VERIFY, a_verify(idempotent=True)),
        ((*COMPENSATION, "verify"), {}),
        ((*HTTP, "method"), MISSING),
        ((*HTTP, "method"), "TRACE"),
        ((*HTTP, "url"), MISSING),
        ((*HTTP, "url"), 1),
        ((*HTTP, "headers"), []),
        ((*HTTP, "headers"), {"X Y": "x"}),
        ((*HTTP, "headers"), {"X-Y": 1}),
        ((*HTTP, "headers"), {f"X-{number}": "" for number in range(51)}),
        ((*HTTP, "body"), 1),
        (HTTP, {"method": "POST", "url": "x", "json": 1, "body": "x"}),
        (HTTP, {"method": "GET", "url": "x", "json": False}),
        (HTTP, {"method": "HEAD", "url": "x", "body": ""}),
    ],
)
def test_what_is_wrong_in_form_is_not_valid(place: Place, value: object) -> None:
    """An editor shows what needs no knowledge of the rest of the document."""
    document = with_value(place, value)

    assert faults_of(document)
    assert not is_valid(document)

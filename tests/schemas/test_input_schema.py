"""Input schemas: which are valid, and what they say of an input."""

import pytest
from hypothesis import given, strategies as st

from app.core.errors import Fault
from app.core.json_value import JsonValue
from app.schemas import check_input, check_input_schema
from app.schemas.input_schema import SCHEMAS_MAX

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    "schema",
    [
        True,
        False,
        {},
        {"$schema": DIALECT, "type": "object"},
        {"$schema": f"{DIALECT}#"},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here"}}},
        {"properties": {"child": {"$ref": "#"}}},
        {"const": {"$ref": "https://example.test/"}, "enum": [{"$id": "x"}]},
        {"properties": {"$ref": {"type": "string"}, "$id": {}}},
        {"x-unknown": 1},
    ],
)
def test_a_valid_schema_has_no_faults(schema: JsonValue) -> None:
    """References within the schema are fine, and data and names are not taken for keywords."""
    assert check_input_schema(schema) == []


@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        (
            {"properties": {"city": {"type": "text"}}},
            "input.properties.city.type",
            "'text' is not valid under any of the given schemas",
        ),
        ({"required": "city"}, "input.required", "'city' is not of type 'array'"),
        ({"properties": {"a": 3}}, "input.properties.a", "3 is not of type 'object', 'boolean'"),
        ({"pattern": "("}, "input.pattern", "'(' is not a 'regex'"),
        (
            {"$ref": "https://example.test/schema"},
            "input.$ref",
            "'https://example.test/schema' is not within this schema",
        ),
        (
            {"allOf": [{"$ref": "file:///etc/passwd"}]},
            "input.allOf[0].$ref",
            "'file:///etc/passwd' is not within this schema",
        ),
        ({"$dynamicRef": "other#x"}, "input.$dynamicRef", "'other#x' is not within this schema"),
        ({"items": {"$ref": "#/$defs/x"}}, "input.items.$ref", "'#/$defs/x' leads nowhere"),
        ({"$ref": "#nowhere"}, "input.$ref", "'#nowhere' leads nowhere"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#"},
            "input.$schema",
            "the dialect 'http://json-schema.org/draft-07/schema#' is not supported",
        ),
        (
            {"items": {"$schema": DIALECT}},
            "input.items.$schema",
            "'$schema' is for the whole schema",
        ),
        (
            {"$defs": {"a": {"$id": "https://example.test/"}}},
            "input.$defs.a.$id",
            "'$id' would make references lead elsewhere",
        ),
        (
            {"$ref": "#"},
            "input",
            "the schema cannot be used: it leads in a circle, or too deep",
        ),
        (
            {"pattern": "a{99999999999}"},
            "input",
            "the schema cannot be used: the repetition number is too large",
        ),
    ],
)
def test_an_invalid_schema_is_a_fault(schema: JsonValue, path: str, message: str) -> None:
    """What is wrong is told at its path, and nothing is ever fetched."""
    (fault,) = check_input_schema(schema)

    assert fault.path == path
    assert fault.message == message
    assert fault.accepted


def test_a_schema_of_too_many_parts_is_a_fault() -> None:
    """A schema that would take seconds to check is refused before it does."""
    schema: JsonValue = {"properties": {f"p{number}": {} for number in range(SCHEMAS_MAX)}}

    assert check_input_schema(schema) == [
        Fault(
            path="input",
            message="more than 1000 schemas lie within it",
            accepted="at most 1000",
        )
    ]


def test_all_faults_of_a_schema_are_told() -> None:
    """Invalid keywords and bad references come together."""
    schema: JsonValue = {"minimum": "x", "maximum": "y", "properties": {"a": {"$ref": "other"}}}

    assert sorted(fault.path for fault in check_input_schema(schema)) == [
        "input.maximum",
        "input.minimum",
        "input.properties.a.$ref",
    ]


TRIP: JsonValue = {
    "type": "object",
    "required": ["city", "card"],
    "additionalProperties": False,
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "card": {"type": "string"},
        "nights": {"type": "integer", "minimum": 1},
        "stops": {"type": "array", "items": {"enum": ["A", "B"]}},
    },
}


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ({"city": "Rome", "card": "x"}, []),
        ({"city": "Rome", "card": "x", "nights": 2, "stops": ["A"]}, []),
        (
            {},
            [
                Fault(
                    path="input.city", message="is missing", accepted="an object with city, card"
                ),
                Fault(
                    path="input.card", message="is missing", accepted="an object with city, card"
                ),
            ],
        ),
        (
            {"city": 5, "card": "x"},
            [
                Fault(
                    path="input.city",
                    message="5 is not of type 'string'",
                    accepted='type: "string"',
                )
            ],
        ),
        (
            {"city": "Rome", "card": "x", "nihgts": 1},
            [
                Fault(
                    path="input.nihgts",
                    message="'nihgts' is no field here; did you mean 'nights'?",
                    accepted="city, card, nights, stops",
                )
            ],
        ),
        (
            {"city": "Rome", "card": "x", "nights": 0, "stops": ["A", "C"]},
            [
                Fault(
                    path="input.nights",
                    message="0 is less than the minimum of 1",
                    accepted="minimum: 1",
                ),
                Fault(
                    path="input.stops[1]",
                    message="'C' is not one of ['A', 'B']",
                    accepted='enum: ["A", "B"]',
                ),
            ],
        ),
        (
            None,
            [
                Fault(
                    path="input", message="None is not of type 'object'", accepted='type: "object"'
                )
            ],
        ),
    ],
)
def test_an_input_is_checked_against_its_schema(value: JsonValue, faults: list[Fault]) -> None:
    """Every fault is told at once, each at the very field that it is about."""
    assert check_input(TRIP, value) == faults


def test_any_input_fits_no_schema() -> None:
    """Without a schema, or with ``true``, everything is accepted."""
    assert check_input(None, 5) == []
    assert check_input(True, 5) == []


def test_no_input_fits_false() -> None:
    """``false`` accepts nothing."""
    assert check_input(False, 5) == [
        Fault(
            path="input", message="False schema does not allow 5", accepted="what the schema allows"
        )
    ]


def test_long_values_are_cut_in_messages() -> None:
    """A message is for people, and an input may have a megabyte."""
    (fault,) = check_input({"type": "object"}, "x" * 1_000_000)

    assert len(fault.message) < 300


def test_a_circle_that_only_an_input_meets_is_a_fault() -> None:
    """A schema that leads in a circle deep inside is found when an input gets there."""
    schema: JsonValue = {
        "properties": {"a": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"$ref": "#/$defs/x"}},
    }

    assert check_input_schema(schema) == []
    (fault,) = check_input(schema, {"a": 1})
    assert fault.path == "input"
    assert "circle" in fault.message


@pytest.mark.parametrize("dialect", [{}, {"$schema": DIALECT}])
def test_a_schema_that_unfolds_without_end_is_a_fault(dialect: dict[str, JsonValue]) -> None:
    """A few lines that double thirty times are stopped when published."""
    parts: dict[str, JsonValue] = {
        f"a{number}": {"allOf": [{"$ref": f"#/$defs/a{number + 1}"}] * 2} for number in range(30)
    }
    schema: JsonValue = {**dialect, "$ref": "#/$defs/a0", "$defs": {**parts, "a30": {}}}

    (fault,) = check_input_schema(schema)

    assert fault.message == "the schema cannot be used: it takes more than 200000 checks"


@pytest.mark.parametrize("dialect", [{}, {"$schema": DIALECT}])
def test_an_input_that_unfolds_without_end_is_a_fault(dialect: dict[str, JsonValue]) -> None:
    """A schema that doubles at each level of an input is stopped when a saga is started."""
    child: JsonValue = {"properties": {"child": {"$ref": "#"}}}
    schema: JsonValue = {**dialect, "allOf": [child, child]}
    value: JsonValue = 1
    for _ in range(30):
        value = {"child": value}

    assert check_input_schema(schema) == []
    (fault,) = check_input(schema, value)
    assert fault.message == "it cannot be checked: it takes more than 200000 checks"


def test_each_check_has_its_own_allowance() -> None:
    """A large input leaves as much for the next one."""
    schema: JsonValue = {"items": {"type": "integer"}}
    value: JsonValue = list(range(100_000))

    assert [check_input(schema, value) for _ in range(3)] == [[], [], []]


def test_a_deep_input_is_a_fault() -> None:
    """An input that is deeper than the stack is refused, not a crash."""
    value: JsonValue = 1
    for _ in range(5000):
        value = {"child": value}

    (fault,) = check_input({"properties": {"child": {"$ref": "#"}}}, value)

    assert fault.path == "input"


NAMES = st.sampled_from(
    ["type", "properties", "items", "$ref", "$defs", "required", "pattern", "allOf", "not", "$id"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["object", "#", "#/$defs/a", "a", "("]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=15,
)


@given(schema=VALUES, value=VALUES)
def test_a_valid_schema_decides_every_input(schema: JsonValue, value: JsonValue) -> None:
    """A schema without faults never raises, whatever the input."""
    if not check_input_schema(schema):
        check_input(schema, value)

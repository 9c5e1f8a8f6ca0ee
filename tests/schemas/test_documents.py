"""Documents as bytes: JSON, YAML and its traps, and both checks of a definition together."""

import json
import math
import re
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from app.core.errors import Fault, InvalidDefinition, PayloadTooLarge
from app.core.json_value import JsonValue
from app.schemas import load_definition, read_document
from app.schemas.documents import DOCUMENT_BYTES_MAX


def read_yaml(text: str) -> JsonValue:
    """Read a document that says it is YAML."""
    return read_document(text.encode(), content_type="application/yaml")


def faults_of(text: str, *, content_type: str = "application/yaml") -> list[Fault]:
    """What is wrong with a document."""
    with pytest.raises(InvalidDefinition) as caught:
        read_document(text.encode(), content_type=content_type)
    return list(caught.value.faults)


# ------------------------------------------------------------------------------------- notations


@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("application/json", '{"a": [1, true]}'),
        ("application/json; charset=utf-8", '{"a": [1, true]}'),
        ("Application/Amends+JSON", '{"a": [1, true]}'),
        ("application/yaml", "a: [1, true]"),
        ("text/yaml", "a:\n- 1\n- true"),
        ("application/x-yaml;charset=utf-8", '{"a": [1, true]}'),
        ("application/amends+yaml", "a: [1, true]"),
        (None, "a: [1, true]"),
        (None, '{"a": [1, true]}'),
        (None, "{a: [1, true]}"),
        ("application/x-www-form-urlencoded", "a: [1, true]"),
        ("", '\ufeff{"a": [1, true]}'),
        ("application/yaml", "\ufeffa: [1, true]"),
    ],
)
def test_json_and_yaml_are_one_document(content_type: str | None, text: str) -> None:
    """The content type says what it is; without one that does, the text itself does."""
    assert read_document(text.encode(), content_type=content_type) == {"a": [1, True]}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null"])
def test_nothing_is_null(text: str) -> None:
    """An empty YAML document says null, as YAML has it."""
    assert read_yaml(text) is None


def test_a_large_document_is_refused() -> None:
    """The limit is in bytes, and a document of exactly so many is read."""
    text = b'"' + b"x" * (DOCUMENT_BYTES_MAX - 2) + b'"'

    assert read_document(text, content_type="application/json") == "x" * (len(text) - 2)
    with pytest.raises(PayloadTooLarge, match="definition"):
        read_document(text + b" ", content_type="application/json")


def test_other_encodings_are_refused() -> None:
    """Text is UTF-8, and the first byte that is not is named."""
    with pytest.raises(InvalidDefinition) as caught:
        read_document("a: ü".encode("latin-1"), content_type=None)

    assert caught.value.faults == (
        Fault(path="", message="byte 4 is not UTF-8", accepted="text in UTF-8"),
    )


# ------------------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1, column 2: Expecting property name enclosed in double quotes"),
        ('{\n  "a": 1\n  "b": 2}', "line 3, column 3: Expecting ',' delimiter"),
        ("", "line 1, column 1: Expecting value"),
        ("a: 1", "line 1, column 1: Expecting value"),
        ('{"a": 1} x', "line 1, column 10: Extra data"),
    ],
)
def test_json_that_cannot_be_read_is_a_fault_with_its_place(text: str, message: str) -> None:
    """Line and column are those of the first character that does not fit."""
    assert faults_of(text, content_type="application/json") == [
        Fault(path="", message=message, accepted="JSON (RFC 8259)")
    ]


def test_a_key_that_comes_twice_in_json_is_a_fault() -> None:
    """Half the steps must not be silently gone."""
    text = '{"steps": [{"a": 1, "b": 2, "a": 3}], "x": {"y": {"z": 1}, "y": {}}}'

    assert faults_of(text, content_type="application/json") == [
        Fault(
            path="steps[0].a",
            message="the key 'a' is here more than once",
            accepted="each key once",
        ),
        Fault(path="x.y", message="the key 'y' is here more than once", accepted="each key once"),
    ]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("NaN", "nan is not a number"),
        ("-Infinity", "-inf is not a number"),
        ("1e400", "inf is not a number"),
        ("9223372036854775808", "a whole number of more than 64 bits would lose digits"),
        ("1" * 5000, "a whole number of more than 64 bits would lose digits"),
    ],
)
def test_numbers_that_json_libraries_disagree_on_are_faults(number: str, message: str) -> None:
    """What would arrive as another number is refused."""
    (fault,) = faults_of(f'{{"a": [{number}]}}', content_type="application/json")

    assert fault.path == "a[0]"
    assert fault.message == message


@pytest.mark.parametrize("content_type", ["application/json", "application/yaml", None])
@pytest.mark.parametrize("opening", ["[", '{"a":', "[{a: "])
def test_depth_is_limited(content_type: str | None, opening: str) -> None:
    """Neither reader overflows its stack."""
    with pytest.raises(InvalidDefinition) as caught:
        read_document(opening.encode() * 50_000, content_type=content_type)

    assert len(caught.value.faults) == 1


# ------------------------------------------------------------------------------------- YAML values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("1", 1),
        ("-17", -17),
        ("+5", 5),
        ("0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("9223372036854775807", 2**63 - 1),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-1.5E-3", -0.0015),
    ],
)
def test_plain_scalars_are_those_of_yaml_1_2(text: str, expected: JsonValue) -> None:
    """Booleans, null and numbers are what the core schema says they are."""
    read = read_yaml(f"a: {text}")

    assert read == {"a": expected}
    assert isinstance(read, dict)
    assert type(read["a"]) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "yes",
            "no",
            "on",
            "off",
            "y",
            "n",
            "Yes",
            "NO",
            "tRue",
            "none",
            "nil",
            "nan",
            "infinity",
        ),
        *("2026-03-01", "2026-03-01T12:00:00Z", "12:30", "1:30:00", "5s", "1.2.3", "1_000", "+-1"),
        *("0b11", "0x", "1e", "e3", ".", "=", "${{ key }}"),
    ],
)
def test_everything_else_is_text(text: str) -> None:
    """Norway is a country, a date is text, and half past twelve is not 750."""
    assert read_yaml(f"a: {text}") == {"a": text}
    assert read_yaml(f"a: '{text}'") == {"a": text}


@pytest.mark.parametrize("text", ["true", "1", "null", "1.5", ".inf", "0123", "~"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_make_text(text: str, quote: str) -> None:
    """Whatever stands in quotes is text."""
    assert read_yaml(f"a: {quote}{text}{quote}") == {"a": text}


def test_blocks_are_text() -> None:
    """Literal and folded blocks are text, too."""
    assert read_yaml("a: |\n  1\nb: >-\n  true\n") == {"a": "1\n", "b": "true"}


def test_keys_that_yaml_1_1_would_turn_are_text() -> None:
    """``on`` and ``no`` are names like others."""
    assert read_yaml("on: 1\nno: 2\ny: 3\n") == {"on": 1, "no": 2, "y": 3}


# -------------------------------------------------------------------------------------- YAML traps


@pytest.mark.parametrize(
    ("text", "path", "message", "accepted"),
    [
        (
            "a:\n  b: 1\n  c: 2\n  b: 3\n",
            "a.b",
            "line 4, column 3: the key 'b' is here again, after line 2",
            "each key once",
        ),
        (
            "{a: 1, 'a': 2}",
            "a",
            "line 1, column 8: the key 'a' is here again, after line 1",
            "each key once",
        ),
        (
            "a: &x 1",
            "a",
            "line 1, column 4: the anchor &x is not supported",
            "the value without it",
        ),
        (
            "a:\n - *x",
            "a[0]",
            "line 2, column 4: the alias *x is not supported",
            "the value itself, written out",
        ),
        (
            "a: !!python/object:os.x y",
            "a",
            "line 1, column 4: the tag 'tag:yaml.org,2002:python/object:os.x' is not supported",
            "the value without it; text in quotes",
        ),
        (
            "a: !!str 1",
            "a",
            "line 1, column 4: the tag 'tag:yaml.org,2002:str' is not supported",
            "the value without it; text in quotes",
        ),
        (
            "a: !mine [1]",
            "a",
            "line 1, column 4: the tag '!mine' is not supported",
            "the value without it; text in quotes",
        ),
        ("1: x", "", "line 1, column 1: the key 1 is not text", "the key in quotes"),
        (
            "a: {true: x}",
            "a",
            "line 1, column 5: the key true is not text",
            "the key in quotes",
        ),
        (
            "? [a]\n: b",
            "",
            "line 1, column 3: a key is a list, an object or an alias",
            "text as key",
        ),
        (
            "a: {<<: {b: 1}}",
            "a",
            "line 1, column 5: the merge key << is not supported",
            "the fields themselves, written out",
        ),
        (
            "zip: 01234",
            "zip",
            "line 1, column 6: the number '01234' would lose its leading zero",
            "the number without it, or text in quotes",
        ),
        ("a: .nan", "a", "line 1, column 4: .nan is no finite number", "a finite number"),
        ("a: -.inf", "a", "line 1, column 4: -.inf is no finite number", "a finite number"),
        ("a: 1e999", "a", "line 1, column 4: 1e999 is no finite number", "a finite number"),
        (
            "a: 18446744073709551615",
            "a",
            "a whole number of more than 64 bits would lose digits",
            "the same digits as text, in quotes",
        ),
        ("a: 1\n---\na: 2\n", "", "line 2, column 1: a second document begins", "one document"),
        ('a: "\\0"', "a", "a text holds a NUL character", "text without it"),
        (
            "a: 1\nb: \x01",
            "",
            "line 2, column 4: control characters are not allowed",
            "characters that can be seen",
        ),
    ],
)
def test_a_trap_is_a_fault_with_its_place(
    text: str, path: str, message: str, accepted: str
) -> None:
    """What YAML would silently turn, unfold or run is refused, with line and column."""
    assert faults_of(text) == [Fault(path=path, message=message, accepted=accepted)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: [1\nb: 2\n", "line 2, column 2"),
        ("a: x: y", "line 1, column 5"),
        ("a:\n\tb: 1", "line 2, column 1"),
        ("a: 'x", "line 1, column 6"),
        ("a: {url: ${{ vars.x }}/y}", "line 1, column 11"),
        ("a: ${{ b ? c : d }}", "line 1, column 14"),
    ],
)
def test_yaml_that_cannot_be_read_is_a_fault_with_its_place(text: str, place: str) -> None:
    """A syntax error says where, and thinks of expressions without quotes."""
    (fault,) = faults_of(text)

    assert fault.path == ""
    assert fault.message.startswith(f"{place}: ")
    assert '"${{ ... }}"' in fault.accepted


def test_all_traps_are_told_at_once() -> None:
    """Only what ends the reading hides what comes after it."""
    faults = faults_of("a: &x 1\nb: !t 2\nc: .nan\nc: 3\n")

    assert [fault.path for fault in faults] == ["a", "b", "c", "c"]


def test_a_billion_laughs_unfold_to_none() -> None:
    """Aliases are refused before anything is unfolded."""
    lines = ["a0: &a0 [x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)
    ]

    faults = faults_of("\n".join(lines))

    assert len(faults) == 9 + 8 * 9


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=10)
NO_NUMBER = TEXT.filter(lambda text: re.match(r"[-+.0-9]", text) is None)
"""PyYAML writes without quotes what is a number in YAML 1.2 alone, such as 0e0."""


def json_with(text: st.SearchStrategy[str]) -> st.SearchStrategy[JsonValue]:
    """Any JSON whose texts are from ``text``."""
    numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    leaves: st.SearchStrategy[JsonValue] = st.none() | st.booleans() | numbers | text
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=20,
    )


@given(json_with(TEXT))
def test_json_survives(document: JsonValue) -> None:
    """What is written as JSON is read as it was."""
    raw = json.dumps(document).encode()

    assert read_document(raw, content_type="application/json") == document


@given(json_with(NO_NUMBER))
def test_yaml_survives(document: JsonValue) -> None:
    """What PyYAML writes, with its many quotes and blocks, is read as it was."""
    raw = yaml.safe_dump(document, allow_unicode=True).encode()

    assert read_document(raw, content_type="application/yaml") == document


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_read_or_has_faults(text: str) -> None:
    """Whatever comes in, nothing but the caller's error comes out."""
    raw = text.encode("utf-8", "surrogatepass")

    for content_type in (None, "application/json", "application/yaml"):
        with suppress(InvalidDefinition):
            read_document(raw, content_type=content_type)


# ------------------------------------------------------------------------------ both checks at once


def a_document(**changes: Any) -> dict[str, Any]:
    """A valid document of one step."""
    call = {"http": {"method": "DELETE", "url": "https://tool.test/"}}
    step = {"id": "one", "action": call, "compensation": call}
    return {"amends": 1, "name": "tidy", "steps": [step], **changes}


def test_a_valid_document_is_loaded() -> None:
    """A definition with a valid schema is what the core made of it."""
    definition = load_definition(a_document(input={"type": "object"}), version=4)

    assert definition.version == 4
    assert definition.input_schema == {"type": "object"}


def test_faults_of_the_core_and_of_the_schema_come_together() -> None:
    """Whoever found them, faults are told in the order of the document."""
    document = a_document(input={"properties": {"city": {"type": "text"}}}, output="${{ nope }}")
    document = {"nmae": "x", **document, "deadline": "soon"}

    with pytest.raises(InvalidDefinition) as caught:
        load_definition(document)

    assert [fault.path for fault in caught.value.faults] == [
        "nmae",
        "input.properties.city.type",
        "output",
        "deadline",
    ]


def test_an_input_that_is_no_schema_is_one_fault() -> None:
    """The core says it; the schema's check does not say it again."""
    with pytest.raises(InvalidDefinition) as caught:
        load_definition(a_document(input=3))

    assert [fault.path for fault in caught.value.faults] == ["input"]


@given(json_with(TEXT))
def test_any_input_schema_is_loaded_or_has_faults(schema: JsonValue) -> None:
    """Arbitrary JSON as a schema raises nothing but InvalidDefinition."""
    with suppress(InvalidDefinition):
        assert load_definition(a_document(input=schema)).input_schema == schema


@pytest.mark.parametrize("value", [math.nan, 10**30, "\ud800"])
def test_an_unsound_document_is_not_loaded(value: JsonValue) -> None:
    """A document that was not read by ``read_document`` is checked all the same."""
    with pytest.raises(InvalidDefinition):
        load_definition(a_document(output=value))

"""Every definition on the pages, and every part of one, is read by the real reader."""

from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from app.api.limits import BODY_BYTES_MAX
from app.connectors.transport import ANSWER_BYTES_MAX
from app.core.errors import InvalidDefinition
from app.core.expressions.interpolation import PLACE_CHARACTERS_MAX
from app.core.expressions.source import LOOPS_MAX, SOURCE_CHARACTERS_MAX
from app.core.faults import DEPTH_MAX
from app.core.json_value import JsonValue
from app.core.language import advice, language_schema, warnings
from app.core.language.answers import RESPONSES_MAX
from app.core.language.document import DOCUMENT, EXPRESSIONS_MAX
from app.core.language.durations import DURATION_MAX, format_duration
from app.core.language.http import HEADERS_MAX
from app.core.language.limits import ATTEMPTS_MAX, TIMEOUT_MAX
from app.core.language.places import ALL_ROOTS, ROOT_MEMBERS, STEP_MEMBERS
from app.core.language.python import PARAMETERS_MAX
from app.core.language.shapes import ListOf, Member, Shape
from app.core.language.steps import STEPS_MAX
from app.core.rendering import REQUEST_BYTES_MAX
from app.core.turn import ENTRIES_MAX, WEIGHT_BYTES_MAX
from app.schemas import load_definition, read_document
from app.schemas.documents import DOCUMENT_BYTES_MAX
from tests.docs.frames import FRAMES, GET, STEP, STEP_UNDONE, with_steps
from tests.docs.pages import ROOT, Block, blocks_in, first_words, rows, section, text_of, words

SCHEMA = jsonschema.Draft202012Validator(language_schema())
BLOCKS = blocks_in("yaml") + blocks_in("yaml", pages=("README",))


def framed(block: Block) -> Any:
    """The whole document that a block is, or is a part of."""
    read = read_document(block.text.encode(), content_type="application/yaml")
    return FRAMES[block.notes.get("in", "definition")](read)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_it_is_valid(block: Block) -> None:
    """The reader takes it, and so does the schema for editors."""
    document = framed(block)

    assert load_definition(document).steps
    assert [] == [error.message for error in SCHEMA.iter_errors(document)]


WHOLE = [block for block in BLOCKS if "in" not in block.notes]


@pytest.mark.parametrize("block", WHOLE, ids=lambda block: block.where)
def test_what_is_shown_whole_warns_of_nothing(block: Block) -> None:
    """What people copy is as it should be."""
    assert [] == warnings(load_definition(framed(block)))


# --------------------------------------------------------------------------------------- tables

HEADINGS = {
    "definition": "The document",
    "defaults": "`defaults`",
    "step": "A step",
    "http": "`http`",
    "python": "`python`",
    "action_retry": "`retry`",
    "compensation_retry": "`retry`",
    "completion": "`completion`",
    "callback": "`callback`",
    "response": "`responses`",
    "verify": "`verify`",
}
CALLS = {"action", "compensation"}
SAME_AS_CALLS = {"action_defaults", "compensation_defaults"}


def shapes(shape: Shape = DOCUMENT) -> Iterator[Shape]:
    """A shape, and all within it; some of them more than once."""
    yield shape
    for member in shape.members.values():
        kind = member.kind.item if isinstance(member.kind, ListOf) else member.kind
        if isinstance(kind, Shape):
            yield from shapes(kind)


SHAPES = {shape.name: shape for shape in shapes()}


def test_every_object_of_the_language_has_its_table() -> None:
    """A new one is documented somewhere."""
    assert set(SHAPES) == HEADINGS.keys() | CALLS | SAME_AS_CALLS


@pytest.mark.parametrize("name", HEADINGS)
def test_a_table_lists_every_field_and_no_other(name: str) -> None:
    """The table under its heading has a row for each."""
    assert set(SHAPES[name].members) == first_words("definitions", HEADINGS[name])


def test_the_table_of_calls_lists_every_field_of_both() -> None:
    """An action and a compensation differ by one field each."""
    both = {name for call in CALLS for name in SHAPES[call].members}

    assert both == first_words("definitions", "A call")


def shown(default: JsonValue) -> str:
    """A default as the tables write it."""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def members() -> Iterator[tuple[str, str, Member, int]]:
    """Fields with a default, the heading of their table, and the column that tells it."""
    for name, heading in {**HEADINGS, "action": "A call", "compensation": "A call"}.items():
        for field, member in SHAPES[name].members.items():
            if member.default is not None:
                yield heading, field, member, 3 if name == "compensation_retry" else 2


@pytest.mark.parametrize(
    ("heading", "field", "member", "column"),
    list(members()),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_defaults_are_true(heading: str, field: str, member: Member, column: int) -> None:
    """What a table says holds where nothing is said."""
    (told,) = [cells for cells in rows(section("definitions", heading)) if cells[0] == f"`{field}`"]

    assert shown(member.default) == told[column]


@pytest.mark.parametrize("name", [*HEADINGS, "action", "compensation"])
def test_what_is_required_is_said_to_be(name: str) -> None:
    """And nothing else is."""
    heading = HEADINGS.get(name, "A call")
    told = {
        cells[0].strip("`")
        for cells in rows(section("definitions", heading))
        if cells[2] == "required"
    }

    assert {field for field, member in SHAPES[name].members.items() if member.is_required} == told


# ---------------------------------------------------------------------------------- expressions

VERIFY: dict[str, Any] = {"http": GET, "done": "${{ true }}", "none": "${{ false }}"}
UNDO = STEP_UNDONE["compensation"]
PLACES: dict[str, Callable[[str], Any]] = {
    "`when`, `default`": lambda expression: {**STEP, "when": expression},
    "an action": lambda expression: {**STEP, "action": asking(expression)},
    "a compensation": lambda expression: {**STEP_UNDONE, "compensation": asking(expression)},
    "the request of a step's `verify`": lambda expression: {
        **STEP_UNDONE,
        "verify": VERIFY | asking(expression),
    },
    "the request of a compensation's `verify`": lambda expression: {
        **STEP_UNDONE,
        "compensation": {**UNDO, "verify": VERIFY | asking(expression)},
    },
    "`done`, `none` and `output` of a `verify`": lambda expression: {
        **STEP_UNDONE,
        "verify": {**VERIFY, "done": expression},
    },
    "`when` in `responses`": lambda expression: {
        **STEP,
        "action": {"http": GET, "responses": [{"when": expression, "means": "retry"}]},
    },
    "`output` of the document": lambda expression: STEP,
}
AS_ITS_REQUEST = "as its request without `secrets`"


def asking(expression: str) -> dict[str, Any]:
    """A call that sends what an expression gives."""
    return {"http": {"method": "POST", "url": "https://tool.example/", "json": expression}}


def seen_at(place: str) -> set[str]:
    """The roots that an expression may use at a place, as the reader has it."""
    seen = set()
    for root in ALL_ROOTS:
        expression = f"${{{{ {root} == '' }}}}"
        written = with_steps(PLACES[place](expression))
        if "document" in place:
            written["output"] = expression
        try:
            load_definition(written)
        except InvalidDefinition as error:
            if any(f"there is no {root!r} here" in fault.message for fault in error.faults):
                continue
        seen.add(root)
    return seen


def test_the_table_of_places_is_true() -> None:
    """It says of every place what an expression sees there."""
    told = {cells[0]: cells[1] for cells in rows(section("definitions", "What they see"))}
    step_verify = words(told["the request of a step's `verify`"])

    assert set(PLACES) <= set(told)
    for place in PLACES:
        expected = words(told[place])
        if told[place].startswith(AS_ITS_REQUEST):
            expected = (expected | step_verify) - {"secrets"}
        assert seen_at(place) == expected, place


def test_the_table_of_roots_is_complete() -> None:
    """Every root has a row, which names each of its members."""
    table = rows(section("definitions", "What they see"))
    told = {cells[0].strip("`"): cells[1] for cells in table}

    assert set(told) >= ALL_ROOTS
    for root, known in ROOT_MEMBERS.items():
        assert words(told[root]) >= {f"{root}.{member}" for member in known}
    assert words(told["steps"]) >= {f"steps.ID.{member}" for member in STEP_MEMBERS}


# --------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("heading", "limit"),
    [
        ("The document", f"1 to {STEPS_MAX} steps"),
        ("A call", f"at most {RESPONSES_MAX} rules"),
        ("A call", f"at most `{format_duration(TIMEOUT_MAX)}`"),
        ("`http`", f"at most {HEADERS_MAX} further headers"),
        ("`python`", f"at most {PARAMETERS_MAX}, by parameter name"),
        ("`retry`", f"1 to {ATTEMPTS_MAX}"),
        ("Durations and limits", f"At most `{format_duration(DURATION_MAX)}`"),
        ("Durations and limits", f"{EXPRESSIONS_MAX} expressions"),
        ("Durations and limits", f"{DEPTH_MAX} lists and objects"),
        ("Durations and limits", f"{SOURCE_CHARACTERS_MAX} characters, {LOOPS_MAX} loops"),
        ("Durations and limits", f"{PLACE_CHARACTERS_MAX} characters"),
        ("Durations and limits", f"{ENTRIES_MAX} entries and {WEIGHT_BYTES_MAX >> 20} MiB"),
    ],
)
def test_limits_are_true(heading: str, limit: str) -> None:
    """The page says those of the code."""
    assert limit in section("definitions", heading)


def test_what_is_said_to_have_one_mebibyte_has() -> None:
    """Bodies, documents and answers have the same limit."""
    assert {DOCUMENT_BYTES_MAX, REQUEST_BYTES_MAX, BODY_BYTES_MAX, ANSWER_BYTES_MAX} == {1 << 20}


def test_each_warning_has_a_row() -> None:
    """As many as there are ways to be warned; the texts are for people."""
    ways = [name for name in vars(advice) if name in WARNINGS]

    assert sorted(ways) == sorted(WARNINGS)
    assert len(list(rows(section("definitions", "What is warned of")))) == len(WARNINGS) + 1


WARNINGS = (
    "_lost_answers",  # two rows: of the output, and of what was accepted
    "_silent_verify",
    "_blind_verify",
    "_questions_to_people",
    "_doubled",
    "_late_callback",
    "_forgotten_key",
)


def test_headers_that_the_service_sets_are_named() -> None:
    """Each that is more than framing."""
    told = section("definitions", "`http`")
    ours = {
        "Idempotency-Key",
        "Amends-Saga",
        "Amends-Step",
        "Amends-Call",
        "Amends-Attempt",
        "Amends-Callback-Url",
        "traceparent",
    }

    assert all(f"`{name}`" in told for name in ours)
    for name in ours:
        with pytest.raises(InvalidDefinition):
            load_definition(FRAMES["http"]({**GET, "headers": {name: "x"}}))


def test_shipped_definitions_are_counted() -> None:
    """The page says how many there are to copy from."""
    count = len(list((ROOT / "sagas").glob("*.yaml")))

    assert f"holds {NUMBERS[count]} definitions" in text_of("definitions")


NUMBERS = {7: "seven", 8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve"}

"""Every way for a document to be wrong, one at a time and all at once."""

import json
from collections.abc import Sequence

import pytest

from app.core.errors import Fault, InvalidDefinition
from app.core.faults import DEPTH_MAX, FAULTS_MAX
from app.core.json_value import JsonValue
from app.core.language.document import EXPRESSIONS_MAX, parse_definition
from app.core.language.steps import STEPS_MAX
from tests.core.language.documents import (
    ACTION,
    COMPENSATION,
    HTTP,
    MISSING,
    Place,
    a_document,
    a_step,
    faults_of,
    with_value,
)

TOP_FIELDS = "the fields amends, name, description, input, deadline, defaults, steps, output"
STEP_FIELDS = (
    "the fields id, needs, when, action, verify, compensation, read_only, irreversible, pivot, "
    "optional, default"
)
ACTION_FIELDS = (
    "the fields http, python, idempotent, on_unknown, completion, responses, "
    "timeout, retry, key_lifetime, late_window"
)
COMPENSATION_FIELDS = (
    "the fields http, python, idempotent, completion, responses, verify, "
    "timeout, retry, key_lifetime, late_window"
)
VERIFY_FIELDS = "the fields http, python, timeout, retry, done, none, output"
HTTP_FIELDS = "the fields method, url, headers, json, body"
RETRY_FIELDS = "the fields max_attempts, initial_delay, backoff, max_delay, max_elapsed"
LIMIT_FIELDS = "the fields timeout, retry, key_lifetime, late_window"
NAME = "at most 100 lower-case letters, digits and underscores, a letter first"
STEP_ID = "at most 64 lower-case letters, digits and underscores, a letter first"
METHODS = "one of: GET, HEAD, POST, PUT, PATCH, DELETE"
DURATION = "a duration like 250ms, 1.5s, 10m, 2h or 3d"
TEXT = "text, in quotes if need be"
A_HEADER = "any header that the service does not set itself"
UP_TO_A_YEAR = f"{DURATION}; at most 365d"
UP_TO_5M = f"{DURATION}; more than 0s and at most 5m"

FAULTS: Sequence[tuple[Place, object, str, str, str]] = [
    # The top.
    (("amends",), MISSING, "amends", "'amends' is missing", "1, the version of this language"),
    (
        ("amends",),
        2,
        "amends",
        "2 is no version of the language that this release knows",
        "1, the version of this language",
    ),
    (
        ("amends",),
        True,
        "amends",
        "true is no version of the language that this release knows",
        "1, the version of this language",
    ),
    (
        ("amends",),
        "1",
        "amends",
        "'1' is no version of the language that this release knows",
        "1, the version of this language",
    ),
    (("name",), MISSING, "name", "'name' is missing", NAME),
    (("name",), 7, "name", "7 is not text", NAME),
    (("name",), "Book-Trip", "name", "'Book-Trip' is not accepted here", NAME),
    (("name",), "", "name", "'' is not accepted here", NAME),
    (("name",), "a\n", "name", "'a\\n' is not accepted here", NAME),
    (("description",), None, "description", "null is not text", TEXT),
    (("input",), "object", "input", "'object' is no JSON Schema", "a JSON Schema (2020-12)"),
    (("input",), None, "input", "null is no JSON Schema", "a JSON Schema (2020-12)"),
    (
        ("deadline",),
        30,
        "deadline",
        "30 is a number without a unit",
        f"{DURATION}; more than 0s and at most 365d",
    ),
    (
        ("deadline",),
        "0s",
        "deadline",
        "'0s' is too short",
        f"{DURATION}; more than 0s and at most 365d",
    ),
    (("step",), [], "step", "'step' is no field here; did you mean 'steps'?", TOP_FIELDS),
    (("x",), 1, "x", "'x' is no field here", TOP_FIELDS),
    (("a.b",), 1, '["a.b"]', "'a.b' is no field here", TOP_FIELDS),
    (("steps",), MISSING, "steps", "'steps' is missing", "a list of 1 to 500 steps"),
    (("steps",), {}, "steps", "{} is not a list", "a list of 1 to 500 steps"),
    (("steps",), [], "steps", "the list has 0 items", "a list of 1 to 500 steps"),
    # Defaults.
    (
        ("defaults",),
        5,
        "defaults",
        "5 is not an object",
        "an object with the fields action, compensation",
    ),
    (
        ("defaults",),
        {"actions": {}},
        "defaults.actions",
        "'actions' is no field here; did you mean 'action'?",
        "the fields action, compensation",
    ),
    (
        ("defaults",),
        {"action": {"idempotent": True}},
        "defaults.action.idempotent",
        "'idempotent' has no default: it belongs to a call",
        LIMIT_FIELDS,
    ),
    (
        ("defaults",),
        {"compensation": {"retry": {"max_delay": "soon"}}},
        "defaults.compensation.retry.max_delay",
        "'soon' is not a duration",
        UP_TO_A_YEAR,
    ),
    # A step.
    (("steps", 1), "x", "steps[1]", "'x' is not an object", f"an object with {STEP_FIELDS}"),
    (("steps", 1, "id"), MISSING, "steps[1].id", "'id' is missing", STEP_ID),
    (("steps", 1, "id"), "Hotel", "steps[1].id", "'Hotel' is not accepted here", STEP_ID),
    (
        ("steps", 1, "id"),
        "flight",
        "steps[1].id",
        "'flight' is the id of steps[0] already",
        "an id that no other step has",
    ),
    (
        ACTION,
        MISSING,
        "steps[1].action",
        "'action' is missing",
        "a call, as {http: {method: ..., url: ...}}",
    ),
    (
        COMPENSATION,
        MISSING,
        "steps[1].compensation",
        "'compensation' is missing",
        (
            "a call that undoes the action; or 'read_only: true' if there is nothing to undo, or "
            "'irreversible: true' if it cannot be undone"
        ),
    ),
    (
        COMPENSATION,
        None,
        "steps[1].compensation",
        "null is not an object",
        f"an object with {COMPENSATION_FIELDS}",
    ),
    # A call.
    (
        ACTION,
        {"idempotent": True},
        "steps[1].action",
        "the call has no connector",
        "exactly one: http, python",
    ),
    *(
        (
            ACTION,
            {name: {}},
            f"steps[1].action.{name}",
            f"{name!r} is a connector that is not supported yet",
            ACTION_FIELDS,
        )
        for name in ("mcp", "worker", "saga", "sleep", "approval")
    ),
    (
        (*ACTION, "idempotnet"),
        True,
        "steps[1].action.idempotnet",
        "'idempotnet' is no field here; did you mean 'idempotent'?",
        ACTION_FIELDS,
    ),
    (
        (*ACTION, "idempotent"),
        "yes",
        "steps[1].action.idempotent",
        "'yes' is neither true nor false",
        "true or false",
    ),
    (
        (*ACTION, "on_unknown"),
        "giveup",
        "steps[1].action.on_unknown",
        "'giveup' is not accepted here; did you mean 'give_up'?",
        "one of: resend, verify, give_up",
    ),
    (
        (*COMPENSATION, "on_unknown"),
        "resend",
        "steps[1].compensation.on_unknown",
        "'on_unknown' is for actions only: a compensation is always sent again",
        COMPENSATION_FIELDS,
    ),
    (
        (*ACTION, "timeout"),
        "301s",
        "steps[1].action.timeout",
        "'301s' is too long",
        UP_TO_5M,
    ),
    ((*ACTION, "timeout"), "0s", "steps[1].action.timeout", "'0s' is too short", UP_TO_5M),
    ((*ACTION, "timeout"), True, "steps[1].action.timeout", "true is not a duration", UP_TO_5M),
    (
        (*ACTION, "key_lifetime"),
        "366d",
        "steps[1].action.key_lifetime",
        "'366d' is too long",
        UP_TO_A_YEAR,
    ),
    (
        (*ACTION, "late_window"),
        "-1s",
        "steps[1].action.late_window",
        "'-1s' is not a duration",
        UP_TO_A_YEAR,
    ),
    (
        (*ACTION, "retry"),
        {"attempts": 3},
        "steps[1].action.retry.attempts",
        "'attempts' is no field here; did you mean 'max_attempts'?",
        RETRY_FIELDS,
    ),
    *(
        (
            (*ACTION, "retry"),
            {"max_attempts": value},
            "steps[1].action.retry.max_attempts",
            f"{json.dumps(value)} is not a whole number from 1 to 1000",
            "a whole number from 1 to 1000",
        )
        for value in (0, 1001, 2.5, True, None)
    ),
    *(
        (
            (*ACTION, "retry"),
            {"backoff": value},
            "steps[1].action.retry.backoff",
            f"{json.dumps(value)} is not a number of at least 1",
            "a number of at least 1",
        )
        for value in (0.5, -1, True)
    ),
    (
        (*ACTION, "retry"),
        {"max_elapsed": None},
        "steps[1].action.retry.max_elapsed",
        "null is not a duration",
        UP_TO_A_YEAR,
    ),
    # HTTP.
    (
        HTTP,
        "GET /",
        "steps[1].action.http",
        "'GET /' is not an object",
        f"an object with {HTTP_FIELDS}",
    ),
    (
        (*HTTP, "uri"),
        "x",
        "steps[1].action.http.uri",
        "'uri' is no field here; did you mean 'url'?",
        HTTP_FIELDS,
    ),
    ((*HTTP, "method"), MISSING, "steps[1].action.http.method", "'method' is missing", METHODS),
    (
        (*HTTP, "method"),
        "TRACE",
        "steps[1].action.http.method",
        "'TRACE' is not accepted here",
        METHODS,
    ),
    (
        (*HTTP, "method"),
        "POSTS",
        "steps[1].action.http.method",
        "'POSTS' is not accepted here; did you mean 'POST'?",
        METHODS,
    ),
    (
        (*HTTP, "url"),
        MISSING,
        "steps[1].action.http.url",
        "'url' is missing",
        "an absolute http or https URL",
    ),
    ((*HTTP, "url"), 1, "steps[1].action.http.url", "1 is not text", TEXT),
    (
        (*HTTP, "headers"),
        [],
        "steps[1].action.http.headers",
        "[] is not an object",
        "an object from header names to text",
    ),
    *(
        (
            (*HTTP, "headers"),
            {name: "x"},
            f"steps[1].action.http.headers.{name}",
            f"the header {name!r} is set by the service",
            A_HEADER,
        )
        for name in (
            "Idempotency-Key",
            "idempotency-key",
            "Amends-Saga",
            "AMENDS-ANYTHING",
            "Host",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "traceparent",
        )
    ),
    (
        (*HTTP, "headers"),
        {"X Y": "x"},
        'steps[1].action.http.headers["X Y"]',
        "'X Y' is not a header name",
        "letters, digits and any of !#$%&'*+-.^_`|~",
    ),
    (
        (*HTTP, "headers"),
        {"": "x"},
        'steps[1].action.http.headers[""]',
        "'' is not a header name",
        "letters, digits and any of !#$%&'*+-.^_`|~",
    ),
    ((*HTTP, "headers"), {"X-Y": 1}, "steps[1].action.http.headers.X-Y", "1 is not text", TEXT),
    (
        (*HTTP, "headers"),
        {"X-Y": "1", "x-y": "2"},
        "steps[1].action.http.headers.x-y",
        "the header 'x-y' is here twice: case does not tell headers apart",
        "each header once",
    ),
    (
        (*HTTP, "headers"),
        {f"X-{number}": "" for number in range(51)},
        "steps[1].action.http.headers",
        "there are 51 headers",
        "at most 50 headers",
    ),
    (
        HTTP,
        {"method": "POST", "url": "https://tool.test/", "json": 1, "body": "x"},
        "steps[1].action.http.body",
        "'json' and 'body' exclude each other",
        "one of them, or none",
    ),
    (
        HTTP,
        {"method": "GET", "url": "https://tool.test/", "json": 1},
        "steps[1].action.http.json",
        "a GET request has no body",
        "parameters in the URL",
    ),
    (
        HTTP,
        {"method": "HEAD", "url": "https://tool.test/", "body": ""},
        "steps[1].action.http.body",
        "a HEAD request has no body",
        "parameters in the URL",
    ),
    ((*HTTP, "body"), 5, "steps[1].action.http.body", "5 is not text", TEXT),
]


@pytest.mark.parametrize(
    ("place", "value", "path", "message", "accepted"),
    FAULTS,
    ids=[f"{number}-{row[2]}" for number, row in enumerate(FAULTS)],
)
def test_a_fault_has_a_path_a_message_and_a_way_out(
    place: Place, value: object, path: str, message: str, accepted: str
) -> None:
    """One thing wrong is one fault, which says where, what, and what would be right."""
    document = with_value(place, value)

    assert faults_of(document) == [Fault(path=path, message=message, accepted=accepted)]


@pytest.mark.parametrize("document", [None, True, 1, 1.5, "amends: 1", []])
def test_a_document_is_an_object(document: JsonValue) -> None:
    """Any other JSON is one fault, of the whole."""
    assert faults_of(document) == [
        Fault(
            path="",
            message=f"{document!r} is not an object"
            if isinstance(document, str)
            else f"{json.dumps(document)} is not an object",
            accepted=f"an object with {TOP_FIELDS}",
        )
    ]


def test_one_step_too_many() -> None:
    """More steps than allowed are counted, not read."""
    steps = [a_step(f"s{number}") for number in range(STEPS_MAX)]

    (fault,) = faults_of(a_document(steps=[*steps, "nonsense"]))

    assert fault.path == "steps"
    assert fault.message == "the list has 501 items"


# ---------------------------------------------------------------------------------- many faults


def test_all_faults_are_told_at_once_in_the_order_of_the_document() -> None:
    """An author sees everything that is wrong, from top to bottom."""
    document: JsonValue = {
        "output": "${{ steps.nope.output }}",
        "steps": [
            {
                "compensation": {"http": {"url": "https://tool.test/", "method": "undo"}},
                "action": {"timeout": 5, "http": {"method": "GET", "body": 1}},
                "id": "A",
            },
            17,
        ],
        "defaults": {"action": {"retry": {"backoff": 0}}},
        "nmae": "x",
        "amends": 3,
    }

    paths = [fault.path for fault in faults_of(document)]

    assert paths == [
        "name",
        "output",
        "steps[0].compensation.http.method",
        "steps[0].action.timeout",
        "steps[0].action.http.url",
        "steps[0].action.http.body",
        "steps[0].action.http.body",
        "steps[0].id",
        "steps[1]",
        "defaults.action.retry.backoff",
        "nmae",
        "amends",
    ]


def test_faults_beyond_the_limit_are_counted() -> None:
    """A document that is all wrong gets an answer of limited length."""
    document = a_document(**{f"x{number}": None for number in range(FAULTS_MAX + 7)})

    faults = faults_of(document)

    assert len(faults) == FAULTS_MAX + 1
    assert faults[-1] == Fault(
        path="", message="7 more faults are not listed", accepted="mend these first"
    )


def test_faults_that_others_found_are_told_too() -> None:
    """What is known already takes its place among what is found."""
    document = a_document(input={"type": "text"}, x=1)
    known = Fault(path="input.type", message="no type", accepted="a type")

    with pytest.raises(InvalidDefinition) as caught:
        parse_definition(document, known_faults=[known])

    assert caught.value.faults[0] == known
    assert [fault.path for fault in caught.value.faults] == ["input.type", "x"]


def test_too_many_expressions_are_a_fault() -> None:
    """A definition that would take seconds to compile is refused before it does."""
    (fault,) = faults_of(a_document(output=["${{ 1 }}"] * (EXPRESSIONS_MAX + 1)))

    assert fault.path == ""
    assert fault.accepted == "at most 5000 expressions"


# ------------------------------------------------------------------------------- unsound documents


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "nan is not a number"),
        (float("inf"), "inf is not a number"),
        (2**63, "a whole number of more than 64 bits would lose digits"),
        (-(2**63) - 1, "a whole number of more than 64 bits would lose digits"),
        ("a\0b", "a text holds a NUL character"),
        ("a\ud800b", "a text holds half a character (a lone surrogate)"),
    ],
)
def test_what_json_or_the_database_cannot_hold_is_a_fault(value: JsonValue, message: str) -> None:
    """Such a value would be lost or refused later; it is refused here."""
    (fault,) = faults_of(with_value((*HTTP, "json"), {"x": [value]}))

    assert fault.path == "steps[1].action.http.json.x[0]"
    assert fault.message == message


def test_a_name_that_cannot_be_stored_is_a_fault() -> None:
    """Names of fields are text too."""
    (fault,) = faults_of(with_value((*HTTP, "json"), {"a\0": 1}))

    assert fault.path == "steps[1].action.http.json"


def nested(levels: int) -> JsonValue:
    """So many lists within one another."""
    value: JsonValue = 1
    for _ in range(levels):
        value = [value]
    return value


def test_as_deep_as_allowed() -> None:
    """The limit itself is allowed."""
    assert parse_definition(a_document(output=nested(DEPTH_MAX - 1))).output is not None


@pytest.mark.parametrize("levels", [DEPTH_MAX, 100_000])
def test_too_deep_is_a_fault(levels: int) -> None:
    """However deep a document is, it overflows no stack."""
    (fault,) = faults_of(a_document(output=nested(levels)))

    assert fault.path == "output" + "[0]" * DEPTH_MAX
    assert fault.message == "more than 64 lists and objects lie within one another"

"""Documents of definitions to test with: valid, and changed in one place."""

import copy
import itertools
from typing import Any

import pytest
from hypothesis import strategies as st

from app.core.errors import Fault, InvalidDefinition
from app.core.json_value import JsonValue
from app.core.language import parse_definition

type Place = tuple[str | int, ...]
"""Where something stands in a document."""

MISSING = object()
"""Put this somewhere to leave it out."""

STEP: Place = ("steps", 1)
ACTION: Place = (*STEP, "action")
HTTP: Place = (*ACTION, "http")
COMPENSATION: Place = (*STEP, "compensation")
VERIFY: Place = (*STEP, "verify")
ASKED_BY_KEY = "https://tool.test/bookings?key=${{ action.key }}"
WAITING_FOR_CALLBACK = {"callback": {"within": "1h"}}


def a_step(step_id: str, **changes: Any) -> dict[str, Any]:
    """A step that books something and can be undone."""
    return {
        "id": step_id,
        "action": {
            "http": {"method": "POST", "url": "https://tool.test/bookings"},
            "idempotent": True,
        },
        "compensation": {
            "http": {"method": "DELETE", "url": "https://tool.test/bookings/${{ action.key }}"},
        },
        **changes,
    }


def a_verify(**changes: Any) -> dict[str, Any]:
    """A question whether something was booked."""
    return {
        "http": {"method": "GET", "url": ASKED_BY_KEY},
        "done": "${{ response.status == 200 }}",
        "none": "${{ response.status == 404 }}",
        **changes,
    }


def without(step: dict[str, Any], *names: str) -> dict[str, Any]:
    """A step, or a part of one, without some of its fields."""
    return {name: value for name, value in step.items() if name not in names}


def a_read_only_step(step_id: str, **changes: Any) -> dict[str, Any]:
    """A step that only looks."""
    return without(a_step(step_id, read_only=True, **changes), "compensation")


def a_document(**changes: Any) -> dict[str, Any]:
    """A document with three steps; the one in the middle is the one to change."""
    steps = [a_step("flight"), a_step("hotel"), a_step("charge")]
    return {"amends": 1, "name": "book_trip", "steps": steps, **changes}


def with_value(place: Place, value: object, **changes: Any) -> dict[str, Any]:
    """The document with one thing put in its place."""
    document = a_document(**changes)
    parent: Any = document
    for name in place[:-1]:
        parent = parent[name]
    if value is MISSING:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    return document


def faults_of(document: JsonValue) -> list[Fault]:
    """What is wrong with a document."""
    with pytest.raises(InvalidDefinition) as caught:
        parse_definition(document)
    return list(caught.value.faults)


# ---------------------------------------------------------------------------- documents at random

JSON_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
WORDS = st.sampled_from(
    [
        *("amends", "name", "steps", "id", "action", "compensation", "http", "method", "url"),
        *("headers", "json", "body", "retry", "timeout", "output", "input", "properties", "POST"),
        *("${{key}}", "${{steps.book.output}}", "5s", "https://tool.test/"),
        *("needs", "when", "verify", "done", "completion", "responses", "means", "look", "book"),
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
    steps=[
        a_read_only_step("look", when="${{ has(input.x) }}"),
        a_step("book", verify=a_verify(output=1), optional=True, default=None),
        without(a_step("pay", needs=["book"], irreversible=True, pivot=True), "compensation"),
        a_step(
            "wait",
            action={
                "python": {"function": "a.b", "arguments": {"x": "${{ callback.url }}"}},
                "completion": WAITING_FOR_CALLBACK,
                "responses": [{"status": 202, "when": "${{ true }}", "means": "waiting"}],
            },
        ),
    ],
    output={"x": "${{ steps.book.output }}"},
)


@st.composite
def changed(draw: st.DrawFn) -> dict[str, Any]:
    """A document that says everything, in which one thing was replaced at random."""
    document = copy.deepcopy(FULL)
    *parents, last = draw(st.sampled_from(places_in(FULL)))
    parent: Any = document
    for name in parents:
        parent = parent[name]
    parent[last] = draw(JSON | st.just(parent[last]))
    return document


CHANGED = changed()

"""Documents of definitions to test with: valid, and changed in one place."""

from typing import Any

import pytest

from app.core.errors import Fault, InvalidDefinition
from app.core.json_value import JsonValue
from app.core.language import parse_definition

type Place = tuple[str | int, ...]
"""Where something stands in a document."""

MISSING = object()
"""Put this somewhere to leave it out."""

ACTION: Place = ("steps", 1, "action")
HTTP: Place = (*ACTION, "http")
COMPENSATION: Place = ("steps", 1, "compensation")


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

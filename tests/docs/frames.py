"""What the fragments of definitions on the pages are put into, so that the real reader can read."""

from collections.abc import Callable, Mapping
from typing import Any

GET: Mapping[str, Any] = {"method": "GET", "url": "https://tool.example/status"}
STEP: Mapping[str, Any] = {"id": "example", "action": {"http": GET}, "read_only": True}
STEP_UNDONE: Mapping[str, Any] = {
    "id": "example",
    "action": {"http": {"method": "POST", "url": "https://tool.example/things", "json": {}}},
    "compensation": {"http": {"method": "DELETE", "url": "https://tool.example/things/1"}},
}


def document(**fields: Any) -> dict[str, Any]:
    """A document that is valid, but for what is put into it."""
    return {"amends": 1, "name": "example", "steps": [STEP], **fields}


def with_steps(*steps: Any) -> dict[str, Any]:
    """The same with other steps."""
    return document(steps=list(steps))


FRAMES: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "definition": lambda whole: whole,
    "document": lambda fields: document(**fields),
    "steps": lambda steps: with_steps(*steps),
    "step": lambda fields: with_steps({"id": "example", **fields}),
    "action": lambda fields: with_steps({**STEP_UNDONE, "action": fields}),
    "compensation": lambda fields: with_steps(
        {**STEP_UNDONE, "action": {**STEP_UNDONE["action"], "idempotent": True}}
        | {"compensation": fields}
    ),
    "verify": lambda fields: with_steps({**STEP_UNDONE, "verify": fields}),
    "http": lambda fields: with_steps({**STEP, "action": {"http": fields}}),
}
"""From what is noted before a block, ``<!-- in: action -->``, to the whole document."""

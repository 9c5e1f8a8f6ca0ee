"""Documents and requests that are valid by default; a test names only what it cares about."""

from app.core.json_value import JsonValue

type Json = dict[str, JsonValue]


def a_step(step: str, *, idempotent: bool = True) -> Json:
    """A step with an action and an undo by its output."""
    return {
        "id": step,
        "action": {
            "http": {"method": "POST", "url": f"http://tool.test/{step}"},
            "idempotent": idempotent,
        },
        "compensation": {
            "http": {
                "method": "DELETE",
                "url": f"http://tool.test/{step}/${{{{ action.output.id }}}}",
            }
        },
    }


def a_document(
    name: str = "book_trip", *, steps: list[Json] | None = None, **more: JsonValue
) -> Json:
    """A definition of two steps."""
    chosen: list[JsonValue] = [*(steps or [a_step("flight"), a_step("hotel")])]
    return {"amends": 1, "name": name, "steps": chosen, **more}

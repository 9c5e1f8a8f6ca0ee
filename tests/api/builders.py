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


def a_callback_step(step: str, *, compensation: Json | None = None) -> Json:
    """A step whose tool only acknowledges, and tells the outcome by webhook within an hour."""
    built = a_step(step)
    built["action"] |= {"completion": {"callback": {"within": "1h"}}}  # type: ignore[operator]  # an object
    if compensation is not None:
        built["compensation"] |= compensation  # type: ignore[operator]  # an object
    return built


def an_undo_by_key(step: str, **action: JsonValue) -> Json:
    """A step that cannot be asked again, and whose undo needs no output."""
    built = a_step(step, idempotent=False)
    built["action"] |= action  # type: ignore[operator]  # an object
    built["compensation"] = {
        "http": {
            "method": "POST",
            "url": "http://tool.test/undo",
            "json": {"of": "${{ action.key }}"},
        }
    }
    return built


def a_document(
    name: str = "book_trip", *, steps: list[Json] | None = None, **more: JsonValue
) -> Json:
    """A definition of two steps."""
    chosen: list[JsonValue] = [*(steps or [a_step("flight"), a_step("hotel")])]
    return {"amends": 1, "name": name, "steps": chosen, **more}

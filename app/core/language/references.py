"""What the expressions of a definition refer to, checked before anything runs.

The compiler knows the roots; this module knows the steps, their order, and what each root holds.
A computed index (``steps[input.which]``) cannot be checked, and is allowed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.core.expressions import Encoding, Template, compile_template
from app.core.faults import did_you_mean, listed, shown
from app.core.json_value import JsonValue
from app.core.language.fields import Field

STEP_MEMBERS = ("output", "effect")

ROOT_MEMBERS: Mapping[str, Sequence[str]] = {
    "saga": ("id", "business_key"),
    "action": ("output", "effect", "key", "request"),
    "failure": ("cause", "step", "code", "message", "http_status"),
}
"""What each root holds, where that is fixed; see ``rendering``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an expression stands.

    Attributes:
        roots: what it may begin with.
        steps: the ids of all steps, in order; what is no valid id is None.
        visible: so many of them, from the first, may be referred to.
        input_schema: as in the document.
    """

    roots: frozenset[str]
    steps: Sequence[str | None]
    visible: int
    input_schema: JsonValue


def compile_field(at: Field, place: Place, *, encode: Encoding = Encoding.TEXT) -> Template:
    """Compile a template and check what it refers to; what is wrong is noted at its own path."""
    template, invalid = compile_template(at.value, roots=place.roots, path=at.path, encode=encode)
    for each in invalid:
        message = f"{each.message}, in {shown(each.source)}"
        at.faults.add(each.path, message, accepted=each.accepted)
    if any(_find_wrong(reference, place) for reference in template.references):
        _locate(at, place, encode=encode)
    return template


def _locate(at: Field, place: Place, *, encode: Encoding) -> None:
    """Note each wrong reference where it stands: the template only knows that there are some."""
    for text in _texts(at):
        if at.faults.is_full:
            at.faults.count()
            return
        template, _ = compile_template(text.value, roots=place.roots, path=text.path, encode=encode)
        for reference in sorted(template.references):
            wrong = _find_wrong(reference, place)
            if wrong is not None:
                message, accepted = wrong
                text.fault(message, accepted=accepted)


def _texts(at: Field) -> Iterator[Field]:
    match at.value:
        case dict():
            for name, value in at.value.items():
                yield from _texts(at.child(name, value))
        case list():
            for index, value in enumerate(at.value):
                yield from _texts(at.child(index, value))
        case str():
            yield at
        case _:
            pass


def _find_wrong(reference: tuple[str, ...], place: Place) -> tuple[str, str] | None:
    """Why a reference cannot have a value here, and what could; None if nothing is wrong."""
    root, *members = reference
    if not members:
        return None
    if root == "steps":
        return _find_wrong_step(members, place)
    if root == "input":
        return _find_wrong_input(members, place.input_schema)
    if root in ROOT_MEMBERS:
        return _find_wrong_member(root, members[0], ROOT_MEMBERS[root])
    return None


def _find_wrong_step(members: Sequence[str], place: Place) -> tuple[str, str] | None:
    step, *rest = members
    visible = [each for each in place.steps[: place.visible] if each is not None]
    accepted = f"a step that has run by then: {listed(visible)}"
    if step not in place.steps:
        return f"no step has the id {step!r}{did_you_mean(step, visible)}", accepted
    if step not in visible:
        return f"the step {step!r} has not run by then: it does not come before this", accepted
    if rest:
        return _find_wrong_member(f"steps.{step}", rest[0], STEP_MEMBERS)
    return None


def _find_wrong_member(holder: str, member: str, known: Sequence[str]) -> tuple[str, str] | None:
    if member in known:
        return None
    if holder == "action" and member == "accepted":
        return "'action.accepted' is not supported in this release", "action.output"
    message = f"{holder!r} has no {member!r}{did_you_mean(member, known)}"
    return message, listed(f"{holder}.{each}" for each in known)


def _find_wrong_input(members: Sequence[str], schema: JsonValue) -> tuple[str, str] | None:
    """Only a schema that says ``additionalProperties: false`` knows all that there can be."""
    path = "input"
    for member in members:
        if not isinstance(schema, dict):
            return None
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            return None
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        if closed and member not in properties:
            message = f"the input schema of {path!r} has no {member!r}"
            accepted = listed(f"{path}.{each}" for each in properties)
            return message + did_you_mean(member, properties), accepted
        schema = properties.get(member)
        path = f"{path}.{member}"
    return None

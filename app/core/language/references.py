"""The expressions of a definition, compiled, and what they refer to checked before anything runs.

The compiler knows the roots; this module knows the steps, their order, and what each root holds.
A computed index (``steps[input.which]``) cannot be checked, and is allowed.
"""

import re
from collections.abc import Iterator, Sequence

from app.core.expressions import (
    Encoding,
    InvalidExpression,
    Template,
    compile_template,
    expressions_in,
)
from app.core.faults import Faults, did_you_mean, listed, shown
from app.core.identity import StepId
from app.core.json_value import JsonValue
from app.core.language.fields import Field
from app.core.language.kinds import Condition, Text
from app.core.language.places import ALL_ROOTS, ROOT_MEMBERS, STEP_MEMBERS, Place, why_not
from app.core.secrets import NAME

_SECRET = re.compile(rf"secrets\.{NAME.pattern}")


def compile_field(at: Field, place: Place, *, encoding: Encoding = Encoding.TEXT) -> Template:
    """Compile a template and check what it refers to; what is wrong is noted at its own path."""
    template, invalid = compile_template(at.value, roots=place.roots, path=at.path, encode=encoding)
    _tell(invalid, at.faults, place)
    if any(_find_wrong(reference, place) for reference in template.references):
        _locate(at, place, encoding=encoding)
    if any(reference[0] == "secrets" for reference in template.references):
        _check_secrets(at)
    return template


def compile_text(at: Field, place: Place, *, encoding: Encoding = Encoding.TEXT) -> Template | None:
    """Compile a template that is written as text; None if it is not given, or no text."""
    if isinstance(at.value, str):
        return compile_field(at, place, encoding=encoding)
    Text().read(at, fallback="")
    return None


def compile_condition(at: Field, place: Place) -> Template | None:
    """Compile a condition; None if it is not given, or none."""
    if not at.is_given:
        return None
    if isinstance(at.value, str):
        template = compile_field(at, place)
        if template.is_one_expression:
            return template
    at.fault(f"{shown(at.value)} is not a condition", accepted=Condition.accepted)
    return None


def _tell(invalid: Sequence[InvalidExpression], faults: Faults, place: Place) -> None:
    """Note what the compiler found; a root that is known elsewhere is told as that."""
    told: set[tuple[str, str]] = set()
    for each in invalid:
        if faults.is_full:
            faults.count()
            continue
        misplaced = _find_misplaced(each.source, place)
        if not misplaced:
            message = f"{each.message}, in {shown(each.source)}"
            faults.add(each.path, message, accepted=each.accepted)
        elif (each.path, each.source) not in told:
            told.add((each.path, each.source))
            for root in misplaced:
                message, accepted = why_not(root, place)
                faults.add(each.path, f"{message}, in {shown(each.source)}", accepted=accepted)


def _find_misplaced(source: str, place: Place) -> list[str]:
    """The roots that are all that is wrong with an expression: other places have them."""
    template, invalid = compile_template(f"${{{{{source}}}}}", roots=ALL_ROOTS, path="")
    if invalid:
        return []
    return sorted({reference[0] for reference in template.references} - place.roots)


def _locate(at: Field, place: Place, *, encoding: Encoding) -> None:
    """Note each wrong reference where it stands: the template only knows that there are some."""
    for text in _texts(at):
        if at.faults.is_full:
            at.faults.count()
            return
        template, _ = compile_template(
            text.value, roots=place.roots, path=text.path, encode=encoding
        )
        for reference in sorted(template.references):
            wrong = _find_wrong(reference, place)
            if wrong is not None:
                message, accepted = wrong
                text.fault(message, accepted=accepted)


def _check_secrets(at: Field) -> None:
    """Note each expression that does anything with a secret but name it.

    What is rendered holds a mark in its place, so that there is nothing yet to compute with.
    """
    for text in _texts(at):
        for source in expressions_in(str(text.value)):
            template, _ = compile_template(f"${{{{{source}}}}}", roots=ALL_ROOTS, path=text.path)
            names_one = any(reference[0] == "secrets" for reference in template.references)
            if names_one and _SECRET.fullmatch(source) is None:
                message = f"a secret can only be named, not computed with, in {shown(source)}"
                text.fault(message, accepted="an expression like ${{ secrets.bank_key }}")


def _texts(at: Field) -> Iterator[Field]:
    for child in [*at.members.values(), *at.items]:
        yield from _texts(child)
    if isinstance(at.value, str):
        yield at


def _find_wrong(reference: tuple[str, ...], place: Place) -> tuple[str, str] | None:
    """Why a reference cannot have a value here, and what could; None if nothing is wrong."""
    root, *members = reference
    if not members:
        return None
    if root == "steps":
        return _find_wrong_step(StepId(members[0]), members[1:], place)
    if root == "input":
        return _find_wrong_input(members, place.input_schema)
    if root == "action" and members[0] == "accepted" and not place.is_acknowledged:
        message = "there is no 'action.accepted': the answer to this step's action is its outcome"
        return message, "'action.output'; or 'completion: {callback: {within: ...}}' on the action"
    if root in ROOT_MEMBERS:
        return _find_wrong_member(root, members[0], ROOT_MEMBERS[root])
    return None


def _find_wrong_step(step: StepId, members: Sequence[str], place: Place) -> tuple[str, str] | None:
    if step in place.visible:
        return _find_wrong_member(f"steps.{step}", members[0], STEP_MEMBERS) if members else None
    visible = [each for each in place.order.named if each in place.visible]
    accepted = f"a step that has run by then: {listed(visible)}"
    if step not in place.order.needs:
        return f"no step has the id {step!r}{did_you_mean(step, visible)}", accepted
    if step == place.here:
        return f"{step!r} is this step itself, which has not run by then", accepted
    assert place.here is not None, "only the output stands in no step, and it sees all of them"
    if place.order.comes_after(step, place.here):
        return f"the step {step!r} has not run by then: it comes after this one", accepted
    message = f"the step {step!r} may not have run by then: it runs beside this one"
    return message, f"{accepted}; or {step!r} among the 'needs' of this step"


def _find_wrong_member(holder: str, member: str, known: Sequence[str]) -> tuple[str, str] | None:
    if member in known:
        return None
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

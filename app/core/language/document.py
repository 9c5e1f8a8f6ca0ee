"""The language of definitions: from a JSON document to a ``Definition``, or to all its faults.

What stands here is what this release understands. A field of the full language that is not
supported yet is told apart from a typing mistake.

A document is read once, top to bottom. Each reader notes what is wrong and goes on with a stand-in
(see ``fields``), so that an author sees everything at once; what was read is dropped if anything
was wrong. Only a document that is not sound (see ``faults.find_unsound``), or far too large, is not
read at all.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.core.definition import Definition, Step
from app.core.errors import Fault, InvalidDefinition
from app.core.faults import Faults, find_unsound, shown
from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.language.calls import Limits, read_call, read_defaults
from app.core.language.fields import Field, Fields, read_fields
from app.core.language.references import Place, compile_field
from app.core.rendering import ACTION_ROOTS, COMPENSATION_ROOTS, OUTPUT_ROOTS

LANGUAGE_VERSION = 1

STEPS_MAX = 500

EXPRESSIONS_MAX = 5_000
"""Ten a step. Compiling one takes half a millisecond, and nothing else runs meanwhile."""

_FIELDS = ("amends", "name", "description", "input", "deadline", "defaults", "steps", "output")
_STEP_FIELDS = ("id", "action", "compensation")
_STEP_FIELDS_NOT_YET: Mapping[str, str] = dict.fromkeys(
    (
        "needs",
        "when",
        "read_only",
        "irreversible",
        "pivot",
        "optional",
        "default",
        "verify",
        "responses",
        "completion",
    ),
    "is not supported in this release",
)

_STEPS_ACCEPTED = f"a list of 1 to {STEPS_MAX} steps"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_NAME_ACCEPTED = "at most 100 lower-case letters, digits and underscores, a letter first"
_STEP_ID = re.compile(r"[a-z][a-z0-9_]{0,63}")
_STEP_ID_ACCEPTED = "at most 64 lower-case letters, digits and underscores, a letter first"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surroundings:
    """What every step is read with."""

    limits: Mapping[Direction, Limits]
    step_ids: Sequence[str | None]
    input_schema: JsonValue

    def place(self, roots: frozenset[str], *, visible: int) -> Place:
        """Where an expression stands that may refer to the first ``visible`` steps."""
        return Place(
            roots=roots, steps=self.step_ids, visible=visible, input_schema=self.input_schema
        )


def parse_definition(
    document: JsonValue, *, version: int = 0, known_faults: Iterable[Fault] = ()
) -> Definition:
    """Make a definition out of its document.

    Of ``input`` it only knows that it is a JSON Schema: whether that is valid, the core cannot say
    (``app.schemas.load_definition`` checks both).

    Args:
        document: as read from YAML or JSON.
        version: as published; 0 for a definition that is not.
        known_faults: what others found in it, to be told with the faults found here.

    Raises:
        InvalidDefinition: with all faults, in the order of the document.
    """
    faults = Faults()
    definition = None
    find_unsound(document, faults)
    if not faults:
        _check_size(document, faults)
    if not faults:
        definition = _read_definition(document, version, faults)
    for fault in known_faults:
        faults.add(fault.path, fault.message, accepted=fault.accepted)
    if faults:
        raise InvalidDefinition(faults.in_order(document))
    assert definition is not None, "what cannot be read has a fault"
    return definition


def canonical_bytes(document: JsonValue) -> bytes:
    """The same bytes for the same content, however it was laid out.

    Args:
        document: one that ``parse_definition`` took.
    """
    text = json.dumps(
        document, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return text.encode()


def warnings(definition: Definition) -> list[Fault]:
    """What is valid, yet could leave a saga stuck that need not be; in the order of the steps.

    An action that may not be asked again leaves its effect unknown if its answer is lost. A
    compensation that needs the action's output can then not be rendered.
    """
    found: list[Fault] = []
    for index, step in enumerate(definition.steps):
        needed = _output_needed(step)
        if needed is None or step.action.may_be_asked_again:
            continue
        message = (
            f"if the answer to this step's action is lost, there is no {needed!r} to undo it by, "
            "and the saga is stuck until a person helps"
        )
        accepted = (
            "'idempotent: true' on the action if the tool honours Idempotency-Key, or an undo by "
            "'action.key', 'action.request' or 'input'"
        )
        path = f"steps[{index}].compensation"
        found.append(Fault(path=path, message=message, accepted=accepted))
    return found


def _output_needed(step: Step) -> str | None:
    """How a step's compensation refers to the output of its action, or None if it does not."""
    own = (("action", "output"), ("steps", step.id, "output"))
    for reference in sorted(step.compensation.request.references):
        for output in own:
            if reference[: len(output)] == output:
                return ".".join(reference)
    return None


def _check_size(document: JsonValue, faults: Faults) -> None:
    expressions = json.dumps(document).count("${{")
    if expressions > EXPRESSIONS_MAX:
        accepted = f"at most {EXPRESSIONS_MAX} expressions"
        faults.add("", f"the definition has {expressions} expressions", accepted=accepted)


def _read_definition(document: JsonValue, version: int, faults: Faults) -> Definition | None:
    fields = read_fields(Field(value=document, path="", faults=faults), _FIELDS)
    if fields is None:
        return None
    _check_language(fields)
    name = fields.require("name", accepted=_NAME_ACCEPTED).text(
        fallback="", syntax=_NAME, accepted=_NAME_ACCEPTED
    )
    input_schema = _read_input(fields.find("input"))
    steps = fields.require("steps", accepted=_STEPS_ACCEPTED)
    items = steps.items(most=STEPS_MAX, accepted=_STEPS_ACCEPTED)
    around = _Surroundings(
        limits=read_defaults(fields.find("defaults")),
        step_ids=[_find_id(item) for item in items],
        input_schema=input_schema,
    )
    read = [_read_step(item, index, around) for index, item in enumerate(items)]
    output = fields.find("output")
    everywhere = around.place(OUTPUT_ROOTS, visible=len(items))
    return Definition(
        name=name,
        version=version,
        description=fields.find("description").text(fallback=""),
        input_schema=input_schema,
        deadline=fields.find("deadline").duration(fallback=None, may_be_zero=False),
        steps=tuple(step for step in read if step is not None),
        output=compile_field(output, everywhere) if output.is_given else None,
        document=document,
    )


def _check_language(fields: Fields) -> None:
    accepted = f"{LANGUAGE_VERSION}, the version of this language"
    at = fields.require("amends", accepted=accepted)
    known = type(at.value) is int and at.value == LANGUAGE_VERSION
    if at.is_given and not known:
        message = f"{shown(at.value)} is no version of the language that this release knows"
        at.fault(message, accepted=accepted)


def _read_input(at: Field) -> JsonValue:
    if at.is_given and not isinstance(at.value, dict | bool):
        at.fault(f"{shown(at.value)} is no JSON Schema", accepted="a JSON Schema (2020-12)")
    return at.value


def _find_id(item: Field) -> str | None:
    """The id of a step, valid or not, for the references to it."""
    found = item.value.get("id") if isinstance(item.value, dict) else None
    return found if isinstance(found, str) else None


def _read_step(at: Field, index: int, around: _Surroundings) -> Step | None:
    fields = read_fields(at, _STEP_FIELDS, refused=_STEP_FIELDS_NOT_YET)
    if fields is None:
        return None
    step_id = _read_step_id(fields.require("id", accepted=_STEP_ID_ACCEPTED), index, around)
    action = read_call(
        fields.require("action", accepted="a call, as {http: {method: ..., url: ...}}"),
        direction=Direction.ACTION,
        limits=around.limits[Direction.ACTION],
        place=around.place(ACTION_ROOTS, visible=index),
    )
    compensation = read_call(
        fields.require("compensation", accepted="a call that undoes the action"),
        direction=Direction.COMPENSATION,
        limits=around.limits[Direction.COMPENSATION],
        # A step is undone once its action has run, and those before it.
        place=around.place(COMPENSATION_ROOTS, visible=index + 1),
    )
    if action is None or compensation is None:
        return None
    return Step(id=step_id, action=action, compensation=compensation)


def _read_step_id(at: Field, index: int, around: _Surroundings) -> StepId:
    step_id = at.text(fallback="", syntax=_STEP_ID, accepted=_STEP_ID_ACCEPTED)
    if step_id and around.step_ids.index(step_id) < index:
        message = f"{step_id!r} is the id of steps[{around.step_ids.index(step_id)}] already"
        at.fault(message, accepted="an id that no other step has")
    return StepId(step_id)

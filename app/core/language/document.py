"""The language of definitions: from a JSON document to a ``Definition``, or to all its faults.

A document is read once, top to bottom. Each reader notes what is wrong and goes on with a stand-in
(see ``kinds``), so that an author sees everything at once; what was read is dropped if anything was
wrong. Only a document that is not sound (see ``faults.find_unsound``), or far too large, is not
read at all.
"""

import json
import re
from collections.abc import Iterable

from app.core.definition import Definition
from app.core.errors import Fault, InvalidDefinition
from app.core.faults import Faults, find_unsound
from app.core.json_value import JsonValue
from app.core.language.fields import Field
from app.core.language.kinds import AnyTemplate, Duration, InputSchema, Text, Version
from app.core.language.limits import DEFAULTS, read_defaults
from app.core.language.order import read_order
from app.core.language.places import Places
from app.core.language.references import compile_field
from app.core.language.shapes import Member, Shape, read_fields
from app.core.language.steps import STEPS, Surroundings, read_steps

LANGUAGE_VERSION = 1

EXPRESSIONS_MAX = 5_000
"""Ten a step. Compiling one takes half a millisecond, and nothing else runs meanwhile."""

DOCUMENT = Shape(
    name="definition",
    says="A definition of Amends: what a saga does step by step, and how each step is undone.",
    members={
        "amends": Member(
            kind=Version(LANGUAGE_VERSION), says="The version of this language.", is_required=True
        ),
        "name": Member(
            kind=Text(
                syntax=re.compile(r"[a-z][a-z0-9_]{0,99}"),
                accepted="at most 100 lower-case letters, digits and underscores, a letter first",
            ),
            says="The name that the definition is published under.",
            is_required=True,
        ),
        "description": Member(kind=Text(), says="What it is for, for people."),
        "input": Member(
            kind=InputSchema(),
            says="What a saga can be started with, as JSON Schema (2020-12). Left out: anything.",
        ),
        "deadline": Member(
            kind=Duration(may_be_zero=False),
            says="The way forward ends by then, counted from the start, or the saga is undone.",
        ),
        "defaults": Member(kind=DEFAULTS, says="Limits for all calls that do not set their own."),
        "steps": Member(
            kind=STEPS,
            says="What is done. One after another, unless 'needs' says otherwise.",
            is_required=True,
        ),
        "output": Member(
            kind=AnyTemplate(),
            says="What a completed saga returns; it may refer to all steps. Left out: null.",
        ),
    },
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


def _check_size(document: JsonValue, faults: Faults) -> None:
    expressions = json.dumps(document).count("${{")
    if expressions > EXPRESSIONS_MAX:
        accepted = f"at most {EXPRESSIONS_MAX} expressions"
        faults.add("", f"the definition has {expressions} expressions", accepted=accepted)


def _read_definition(document: JsonValue, version: int, faults: Faults) -> Definition | None:
    fields = read_fields(Field(value=document, path="", faults=faults), DOCUMENT)
    if fields is None:
        return None
    fields.kind("amends", Version).read(fields.find("amends"))
    name = fields.text("name")
    description = fields.text("description")
    input_schema = fields.find("input")
    fields.kind("input", InputSchema).read(input_schema)
    deadline = fields.duration("deadline", fallback=None)
    limits = read_defaults(fields.object("defaults"))
    items = fields.objects("steps")
    order = read_order(items, faults)
    places = Places(order=order, input_schema=input_schema.value)
    steps = read_steps(items, Surroundings(limits=limits, places=places))
    at = fields.find("output")
    output = compile_field(at, places.output) if at.is_given else None
    if order.graph is None:
        return None
    return Definition(
        name=name,
        version=version,
        description=description,
        input_schema=input_schema.value,
        deadline=deadline,
        steps=steps,
        graph=order.graph,
        output=output,
        document=document,
    )

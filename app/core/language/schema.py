"""The language as JSON Schema (2020-12), for editors: made of what documents are read by.

It says less than the reader checks: whether ids, references and durations fit together, no schema
can say. Whatever the reader takes is valid by it.

An author has it while typing with the first line
``# yaml-language-server: $schema=https://.../v1/definition-schema``.
"""

import re
from typing import assert_never

from app.core.json_value import JsonValue
from app.core.language.document import DOCUMENT
from app.core.language.durations import SYNTAX
from app.core.language.kinds import (
    AnyTemplate,
    Choice,
    Condition,
    Duration,
    Expression,
    Flag,
    InputSchema,
    Number,
    Simple,
    Templates,
    Text,
    TextTemplate,
    Version,
    Whole,
)
from app.core.language.shapes import (
    Excluding,
    ListOf,
    Member,
    Needing,
    OneNeeded,
    Rule,
    Shape,
)

type Schema = dict[str, JsonValue]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CONDITION = r"^\$\{\{[\s\S]*\}\}$"
_NOT_ZERO = r"(?!0+(?:\.0+)?[a-z])"
_TEXT_SAYS = "Text; ${{ ... }} in it is an expression, $${{ a literal ${{."
_ANY_SAYS = "Any JSON; ${{ ... }} in its strings are expressions, and one alone keeps its type."


def language_schema() -> dict[str, JsonValue]:
    """The schema of a definition's document; the same at every call."""
    definitions: dict[str, Shape] = {}
    whole = _object(DOCUMENT, definitions)
    defined: dict[str, JsonValue] = {}
    while len(defined) < len(definitions):
        for name, shape in [*definitions.items()][len(defined) :]:
            defined[name] = _object(shape, definitions)
    return {
        "$schema": _DIALECT,
        "title": DOCUMENT.name,
        **whole,
        "$defs": dict(sorted(defined.items())),
    }


def _object(shape: Shape, definitions: dict[str, Shape]) -> Schema:
    """An object; the shapes within it are put among the definitions."""
    properties: dict[str, JsonValue] = {
        name: _member(member, definitions) for name, member in shape.members.items()
    }
    required: list[JsonValue] = [
        name for name, member in shape.members.items() if member.is_required
    ]
    rules: list[JsonValue] = [_rule(rule, shape) for rule in shape.rules]
    return {
        "description": shape.says,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
        **({"allOf": rules} if rules else {}),
    }


def _member(member: Member, definitions: dict[str, Shape]) -> Schema:
    schema = _kind(member.kind, definitions)
    schema["description"] = " ".join(
        text for text in (member.says, schema.get("description")) if isinstance(text, str)
    )
    if member.default is not None:
        schema["default"] = member.default
    return schema


def _kind(kind: Simple | Expression | ListOf | Shape, definitions: dict[str, Shape]) -> Schema:
    match kind:
        case Shape():
            known = definitions.setdefault(kind.name, kind)
            assert known == kind, f"two shapes are named {kind.name!r}"
            return {"$ref": f"#/$defs/{kind.name}"}
        case ListOf():
            items = _kind(kind.item, definitions)
            return {
                "type": "array",
                "items": items,
                "minItems": kind.least,
                "maxItems": kind.most,
            }
        case TextTemplate() | AnyTemplate() | Condition() | Templates():
            return _expression(kind)
        case _:
            return _simple(kind)


def _simple(kind: Simple) -> Schema:
    match kind:
        case Text(syntax=None):
            return {"type": "string"}
        case Text():
            assert kind.syntax is not None
            return {
                "description": _sentence(kind.accepted),
                "type": "string",
                "pattern": _whole(kind.syntax),
            }
        case Choice():
            return {"enum": [*kind.options]}
        case Flag():
            return {"type": "boolean"}
        case Whole():
            return {"type": "integer", "minimum": kind.least, "maximum": kind.most}
        case Number():
            return {"type": "number", "minimum": kind.least}
        case Duration():
            not_zero = "" if kind.may_be_zero else _NOT_ZERO
            return {
                "description": _sentence(kind.accepted),
                "type": "string",
                "pattern": f"^{not_zero}(?:{SYNTAX.pattern})$",
            }
        case Version():
            return {"const": kind.number}
        case InputSchema():
            return {"type": ["object", "boolean"]}
        case _:
            assert_never(kind)


def _expression(kind: Expression) -> Schema:
    match kind:
        case TextTemplate():
            return {"description": _TEXT_SAYS, "type": "string"}
        case AnyTemplate():
            return {"description": _ANY_SAYS}
        case Condition():
            return {
                "description": f"Written as {kind.accepted}.",
                "type": "string",
                "pattern": _CONDITION,
            }
        case Templates():
            return {
                "type": "object",
                "propertyNames": {"pattern": _whole(kind.names)},
                "maxProperties": kind.most,
                "additionalProperties": _expression(kind.value),
            }
        case _:
            assert_never(kind)


def _rule(rule: Rule, shape: Shape) -> Schema:
    match rule:
        case OneNeeded():
            return {"anyOf": [_is_said(name, shape) for name in rule.names]}
        case Excluding():
            holds: Schema = {"required": [rule.name]}
            if rule.values is not None:
                holds["properties"] = {rule.name: {"enum": [*rule.values]}}
            others: list[JsonValue] = [_is_said(name, shape) for name in rule.others]
            return {"if": holds, "then": {"not": {"anyOf": others}}}
        case Needing():
            return {"if": {"required": [rule.name]}, "then": _is_said(rule.other, shape)}
        case _:
            assert_never(rule)


def _is_said(name: str, shape: Shape) -> Schema:
    """That a field is given; of a flag, that it is true."""
    said: Schema = {"required": [name]}
    if isinstance(shape.members[name].kind, Flag):
        said["properties"] = {name: {"const": True}}
    return said


def _whole(syntax: re.Pattern[str]) -> str:
    return f"^(?:{syntax.pattern})$"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

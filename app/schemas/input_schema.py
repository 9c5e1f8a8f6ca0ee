"""JSON Schema for the input of a saga: is the schema valid, and does an input fit it.

The dialect is 2020-12, and a schema is complete in itself: a reference leads to another part of it,
never to a file or a host. ``format`` is an annotation, as the standard has it.
"""

import itertools
import json
import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, override

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from app.core.errors import Fault
from app.core.faults import FAULTS_MAX, child_path, did_you_mean, listed, shown
from app.core.json_value import JsonValue

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SCHEMAS_MAX = 1_000
"""Within a schema. Checking one takes a millisecond, and nothing else runs meanwhile."""

CHECKS_MAX = 200_000
"""Of one keyword on one value; a second or two. Few bytes of ``allOf`` and ``$ref`` would else keep
a processor busy for years."""

_REFERENCE_ACCEPTED = "a part of this schema, as #/$defs/address"
# The keywords that hold schemas: JSON Schema 2020-12, sections 8 and 10 to 11.
_ONE = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_TEXT_CHARACTERS_MAX = 200


class _TooMuch(Exception):
    """A check takes more than ``CHECKS_MAX``."""

    @override
    def __str__(self) -> str:
        return f"it takes more than {CHECKS_MAX} checks"


# What comes through where a schema drives jsonschema too far: into its own depth, or out of the
# range of a float or of ``re``.
_TOO_FAR = (RecursionError, ArithmeticError, Unresolvable, _TooMuch)

_checks_left: ContextVar[int] = ContextVar("checks_left")


def _counted(keyword: Any) -> Any:  # noqa: ANN401 - jsonschema's own words for it
    def check(validator: Any, rule: Any, instance: Any, schema: Any) -> Any:  # noqa: ANN401 - as above
        left = _checks_left.get()
        if left == 0:
            raise _TooMuch
        _checks_left.set(left - 1)
        return keyword(validator, rule, instance, schema)

    return check


_CountingValidator = validators.extend(  # type: ignore[no-untyped-call] # its stub has no types
    Draft202012Validator,
    {name: _counted(keyword) for name, keyword in Draft202012Validator.VALIDATORS.items()},
)


def check_input_schema(schema: JsonValue) -> list[Fault]:
    """All faults of a definition's ``input``; paths begin with ``input``."""
    meta = Draft202012Validator(
        Draft202012Validator.META_SCHEMA,
        format_checker=Draft202012Validator.FORMAT_CHECKER,  # it knows what a regex is
    )
    try:
        schemas = sum(1 for _ in itertools.islice(_schemas(schema), SCHEMAS_MAX + 1))
        if schemas > SCHEMAS_MAX:
            message = f"more than {SCHEMAS_MAX} schemas lie within it"
            return [Fault(path="input", message=message, accepted=f"at most {SCHEMAS_MAX}")]
        faults = [
            *itertools.islice(_faults(meta, schema), FAULTS_MAX),
            *itertools.islice(_foreign(schema), FAULTS_MAX),
        ]
        if faults:
            return faults  # where references lead can only be told of a schema
        faults = list(itertools.islice(_dangling(schema), FAULTS_MAX))
        if not faults:
            # References that lead in a circle show on any value.
            next(_validator(schema).iter_errors(None), None)
        return faults
    except _TOO_FAR as error:
        message = f"the schema cannot be used: {_words(error)}"
        return [Fault(path="input", message=message, accepted="a schema of which each part ends")]


def check_input(schema: JsonValue, value: JsonValue) -> list[Fault]:
    """All faults of an input; paths begin with ``input``.

    Args:
        schema: a valid one, or None for any input.
        value: what a saga is to be started with.
    """
    if schema is None:
        return []
    try:
        return list(itertools.islice(_faults(_validator(schema), value), FAULTS_MAX))
    except _TOO_FAR as error:
        message = f"it cannot be checked: {_words(error)}"
        return [Fault(path="input", message=message, accepted="what the input schema describes")]


def _validator(schema: JsonValue) -> Validator:
    if isinstance(schema, dict):
        # It is known; and jsonschema would go by it, to a validator that does not count.
        schema = {name: value for name, value in schema.items() if name != "$schema"}
    _checks_left.set(CHECKS_MAX)
    # An empty registry: whatever is not in the schema is not found, and never fetched.
    validator: Validator = _CountingValidator(schema, registry=Registry())
    return validator


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it leads in a circle, or too deep"
    return _short(str(error))


def _faults(validator: Validator, value: JsonValue) -> Iterator[Fault]:
    """Each fault once: the meta-schema finds some as often as it has vocabularies."""
    known: set[Fault] = set()
    for error in validator.iter_errors(value):
        for fault in _told(error):
            if fault not in known:
                known.add(fault)
                yield fault


def _told(error: ValidationError) -> Iterator[Fault]:
    """An error in our words, at the very field that it is about."""
    path = "input"
    for name in error.absolute_path:
        path = child_path(path, name)
    rule: Any = error.validator_value
    instance = error.instance
    if error.validator == "required" and isinstance(instance, dict):
        for name in rule:
            if name not in instance:
                accepted = f"an object with {listed(rule)}"
                yield Fault(path=child_path(path, name), message="is missing", accepted=accepted)
    elif error.validator == "additionalProperties" and rule is False:
        yield from _unexpected(error, path)
    else:
        accepted = "what the schema allows"
        if error.validator is not None:
            accepted = _short(f"{error.validator}: {json.dumps(rule)}")
        yield Fault(path=path, message=_short(error.message), accepted=accepted)


def _unexpected(error: ValidationError, path: str) -> Iterator[Fault]:
    schema = error.schema
    assert isinstance(schema, dict), schema
    names = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    instance: Any = error.instance
    for name in instance:
        if name in names or any(re.search(pattern, name) for pattern in patterns):
            continue
        message = f"{shown(name)} is no field here{did_you_mean(name, names)}"
        yield Fault(path=child_path(path, name), message=message, accepted=f"{listed(names)}")


def _foreign(schema: JsonValue) -> Iterator[Fault]:
    """What belongs to another dialect, or to another document."""
    for path, keywords in _schemas(schema):
        dialect = keywords.get("$schema", DIALECT)
        if keywords is not schema and "$schema" in keywords:
            message = "'$schema' is for the whole schema"
            accepted = "a part of it without '$schema'"
            yield Fault(path=child_path(path, "$schema"), message=message, accepted=accepted)
        elif isinstance(dialect, str) and dialect.rstrip("#") != DIALECT:
            message = f"the dialect {shown(dialect)} is not supported"
            yield Fault(path=child_path(path, "$schema"), message=message, accepted=DIALECT)
        if "$id" in keywords:
            message = "'$id' would make references lead elsewhere"
            accepted = "a schema without '$id'"
            yield Fault(path=child_path(path, "$id"), message=message, accepted=accepted)
        for below, reference in _references(path, keywords):
            if not reference.startswith("#"):
                message = f"{shown(reference)} is not within this schema"
                yield Fault(path=below, message=message, accepted=_REFERENCE_ACCEPTED)


def _dangling(schema: JsonValue) -> Iterator[Fault]:
    """References within a valid schema that lead nowhere."""
    if isinstance(schema, bool):
        return
    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
    # The meta-schema has checked these and no other part: what is elsewhere may be no schema.
    schemas = {id(keywords) for _, keywords in _schemas(schema)}
    for path, keywords in _schemas(schema):
        for below, reference in _references(path, keywords):
            try:
                found = resolver.lookup(reference).contents
            except (Unresolvable, ValueError):  # ValueError: a word where a list has a number
                found = None
            if not isinstance(found, bool) and id(found) not in schemas:
                message = f"{shown(reference)} leads nowhere"
                yield Fault(path=below, message=message, accepted=_REFERENCE_ACCEPTED)


def _references(path: str, keywords: dict[str, JsonValue]) -> Iterator[tuple[str, str]]:
    for keyword in ("$ref", "$dynamicRef"):
        reference = keywords.get(keyword)
        if isinstance(reference, str):
            yield child_path(path, keyword), reference


def _schemas(schema: JsonValue) -> Iterator[tuple[str, dict[str, JsonValue]]]:
    """Every schema within a schema that is not just true or false, itself first; not recursive."""
    ahead: list[tuple[str, JsonValue]] = [("input", schema)]
    while ahead:
        path, keywords = ahead.pop()
        if isinstance(keywords, dict):
            yield path, keywords
            inner = [
                (below, each)
                for name, value in keywords.items()
                for below, each in _subschemas(child_path(path, name), name, value)
            ]
            ahead.extend(reversed(inner))


def _subschemas(path: str, keyword: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    if keyword in _ONE:
        yield path, value
    elif keyword in _SEVERAL and isinstance(value, list):
        for index, each in enumerate(value):
            yield child_path(path, index), each
    elif keyword in _NAMED and isinstance(value, dict):
        for name, each in value.items():
            yield child_path(path, name), each


def _short(text: str) -> str:
    if len(text) <= _TEXT_CHARACTERS_MAX:
        return text
    return text[:_TEXT_CHARACTERS_MAX] + "..."

"""Documents as they come in: bytes of JSON or YAML, to JSON, to a ``Definition``.

JSON is read by the standard library, not by the faster orjson: that takes the second of two equal
keys without a word, and rounds whole numbers of more than 64 bits. A definition of which half the
steps are silently gone is worse than ten milliseconds.
"""

import json
from collections import Counter

from app.core.definition import Definition
from app.core.errors import Fault, InvalidDefinition, PayloadTooLarge
from app.core.faults import (
    DEPTH_MAX,
    Faults,
    child_path,
    find_unsound,
    shown,
    walk,
)
from app.core.json_value import JsonValue
from app.core.language import parse_definition
from app.schemas.input_schema import check_input, check_input_schema
from app.schemas.yaml_reader import read_integer, read_yaml

__all__ = ["check_input", "check_input_schema", "check_sound", "load_definition", "read_document"]

DOCUMENT_BYTES_MAX = 1024 * 1024

_JSON_TYPES = frozenset({"application/json", "text/json"})
_YAML_TYPES = frozenset(
    {"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/vnd.yaml"}
)


def read_document(raw: bytes, *, content_type: str | None) -> JsonValue:
    """Read a definition's document.

    Args:
        raw: UTF-8 text of JSON or YAML; nothing at all is null.
        content_type: which of them it is. None, or one that says neither (curl sends a form type
            unasked): JSON if it can be read as JSON, else YAML.

    Raises:
        InvalidDefinition: it cannot be read, or holds what JSON cannot; with line and column
            where they are known.
        PayloadTooLarge: more than ``DOCUMENT_BYTES_MAX``.
    """
    if len(raw) > DOCUMENT_BYTES_MAX:
        raise PayloadTooLarge(what="definition", bytes_max=DOCUMENT_BYTES_MAX)
    faults = Faults()
    text = _decode(raw)
    notation = _notation(content_type) or ("json" if _looks_like_json(text) else "yaml")
    document = (_read_json if notation == "json" else read_yaml)(text, faults)
    if faults:
        raise InvalidDefinition(faults.in_order(document))
    check_sound(document)
    return document


def check_sound(document: JsonValue) -> None:
    """Refuse a document that holds what the database or CEL could not.

    Args:
        document: read by whichever reader.

    Raises:
        InvalidDefinition: with every fault.
    """
    faults = Faults()
    find_unsound(document, faults)
    if faults:
        raise InvalidDefinition(faults.in_order(document))


def load_definition(document: JsonValue, *, version: int = 0) -> Definition:
    """Make a definition out of its document: the core's checks, and those of its input schema.

    Args:
        document: as ``read_document`` returns it.
        version: as published; 0 for a definition that is not.

    Raises:
        InvalidDefinition: with all faults of both, in the order of the document.
    """
    schema = document.get("input") if isinstance(document, dict) else None
    # The core says so if it is anything else.
    faults = check_input_schema(schema) if isinstance(schema, dict | bool) else []
    return parse_definition(document, version=version, known_faults=faults)


def _notation(content_type: str | None) -> str | None:
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type in _JSON_TYPES or media_type.endswith("+json"):
        return "json"
    if media_type in _YAML_TYPES or media_type.endswith("+yaml"):
        return "yaml"
    return None


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"byte {error.start + 1} is not UTF-8"
        fault = Fault(path="", message=message, accepted="text in UTF-8")
        raise InvalidDefinition([fault]) from error


def _looks_like_json(text: str) -> bool:
    """Whether to read a text of unknown notation as JSON: so that YAML may begin with ``{`` too."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _read_json(text: str, faults: Faults) -> JsonValue:
    """Read JSON; numbers that are too large are left to ``find_unsound``."""
    # By identity, and kept alive: what stood under a key that came again is gone from the document.
    twice: dict[int, tuple[JsonValue, list[str]]] = {}

    def build(members: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        built = dict(members)
        if len(built) < len(members):
            counts = Counter(name for name, _ in members)
            twice[id(built)] = built, [name for name in built if counts[name] > 1]
        return built

    try:
        document: JsonValue = json.loads(text, object_pairs_hook=build, parse_int=read_integer)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        faults.add("", f"{where}: {error.msg}", accepted="JSON (RFC 8259)")
        return None
    except RecursionError:
        message = "too many lists and objects lie within one another"
        faults.add("", message, accepted=f"at most {DEPTH_MAX} levels")
        return None
    for path, value, _ in walk(document) if twice else ():
        for name in twice.get(id(value), (None, []))[1]:
            message = f"the key {shown(name)} is here more than once"
            faults.add(child_path(path, name), message, accepted="each key once")
    return document

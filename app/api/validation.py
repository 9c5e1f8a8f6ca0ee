"""What pydantic found wrong, in our words: every fault with its path and what would be accepted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from app.core.errors import Fault, InvalidRequest
from app.core.faults import child_path, did_you_mean, listed, shown
from app.schemas.sagas import DOCUMENT_TAG, NAME_TAG
from app.schemas.shapes import TIME_ACCEPTED

_ACCEPTED: Mapping[str, str] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "datetime_from_date_parsing": TIME_ACCEPTED,
    "datetime_parsing": TIME_ACCEPTED,
    "dict_type": "an object",
    "enum": "{expected}",
    "greater_than_equal": "{ge} or more",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_type": "a whole number",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
    "missing": "a value",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} character(s)",
    "string_type": "text",
    "timezone_aware": TIME_ACCEPTED,
    "too_long": "at most {max_length} entries",
}
"""By pydantic's name of the error; filled with what it says of the rule."""

_NO_PLACES = frozenset({"[key]", NAME_TAG, DOCUMENT_TAG})
"""What pydantic puts into a path beside places: that a name is at fault, not what stands under it;
and which of several shapes was meant."""


def validated[ShapeT: BaseModel](shape: type[ShapeT], document: object) -> ShapeT:
    """The document as a shape.

    Raises:
        InvalidRequest: with every fault.
    """
    try:
        return shape.model_validate(document)
    except ValidationError as error:
        names = [field.alias or name for name, field in shape.model_fields.items()]
        raise InvalidRequest(list(faults_of(error.errors(), names=names))) from error


def faults_of(errors: Sequence[Any], *, names: Sequence[str]) -> Iterator[Fault]:
    """Faults out of pydantic's errors.

    Args:
        errors: as ``ValidationError.errors()`` gives them.
        names: the fields there are.
    """
    for error in errors:
        kind, place, found = error["type"], list(error["loc"]), error["input"]
        context = error.get("ctx", {})
        path = _path(place)
        if kind == "missing":
            yield Fault(path=path, message="is missing", accepted=_ACCEPTED[kind])
        elif kind == "extra_forbidden":
            name = str(place[-1])
            message = f"{shown(name)} is no field here{did_you_mean(name, names)}"
            yield Fault(path=path, message=message, accepted=listed(names))
        else:
            accepted = _ACCEPTED.get(kind, "").format_map(context) if context else ""
            accepted = accepted or context.get("accepted") or _ACCEPTED.get(kind, error["msg"])
            yield Fault(path=path, message=_message(found, error["msg"]), accepted=accepted)


def _message(found: Any, said: str) -> str:  # noqa: ANN401 - whatever was sent
    what, should, rule = said.partition(" should ")
    if what in {"Dictionary", "Input", "String"}:
        # Without the name of the class, which is nobody's business.
        return f"{shown(found)}{should}{rule.partition(' or instance of ')[0]}"
    return f"{shown(found)}: {said}"


def _path(place: Sequence[str | int]) -> str:
    path = ""
    for part in place:
        if part in _NO_PLACES:
            continue
        # ``label.*`` stands for parameters whose names begin with ``label.``.
        path = child_path(path, part) if path or isinstance(part, int) else part.removesuffix(".*")
    return path

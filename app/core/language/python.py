"""The ``python`` connector: from the fields of a call to a ``FunctionTemplate``, or its faults."""

import re

from app.core.definition import FunctionTemplate
from app.core.language.fields import Field
from app.core.language.kinds import AnyTemplate, Templates, Text
from app.core.language.places import Place
from app.core.language.references import compile_field
from app.core.language.shapes import Fields, Member, Shape

PARAMETERS_MAX = 100
"""A function that takes more takes an object."""

_NAME = "[A-Za-z_][A-Za-z0-9_]{0,99}"
_ARGUMENTS = Templates(
    value=AnyTemplate(),
    noun="parameter",
    names=re.compile(_NAME),
    names_accepted="at most 100 letters, digits and underscores, no digit first",
    most=PARAMETERS_MAX,
    accepted="an object from parameter names to any JSON",
)

PYTHON = Shape(
    name="python",
    says="A call of a Python function that the service was given.",
    members={
        "function": Member(
            kind=Text(
                syntax=re.compile(rf"{_NAME}(?:\.{_NAME}){{1,9}}"),
                accepted="the name of a function and of its module, as in travel.book_flight",
            ),
            says="The function, as module.function.",
            is_required=True,
        ),
        "arguments": Member(kind=_ARGUMENTS, says="Its arguments, by parameter name."),
    },
)


def read_python(fields: Fields, place: Place) -> FunctionTemplate | None:
    """Read a call of a function; None if none could be made of it.

    Args:
        fields: of shape ``PYTHON``.
        place: what its expressions may refer to.
    """
    function = fields.text("function")
    at = fields.find("arguments")
    _ARGUMENTS.read(at)
    given = Field(value=at.value if at.members else {}, path=at.path, faults=at.faults)
    arguments = compile_field(given, place)
    return FunctionTemplate(function=function, arguments=arguments) if function else None

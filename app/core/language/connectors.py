"""The connector of a call: exactly one, and those that later releases will have."""

from collections.abc import Mapping

from app.core.definition import RequestTemplate
from app.core.language.http import HTTP, read_http
from app.core.language.places import Place
from app.core.language.python import PYTHON, read_python
from app.core.language.shapes import Excluding, Fields, Member, OneNeeded, Rule

_ACCEPTED = "exactly one: http, python"
_NOT_YET = ("mcp", "worker", "saga", "sleep", "approval")

CONNECTORS: Mapping[str, Member] = {
    "http": Member(kind=HTTP, says="What is sent, over HTTP."),
    "python": Member(kind=PYTHON, says="What is called, in this process."),
}
"""Fields of every call."""

CONNECTORS_REFUSED: Mapping[str, str] = dict.fromkeys(
    _NOT_YET, "is a connector that is not supported yet"
)

CONNECTOR_RULES: tuple[Rule, ...] = (
    OneNeeded(
        names=tuple(CONNECTORS),
        at=None,
        message="the call has no connector",
        accepted=_ACCEPTED,
        or_refused=_NOT_YET,
    ),
    Excluding(
        name="http",
        values=None,
        others=("python",),
        message="'http' and 'python' exclude each other",
        accepted=_ACCEPTED,
    ),
)


def read_request(fields: Fields, place: Place) -> RequestTemplate | None:
    """What a call sends; None if that cannot be told.

    Args:
        fields: with those of ``CONNECTORS``.
        place: what its expressions may refer to.
    """
    http, python = fields.object("http"), fields.object("python")
    requests = [
        None if http is None else read_http(http, place),
        None if python is None else read_python(python, place),
    ]
    return next((request for request in requests if request is not None), None)

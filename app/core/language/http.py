"""The ``http`` connector: from the fields of a request to an ``HttpTemplate``, or to its faults."""

import re

from app.core.definition import HttpTemplate
from app.core.expressions import Encoding, Template
from app.core.language.kinds import AnyTemplate, Choice, Templates, TextTemplate
from app.core.language.places import Place
from app.core.language.references import compile_field, compile_text
from app.core.language.shapes import Excluding, Fields, Member, Shape

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

HEADERS_MAX = 50

RESERVED_HEADERS = frozenset(
    {
        # Ours: what tools deduplicate and trace by.
        "idempotency-key",
        "traceparent",
        # They frame or route the message (RFC 9110 section 7.6.1). The client writes them: a
        # second one would smuggle a request or reach another host.
        "connection",
        "content-length",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""In lower case. So is every name that begins with ``amends-``."""

_HEADERS = Templates(
    value=TextTemplate(),
    noun="header",
    names=re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"),  # RFC 9110 section 5.6.2
    names_accepted="letters, digits and any of !#$%&'*+-.^_`|~",
    most=HEADERS_MAX,
    accepted="an object from header names to text",
)

HTTP = Shape(
    name="http",
    says="An HTTP request. It carries Idempotency-Key, and what names the saga and the attempt.",
    members={
        "method": Member(kind=Choice(METHODS), says="The method.", is_required=True),
        "url": Member(
            kind=TextTemplate(),
            says="The URL. Values of expressions are percent-encoded for their place; one that "
            "is null, missing or empty is an error, and nothing is sent.",
            is_required=True,
            accepted="an absolute http or https URL",
        ),
        "headers": Member(
            kind=_HEADERS,
            says="Further headers. Idempotency-Key, traceparent, all of Amends-*, and those that "
            "frame the message are set by the service.",
        ),
        "json": Member(kind=AnyTemplate(), says="The body, as JSON."),
        "body": Member(kind=TextTemplate(), says="The body, as text."),
    },
    rules=(
        Excluding(
            name="json",
            values=None,
            others=("body",),
            message="'json' and 'body' exclude each other",
            accepted="one of them, or none",
        ),
        Excluding(
            name="method",
            values=("GET", "HEAD"),
            others=("json", "body"),
            message="a {value} request has no body",
            accepted="parameters in the URL",
        ),
    ),
)


def read_http(fields: Fields, place: Place) -> HttpTemplate | None:
    """Read a request; None if none could be made of it.

    Args:
        fields: of shape ``HTTP``.
        place: what its expressions may refer to.
    """
    method = fields.choice("method")
    url = compile_text(fields.find("url"), place, encoding=Encoding.URL)
    headers = _read_headers(fields, place)
    json = fields.find("json")
    content = compile_field(json, place) if json.is_given else None
    body = compile_text(fields.find("body"), place)
    if not method or url is None:
        return None
    return HttpTemplate(method=method, url=url, headers=headers, json=content, body=body)


def _read_headers(fields: Fields, place: Place) -> tuple[tuple[str, Template], ...]:
    headers: list[tuple[str, Template]] = []
    seen: set[str] = set()
    for name, member in _HEADERS.read(fields.find("headers")).items():
        lower = name.lower()
        if lower in RESERVED_HEADERS or lower.startswith("amends-"):
            accepted = "any header that the service does not set itself"
            member.fault(f"the header {name!r} is set by the service", accepted=accepted)
        elif lower in seen:
            message = f"the header {name!r} is here twice: case does not tell headers apart"
            member.fault(message, accepted="each header once")
        seen.add(lower)
        value = compile_text(member, place, encoding=Encoding.HEADER)
        if value is not None:
            headers.append((name, value))
    return tuple(headers)

"""The ``http`` part of a call: from its fields to an ``HttpTemplate``, or to all its faults."""

import re

from app.core.definition import HttpTemplate
from app.core.expressions import Encoding, Template
from app.core.faults import shown
from app.core.language.fields import Field, read_fields
from app.core.language.references import Place, compile_field

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

_FIELDS = ("method", "url", "headers", "json", "body")
_BODILESS = frozenset({"GET", "HEAD"})
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2


def read_http(at: Field, place: Place) -> HttpTemplate | None:
    """Read an ``http`` object; None if no request could be made of it.

    Args:
        at: the object.
        place: what its expressions may refer to.
    """
    fields = read_fields(at, _FIELDS)
    if fields is None:
        return None
    method_at = fields.require("method", accepted=f"one of: {', '.join(METHODS)}")
    method = method_at.choice(METHODS, fallback="")
    url_at = fields.require("url", accepted="an absolute http or https URL")
    url = _read_text(url_at, place, encode=Encoding.URL)
    headers = _read_headers(fields.find("headers"), place)
    json_at, body_at = fields.find("json"), fields.find("body")
    json = compile_field(json_at, place) if json_at.is_given else None
    body = _read_text(body_at, place, encode=Encoding.TEXT)
    if json_at.is_given and body_at.is_given:
        body_at.fault("'json' and 'body' exclude each other", accepted="one of them, or none")
    for content in (json_at, body_at):
        if content.is_given and method in _BODILESS:
            content.fault(f"a {method} request has no body", accepted="parameters in the URL")
    if not method or url is None:
        return None
    return HttpTemplate(method=method, url=url, headers=headers, json=json, body=body)


def _read_text(at: Field, place: Place, *, encode: Encoding) -> Template | None:
    """A template that is written as text: its author sees the very characters that are sent."""
    if isinstance(at.value, str):
        return compile_field(at, place, encode=encode)
    at.text(fallback="")
    return None


def _read_headers(at: Field, place: Place) -> tuple[tuple[str, Template], ...]:
    members = at.members(accepted="an object from header names to text") or {}
    if len(members) > HEADERS_MAX:
        at.fault(f"there are {len(members)} headers", accepted=f"at most {HEADERS_MAX} headers")
    headers: list[tuple[str, Template]] = []
    seen: set[str] = set()
    for name, member in members.items():
        lower = name.lower()
        if _TOKEN.fullmatch(name) is None:
            accepted = "letters, digits and any of !#$%&'*+-.^_`|~"
            member.fault(f"{shown(name)} is not a header name", accepted=accepted)
        elif lower in RESERVED_HEADERS or lower.startswith("amends-"):
            accepted = "any header that the service does not set itself"
            member.fault(f"the header {name!r} is set by the service", accepted=accepted)
        elif lower in seen:
            message = f"the header {name!r} is here twice: case does not tell headers apart"
            member.fault(message, accepted="each header once")
        seen.add(lower)
        value = _read_text(member, place, encode=Encoding.HEADER)
        if value is not None:
            headers.append((name, value))
    return tuple(headers)

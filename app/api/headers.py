"""Header fields that a route reads: preferences, conditions, and what it likes to get."""

import re

from fastapi import Request

from app.core.errors import Fault, InvalidRequest

WAIT_SECONDS_MAX = 60
"""Longer waits would be cut off by the proxies in between, which usually allow a minute."""

EVENT_STREAM = "text/event-stream"
SCHEMA_MEDIA_TYPE = "application/schema+json"
_JSON = "application/json"

SEQ = r"[0-9]{1,9}"
"""Of an entry, as a ``Last-Event-ID`` tells it: no journal is longer."""

IDEMPOTENCY_KEY = r"[\x20-\x7e]{1,255}"
"""Visible ASCII and spaces, as header fields have it (RFC 9110); 255 characters are plenty."""


def etag_of(revision: int) -> str:
    """The entity tag of a saga at a revision."""
    return f'"{revision}"'


def is_known(etag: str, request: Request) -> bool:
    """Whether the client has this very representation (RFC 9110 section 13.1.2)."""
    given = ",".join(request.headers.getlist("if-none-match"))
    known = [tag.strip().removeprefix("W/") for tag in given.split(",")]
    return etag in known or "*" in known


def wait_seconds(request: Request) -> int | None:
    """How long the client prefers to wait (RFC 7240 section 4.3), capped; None if it did not say.

    What cannot be understood is ignored, as the RFC has it; of several the first counts.
    """
    for preference in ",".join(request.headers.getlist("prefer")).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        digits = value.strip().strip('"')
        if name.strip().lower() == "wait" and digits.isascii() and digits.isdigit():
            return min(int(digits[:9]), WAIT_SECONDS_MAX)
    return None


def prefers_stream(request: Request) -> bool:
    """Whether the client would rather get server-sent events than JSON."""
    liking: dict[str, float] = {}
    for part in ",".join(request.headers.getlist("accept")).split(","):
        media_type, *parameters = [piece.strip().lower() for piece in part.split(";")]
        qualities = [text[2:] for text in parameters if text.startswith("q=")]
        try:
            liking.setdefault(media_type, float(qualities[0]) if qualities else 1.0)
        except ValueError:
            continue
    stream = liking.get(EVENT_STREAM, 0.0)
    # Of two that are liked alike, the one that was named first.
    named = list(liking)
    if _JSON in liking and liking[_JSON] == stream > 0:
        return named.index(EVENT_STREAM) < named.index(_JSON)
    return stream > liking.get(_JSON, 0.0)


def last_event_id(request: Request) -> int | None:
    """The ``seq`` that the client of a stream saw last, or None if it did not say.

    Raises:
        InvalidRequest: no event had that id.
    """
    seen = request.headers.get("last-event-id")
    if seen is None or re.fullmatch(SEQ, seen) is not None:
        return None if seen is None else int(seen)
    message = f"{seen[:60]!r} is the id of no event"
    raise InvalidRequest([Fault(path="Last-Event-ID", message=message, accepted="a seq, as 7")])


def idempotency_key(request: Request) -> str | None:
    """The client's name for its request, or None if it gave none.

    Raises:
        InvalidRequest: it is none.
    """
    key = request.headers.get("idempotency-key")
    if key is None or re.fullmatch(IDEMPOTENCY_KEY, key) is not None:
        return key
    accepted = "1 to 255 characters of printable ASCII"
    message = f"{key[:60]!r} cannot be a key"
    raise InvalidRequest([Fault(path="Idempotency-Key", message=message, accepted=accepted)])

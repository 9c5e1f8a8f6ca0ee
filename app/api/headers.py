"""Header fields that a route reads: preferences, conditions, and what it likes to get."""

from collections.abc import Sequence

WAIT_SECONDS_MAX = 60
"""Longer waits would be cut off by the proxies in between, which usually allow a minute."""

EVENT_STREAM = "text/event-stream"
_JSON = "application/json"


def etag_of(revision: int) -> str:
    """The entity tag of a saga at a revision."""
    return f'"{revision}"'


def is_known(etag: str, if_none_match: Sequence[str]) -> bool:
    """Whether a client has this very representation (RFC 9110 section 13.1.2).

    Args:
        etag: of what would be sent.
        if_none_match: values of that header.
    """
    known = [tag.strip().removeprefix("W/") for tag in ",".join(if_none_match).split(",")]
    return etag in known or "*" in known


def wait_seconds(prefer: Sequence[str]) -> int | None:
    """How long a client prefers to wait (RFC 7240 section 4.3), capped; None if it did not say.

    What cannot be understood is ignored, as the RFC has it; of several the first counts.
    """
    for preference in ",".join(prefer).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        digits = value.strip().strip('"')
        if name.strip().lower() == "wait" and digits.isascii() and digits.isdigit():
            return min(int(digits[:9]), WAIT_SECONDS_MAX)
    return None


def prefers_stream(accept: str) -> bool:
    """Whether a client would rather get server-sent events than JSON."""
    liking: dict[str, float] = {}
    for part in accept.split(","):
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

"""What a tool makes of a request: the value that ``rules`` and ``keys`` conclude with."""

import json
from dataclasses import dataclass
from typing import Final

from examples.world.records import Outcome

MALFORMED: Final = 400
ACKNOWLEDGED: Final = 202


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a request did, and what the tool says about it; ``body`` is JSON text."""

    outcome: Outcome
    status: int
    body: str
    resource: str | None = None
    calls_back: bool = False
    """Whether there is something to report on this request."""


def refusal(status: int, code: str, message: str, *, resource: str | None = None) -> Decision:
    """Refuse, changing nothing."""
    body = json.dumps({"error": code, "message": message})
    return Decision(outcome="refused", status=status, body=body, resource=resource)


def key_reused(key: str) -> Decision:
    """Refuse other bytes under a key that is taken."""
    return refusal(422, "key_reused", f"key {key!r} was used before for another request")

"""What a connector saw of one attempt; never a verdict.

Nothing left (``NotSent``), an answer came (``Answered``), the exchange broke off after the first
byte had left (``BrokenOff``), or a function said it in so many words (``Claimed``). What that means
for the world is concluded by ``outcome``, which also knows the earlier attempts.
"""

from dataclasses import dataclass
from enum import StrEnum

from app.core.json_value import JsonValue


class NotSentReason(StrEnum):
    """Why no byte of the request left."""

    UNREACHABLE = "unreachable"
    """Refused connection, DNS or TLS failure: the tool was tried and could not be reached."""
    EXPIRED = "expired"
    """The intent's ``send_by`` had passed, or no connection became free before it."""
    FORBIDDEN = "forbidden"
    """Our own transport refuses this request (a bad address, a header too long): no retry helps."""


class BrokenOffReason(StrEnum):
    """How an exchange ended after its first byte had left, or a call after it had begun."""

    TIMED_OUT = "timed_out"
    RESET = "reset"
    OVERSIZE = "oversize"
    """The head of the answer grew past the limit; what it said is not known."""
    INTERNAL = "internal"
    """Our own code failed in the middle; logged with its traceback."""
    RAISED = "raised"
    """A function raised something that says nothing of its effect; logged with its traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSent:
    """Surely no byte of the request reached the tool by this attempt."""

    reason: NotSentReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A complete answer.

    Attributes:
        status: the HTTP status code, 100 to 599 (other connectors map onto it).
        retry_after: the ``Retry-After`` header as received, if there was one.
        body: the decoded body; ``None`` for an empty one.
        readable: False if the body could not be decoded (bad JSON, bad UTF-8, bad encoding, too
            large); ``body`` is then an excerpt of at most 500 characters, or says so.
        body_bytes: size of the body as stored, in bytes.
    """

    status: int
    retry_after: str | None = None
    body: JsonValue = None
    readable: bool = True
    body_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenOff:
    """The request left at least in part, and no complete answer came."""

    reason: BrokenOffReason
    message: str


class Claim(StrEnum):
    """What a tool of our own process says of its attempt in so many words."""

    REFUSED = "refused"
    """Nothing was done, and no retry helps."""
    RETRY = "retry"
    """Nothing was done, and a later attempt may do it."""
    UNKNOWN = "unknown"
    """It may have been done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A function raised what became of the attempt, as no status code could say it.

    Attributes:
        message: in its words; at most 500 characters.
        retry_after_seconds: of ``RETRY``: not before then; None if it does not matter.
    """

    claim: Claim
    message: str
    retry_after_seconds: float | None = None


type Observation = NotSent | Answered | BrokenOff | Claimed

"""What every connector must get right, whatever it reaches: the parts of its conformance suite.

A ``Tool`` is a tool together with the connector that reaches it. It does what it is told, and
remembers who called. ``test_conformance`` tells each kind of tool the same things, and looks at
what an observation means to the core, not at how it says so.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, assert_never

from app.connectors import Connector, OutgoingCall
from app.core.json_value import JsonValue
from app.core.observation import (
    Answered,
    BrokenOff,
    Claim,
    Claimed,
    NotSent,
    NotSentReason,
    Observation,
)

WAIT_SECONDS = 7.0
"""What a tool asks for that wants to be tried again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Do it, and say this."""

    value: JsonValue


class Deed(Enum):
    """What else a tool may do when it is called."""

    SAY_NOTHING = auto()
    """Do it, and say no more than that."""
    REFUSE = auto()
    ASK_TO_RETRY = auto()
    """In ``WAIT_SECONDS``."""
    SAY_UNKNOWN = auto()
    BREAK_OFF = auto()
    """End without a word that could be understood."""
    HANG = auto()
    SAY_TOO_MUCH = auto()
    """More than a MiB."""


type Behaviour = Answer | Deed


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a tool was told by one call."""

    saga_id: str
    step: str
    call: str
    attempt: int
    key: str
    callback_url: str | None
    arguments: JsonValue


class Tool(Protocol):
    """A tool, and the way to it.

    Attributes:
        connector: reaches it.
        behaviour: at the next calls.
        seen: every call that came, in order.
        arrived: a permit for every call that came.
    """

    connector: Connector
    behaviour: Behaviour
    seen: list[Seen]
    arrived: asyncio.Semaphore

    def make_call(
        self,
        *,
        arguments: dict[str, JsonValue] | None = None,
        attempt: int = 1,
        timeout_seconds: float = 30.0,
        expired: Callable[[], bool] = lambda: False,
        callback_url: str | None = None,
    ) -> OutgoingCall:
        """A call of this tool."""
        ...

    def make_call_of_nobody(self) -> OutgoingCall:
        """A call by the same way of a tool that is not there."""
        ...


class Kind(Enum):
    """What an observation proves, as the table of DESIGN.md section 4 has it."""

    DONE = auto()
    NONE_FOR_GOOD = auto()
    NONE_FOR_NOW = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What an observation of a first attempt means to the core."""

    kind: Kind
    wait_seconds: float | None = None


def meaning_of(observation: Observation) -> Meaning:
    """The row of the table that an observation falls into, without ``responses``."""
    match observation:
        case NotSent(reason=NotSentReason.FORBIDDEN):
            return Meaning(kind=Kind.NONE_FOR_GOOD)
        case NotSent():
            return Meaning(kind=Kind.NONE_FOR_NOW)
        case BrokenOff():
            return Meaning(kind=Kind.UNKNOWN)
        case Claimed(claim=Claim.REFUSED):
            return Meaning(kind=Kind.NONE_FOR_GOOD)
        case Claimed(claim=Claim.RETRY):
            return Meaning(kind=Kind.NONE_FOR_NOW, wait_seconds=observation.retry_after_seconds)
        case Claimed():
            return Meaning(kind=Kind.UNKNOWN)
        case Answered(status=status) if 200 <= status < 300:
            return Meaning(kind=Kind.DONE if observation.readable else Kind.UNKNOWN)
        case Answered(status=429):
            wait = observation.retry_after
            return Meaning(
                kind=Kind.NONE_FOR_NOW, wait_seconds=None if wait is None else float(wait)
            )
        case Answered(status=status) if 400 <= status < 500:
            return Meaning(kind=Kind.NONE_FOR_GOOD)
        case Answered():
            return Meaning(kind=Kind.UNKNOWN)
        case _:
            assert_never(observation)

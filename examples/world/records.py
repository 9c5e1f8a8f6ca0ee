"""The rows of the ledger, as values, and the ledger as a document.

One counter numbers everything that happens in the world, from 1: a request that is received, an
outcome, an effect, an undo, a callback. So any two ``..._seq`` compare, and say which came first.
Gaps mean nothing.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal, Self

type JsonValue = bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None

type Outcome = Literal["applied", "replayed", "refused", "none", "accepted"]
"""What a request did: had its effect now, was answered from memory, was refused, or nothing.

``accepted``: it was acknowledged, and will act later; then the outcome becomes one of the others.
"""

type Saying = Literal["succeeded", "failed", "in_progress"]
Target = Literal["given", "forged", "dead"]
"""Where a callback was sent: to the URL given, with another token, or where nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request that was received, and how it ended.

    Headers are as they were sent, ``None`` where there were none. ``at`` is RFC 3339 in UTC, for
    people: order is told by ``seq``. ``path`` includes the query.
    """

    seq: int
    at: str
    method: str
    path: str
    key: str | None = None
    saga: str | None = None
    step: str | None = None
    call: str | None = None
    attempt: str | None = None
    body_sha256: str | None = None
    """Lower-case hex; ``None`` for a body over the limit, which is not read."""
    body_text: str = ""
    """The first 2 KiB, for people."""
    fault: str | None = None
    """The ``do`` of the switch that it hit, as JSON."""
    outcome: Outcome | None = None
    """``None`` while it is under way, or if the world died under it."""
    outcome_seq: int | None = None
    status: int | None = None
    """The status that was to be answered; ``None`` with an outcome means no answer was to come."""
    resource: str | None = None
    """The effect it made, or the one it was meant to undo and knew of."""

    @property
    def is_read(self) -> bool:
        """Whether it can change nothing."""
        return self.method in {"GET", "HEAD"}

    @property
    def is_undo(self) -> bool:
        """Whether it is meant to undo something."""
        return not self.is_read and (
            self.method == "DELETE"
            or self.path.startswith("/refunds")
            or self.call == "compensation"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Something that was made in the world, and perhaps undone.

    ``resource`` is unique in a ledger (``F1``, ``CH2``). ``key``, ``saga`` and ``step`` are those
    of the request that made it, whose ``seq`` is ``request_seq``. A refund is not an effect: it
    is the undo of a charge.
    """

    resource: str
    kind: str
    request_seq: int
    created_seq: int
    key: str | None = None
    saga: str | None = None
    step: str | None = None
    undone_seq: int | None = None
    undone_by_key: str | None = None

    @property
    def live(self) -> bool:
        """Whether it still stands."""
        return self.undone_seq is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """One report that was sent to the caller of a tool, and what the caller answered.

    It is recorded before it is sent. ``key``, ``saga``, ``step`` and ``call`` are those of the
    request that it reports on, whose ``seq`` is ``request_seq``.
    """

    seq: int
    at: str
    request_seq: int
    report: int
    """Which of the reports on the request, from 0. A report sent again has the same bytes."""
    attempt: int
    """Which try to send the report, from 1."""
    outcome: Saying
    """What it said."""
    sent_to: Target = "given"
    is_changed: bool = False
    """Whether a switch has changed its body."""
    token_sha256: str
    """Of the last part of the URL's path; lower-case hex."""
    body_text: str
    """All of it, as it was sent."""
    answered_seq: int | None = None
    """``None`` while it is under way, or if the world died under it."""
    status: int | None = None
    """``None`` with an ``answered_seq`` means that no answer came; ``error`` says why."""
    error: str | None = None
    key: str | None = None
    saga: str | None = None
    step: str | None = None
    call: str | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the caller said that it took it."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_refused(self) -> bool:
        """Whether the caller said that it wants none of it; not that it cannot take it now."""
        return self.status is not None and 400 <= self.status < 500 and self.status != 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All that was received, done and reported; each by ``seq``, effects by ``created_seq``."""

    requests: tuple[Received, ...] = ()
    effects: tuple[Effect, ...] = ()
    callbacks: tuple[Callback, ...] = ()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what ``GET /world/ledger`` answered."""
        document = json.loads(text)
        effects = [
            {name: row[name] for name in row if name != "live"} for row in document["effects"]
        ]
        return cls(
            requests=tuple(Received(**row) for row in document["requests"]),
            effects=tuple(Effect(**row) for row in effects),
            callbacks=tuple(Callback(**row) for row in document.get("callbacks", [])),
        )

    def to_json(self) -> str:
        """Write what ``from_json`` reads; every effect also says whether it is ``live``."""
        return json.dumps(
            {
                "requests": [dataclasses.asdict(request) for request in self.requests],
                "effects": [
                    dataclasses.asdict(effect) | {"live": effect.live} for effect in self.effects
                ],
                "callbacks": [dataclasses.asdict(callback) for callback in self.callbacks],
            }
        )

"""What every connector takes, gives and promises."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.core.identity import CallKey, SagaId, StepId
from app.core.observation import Observation
from app.core.requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingCall:
    """One attempt whose intent is committed, ready to be sent.

    Attributes:
        saga_id: whose step it is.
        step: the step in that saga.
        call: ``action``, ``compensation`` or ``verify``.
        attempt: counts every request of this call, from 1.
        key: the idempotency key, the same at every attempt.
        request: as stored with the intent, the same at every attempt.
        timeout: limits one exchange as a whole: connect, send and answer. Waiting for a free
            connection comes before it, and is limited by the same length.
        expired: whether ``send_by`` has passed. Asked right before the first byte, or before a
            function is called, then in that function's thread; must be quick.
        callback_url: where the tool is to post the outcome; None if the answer is the outcome.
    """

    saga_id: SagaId
    step: StepId
    call: str
    attempt: int
    key: CallKey
    request: Request
    timeout: dt.timedelta
    expired: Callable[[], bool]
    callback_url: str | None = None


class Connector(Protocol):
    """A way to reach the world.

    * It sends at most once per ``attempt``: it never tries again by itself, and follows no
      redirect. Whether to repeat is the core's decision.
    * ``NotSent`` is said only where it is proved that no byte of the request left.
    * Once ``attempt`` has ended without an answer, no byte of the request leaves any more. (A
      Python function may run on, and what it does is not in its connector's hands: see ``python``.)
    * What the tool does, down to the byte, is a value. Exceptions are bugs of ours, and
      cancellation, which is never swallowed.
    """

    async def attempt(self, call: OutgoingCall) -> Observation:
        """Carry out one attempt and say what was seen."""
        ...

    async def close(self) -> None:
        """Close what is held open; no attempt may be running, and none may follow."""
        ...

"""A connector whose attempts are counted and timed."""

import asyncio
import time

from app.connectors.base import Connector, OutgoingCall
from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    Claim,
    Claimed,
    NotSent,
    NotSentReason,
    Observation,
)
from app.metrics import Metrics

_CRASHED = f"broken_off_{BrokenOffReason.INTERNAL.value}"
"""Our own code failed, which the dispatcher reports so."""

_CANCELLED = "cancelled"
"""The service stopped before it ended."""

_OBSERVATIONS = (
    *(f"answered_{hundreds}xx" for hundreds in range(2, 6)),
    *(f"not_sent_{reason.value}" for reason in NotSentReason),
    *(f"broken_off_{reason.value}" for reason in BrokenOffReason),
    *(f"claimed_{claim.value}" for claim in Claim),
    _CANCELLED,
)


class MeteredConnector:
    """Another connector, metered under ``name``; a ``Connector``."""

    def __init__(self, connector: Connector, metrics: Metrics, *, name: str) -> None:
        self._connector = connector
        self._seconds = metrics.attempt_seconds.labels(name)
        self._seen = {each: metrics.attempts.labels(name, each) for each in _OBSERVATIONS}

    async def attempt(self, call: OutgoingCall) -> Observation:
        """Carry out one attempt and say what was seen; see ``Connector``."""
        begun_at = time.monotonic()
        kind = _CRASHED
        try:
            observation = await self._connector.attempt(call)
            kind = _kind_of(observation)
        except asyncio.CancelledError:
            kind = _CANCELLED
            raise
        finally:
            self._seconds.observe(time.monotonic() - begun_at)
            self._seen[kind].inc()
        return observation

    async def close(self) -> None:
        """Close the connector."""
        await self._connector.close()


def _kind_of(observation: Observation) -> str:
    match observation:
        case Answered(status=status):
            return f"answered_{status // 100}xx"
        case NotSent(reason=reason):
            return f"not_sent_{reason.value}"
        case BrokenOff(reason=reason):
            return f"broken_off_{reason.value}"
        case Claimed(claim=claim):
            return f"claimed_{claim.value}"

"""Requests that are held until somebody lets them go, and waiting until one is held."""

import asyncio
import dataclasses
from contextlib import suppress
from dataclasses import dataclass, field

from examples.world.faults import Hold
from examples.world.records import JsonValue, Received


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """One request that is held."""

    hold: Hold
    request: Received
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def to_json(self) -> JsonValue:
        """Say who is held, and where."""
        request = self.request
        return {
            **dataclasses.asdict(self.hold),
            "seq": request.seq,
            "method": request.method,
            "path": request.path,
            "key": request.key,
            "saga": request.saga,
            "step": request.step,
            "call": request.call,
            "attempt": request.attempt,
        }


class Holds:
    """All requests that are held now."""

    def __init__(self) -> None:
        """Begin with none."""
        self._held: list[Held] = []
        self._changed = asyncio.Condition()

    async def hold(self, hold: Hold, request: Received) -> None:
        """Hold this request until its name is released."""
        held = Held(hold=hold, request=request)
        async with self._changed:
            self._held.append(held)
            self._changed.notify_all()
        try:
            await held.released.wait()
        finally:
            if held in self._held:
                self._held.remove(held)

    def named(self, name: str | None) -> list[Held]:
        """List those held under a name, or under any, oldest first."""
        return [held for held in self._held if name in {None, held.hold.name}]

    def release(self, name: str | None) -> int:
        """Let go all that are held now under a name, or under any; say how many that were."""
        going = self.named(name)
        for held in going:
            self._held.remove(held)
            held.released.set()
        return len(going)

    async def wait_until_held(
        self, name: str | None, *, count: int, wait_seconds: float
    ) -> list[Held]:
        """Wait until ``count`` are held under a name; list those who are, in time or not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds), self._changed:
                await self._changed.wait_for(lambda: len(self.named(name)) >= count)
        return self.named(name)

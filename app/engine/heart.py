"""The heart: renews the lease apart from the work, and starts anew when it was revoked."""

from collections.abc import Callable

from app.engine.loop import Loop
from app.store import Replica


class Heart:
    """Beats for one replica, whatever its role."""

    def __init__(self, replica: Replica, *, on_revoked: Callable[[], None]) -> None:
        """``on_revoked`` is called before the replica becomes a new incarnation."""
        self._replica = replica
        self._on_revoked = on_revoked
        self._loop = Loop("beats", self._beat, every_seconds=replica.beat_seconds)

    async def start(self) -> None:
        """Start beating; the replica is registered."""
        await self._loop.start()

    async def stop(self) -> None:
        """Stop beating; works before ``start`` and twice."""
        await self._loop.stop()

    async def _beat(self) -> bool:
        await self._replica.beat()
        if self._replica.revoked.is_set() and not self._replica.is_draining:
            self._on_revoked()
            await self._replica.register()
        return False

"""Watching sagas: who waits for one to move shares one poll with all others of this process.

What this process commits itself is known at once; what other replicas commit is found out by one
query for all watched sagas together, a few times a second. No connection is held by a waiting
client.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from app.core.errors import StoreUnavailable
from app.core.identity import SagaId
from app.core.saga import Saga, SagaStatus
from app.store.database import Database
from app.store.sagas import list_progress

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.25


@dataclass(slots=True, eq=False)
class _Watcher:
    """Somebody who waits until ``until`` holds for (seq, status)."""

    until: Callable[[int, SagaStatus], bool]
    met: asyncio.Event = field(default_factory=asyncio.Event)


class Watch:
    """All that is waited for in this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watchers: dict[SagaId, set[_Watcher]] = {}
        self._kick = asyncio.Event()
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the shared poll."""
        self._task = asyncio.create_task(self._poll(), name="watch")  # noqa: TID251 - owned: stop() awaits it

    @property
    def is_closed(self) -> bool:
        """The service stops."""
        return self._closed.is_set()

    def close(self) -> None:
        """Let everybody go: whoever waits is told that nothing was met."""
        self._closed.set()
        self._kick.set()
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.met.set()

    async def stop(self) -> None:
        """End the poll; works before ``start`` and twice."""
        self.close()
        if self._task is not None:
            await self._task

    def notify(self, saga: Saga) -> None:
        """This process has committed a saga's next entry."""
        for watcher in self._watchers.get(saga.id, ()):
            if watcher.until(saga.seq, saga.status):
                watcher.met.set()

    async def wait(
        self, saga_id: SagaId, *, until: Callable[[int, SagaStatus], bool], seconds: float
    ) -> bool:
        """Wait until ``until`` holds for the saga's (seq, status), at most so long.

        Returns:
            Whether it may hold now; False after ``seconds`` or when the service stops. Returns
            soon if it held already when it was called.
        """
        if self._closed.is_set():
            return False
        watcher = _Watcher(until)
        self._watchers.setdefault(saga_id, set()).add(watcher)
        self._kick.set()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await watcher.met.wait()
                    return not self._closed.is_set()
            return False
        finally:
            watchers = self._watchers[saga_id]
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[saga_id]

    async def _poll(self) -> None:
        while not self._closed.is_set():
            if not self._watchers:
                self._kick.clear()
                await self._kick.wait()
                continue
            try:
                async with self._database.read() as tx:
                    progress = await list_progress(tx, list(self._watchers))
            except StoreUnavailable as error:
                log.warning("watch_poll_failed", error=str(error))
                progress = {}
            except Exception:
                # Whatever it is: who waits must not wait in vain from now on.
                log.exception("watch_poll_failed")
                progress = {}
            for saga_id, (seq, status) in progress.items():
                for watcher in self._watchers.get(saga_id, ()):
                    if watcher.until(seq, status):
                        watcher.met.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._closed.wait()

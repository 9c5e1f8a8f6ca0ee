"""A background loop: does a bounded piece of work, rests, and does it again, until stopped."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from app.core.errors import ServiceError

log = structlog.get_logger(__name__)


class Loop:
    """Runs ``work`` every ``every_seconds``, or at once when kicked.

    A piece of work that fails because the database is away is tried again at the next round; any
    other exception is a bug of ours, is logged with its traceback, and does not end the loop.
    """

    def __init__(
        self, name: str, work: Callable[[], Awaitable[bool]], *, every_seconds: float
    ) -> None:
        """``work`` returns whether there is more to do at once."""
        self._name = name
        self._work = work
        self._every_seconds = every_seconds
        self._kick = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the loop; its first round begins at once."""
        self._task = asyncio.create_task(self._run(), name=self._name)  # noqa: TID251 - owned: stop() awaits it

    async def stop(self) -> None:
        """End after the round under way; works before ``start`` and twice."""
        self._stopping = True
        self._kick.set()
        if self._task is not None:
            await self._task

    def kick(self) -> None:
        """Do not wait for the next round."""
        self._kick.set()

    async def _run(self) -> None:
        while not self._stopping:
            self._kick.clear()
            if await self._round():
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_seconds):
                    await self._kick.wait()

    async def _round(self) -> bool:
        try:
            return await self._work()
        except ServiceError as error:
            log.warning("loop_round_failed", loop=self._name, error=str(error))
        except Exception:
            log.exception("loop_round_crashed", loop=self._name)
        return False

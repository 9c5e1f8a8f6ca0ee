"""The ``python`` connector: one attempt is one call of a function in this process.

Where HTTP has a first byte, a function has its beginning: before it nothing has happened, after it
anything may have. What authors need to know stands in ``app.functions``.

An ``async`` function runs in a task of its own, which is cancelled when its time is up. One that
does not end for that is left to itself; so is a function in a thread, which nothing can end. Each
keeps its place until it really ends: what hangs uses up the places of its own function, and leaves
others theirs.

Wherever a function may run on, the third promise of a ``Connector`` cannot be kept: its effect may
come after the attempt has ended, and all that can be done about it is up to its author.
"""

import asyncio
import contextlib
import contextvars
import datetime as dt
from collections import Counter

import structlog

from app.connectors.base import OutgoingCall
from app.connectors.functions import Functions
from app.connectors.invocation import Invocation, prepare
from app.connectors.slots import Slots
from app.connectors.threads import Threads
from app.connectors.transport import ANSWER_BYTES_MAX
from app.core.observation import (
    BrokenOff,
    BrokenOffReason,
    NotSent,
    NotSentReason,
    Observation,
)

log = structlog.get_logger(__name__)

TASKS_MAX = 500
TASKS_PER_FUNCTION_MAX = 100
"""As many as connections, and per host, in the ``http`` connector: such functions call hosts."""

THREADS_MAX = 100
"""Threads take turns in Python: more of them wait for each other rather than for the world. anyio's
default, for the same use, is 40; these may hang, and then are never returned."""

THREADS_PER_FUNCTION_MAX = 25

CANCEL_WAIT = dt.timedelta(seconds=1)
"""What an async function gets to clean up in. Far below the 10 s of ``late_window`` by default."""


class PythonConnector:
    """Calls functions; a ``Connector``.

    Args:
        functions: what definitions may name.
        answer_bytes_max: of what a function returns, as JSON text.
        tasks_max: async functions running at once, in all.
        tasks_per_function_max: the same, of one name.
        threads_max: other functions running at once, in all.
        threads_per_function_max: the same, of one name.
        cancel_wait: how long an attempt waits for a function that it has cancelled.
    """

    def __init__(
        self,
        functions: Functions,
        *,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        tasks_max: int = TASKS_MAX,
        tasks_per_function_max: int = TASKS_PER_FUNCTION_MAX,
        threads_max: int = THREADS_MAX,
        threads_per_function_max: int = THREADS_PER_FUNCTION_MAX,
        cancel_wait: dt.timedelta = CANCEL_WAIT,
    ) -> None:
        self._functions = functions
        self._answer_bytes_max = answer_bytes_max
        self._for_tasks = Slots[str](limit=tasks_max, limit_per_host=tasks_per_function_max)
        self._for_threads = Slots[str](limit=threads_max, limit_per_host=threads_per_function_max)
        self._cancel_wait = cancel_wait
        self._threads = Threads("amends-function")
        self._stuck_tasks: dict[asyncio.Task[Observation], Invocation] = {}
        self._stuck_threads: set[Invocation] = set()

    async def attempt(self, call: OutgoingCall) -> Observation:
        """Call the function and say what was seen; see ``Connector``."""
        invocation = prepare(self._functions, call, answer_bytes_max=self._answer_bytes_max)
        if isinstance(invocation, NotSent):
            return invocation
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + call.timeout.total_seconds()
        is_async = invocation.function.is_async
        slots = self._for_tasks if is_async else self._for_threads
        if not await slots.enter(
            invocation.function.name, give_up=lambda: call.expired() or loop.time() >= give_up_at
        ):
            return invocation.not_sent()
        if is_async:
            return await self._run_in_task(invocation)
        return await self._run_in_thread(invocation)

    async def close(self) -> None:
        """End what can be ended, and say what cannot; waits for no thread."""
        self._threads.close()
        self._force_tasks()
        left = [*self._stuck_tasks.values(), *self._stuck_threads]
        if left:
            functions = Counter(invocation.function.name for invocation in left)
            log.warning("functions_left_running", functions=dict(functions))

    async def _run_in_task(self, invocation: Invocation) -> Observation:
        work = invocation.run_in_loop()
        # Its end is waited for below, or by `_stuck_tasks`: a group would wait for ever.
        task = asyncio.create_task(work, name=invocation.function.name)  # noqa: TID251
        task.add_done_callback(lambda _: self._for_tasks.leave(invocation.function.name))
        try:
            await asyncio.wait((task,), timeout=invocation.call.timeout.total_seconds())
            if task.done() and not task.cancelled():
                return task.result()
        finally:
            if not task.done():
                await self._cancel(task, invocation)
        # What it says after having been told to stop proves nothing, and is not listened to.
        return invocation.not_sent() if invocation.withdraw() else _timed_out(invocation)

    async def _cancel(self, task: asyncio.Task[Observation], invocation: Invocation) -> None:
        """Tell a function to stop, and give it a moment to do so."""
        invocation.is_abandoned = True
        task.cancel()
        try:
            await asyncio.wait((task,), timeout=self._cancel_wait.total_seconds())
        finally:
            if not task.done():
                self._stuck_tasks[task] = invocation
                log.warning("function_ignores_cancellation", **invocation.facts)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Observation]) -> None:
        invocation = self._stuck_tasks.pop(task, None)
        if invocation is not None:
            log.info("function_ended_late", **invocation.facts)
        if not task.cancelled():
            task.exception()  # or asyncio would report that nobody looked at it

    def _force_tasks(self) -> None:
        """Close the coroutines that ignored being cancelled: the event loop's end awaits tasks."""
        for task in self._stuck_tasks:
            coroutine = task.get_coro()
            if coroutine is not None:
                with contextlib.suppress(RuntimeError):  # it ignores that too
                    coroutine.close()
            task.cancel()  # wakes it up, to find itself closed

    async def _run_in_thread(self, invocation: Invocation) -> Observation:
        name = invocation.function.name
        ended: asyncio.Future[Observation | BaseException]
        ended = asyncio.get_running_loop().create_future()
        context = contextvars.copy_context()

        def end(outcome: Observation | BaseException) -> None:
            self._for_threads.leave(name)
            if invocation in self._stuck_threads:
                self._stuck_threads.remove(invocation)
                log.info("function_ended_late", **invocation.facts)
            ended.set_result(outcome)

        try:
            self._threads.run(lambda: context.run(invocation.run), ended=end)
        except RuntimeError as error:
            self._for_threads.leave(name)
            message = f"there is no thread for the function {name!r}: {error}"
            return NotSent(reason=NotSentReason.UNREACHABLE, message=message)
        try:
            await asyncio.wait((ended,), timeout=invocation.call.timeout.total_seconds())
        finally:
            is_over = ended.done() or invocation.withdraw()
            if not is_over:
                self._stuck_threads.add(invocation)
                log.warning("function_left_running", **invocation.facts)
        if not ended.done():
            return invocation.not_sent() if is_over else _timed_out(invocation)
        outcome = ended.result()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def _timed_out(invocation: Invocation) -> BrokenOff:
    seconds = invocation.call.timeout.total_seconds()
    message = f"the function {invocation.function.name!r} did not end within {seconds:g} s"
    return BrokenOff(reason=BrokenOffReason.TIMED_OUT, message=message)

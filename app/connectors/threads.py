"""Threads for code that blocks, and that may never come back.

``ThreadPoolExecutor`` is not used since the interpreter waits for its threads at exit: one function
that hangs would keep the process alive. These are daemons. They are made when all others are busy,
and kept: code that holds a connection per thread finds it again. How many there are at most is the
caller's business, who limits how many jobs run at once.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue


class Threads:
    """Runs jobs for one event loop; to be called in that loop's thread alone.

    Args:
        name: what the threads are called, for debuggers.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started = 0
        self._busy = 0

    def run[T](self, job: Callable[[], T], *, ended: Callable[[T | BaseException], None]) -> None:
        """Run ``job`` in a thread of its own.

        Args:
            job: whatever it raises is passed on; nothing ends the thread.
            ended: called in the event loop with what ``job`` returned or raised; not called if the
                loop is closed by then.

        Raises:
            RuntimeError: The system has no thread left; ``job`` will not run.
        """
        loop = asyncio.get_running_loop()
        if self._busy == self._started:
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
            self._started += 1
        self._busy += 1

        def work() -> None:
            outcome: T | BaseException
            try:
                outcome = job()
            except BaseException as error:  # noqa: BLE001 - passed on
                outcome = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(finish, outcome)

        def finish(outcome: T | BaseException) -> None:
            self._busy -= 1
            ended(outcome)

        self._jobs.put(work)

    def close(self) -> None:
        """Let each thread end once it has nothing to do; waits for none."""
        for _ in range(self._started):
            self._jobs.put(None)
        self._started = 0

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            work()
            del work  # an idle thread holds on to nothing

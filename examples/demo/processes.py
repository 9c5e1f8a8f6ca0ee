"""The processes of the demo: the world and the service, each really started, and really killed."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 45.0
STOP_SECONDS_MAX = 30.0


class StartFailed(Exception):
    """A process ended, or said nothing, before it was ready."""


class Process:
    """A child that says in one line that it listens, and where.

    Attributes:
        url: where it listens.
        pid: of the running child.
    """

    def __init__(
        self, name: str, arguments: list[str], *, log: Path, environment: Mapping[str, str]
    ) -> None:
        """``arguments`` follow the Python interpreter; all output goes to ``log``."""
        self.name = name
        self.url = ""
        self._arguments = arguments
        self._log = log
        self._environment = {**os.environ, **environment}
        self._child: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._child is not None, self.name
        return self._child.pid

    async def start(self) -> None:
        """Start it, and return once it listens.

        Raises:
            StartFailed: it did not; the message holds the end of its log.
        """
        with self._log.open("ab") as log:
            begin = log.tell()
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._arguments,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=ROOT,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                self.url = await self._wait_listening(begin)
        except TimeoutError:
            await self.kill()
            raise StartFailed(self._tail("it said nothing in time")) from None

    async def stop(self) -> None:
        """Ask it to end, and wait for that."""
        if self._child is None or self._child.returncode is not None:
            return
        self._child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._child.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL: no chance to save anything."""
        if self._child is None or self._child.returncode is not None:
            return
        self._child.kill()
        await self._child.wait()

    async def _wait_listening(self, begin: int) -> str:
        assert self._child is not None, self.name
        while True:
            said = self._log.read_bytes()[begin:].decode(errors="replace")
            found = re.search(r"listen(?:s|ing) on (http://\S+)", said)
            if found is not None:
                return found[1].rstrip("/")
            if self._child.returncode is not None:
                raise StartFailed(self._tail(f"it ended with code {self._child.returncode}"))
            await asyncio.sleep(0.02)

    def _tail(self, reason: str) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-15:]
        return "\n".join([f"{self.name} did not start: {reason}; its log ends:", *lines])

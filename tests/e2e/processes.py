"""Processes that a test starts, kills, freezes and stops: always its own, and by their ids.

Plain `subprocess`, no asyncio: a process lives as long as its fixture, whatever loop that runs on.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]

START_SECONDS_MAX = 60.0
"""An import takes two seconds on an idle machine; the tests of others may run beside ours."""

STOP_SECONDS_MAX = 30.0
"""What the service promises for SIGTERM."""

LOG_LINES = 60
"""As much of a log is shown when a test fails."""


class Child:
    """A process of ours, in a process group of its own, all output in one log file.

    Attributes:
        name: for failures.
        url: where it says that it listens; of its last start.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        announces: str = r"listen(?:s|ing) on (http://[^\s;]+)",
    ) -> None:
        self.name = name
        self.url = ""
        self._command = command
        self._log = log
        self._environment = {**_inherited(), **(environment or {})}
        self._announces = re.compile(announces)
        self._begin = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or is frozen."""
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """How the last start ended; None while it lives."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.poll()

    def spawn(self) -> None:
        """Start it, without waiting for anything."""
        assert not self.is_alive, f"{self.name} runs already"
        with self._log.open("ab") as log:
            self._begin = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=ROOT,
                start_new_session=True,
                preexec_fn=_end_with_us,  # noqa: PLW1509 - one call into libc, nothing else
            )

    async def start(self) -> None:
        """Start it, and return once it says where it listens."""
        self.spawn()
        await self.announced()

    async def announced(self) -> None:
        """Return once the process of the last `spawn` says where it listens."""

        def found() -> str:
            match = self._announces.search(self.said())
            assert match or self.is_alive, f"{self.name} ended with {self.code}:\n{self.tail()}"
            return match[1] if match else ""

        self.url = await wait_until(
            found, seconds_max=START_SECONDS_MAX, what=f"{self.name} to listen; {self._log}"
        )

    def kill(self) -> None:
        """SIGKILL, also for a frozen one; returns when it is gone."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_SECONDS_MAX)

    def terminate(self) -> None:
        """SIGTERM, and return at once."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        """SIGSTOP: it is there, and does nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on as if nothing had happened."""
        self._signal(signal.SIGCONT)

    async def ended(self, *, seconds_max: float = STOP_SECONDS_MAX) -> float:
        """Wait for its end; returns how long that took."""
        begin = time.monotonic()
        await wait_until(
            lambda: not self.is_alive, seconds_max=seconds_max, what=f"the end of {self.name}"
        )
        return time.monotonic() - begin

    async def stop(self) -> float:
        """SIGTERM and wait for its end; returns how long that took."""
        self.terminate()
        return await self.ended()

    def said(self) -> str:
        """All that its last start wrote."""
        return self._log.read_bytes()[self._begin :].decode(errors="replace")

    def tail(self) -> str:
        """The end of its log, earlier starts included."""
        if not self._log.exists():
            return "(nothing)"
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])

    def clean_up(self) -> None:
        """End it and whatever it started; for fixtures. Shows the log, for a test that failed."""
        if self._process is not None:
            if self.is_alive:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_SECONDS_MAX)
        print(f"\n---- end of the log of {self.name}\n{self.tail()}")  # noqa: T201 - for pytest to show

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_alive:
            self._process.send_signal(number)


class Amends(Child):
    """One replica of the service."""

    def __init__(
        self,
        name: str,
        *,
        place: Path,
        database_url: str,
        environment: Mapping[str, str],
        role: str = "all",
    ) -> None:
        super().__init__(
            name,
            [sys.executable, "-m", "app", "serve", "--role", role],
            log=place / f"{name}.log",
            environment={
                "AMENDS_HOST": "127.0.0.1",
                "AMENDS_PORT": "0",
                "AMENDS_DATABASE_URL": database_url,
                **environment,
            },
        )


def python(*arguments: str) -> list[str]:
    """A command that runs this interpreter."""
    return [sys.executable, *arguments]


def watched[T](children: list[Child], of: Callable[[], T]) -> Callable[[], T]:
    """A condition that fails at once if one of the processes that it depends on has ended."""

    def condition() -> T:
        for child in children:
            assert child.is_alive, f"{child.name} ended with {child.code}:\n{child.tail()}"
        return of()

    return condition


_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def _end_with_us() -> None:
    """In the child: be killed when the test is, even when nobody is left to clean up (Linux)."""
    if sys.platform == "linux":
        _LIBC.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _inherited() -> dict[str, str]:
    """Our environment without what would lead a service or a Postgres client elsewhere.

    And with byte code kept: where it is not, each start compiles for as long as all of a test
    takes.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("AMENDS_", "PG"))
    }
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):
        kept = Path(tempfile.gettempdir(), f"amends-e2e-pycache-{os.getuid()}")
        environment["PYTHONPYCACHEPREFIX"] = str(kept)
    return environment

"""Postgres for the tests: a real server, a database for every test, and how to break it."""

import asyncio
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self
from uuid import UUID

import asyncpg
import psutil

from app.embedded_postgres import EmbeddedPostgres
from app.store import migrate
from app.store.claims import WITHOUT_REASON
from tests.waiting import wait_until

AT_REST = frozenset({"completed", "compensated", "stuck"})


def make_place(prefix: str) -> Path:
    """Make a directory that every user may pass through: as root, Postgres runs as another."""
    place = Path(tempfile.mkdtemp(prefix=prefix))
    place.chmod(0o755)
    return place


class Cluster:
    """One server; as many databases as there are tests."""

    def __init__(self) -> None:
        self.place = make_place("amends-e2e-pg-")
        # Processes are killed here, not the machine: what the kernel has, it keeps.
        self._postgres = EmbeddedPostgres(self.place / "data", settings={"fsync": "off"})
        self._numbers = itertools.count(1)

    @property
    def pid(self) -> int | None:
        """The postmaster's process id."""
        return self._postgres.server_pid()

    async def start(self) -> None:
        """Start it, or start it again after a crash; returns when it answers."""
        await self._postgres.start()

    def crash(self) -> None:
        """End it as `pg_ctl stop -m immediate` does: no goodbye, recovery at the next start."""
        pid = self.pid
        assert pid is not None, "the server does not run"
        os.kill(pid, signal.SIGQUIT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze all its processes while the context is open."""
        assert self.pid is not None, "the server does not run"
        postmaster = psutil.Process(self.pid)
        processes = [postmaster]
        postmaster.suspend()  # it starts no others now
        try:
            for child in postmaster.children(recursive=True):
                child.suspend()
                processes.append(child)
            yield
        finally:
            for process in reversed(processes):
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    async def stop(self) -> None:
        """Stop it and remove its data."""
        await self._postgres.stop()
        shutil.rmtree(self.place, ignore_errors=True)

    def kill(self) -> None:
        """For fixtures whose test left nothing in order."""
        with suppress(ProcessLookupError):
            if self.pid is not None:
                os.kill(self.pid, signal.SIGQUIT)

    async def create_database(self) -> str:
        """Make a database with the schema of this release, and return its URL."""
        name = f"e2e_{os.getpid()}_{next(self._numbers)}"
        connection = await asyncpg.connect(self._postgres.url)
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        url = self._postgres.url.replace("/amends?", f"/{name}?")
        await migrate(url)
        return url


_MOVE = "UPDATE sagas s SET\n        status"
"""How the statement begins that appends to journals: Postgres shows the first KiB."""

START = "INSERT INTO sagas "
"""How the one begins that starts sagas."""


class Heads:
    """What the head rows say, read on a connection of our own."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def statuses(self) -> Mapping[str, str]:
        """The status of each saga, by id."""
        rows = await self.fetch("SELECT id, status FROM sagas ORDER BY created_at")
        return {str(row["id"]): row["status"] for row in rows}

    async def unfinished(self) -> list[str]:
        """The sagas that are not at rest."""
        return [saga for saga, status in (await self.statuses()).items() if status not in AT_REST]

    async def all_at_rest(self, *, seconds_max: float = 40.0) -> dict[str, str]:
        """The statuses of all sagas, once all are at rest."""

        async def rested() -> bool:
            return not await self.unfinished()

        try:
            await wait_until(
                rested, seconds_max=seconds_max, every_seconds=0.1, what="all sagas to rest"
            )
        except AssertionError as error:
            error.add_note(await self.describe(await self.unfinished()))
            raise
        return dict(await self.statuses())

    async def losses(self) -> int:
        """The most owners that a saga under way has lost in a row."""
        rows = await self.fetch("SELECT max(losses) FROM sagas WHERE finished_at IS NULL")
        return rows[0]["max"] or 0

    async def in_flight(self) -> int:
        """How many sagas have an owner now."""
        rows = await self.fetch("SELECT count(*) FROM sagas WHERE owner IS NOT NULL")
        count: int = rows[0]["count"]
        return count

    async def living_replicas(self) -> list[UUID]:
        """The incarnations that were not revoked, oldest first."""
        rows = await self.fetch(
            "SELECT id FROM replicas WHERE revoked_at IS NULL ORDER BY started_at"
        )
        return [row["id"] for row in rows]

    async def registered_anew(self, before: Collection[UUID]) -> None:
        """Return once there is a living incarnation that was not there before."""

        async def anew() -> bool:
            return not set(await self.living_replicas()) <= set(before)

        await wait_until(anew, seconds_max=15, what="a new incarnation")

    async def wait_for_a_lock(self, statement: str = _MOVE) -> None:
        """Return once a statement like that has been sent, and waits for a lock."""

        async def waits() -> bool:
            rows = await self.fetch(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock' AND strpos(query, $1) > 0",
                statement,
            )
            return bool(rows)

        await wait_until(waits, what=f"a statement to wait for a lock: {statement!r}")

    async def describe(self, sagas: list[str]) -> str:
        """The heads of some sagas, and the end of their journals, for a failure."""
        lines = []
        for saga in sagas[:5]:
            head = await self.fetch(
                "SELECT status, seq, owner, due_at, losses, now() FROM sagas WHERE id = $1",
                UUID(saga),
            )
            lines.append(f"{saga}: {dict(head[0]) if head else 'no such saga'}")
            rows = await self.fetch(
                "SELECT seq, at, type, left(data::text, 300) AS data FROM saga_journal"
                " WHERE saga_id = $1 ORDER BY seq DESC LIMIT 6",
                UUID(saga),
            )
            lines.extend(
                f"    {row['seq']} {row['at']} {row['type']} {row['data']}" for row in rows
            )
        return "\n".join(lines)

    async def fetch(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """All rows of one statement."""
        connection = await asyncpg.connect(self.url, statement_cache_size=0)
        try:
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()


class Lock:
    """A foreign transaction that holds a lock: on a saga's head row, or against all starts."""

    def __init__(self, url: str, saga: str | None) -> None:
        self._url = url
        self._saga = saga
        self._connection: asyncpg.Connection | None = None

    async def __aenter__(self) -> Self:
        connection = await asyncpg.connect(self._url)
        self._connection = connection
        await connection.execute("SET idle_in_transaction_session_timeout = 0")
        await connection.execute("BEGIN")
        if self._saga is None:
            await connection.execute("LOCK TABLE sagas IN SHARE MODE")
        else:
            await connection.fetch(
                "SELECT id FROM sagas WHERE id = $1 FOR UPDATE", UUID(self._saga)
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.lift()

    async def lift(self) -> None:
        """Let the others go on; also done at the end of the context."""
        if self._connection is not None:
            await self._connection.close()
        self._connection = None


_AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What a connection raises that was cut; the last by a slip of asyncpg's."""


class Sampler:
    """Asks, all the time, for sagas that nothing will move; there must be none at any moment."""

    def __init__(self, url: str) -> None:
        self.samples = 0
        self.found: list[str] = []
        self._url = url
        self._done = asyncio.Event()

    async def run(self) -> None:
        """Ask until `stop`; a server that is away is asked again."""
        while not self._done.is_set():
            with suppress(*_AWAY):
                connection = await asyncpg.connect(self._url)
                try:
                    await self._sample(connection)
                finally:
                    await connection.close()
            await self._pause()

    def stop(self) -> None:
        """Ask no more."""
        self._done.set()

    async def _sample(self, connection: asyncpg.Connection) -> None:
        while not self._done.is_set():
            rows = await connection.fetch(WITHOUT_REASON)
            self.samples += 1
            self.found.extend(str(dict(row)) for row in rows)
            await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await self._done.wait()

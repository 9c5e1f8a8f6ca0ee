"""Postgres for the tests: a real server, a database for every test, and how to break it."""

import asyncio
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import asyncpg

from app.embedded_postgres import EmbeddedPostgres
from app.store import migrate
from app.store.claims import WITHOUT_REASON

AT_REST = frozenset({"completed", "compensated", "stuck"})
FINAL = frozenset({"completed", "compensated"})


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
            lines.extend(f"    {row['seq']} {row['at']} {row['type']} {row['data']}" for row in rows)
        return "\n".join(lines)

    async def fetch(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """All rows of one statement."""
        connection = await asyncpg.connect(self.url, statement_cache_size=0)
        try:
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()


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
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
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

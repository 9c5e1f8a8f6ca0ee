"""The durable memory of the world: one SQLite file, one thread that writes it.

Commits are shared, as in Amends itself: what was asked for while one commit was being synced goes
into the next one together, without waiting for more. So an effect, the answer under its key and
its ledger row are always in one transaction, perhaps with those of others, and a slow disk slows
down the single client more than the many.
"""

import asyncio
import dataclasses
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, cast

from examples.world import tables
from examples.world.arrivals import Arrival
from examples.world.decisions import Decision
from examples.world.keys import Asked, carry_out
from examples.world.records import Ledger, Outcome, Received


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """Work that waits to be committed, and whom to tell."""

    work: Callable[[], object]
    done: asyncio.Future[object]


class Storage:
    """The open ledger. ``open`` makes one, ``close`` ends it; what a method did is on disk."""

    def __init__(self, connection: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        """Take over a connection and the only thread that may use it."""
        self._connection = connection
        self._thread = thread
        self._waiting: list[_Job] = []
        self._is_flushing = False

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open the ledger at ``path``, making it if it is missing."""
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        connection = await asyncio.get_running_loop().run_in_executor(thread, tables.connect, path)
        return cls(connection, thread)

    async def close(self) -> None:
        """Finish what was asked for and close the file."""
        # Jobs are done in order, so that this one is the last.
        await self.commit(lambda _: None)
        await self._run(self._connection.close)
        self._thread.shutdown()

    def _run[T](self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def commit[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work in a transaction, also if the caller is cancelled meanwhile."""
        job = _Job(
            work=partial(work, self._connection), done=asyncio.get_running_loop().create_future()
        )
        self._waiting.append(job)
        if not self._is_flushing:
            self._flush()
        return cast("T", await job.done)

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        self._is_flushing = True
        committed = self._run(partial(self._commit_together, [job.work for job in batch]))
        committed.add_done_callback(partial(self._settle, batch))

    def _settle(self, batch: Sequence[_Job], committed: asyncio.Future[list[object]]) -> None:
        self._is_flushing = False
        if self._waiting:
            self._flush()
        for job, result in zip(batch, committed.result(), strict=True):
            if job.done.done():
                continue
            if isinstance(result, Exception):
                job.done.set_exception(result)
            else:
                job.done.set_result(result)

    def _commit_together(self, works: Sequence[Callable[[], object]]) -> list[object]:
        """Return what each work returned, or the exception that it raised."""
        try:
            with tables.transaction(self._connection):
                return [work() for work in works]
        except Exception as error:  # noqa: BLE001 - it goes to the one who asked
            if len(works) == 1:
                return [error]
        # Nothing happened. Find out who is to blame, so that the others need not suffer.
        return [result for work in works for result in self._commit_together([work])]

    async def receive(self, arrival: Arrival, *, fault: str | None) -> Received:
        """Record a request, before anything is done about it."""

        def work(connection: sqlite3.Connection) -> Received:
            seq = tables.next_seq(connection)
            row = dataclasses.replace(arrival.row, seq=seq, fault=fault)
            tables.add_request(connection, row)
            return row

        return await self.commit(work)

    async def act(
        self,
        request: Received,
        body: bytes,
        asked: Asked,
        *,
        on_wire: Callable[[int], int | None],
    ) -> Decision:
        """Do what is asked, keep the answer under the key, and record the outcome: all or none.

        ``on_wire`` tells which status will be sent where the tool says its own.
        """

        def work(connection: sqlite3.Connection) -> Decision:
            decision = carry_out(connection, request, body, asked)
            tables.set_outcome(
                connection,
                request.seq,
                outcome=decision.outcome,
                status=on_wire(decision.status),
                resource=decision.resource,
            )
            return decision

        return await self.commit(work)

    async def finish(self, request: Received, *, outcome: Outcome, status: int | None) -> None:
        """Record the outcome of a request that changed nothing."""

        def work(connection: sqlite3.Connection) -> None:
            tables.set_outcome(connection, request.seq, outcome=outcome, status=status)

        await self.commit(work)

    async def ledger(self, *, saga: str | None = None) -> Ledger:
        """Read the ledger, whole or of one saga."""
        return await self._run(lambda: tables.fetch_ledger(self._connection, saga=saga))


def read_ledger(path: Path, *, saga: str | None = None) -> Ledger:
    """Read a ledger file from outside, also while the world runs, or after it was killed."""
    connection = tables.connect(path, read_only=True)
    try:
        connection.execute("BEGIN")
        return tables.fetch_ledger(connection, saga=saga)
    finally:
        connection.close()

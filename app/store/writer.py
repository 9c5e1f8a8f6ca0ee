"""The shared writer: what waits goes out as one statement, and one commit.

There is one writer task a process, and no lingering: a batch forms while the flush before it runs.
A caller is answered only after its commit. The writer holds one asyncpg connection, taken out of a
SQLAlchemy pool, and replaces it when it breaks.

One row never fails or holds up the others: on an error that belongs to a row the batch is halved
until the row stands alone. When a statement is a victim of others (a deadlock, a serialisation
failure), or the connection is lost, with or without a commit, the whole is sent again: the
compare-and-set makes that harmless, and a row that finds its own entry in place was written.
"""

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

import asyncpg
import structlog

from app.core.errors import Fenced, RowRefused, StoreUnavailable
from app.core.identity import Incarnation
from app.store.database import UNREACHABLE, Database
from app.store.statements import FIND, FREE, FREE_FENCE, MoveRow, StartRow, columns, flush_statement

log = structlog.get_logger(__name__)

ROWS_MAX = 500
BYTES_MAX = 4 * 1024 * 1024
"""Limits of one flush: what it holds up, and what a failure repeats, stays small."""

WAITING_ROWS_MAX = 10_000
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""More than this is not taken in: in an outage the service must not fill its memory."""

RECONNECT_SECONDS_MIN = 0.05
RECONNECT_SECONDS_MAX = 1.0

FAILURES_AT_END_MAX = 2
"""A stopped writer whose connection breaks tries once more before it gives up what waits."""

_ROW_ERRORS = ("22", "23", "54")
"""SQLSTATE classes that belong to a row: data, integrity, limits."""

_LOCK_NOT_AVAILABLE = "55P03"


class Outcome(Enum):
    """What became of a row."""

    WRITTEN = "written"
    LOST = "lost"
    """Another entry was there first; for a start: the saga, or its business key, exists."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """A row that waits, who waits for it, and what follows once it is written."""

    row: StartRow | MoveRow
    incarnation: Incarnation
    on_written: Callable[[], None]
    done: asyncio.Future[Outcome]
    since_seconds: float = field(default_factory=time.monotonic)
    size_bytes: int = field(init=False)
    is_settled: bool = False

    def __post_init__(self) -> None:
        self.size_bytes = len(self.row.data) + 200

    def settle(self, outcome: Outcome | Exception) -> None:
        """Say what became of the row: to the caller too, if it still waits."""
        if self.is_settled:
            return
        self.is_settled = True
        if outcome is Outcome.WRITTEN:
            try:
                self.on_written()
            except Exception:
                # A bug of a listener's: the row is written, and its caller and others wait.
                log.exception("listener_crashed")
        if self.done.done():
            return
        if isinstance(outcome, Outcome):
            self.done.set_result(outcome)
        else:
            self.done.set_exception(outcome)


def _nothing(*_: object) -> None:
    """Follows from what nobody but its caller cares for."""


class Writer:
    """The only writer of heads and journal."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[_Ticket] = deque()
        self._urgent: deque[_Ticket] = deque()
        self._sending: list[_Ticket] = []
        self._kick = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self.waiting_bytes = 0
        """Of the rows that wait, and are not on their way yet."""
        self._closing = False
        self._failures_at_end = 0
        self.flushes = 0
        self.rows = 0
        self.on_flush: Callable[[int, float], None] = _nothing
        """Called after every flush with its rows and the seconds that it took."""

    @property
    def waiting_rows(self) -> int:
        """How many rows wait to be stored, those on their way among them."""
        return len(self._waiting) + len(self._urgent) + len(self._sending)

    @property
    def waiting_seconds(self) -> float:
        """For how long the row that waits longest has waited; 0 if none does."""
        first = [*itertools.islice(self._waiting, 1), *itertools.islice(self._urgent, 1)]
        since = (ticket.since_seconds for ticket in [*first, *self._sending])
        now = time.monotonic()
        return now - min(since, default=now)

    async def start(self) -> None:
        """Start the writer task."""
        self._task = asyncio.create_task(self._run(), name="writer")  # noqa: TID251 - owned: stop() awaits it

    async def stop(self) -> None:
        """Write what waits, then end; works before ``start`` and twice."""
        self._closing = True
        self._kick.set()
        if self._task is not None:
            await self._task

    async def wait_idle(self) -> None:
        """Wait until nothing waits to be written, and nothing is on its way."""
        await self._idle.wait()

    async def write(
        self,
        row: StartRow | MoveRow,
        *,
        incarnation: Incarnation,
        on_written: Callable[[], None] = _nothing,
        urgent: bool = False,
    ) -> Outcome:
        """Write one row with others; returns after its commit.

        A caller that is cancelled takes its row back if it was not sent yet. If it was, the row may
        be written all the same, and ``on_written`` tells.

        Args:
            row: a new saga, or the next state of one. One row a saga may wait at a time.
            incarnation: as whom; refused if it was revoked.
            on_written: called once the row is known to be committed, whoever still waits.
            urgent: goes before what waits (callbacks, people's verbs).

        Raises:
            Fenced: the incarnation was revoked; nothing was written.
            RowRefused: the database refuses this row; nothing was written.
            StoreUnavailable: too much waits already, or the service stops.
        """
        assert self._task is not None, "start() comes first"
        waiting = len(self._waiting) + len(self._urgent)
        if self._closing or waiting >= WAITING_ROWS_MAX or self.waiting_bytes > WAITING_BYTES_MAX:
            raise StoreUnavailable("no more can be taken in to be stored")
        done = asyncio.get_running_loop().create_future()
        ticket = _Ticket(row, incarnation, on_written, done)
        queue = self._urgent if urgent else self._waiting
        queue.append(ticket)
        self.waiting_bytes += ticket.size_bytes
        self._idle.clear()
        self._kick.set()
        try:
            return await ticket.done
        except asyncio.CancelledError:
            # Its caller gave up; what was never sent need not be kept.
            with contextlib.suppress(ValueError):
                queue.remove(ticket)
                self.waiting_bytes -= ticket.size_bytes
                self._kick.set()
            raise

    async def _run(self) -> None:
        pause = RECONNECT_SECONDS_MIN
        while True:
            try:
                async with self._database.connection() as driver:
                    flusher = _Flusher(driver, is_pooled=self._database.is_pooled)
                    while True:
                        self._sending = self._sending or await self._next_batch()
                        if not self._sending:
                            return None
                        begun_at = time.monotonic()
                        await flusher.flush(self._sending)
                        pause = RECONNECT_SECONDS_MIN
                        self._note_flush(seconds=time.monotonic() - begun_at)
                        self._sending = []
            except (StoreUnavailable, *UNREACHABLE) as error:
                # What was in flight is sent again as it is; it may have been committed.
                self._sending = [ticket for ticket in self._sending if not ticket.is_settled]
                rows = len(self._sending)
                log.warning("writer_connection_lost", error=str(error), waiting=rows)
            except Exception:
                # A bug of ours: the callers are told, and the next batch gets its chance.
                log.exception("writer_crashed")
                for ticket in self._sending:
                    ticket.settle(StoreUnavailable("our own code failed while storing"))
                self._sending = []
            if self._is_at_an_end():
                return self._abandon()
            await self._rest(pause)
            pause = min(pause * 2, RECONNECT_SECONDS_MAX)

    def _note_flush(self, *, seconds: float) -> None:
        self.flushes += 1
        self.rows += len(self._sending)
        try:
            self.on_flush(len(self._sending), seconds)
        except Exception:
            # Whoever only watches must not cost a connection.
            log.exception("observer_crashed")

    def _is_at_an_end(self) -> bool:
        """The writer was stopped, and the database could not be reached again since."""
        if self._closing:
            self._failures_at_end += 1
        return self._failures_at_end >= FAILURES_AT_END_MAX

    async def _rest(self, seconds: float) -> None:
        """Wait before the next connection, or until the end is near."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._closing:
                    self._kick.clear()
                    await self._kick.wait()

    async def _next_batch(self) -> list[_Ticket]:
        """What waits, within the limits; empty when the writer is closed and nothing does."""
        while True:
            batch: list[_Ticket] = []
            sagas: set[UUID] = set()
            size = 0
            for queue in (self._urgent, self._waiting):
                while queue and len(batch) < ROWS_MAX and size < BYTES_MAX:
                    ticket = queue.popleft()
                    other = bool(batch) and ticket.incarnation != batch[0].incarnation
                    if other or ticket.row.id in sagas:
                        # One fence and one row a saga in a flush: this one begins the next.
                        queue.appendleft(ticket)
                        break
                    batch.append(ticket)
                    self.waiting_bytes -= ticket.size_bytes
                    sagas.add(ticket.row.id)
                    size += ticket.size_bytes
            if not batch:
                self._idle.set()
            if batch or self._closing:
                # Heads are locked in id order, by every writer.
                return sorted(batch, key=lambda ticket: ticket.row.id)
            self._kick.clear()
            await self._kick.wait()

    def _abandon(self) -> None:
        """The end has come and the database is away: nobody may believe it was written."""
        for ticket in [*self._sending, *self._urgent, *self._waiting]:
            message = "the service stopped, and it is not known whether it was stored"
            ticket.settle(StoreUnavailable(message))
        self._sending.clear()
        self._urgent.clear()
        self._waiting.clear()
        self._idle.set()


class _Flusher:
    """Sends batches over one connection."""

    def __init__(self, driver: asyncpg.Connection, *, is_pooled: bool) -> None:
        self._driver = driver
        self._is_pooled = is_pooled

    async def flush(self, batch: list[_Ticket]) -> None:
        """Send a batch, and settle every ticket in it.

        Raises:
            One of ``UNREACHABLE``: the connection broke; the tickets that are not settled are to be
                sent again.
        """
        while True:
            try:
                return await self._send(batch)
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                continue  # a victim of others: the same once more
            except UNREACHABLE:
                raise
            except asyncpg.PostgresError as error:
                state = error.sqlstate or ""
                if state == _LOCK_NOT_AVAILABLE:
                    return await self._pass_by(batch, error)
                if state[:2] in _ROW_ERRORS:
                    return await self._isolate(batch, error)
                # A full disk, a read-only server: nobody's row. The connection is replaced, and
                # the batch waits.
                log.exception("flush_failed", sqlstate=state, error=_said(error))
                raise asyncpg.InterfaceError(_said(error)) from error

    async def _pass_by(self, batch: list[_Ticket], error: asyncpg.PostgresError) -> None:
        """Send what nobody holds up; what somebody does is for its caller to try again.

        Halving would wait for the same lock at every level, and all that comes after with it.
        """
        moves = [ticket for ticket in batch if isinstance(ticket.row, MoveRow)]
        rows = await self._fetch(FREE, [ticket.row.id for ticket in moves])
        free = {row["id"] for row in rows}
        held = [ticket for ticket in moves if ticket.row.id not in free]
        if not held:
            return await self._pass_starts_by(batch, error)
        for ticket in held:
            self._refuse(ticket, error)
        rest = [ticket for ticket in batch if ticket not in held]
        if rest:
            await self.flush(rest)
        return None

    async def _pass_starts_by(self, batch: list[_Ticket], error: asyncpg.PostgresError) -> None:
        """No head is held: another's uncommitted start has a key of ours, or it is the fence."""
        fence = await self._fetch(FREE_FENCE, batch[0].incarnation)
        keyed = [ticket for ticket in batch if _may_wait_for_a_start(ticket.row)]
        if not fence or not keyed:
            # The fence is locked by somebody who revokes us: it is nobody's row.
            raise asyncpg.InterfaceError(_said(error)) from error
        if len(batch) == 1:
            return self._refuse(batch[0], error)
        rest = [ticket for ticket in batch if ticket not in keyed]
        if rest:
            await self.flush(rest)
        for ticket in keyed:
            await self.flush([ticket])
        return None

    async def _isolate(self, batch: list[_Ticket], error: asyncpg.PostgresError) -> None:
        """Halve the batch until the row at fault stands alone."""
        if len(batch) == 1:
            self._refuse(batch[0], error)
            return
        middle = len(batch) // 2
        await self.flush(batch[:middle])
        await self.flush(batch[middle:])

    def _refuse(self, ticket: _Ticket, error: asyncpg.PostgresError) -> None:
        saga, state = ticket.row.id, error.sqlstate or ""
        log.error("row_refused", saga_id=str(saga), sqlstate=state)
        ticket.settle(RowRefused(saga=saga, sqlstate=state, message=_said(error)))

    async def _send(self, batch: list[_Ticket]) -> None:
        starts = [ticket.row for ticket in batch if isinstance(ticket.row, StartRow)]
        moves = [ticket.row for ticket in batch if isinstance(ticket.row, MoveRow)]
        statement = flush_statement(starts=bool(starts), moves=bool(moves))
        incarnation = batch[0].incarnation
        result = await self._fetch(statement, incarnation, *columns(starts), *columns(moves))
        won: set[UUID] = set(result[0]["won"])
        rest = []
        for ticket in batch:
            if ticket.row.entry_id in won:
                ticket.settle(Outcome.WRITTEN)
            else:
                rest.append(ticket)
        if rest:
            await self._look_up(rest, is_valid=result[0]["valid"])

    async def _look_up(self, rest: list[_Ticket], *, is_valid: bool) -> None:
        """What became of rows that were not returned: written by an earlier sending, or lost."""
        ids = [ticket.row.id for ticket in rest]
        seqs = [t.row.seq if isinstance(t.row, MoveRow) else 1 for t in rest]
        found = {row["id"]: row["appended"] for row in await self._fetch(FIND, ids, seqs)}
        for ticket in rest:
            if found.get(ticket.row.id) == ticket.row.entry_id:
                ticket.settle(Outcome.WRITTEN)
            elif is_valid:
                ticket.settle(Outcome.LOST)
            else:
                ticket.settle(Fenced(incarnation=ticket.incarnation))

    async def _fetch(self, statement: str, *args: object) -> list[asyncpg.Record]:
        if not self._is_pooled:
            return await self._driver.fetch(statement, *args)
        async with self._driver.transaction():
            return await self._driver.fetch(statement, *args)


def _said(error: asyncpg.PostgresError) -> str:
    """What Postgres says of an error, without its detail: that quotes the row."""
    return str(error.args[0]) if error.args else type(error).__name__


def _may_wait_for_a_start(row: StartRow | MoveRow) -> bool:
    """Whether another's uncommitted start can hold this row up: it may have its id or its key."""
    return isinstance(row, StartRow) and bool(row.business_key or row.fingerprint)

"""A replica's store over a database: pools, writer, lease, journal; and rows that are valid."""

import contextlib
import datetime as dt
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import asyncpg
import uuid_utils.compat

from app.clock import Clock
from app.core.definition import Definition
from app.core.events import (
    AttemptObserved,
    CancelRequested,
    RetryRequested,
    SagaRequested,
    SagaWoken,
)
from app.core.identity import Direction, Incarnation, SagaId, StepId, TenantId, derive_key_seed
from app.core.json_value import JsonValue
from app.core.observation import Answered, BrokenOff, BrokenOffReason, Observation
from app.core.saga import DefinitionRef, Saga
from app.store import (
    DEFAULT_TENANT,
    Database,
    Definitions,
    Journal,
    Replica,
    Tenant,
    Writer,
    ensure_tenant,
    publish,
)
from app.store.statements import MoveRow, StartRow
from tests.core.builders import a_definition

TIMED_OUT = BrokenOff(reason=BrokenOffReason.TIMED_OUT, message="no answer in 5 s")

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What one process has of the store."""

    url: str
    tenant: Tenant
    database: Database
    writer: Writer
    replica: Replica
    clock: Clock
    definitions: Definitions
    journal: Journal

    @property
    def incarnation(self) -> Incarnation:
        """As whom it writes."""
        return self.replica.incarnation

    async def publish(self, definition: Definition) -> DefinitionRef:
        """Store a definition."""
        async with self.database.write() as tx:
            return (await publish(tx, self.tenant.id, definition)).reference

    async def start(
        self,
        *,
        saga: SagaId | None = None,
        business_key: str | None = None,
        fingerprint: bytes | None = None,
        version: int = 1,
    ) -> Saga:
        """Start a saga, the default one of a flight and a hotel."""
        fact = self.a_request(saga=saga, business_key=business_key, version=version)
        return (await self.journal.start(fact, fingerprint=fingerprint)).saga

    def a_request(
        self,
        *,
        saga: SagaId | None = None,
        business_key: str | None = None,
        version: int = 1,
    ) -> SagaRequested:
        """What starts a saga."""
        saga = saga or new_saga_id()
        return SagaRequested(
            id=saga,
            tenant=self.tenant.id,
            definition=DefinitionRef(name="book_trip", version=version),
            input={"city": "Oslo"},
            vars={},
            key_seed=derive_key_seed(tenant_secret=self.tenant.secret, saga=saga),
            business_key=business_key,
            labels={},
            deadline=None,
        )

    async def park(self) -> Saga:
        """A saga whose flight is booked, and whose hotel said to ask again in a minute."""
        saga = await self.start()
        await self.observe(saga, "flight", answered())
        saga = await self.observe(saga, "hotel", answered(429, retry_after="60"))
        assert saga.now.owner is None, saga.now
        return saga

    async def observe(
        self, saga: Saga, step: str, seen: Observation, *, undo: bool = False, attempt: int = 1
    ) -> Saga:
        """Report what was seen of an attempt."""
        return await self.journal.record(saga.id, observed(step, seen, undo=undo, attempt=attempt))

    async def cancel(self, saga: Saga) -> Saga:
        """Ask for the saga to be undone."""
        return await self.journal.record(saga.id, CANCEL, urgent=True)

    async def retry(self, saga: Saga) -> Saga:
        """Let a stuck saga go on."""
        return await self.journal.record(saga.id, RETRY, urgent=True)

    async def wake(self, saga: Saga, *, losses: int = 0) -> Saga:
        """Take up a saga that is claimed."""
        return await self.journal.record(saga.id, SagaWoken(losses=losses))


CANCEL = CancelRequested(actor="tester", reason="because")
RETRY = RetryRequested(actor="tester", reason="mended")


@contextlib.asynccontextmanager
async def a_place(
    url: str,
    *,
    runs_engine: bool = True,
    lease_seconds: float = 300,
    writing_url: str | None = None,
    connections_max: int = 4,
) -> AsyncIterator[Place]:
    """A replica's store, opened and registered; the default definition is published.

    ``writing_url`` is the writer's way to the database where it is another (a proxy).
    """
    async with contextlib.AsyncExitStack() as stack:
        database = Database(url, connections_max=connections_max)
        writing = Database(writing_url or url, connections_max=1)
        for pool in (database, writing):
            await pool.open()
            stack.push_async_callback(pool.close)
        clock = Clock()
        replica = Replica(database, clock, role="test", lease_seconds=lease_seconds)
        await replica.register()
        writer = Writer(writing)
        await writer.start()
        stack.push_async_callback(writer.stop)
        definitions = Definitions(database)
        async with database.write() as tx:
            tenant = await ensure_tenant(tx, DEFAULT_TENANT)
            await publish(tx, tenant.id, a_definition())
        yield Place(
            url=url,
            tenant=tenant,
            database=database,
            writer=writer,
            replica=replica,
            clock=clock,
            definitions=definitions,
            journal=Journal(
                database=database,
                writer=writer,
                replica=replica,
                definitions=definitions,
                clock=clock,
                runs_engine=runs_engine,
                callbacks_url="http://amends.test/v1/callbacks/",
            ),
        )


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test's own, without the role's planner settings in the way."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


def observed(
    step: str, seen: Observation, *, undo: bool = False, attempt: int = 1
) -> AttemptObserved:
    """A connector is done with an attempt."""
    direction = Direction.COMPENSATION if undo else Direction.ACTION
    return AttemptObserved(
        step=StepId(step), direction=direction, attempt=attempt, observation=seen
    )


def answered(
    status: int = 200, body: JsonValue = None, *, retry_after: str | None = None
) -> Answered:
    """A tool's answer, with an id to undo it by."""
    body = {"id": "X1"} if body is None else body
    return Answered(status=status, body=body, body_bytes=11, retry_after=retry_after)


def new_saga_id() -> SagaId:
    """An id as a caller without a key gets it."""
    return SagaId(uuid_utils.compat.uuid7())


def a_start(*, saga: UUID | None = None, owner: UUID | None = None, **more: object) -> StartRow:
    """A head and a first entry that the database takes."""
    at = dt.datetime.now(dt.UTC)
    row = StartRow(
        id=saga or new_saga_id(),
        entry_id=uuid_utils.compat.uuid7(),
        at=at,
        status="pending",
        owner=owner,
        due_at=at,
        attention=False,
        failure=None,
        finished_at=None,
        format=1,
        type="saga_requested",
        data='{"now": {"status": "pending"}}',
        tenant_id=TenantId(1),
        definition_name="book_trip",
        definition_version=1,
        business_key=None,
        labels="{}",
        fingerprint=None,
    )
    return replace(row, **more)  # type: ignore[arg-type]  # mypy cannot see the fields' names


def a_move(after: StartRow | MoveRow, **more: object) -> MoveRow:
    """The transition after another row, as the database takes it."""
    row = MoveRow(
        id=after.id,
        entry_id=uuid_utils.compat.uuid7(),
        at=after.at,
        status="running",
        owner=after.owner,
        due_at=after.due_at,
        attention=False,
        failure=None,
        finished_at=None,
        format=1,
        type="saga_woken",
        data=f'{{"number": {next(_numbers)}}}',
        seq=(after.seq if isinstance(after, MoveRow) else 1) + 1,
        before=after.entry_id,
        progress=False,
        is_evidence=False,
    )
    return replace(row, **more)  # type: ignore[arg-type]  # mypy cannot see the fields' names


async def journal_of(connection: asyncpg.Connection, saga: UUID) -> list[asyncpg.Record]:
    """A saga's journal as it is stored."""
    return await connection.fetch(
        "SELECT * FROM saga_journal WHERE saga_id = $1 ORDER BY seq", saga
    )


async def head_of(connection: asyncpg.Connection, saga: UUID) -> asyncpg.Record:
    """A saga's head row as it is stored."""
    row = await connection.fetchrow("SELECT * FROM sagas WHERE id = $1", saga)
    assert row is not None, saga
    return row


async def written(place: Place, rows: Sequence[StartRow | MoveRow]) -> None:
    """Write rows, and see that each was."""
    for row in rows:
        outcome = await place.writer.write(row, incarnation=place.incarnation)
        assert outcome.value == "written", row


async def blocked_backends(connection: asyncpg.Connection) -> int:
    """How many statements in this database wait for a lock."""
    await connection.execute("SELECT pg_stat_clear_snapshot()")  # for use within a transaction
    count: int = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return count


def is_blocked(connection: asyncpg.Connection, count: int = 1) -> Callable[[], object]:
    """A condition: so many statements in this database wait for a lock."""

    async def condition() -> bool:
        return await blocked_backends(connection) >= count

    return condition

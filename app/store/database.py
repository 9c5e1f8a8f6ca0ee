"""Connections: pools, transactions, and what may go wrong on the way to Postgres.

SQLAlchemy holds the pools and the tables; statements are written out and run on the asyncpg
connection beneath, which costs a third. ``read()`` and ``write()`` are the only ways to run one,
apart from the shared writer, which holds a connection of its own.

Behind PgBouncer in transaction mode a statement prepared in one transaction may be gone in the
next. That is found out at ``open`` (the server's process id is not the one that the protocol
announced), and then every statement runs in a transaction, unnamed and uncached.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
from sqlalchemy.exc import DBAPIError, TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.core.errors import StoreUnavailable

CONNECT_SECONDS_MAX = 5.0
"""A database that does not accept within this time counts as down."""

COMMAND_SECONDS_MAX = 20.0
"""A statement that has brought no answer by then counts as lost with its connection: the network
may have swallowed it. The server's own limit (``statement_timeout``) is longer."""

UNREACHABLE = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,
)
"""What a lost or refused connection raises; ``TimeoutError`` is an ``OSError``."""

TROUBLE_CLASSES = frozenset({"53", "57", "58", "XX"})
TROUBLE = frozenset({"25006", "25P03"})
"""SQLSTATEs of the server's own trouble: out of disk or memory, shutting down, read-only after a
failover, idle for too long. Nothing is wrong with the statement."""

CONTENDED = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)
"""What others' work can do to a statement; the same one may succeed a moment later."""


def make_engine(url: str, **options: Any) -> AsyncEngine:  # noqa: ANN401 - SQLAlchemy's
    """A SQLAlchemy engine over asyncpg.

    asyncpg reads the URL itself: it knows libpq's parameters (``sslmode``, ``host``, ...), which
    SQLAlchemy would hand on as arguments that asyncpg does not have.

    Args:
        url: a plain ``postgresql://`` URL.
        options: of ``create_async_engine``; ``connect_args`` go to asyncpg.
    """
    arguments: dict[str, Any] = {
        "timeout": CONNECT_SECONDS_MAX,
        **options.pop("connect_args", {}),
    }

    async def open_connection(*_: object, **__: object) -> asyncpg.Connection:
        return await asyncpg.connect(url, **arguments)

    return create_async_engine(
        "postgresql+asyncpg://",
        connect_args={"async_creator_fn": open_connection},
        pool_reset_on_return=None,
        **options,
    )


class ReadTx:
    """A connection on which statements may be run that change nothing."""

    def __init__(self, driver: asyncpg.Connection) -> None:
        self._driver = driver

    async def fetch(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """All rows of a statement with ``$1`` parameters."""
        return await self._driver.fetch(sql, *args)

    async def fetch_row(self, sql: str, *args: object) -> asyncpg.Record | None:
        """The first row, or None."""
        return await self._driver.fetchrow(sql, *args)

    async def fetch_value(self, sql: str, *args: object) -> Any:  # noqa: ANN401 - any SQL value
        """The first column of the first row, or None."""
        return await self._driver.fetchval(sql, *args)


class WriteTx(ReadTx):
    """A transaction; committed when its block ends, rolled back when that raises."""

    async def execute(self, sql: str, *args: object) -> str:
        """Run a statement; returns its tag, as ``UPDATE 3``."""
        return await self._driver.execute(sql, *args)


class Database:
    """One pool. The engine, the writer and the API each have their own, so none starves another."""

    def __init__(
        self, url: str, *, connections_max: int, command_seconds_max: float = COMMAND_SECONDS_MAX
    ) -> None:
        self._url = url
        self._command_seconds_max = command_seconds_max
        self._connections_max = connections_max
        self._engine: AsyncEngine | None = None
        self._discarded: set[asyncio.Task[None]] = set()
        self.is_pooled = False

    async def open(self) -> None:
        """Connect once, to find out what is between us and Postgres.

        Raises:
            StoreUnavailable: nothing answers there.
        """
        with unavailable():
            probe = await asyncpg.connect(
                self._url, statement_cache_size=0, timeout=CONNECT_SECONDS_MAX
            )
            try:
                async with probe.transaction():
                    process = await probe.fetchval("SELECT pg_backend_pid()")
                self.is_pooled = process != probe.get_server_pid()
            finally:
                await probe.close()
        arguments: dict[str, Any] = {"command_timeout": self._command_seconds_max}
        if self.is_pooled:
            arguments["statement_cache_size"] = 0
        self._engine = make_engine(
            self._url,
            connect_args=arguments,
            isolation_level="AUTOCOMMIT",
            pool_size=self._connections_max,
            max_overflow=0,
            pool_timeout=CONNECT_SECONDS_MAX,
            # SQLAlchemy holds the pool, and asks nothing of its own: what it would prepare outside
            # of a transaction may be gone behind PgBouncer before it is run.
            _initialize=False,
        )

    async def close(self) -> None:
        """Close the pool's connections; works before ``open`` and twice."""
        await asyncio.gather(*self._discarded)
        if self._engine is not None:
            await self._engine.dispose()

    @contextlib.asynccontextmanager
    async def read(self) -> AsyncIterator[ReadTx]:
        """A connection for statements that change nothing.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        async with self.connection() as driver:
            if self.is_pooled:
                async with _transaction(driver):
                    yield ReadTx(driver)
            else:
                yield ReadTx(driver)

    @contextlib.asynccontextmanager
    async def write(self) -> AsyncIterator[WriteTx]:
        """A transaction.

        Raises:
            StoreUnavailable: the database does not answer; a commit may or may not have happened.
        """
        async with self.connection() as driver, _transaction(driver):
            yield WriteTx(driver)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """An asyncpg connection out of the pool, for the time of the block.

        If the block is cancelled or the connection breaks, it is thrown away: a cancelled
        statement may still be running on it.
        """
        assert self._engine is not None, "open() comes first"
        with unavailable():
            connection = await self._engine.connect()
            try:
                yield await _open_driver(connection)
            except (asyncio.CancelledError, GeneratorExit, *UNREACHABLE):
                self._throw_away(connection)
                raise
            except BaseException:
                await connection.close()
                raise
            else:
                await connection.close()

    def _throw_away(self, connection: AsyncConnection) -> None:
        """Close a connection without waiting for it: the line may be dead, the caller in a hurry.

        A server that still works on a cancelled statement is told to stop.
        """
        task = asyncio.get_running_loop().create_task(_discard(connection))
        self._discarded.add(task)
        task.add_done_callback(self._discarded.discard)


async def _discard(connection: AsyncConnection) -> None:
    # SQLAlchemy gives asyncpg two seconds to cancel what runs and to say goodbye.
    with contextlib.suppress(DBAPIError, *UNREACHABLE):
        await connection.invalidate()
    with contextlib.suppress(DBAPIError, *UNREACHABLE):
        await connection.close()


@contextlib.asynccontextmanager
async def _transaction(driver: asyncpg.Connection) -> AsyncIterator[None]:
    """A transaction that a cancelled block does not roll back by itself.

    Its connection is thrown away, and the server rolls back. asyncpg's own block would first wait
    for the answer to ROLLBACK, over a line that may be dead: that is why it was cancelled.
    """
    transaction = driver.transaction()
    await transaction.start()
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException:
        await transaction.rollback()
        raise
    else:
        await transaction.commit()


async def _open_driver(connection: AsyncConnection) -> asyncpg.Connection:
    """The asyncpg connection beneath; one that the server has closed meanwhile is replaced."""
    while True:
        raw = await connection.get_raw_connection()
        driver: asyncpg.Connection | None = raw.driver_connection
        assert driver is not None
        if not driver.is_closed():
            return driver
        await connection.invalidate()


@contextlib.contextmanager
def unavailable() -> Iterator[None]:
    """Turn the many ways in which a database can be away into ``StoreUnavailable``."""
    try:
        yield
    except PoolTimeout as error:
        raise StoreUnavailable("no database connection became free in time") from error
    except DBAPIError as error:
        raise StoreUnavailable(f"the database does not answer: {error.orig}") from error
    except UNREACHABLE as error:
        raise StoreUnavailable(f"the database does not answer: {error}") from error
    except CONTENDED as error:
        raise StoreUnavailable(f"the database is busy with the same rows: {error}") from error
    except asyncpg.PostgresError as error:
        state = error.sqlstate or ""
        if state[:2] in TROUBLE_CLASSES or state in TROUBLE:
            raise StoreUnavailable(f"the database is in trouble: {error}") from error
        raise

"""Pools: what a lost, refused or cancelled connection looks like from above."""

import asyncio
import random
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.core.errors import StoreUnavailable
from app.store import Database, Writer
from app.store.database import unavailable
from app.store.writer import Outcome
from tests.store.place import Place, a_place, a_start, answered, connected, written
from tests.store.proxy import Cut, Proxy, a_proxy
from tests.waiting import wait_until


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """A way to the database."""
    async with a_proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def pool(proxy: Proxy) -> AsyncIterator[Database]:
    """A pool of two connections through the proxy."""
    database = Database(proxy.url, connections_max=2)
    await database.open()
    yield database
    await database.close()


async def one(database: Database) -> object:
    """Ask the database something."""
    async with database.read() as tx:
        return await tx.fetch_value("SELECT 1")


async def test_a_direct_connection_is_found_to_be_one(database_url: str) -> None:
    """Nothing lies between us and Postgres: statements may be prepared and kept."""
    database = Database(database_url, connections_max=1)
    await database.open()
    await database.close()

    assert not database.is_pooled


async def test_a_pooler_is_found_out(proxy: Proxy) -> None:
    """A server process other than the one announced means a pooler in transaction mode."""
    proxy.hides_process = True
    database = Database(proxy.url, connections_max=1)
    await database.open()
    await database.close()

    assert database.is_pooled


async def test_everything_works_through_a_pooler(proxy: Proxy, look: asyncpg.Connection) -> None:
    """Behind a pooler a saga runs to its end, and a lost commit is resolved as well."""
    proxy.hides_process = True
    async with a_place(proxy.url) as place:
        cut = proxy.cut("COMMIT", Cut.AFTER, skip=1)
        saga = await place.start()
        await place.observe(saga, "flight", answered())
        done = await place.observe(saga, "hotel", answered())

        assert cut.is_set()
        assert "completed" == done.status.value
        assert 3 == await look.fetchval("SELECT count(*) FROM saga_journal")
        refused = await asyncio.gather(
            place.writer.write(a_start(status="sleepy"), incarnation=place.incarnation),
            place.writer.write(a_start(), incarnation=place.incarnation),
            return_exceptions=True,
        )
        assert refused[1] is Outcome.WRITTEN


async def test_nobody_there_is_unavailable() -> None:
    """A port at which nobody listens makes the store unavailable, in a moment."""
    database = Database("postgresql://amends@127.0.0.1:1/amends", connections_max=1)

    with pytest.raises(StoreUnavailable):
        await database.open()

    await database.close()


async def test_a_statement_whose_line_is_cut_is_unavailable_and_the_next_works(
    pool: Database, proxy: Proxy
) -> None:
    """A broken connection is thrown away: it fails one caller, and no second one."""
    proxy.cut("SELECT 1", Cut.BEFORE)

    with pytest.raises(StoreUnavailable):
        await one(pool)
    assert 1 == await one(pool)


async def test_connections_that_the_server_closed_are_not_handed_out(
    pool: Database, look: asyncpg.Connection
) -> None:
    """After a restart of the server nobody is given a connection that is known to be dead."""
    async with pool.read() as first, pool.read() as second:
        drivers = [first._driver, second._driver]
    await look.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await wait_until(lambda: all(driver.is_closed() for driver in drivers))

    assert [1, 1] == [*await asyncio.gather(one(pool), one(pool))]


async def test_a_full_pool_is_unavailable_after_a_while(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds no free connection in time is told so."""
    monkeypatch.setattr("app.store.database.CONNECT_SECONDS_MAX", 0.3)
    database = Database(database_url, connections_max=1)
    await database.open()
    async with database.read():
        with pytest.raises(StoreUnavailable, match="free"):
            await one(database)
    await database.close()


async def test_cancelled_statements_leak_no_connection(pool: Database) -> None:
    """However often callers are cancelled, at whatever await, the pool is whole afterwards."""
    dice = random.Random(7)
    loop = asyncio.get_running_loop()
    for _ in range(150):
        callers = [loop.create_task(one(pool)) for _ in range(3)]
        for caller in callers:
            loop.call_later(dice.random() * 0.004, caller.cancel)
        await asyncio.gather(*callers, return_exceptions=True)

    async with asyncio.timeout(4):
        assert [1] * 4 == await asyncio.gather(*(one(pool) for _ in range(4)))
    assert pool._engine is not None
    assert 0 == pool._engine.pool.checkedout()  # type: ignore[attr-defined]


async def test_a_cancelled_transaction_is_rolled_back(
    place: Place, look: asyncpg.Connection
) -> None:
    """What a cancelled caller had written in its transaction is not there, and locks nothing."""
    await written(place, [a_start()])

    async def work() -> None:
        async with place.database.write() as tx:
            await tx.execute("UPDATE sagas SET attention = true")
            await tx.execute("SELECT pg_sleep(60)")

    task = asyncio.get_running_loop().create_task(work())
    await wait_until(lambda: _sleeps(look))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    await wait_until(lambda: _is_free(look), what="the lock to be free")
    assert [False] == [row["attention"] for row in await look.fetch("SELECT attention FROM sagas")]


async def _sleeps(look: asyncpg.Connection) -> bool:
    return bool(
        await look.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'PgSleep'"
        )
    )


async def _is_free(look: asyncpg.Connection) -> bool:
    return bool(await look.fetch("SELECT FROM sagas FOR UPDATE SKIP LOCKED"))


async def test_a_lock_that_does_not_come_is_unavailable(
    place: Place, look: asyncpg.Connection
) -> None:
    """A read that a locked table keeps waiting is an outage to its caller, not a bug."""
    async with look.transaction():
        await look.execute("LOCK TABLE sagas IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable):
            async with place.database.read() as tx:
                await tx.fetch("SELECT id FROM sagas")


async def test_a_url_may_have_parameters(proxy: Proxy) -> None:
    """The parameters that managed databases put into their URLs are understood."""
    database = Database(proxy.url + "?sslmode=disable&application_name=x", connections_max=1)
    await database.open()
    try:
        assert 1 == await one(database)
    finally:
        await database.close()


async def test_a_writer_that_cannot_connect_can_be_stopped(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer whose every connection fails in a way that nobody foresaw still ends."""
    database = Database(database_url, connections_max=1)
    await database.open()

    async def unforeseen(*args: object, **more: object) -> object:
        raise TypeError("unforeseen")

    monkeypatch.setattr(asyncpg, "connect", unforeseen)
    writer = Writer(database)
    await writer.start()
    async with asyncio.timeout(5):
        await writer.stop()
    await database.close()


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.DiskFullError,
        asyncpg.OutOfMemoryError,
        asyncpg.PostgresIOError,
        asyncpg.IdleInTransactionSessionTimeoutError,
        asyncpg.ReadOnlySQLTransactionError,
    ],
)
def test_trouble_of_the_server_is_unavailable(error: type[asyncpg.PostgresError]) -> None:
    """What goes wrong with the server, and not with what was asked, is an outage to its caller."""
    with pytest.raises(StoreUnavailable), unavailable():
        raise error("trouble")


async def test_our_role_needs_no_more_than_its_database(database_url: str) -> None:
    """Nothing that the store runs asks for more connections than its pools were given."""
    async with a_place(database_url, connections_max=2) as place:
        await asyncio.gather(*(place.start() for _ in range(50)))
        async with connected(database_url) as look:
            used = await look.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND state IS NOT NULL"
            )
    assert used <= 3

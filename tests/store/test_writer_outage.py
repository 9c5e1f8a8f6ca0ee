"""The database is away for a while: what waits is written when it is back, and nothing leaks."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

import app.store.database
from app.core.errors import StoreUnavailable
from app.embedded_postgres import EmbeddedPostgres
from app.store import migrate
from app.store.writer import Outcome
from tests.store.place import Place, a_move, a_place, a_start, connected, is_blocked
from tests.store.proxy import Cut, Proxy, a_proxy
from tests.waiting import wait_until


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """The way from the writer to the database."""
    async with a_proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def far(database_url: str, proxy: Proxy) -> AsyncIterator[Place]:
    """A place whose writer goes through the proxy, and nothing else does."""
    async with a_place(database_url, writing_url=proxy.url) as place:
        yield place
        proxy.refuses = False


async def write(place: Place, row: object) -> Outcome:
    """Write a row as this place."""
    return await place.writer.write(row, incarnation=place.incarnation)  # type: ignore[arg-type]


async def begin(place: Place, count: int) -> list[asyncio.Task[Outcome]]:
    """Begin to write so many starts, and leave it at that."""
    begun: list[int] = []

    async def call(number: int) -> Outcome:
        begun.append(number)
        return await write(place, a_start())

    loop = asyncio.get_running_loop()
    callers = [loop.create_task(call(number)) for number in range(count)]
    await wait_until(lambda: len(begun) == count)
    return callers


async def test_rows_wait_for_a_server_that_is_stopped() -> None:
    """Rows that wait while the server is down are written once it is up again, each once."""
    directory = tempfile.mkdtemp(prefix="amends-tests-")
    os.chmod(directory, 0o711)  # noqa: PTH101 - nothing else in the loop waits for it
    server = EmbeddedPostgres(Path(directory, "data"), settings={"fsync": "off"})
    try:
        url = await server.start()
        await migrate(url)
        async with a_place(url) as place:
            early, late = [a_start() for _ in range(5)], [a_start() for _ in range(5)]
            for row in early:
                await write(place, row)
            pid = server.server_pid()
            assert pid is not None
            os.kill(pid, signal.SIGQUIT)  # at once, without goodbye
            async with asyncio.TaskGroup() as tasks:
                waiting = [
                    *(tasks.create_task(write(place, row)) for row in late),
                    *(tasks.create_task(write(place, a_move(row))) for row in early),
                ]
                await wait_until(lambda: server.server_pid() is None, seconds_max=30)
                assert not any(task.done() for task in waiting)
                await server.start()

            assert [Outcome.WRITTEN] * 10 == [task.result() for task in waiting]
            async with connected(url) as look:
                assert 15 == await look.fetchval("SELECT count(*) FROM saga_journal")
    finally:
        await server.stop()
        shutil.rmtree(directory)


async def test_a_database_that_lets_nobody_in_is_waited_for(
    place: Place, look: asyncpg.Connection, postgres_url: str
) -> None:
    """Maintenance ends all connections and forbids new ones: rows in doubt wait for its end."""
    row = a_start()
    await write(place, row)
    database = await look.fetchval("SELECT current_database()")
    loop = asyncio.get_running_loop()
    async with connected(postgres_url) as operator:
        async with look.transaction():
            await look.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", row.id)
            writing = [loop.create_task(write(place, a_move(row)))]
            await wait_until(is_blocked(look))
            await operator.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
            await look.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        writing.append(loop.create_task(write(place, a_start())))
        await asyncio.wait(writing, timeout=0.5)
        await operator.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")

    async with asyncio.timeout(10):
        assert [Outcome.WRITTEN] * 2 == await asyncio.gather(*writing)


async def test_callers_that_gave_up_in_an_outage_leave_nothing(far: Place, proxy: Proxy) -> None:
    """Rows whose callers went away while the database was down take no memory any more."""
    proxy.refuses = True
    proxy.cut_all()
    callers = await begin(far, 1000)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)

    await wait_until(lambda: len(far.writer._waiting) <= 10, seconds_max=3)


async def test_stop_without_a_database_tells_the_callers(far: Place, proxy: Proxy) -> None:
    """A writer that is stopped while the database is away ends, and nobody believes in success."""
    proxy.refuses = True
    proxy.cut_all()
    callers = await begin(far, 10)

    async with asyncio.timeout(10):
        await far.writer.stop()
        ends = await asyncio.gather(*callers, return_exceptions=True)

    assert {StoreUnavailable} == {type(end) for end in ends}


async def test_a_stop_that_finds_the_database_back_writes(
    far: Place, proxy: Proxy, look: asyncpg.Connection
) -> None:
    """Stopping while a commit is in doubt still finds out what became of it."""
    cut = proxy.cut("started_journal", Cut.AFTER)
    (caller,) = await begin(far, 1)
    await cut.wait()

    async with asyncio.timeout(10):
        await far.writer.stop()

    assert await caller is Outcome.WRITTEN
    assert 1 == await look.fetchval("SELECT count(*) FROM sagas")


async def test_a_line_that_swallows_everything_is_given_up(
    database_url: str, proxy: Proxy, look: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush whose answer never comes, with the line intact, is sent again over another."""
    monkeypatch.setattr(app.store.database, "COMMAND_SECONDS_MAX", 0.5)
    cut = proxy.cut("started_journal", Cut.STALL)

    async with a_place(database_url, writing_url=proxy.url) as far:
        assert await write(far, a_start()) is Outcome.WRITTEN

    assert cut.is_set()
    assert 1 == await look.fetchval("SELECT count(*) FROM saga_journal")

"""The application over a database of the test's own; no socket is opened but Postgres's."""

import contextlib
from collections.abc import AsyncIterator
from typing import cast

import httpx2
import pytest
from fastapi import FastAPI

from app.api import Readiness, create_api
from app.clock import Clock
from app.operations import Context, publish_definition
from app.store import (
    DEFAULT_TENANT,
    Database,
    Definitions,
    Journal,
    Replica,
    Watch,
    Writer,
    ensure_tenant,
)
from tests.api.builders import a_document
from tests.api.driver import Driver


@contextlib.asynccontextmanager
async def replica_on(url: str, *, runs_engine: bool) -> AsyncIterator[Context]:
    """A replica's context over a database: opened, registered, and closed again."""
    async with contextlib.AsyncExitStack() as stack:
        database = Database(url, connections_max=4)
        writing = Database(url, connections_max=1)
        for pool in (database, writing):
            await pool.open()
            stack.push_async_callback(pool.close)
        clock = Clock()
        replica = Replica(database, clock, role="test", lease_seconds=300)
        await replica.register()
        writer = Writer(writing)
        await writer.start()
        stack.push_async_callback(writer.stop)
        definitions = Definitions(database)
        journal = Journal(
            database=database,
            writer=writer,
            replica=replica,
            definitions=definitions,
            clock=clock,
            runs_engine=runs_engine,
            callbacks_url="http://amends.test/v1/callbacks/",
        )
        watch = Watch(database)
        journal.listen(watch.notify)
        await watch.start()
        stack.push_async_callback(watch.stop)
        async with database.write() as tx:
            tenant = await ensure_tenant(tx, DEFAULT_TENANT)
        yield Context(
            tenant=tenant,
            database=database,
            journal=journal,
            definitions=definitions,
            watch=watch,
            variables={},
        )


@pytest.fixture
async def context(database_url: str) -> AsyncIterator[Context]:
    """A replica without an engine: what is started stays pending. `book_trip` is published."""
    async with replica_on(database_url, runs_engine=False) as context:
        await publish_definition(context, a_document())
        yield context


@pytest.fixture
async def driver(context: Context, database_url: str) -> AsyncIterator[Driver]:
    """Another replica on the same database, whose engine does as it is told."""
    async with replica_on(database_url, runs_engine=True) as driving:
        yield Driver(context=driving)


@pytest.fixture
def app(context: Context) -> FastAPI:
    """The application, open to everybody."""
    return create_api(context, api_keys=(), readiness=always_ready, version="0.0.0")


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the application."""
    async with client_of(app) as client:
        yield client


@pytest.fixture
async def bare() -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application without a store, for what never gets so far."""
    async with client_of(app_without_store()) as client:
        yield client


def app_without_store(*api_keys: str) -> FastAPI:
    """An application whose operations would fail at once."""
    context = cast("Context", None)
    return create_api(context, api_keys=api_keys, readiness=always_ready, version="0.0.0")


async def always_ready() -> Readiness:
    """A replica that can do its work."""
    return Readiness(is_ready=True)


def client_of(app: FastAPI) -> httpx2.AsyncClient:
    """A client of an application, without a network."""
    transport = httpx2.ASGITransport(app=app)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")

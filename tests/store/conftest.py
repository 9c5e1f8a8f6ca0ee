"""Places over a database of the test's own, and a connection to look into it."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
import structlog

from tests.store.place import Place, a_place, connected


@pytest.fixture(autouse=True)
def plain_logs() -> Iterator[None]:
    """Log tracebacks without colours and variables: drawing them takes longer than the test."""
    before = structlog.get_config()
    renderer = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(processors=[structlog.processors.add_log_level, renderer])
    yield
    structlog.configure(**before)


@pytest.fixture
async def place(database_url: str) -> AsyncIterator[Place]:
    """A replica's store, with an engine's rights."""
    async with a_place(database_url) as place:
        yield place


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Place]:
    """Another replica's store over the same database, with an engine's rights."""
    async with a_place(database_url) as place:
        yield place


@pytest.fixture
async def front(database_url: str) -> AsyncIterator[Place]:
    """A replica that only serves the API, over the same database."""
    async with a_place(database_url, runs_engine=False) as place:
        yield place


@pytest.fixture
async def look(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test's own to the same database."""
    async with connected(database_url) as connection:
        yield connection

"""A replica over a database of the test's own, and a connection to look into it."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.engine.replica import Running, a_replica
from tests.store.place import connected


@pytest.fixture
async def running(database_url: str) -> AsyncIterator[Running]:
    """A replica at work."""
    async with a_replica(database_url) as running:
        yield running


@pytest.fixture
async def look(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test's own to the same database."""
    async with connected(database_url) as connection:
        yield connection

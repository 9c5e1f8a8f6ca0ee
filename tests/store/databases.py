"""Databases of a test's own beyond the one that every test gets: empty ones, without a schema."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

from tests.store.place import connected


@contextlib.asynccontextmanager
async def an_empty_database(server_url: str) -> AsyncIterator[str]:
    """The URL of a database with nothing in it; it goes when the block ends."""
    name = f"empty_{uuid.uuid4().hex}"
    async with connected(server_url) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

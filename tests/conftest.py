"""A real Postgres for the tests that need one: one server a test process, one database a test.

``AMENDS_TEST_DATABASE_URL`` names a server to use instead of our own; its role must be allowed to
create databases. What a test leaves behind goes with its database.
"""

import asyncio
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from app.embedded_postgres import EmbeddedPostgres
from app.store import migrate
from app.store.schema import ROLE_SETTINGS

# A crash of the machine may cost the tests' data: that makes commits and new databases cheap.
_UNSAFE_AND_FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_wal_size": "1GB",
    "autovacuum": "off",
}


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a running server; started once a test process, and only if a test asks."""
    given = os.environ.get("AMENDS_TEST_DATABASE_URL")
    if given:
        yield given
        return
    directory = Path(tempfile.mkdtemp(prefix="amends-tests-"))
    directory.chmod(0o711)  # as root the server runs as another user, who must pass through
    postgres = EmbeddedPostgres(directory / "data", settings=_UNSAFE_AND_FAST)
    try:
        yield asyncio.run(postgres.start())
    finally:
        asyncio.run(postgres.stop())
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def template_url(postgres_url: str) -> Iterator[str]:
    """The URL of a migrated database that nobody uses: new ones are copied from it."""
    name = _new_name("template")
    asyncio.run(_execute(postgres_url, f"CREATE DATABASE {name}"))
    url = _url_of(postgres_url, name)
    asyncio.run(migrate(url))
    yield url
    asyncio.run(_execute(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def database_url(postgres_url: str, template_url: str) -> AsyncIterator[str]:
    """The URL of an empty, migrated database of the test's own, for tests that commit."""
    name = _new_name("test")
    template = urlsplit(template_url).path.removeprefix("/")
    settings = [
        f"ALTER ROLE CURRENT_USER IN DATABASE {name} SET {setting} = '{value}'"
        for setting, value in ROLE_SETTINGS.items()
    ]
    await _execute(postgres_url, f"CREATE DATABASE {name} TEMPLATE {template}", *settings)
    yield _url_of(postgres_url, name)
    await _execute(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


def _new_name(kind: str) -> str:
    return f"amends_{kind}_{uuid.uuid4().hex}"


def _url_of(server_url: str, database: str) -> str:
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{database}"))


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()

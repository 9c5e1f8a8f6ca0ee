"""A real Postgres for the tests that need one: one server a test process, a database a test.

``AMENDS_TEST_DATABASE_URL`` names a server to use instead of our own; its role must be allowed to
create databases.
"""

import asyncio
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from app.embedded_postgres import EmbeddedPostgres
from app.store import migrate
from app.store.schema import ROLE_SETTINGS
from app.store.tables import metadata

# A crash of the machine may cost the tests' data: that makes commits and new databases cheap.
_UNSAFE_AND_FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_wal_size": "1GB",
    "autovacuum": "off",
}

# Terminated, and waited for: what they had locked is free then.
_DISCONNECT_OTHERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

_EMPTY = f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY"

# Whatever a test could have changed about a database beside its rows.
_NATURE = """
SELECT concat_ws(' | ',
    (SELECT array_agg(version_num)::text FROM alembic_version),
    (SELECT array_agg(setconfig ORDER BY setrole)::text
     FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase
     WHERE datname = current_database()),
    (SELECT array_agg(concat(relname, relnatts, relchecks, reloptions) ORDER BY relname)::text
     FROM pg_class WHERE relnamespace = 'public'::regnamespace),
    (SELECT array_agg(prosrc ORDER BY proname)::text
     FROM pg_proc WHERE pronamespace = 'public'::regnamespace))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """A database made from the template, and what it was like when it was new."""

    url: str
    nature: str


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
    asyncio.run(_drop(postgres_url, url))


@pytest.fixture(scope="session")
def spare_databases(postgres_url: str) -> Iterator[list[_Copy]]:
    """Copies that tests have used and that are as new: making one takes far longer."""
    spare: list[_Copy] = []
    yield spare
    for copy in spare:
        asyncio.run(_drop(postgres_url, copy.url))


@pytest.fixture
async def database_url(
    postgres_url: str, template_url: str, spare_databases: list[_Copy]
) -> AsyncIterator[str]:
    """The URL of an empty, migrated database of the test's own, for tests that commit."""
    copy = spare_databases.pop() if spare_databases else await _copy(postgres_url, template_url)
    yield copy.url
    if await _is_as_new(copy):
        spare_databases.append(copy)
    else:
        await _drop(postgres_url, copy.url)


async def _is_as_new(copy: _Copy) -> bool:
    """Empty a database; whether that makes it what it was."""
    try:
        await _execute(copy.url, _DISCONNECT_OTHERS, _EMPTY)
        return await _nature_of(copy.url) == copy.nature
    except (asyncpg.PostgresError, OSError):
        return False


async def _copy(server_url: str, template_url: str) -> _Copy:
    name = _new_name("test")
    template = urlsplit(template_url).path.removeprefix("/")
    settings = [
        f"ALTER ROLE CURRENT_USER IN DATABASE {name} SET {setting} = '{value}'"
        for setting, value in ROLE_SETTINGS.items()
    ]
    await _execute(server_url, f"CREATE DATABASE {name} TEMPLATE {template}", *settings)
    url = _url_of(server_url, name)
    return _Copy(url=url, nature=await _nature_of(url))


async def _nature_of(url: str) -> str:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        nature = await connection.fetchval(_NATURE)
    finally:
        await connection.close()
    assert isinstance(nature, str), nature
    return nature


async def _drop(server_url: str, url: str) -> None:
    name = urlsplit(url).path.removeprefix("/")
    await _execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


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

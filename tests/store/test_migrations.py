"""The schema: what the migrations make is what the tables say, and the service can tell."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.core.errors import SchemaBehind
from app.store import check, migrate
from app.store.schema import MIGRATIONS, REVISION, ROLE_SETTINGS
from app.store.tables import metadata
from tests.store.databases import an_empty_database
from tests.store.place import a_place, connected, is_blocked
from tests.waiting import wait_until

TENANT_FREE = {"tenants", "replicas", "heartbeats", "alembic_version"}
"""What belongs to no tenant: the tenants themselves, and our own processes."""

COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull,
    a.attidentity,
    btrim(split_part(pg_get_expr(d.adbin, d.adrelid), '::', 1), '''') AS preset
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
    AND NOT a.attisdropped AND c.relname <> 'alembic_version'
ORDER BY c.relname, a.attname
"""

CONSTRAINTS = """
SELECT conrelid::regclass::text AS relname, conname, pg_get_constraintdef(oid) AS definition
FROM pg_constraint
WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
    AND conrelid::regclass::text <> 'alembic_version'
ORDER BY 1, 2
"""

INDEXES = """
SELECT tablename, indexname, indexdef FROM pg_indexes
WHERE schemaname = 'public' AND tablename <> 'alembic_version' ORDER BY 1, 2
"""

OPTIONS = """
SELECT relname, reloptions FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
ORDER BY relname
"""


@pytest.fixture
async def empty_url(postgres_url: str) -> AsyncIterator[str]:
    """The URL of a database with nothing in it."""
    async with an_empty_database(postgres_url) as url:
        yield url


async def run_sync[T](url: str, work: Callable[[sa.Connection], T]) -> T:
    """Run a function of a synchronous SQLAlchemy connection, and commit."""

    async def connect(*_: object, **__: object) -> asyncpg.Connection:
        return await asyncpg.connect(url)

    engine = create_async_engine(
        "postgresql+asyncpg://", connect_args={"async_creator_fn": connect}, poolclass=NullPool
    )
    try:
        async with engine.connect() as connection:
            found = await connection.run_sync(work)
            await connection.commit()
            return found
    finally:
        await engine.dispose()


async def catalog(url: str, query: str) -> list[tuple[object, ...]]:
    """What a database's catalog answers."""
    async with connected(url) as connection:
        return [tuple(row) for row in await connection.fetch(query)]


async def test_alembic_finds_nothing_to_generate(database_url: str) -> None:
    """Alembic sees no difference between the migrated schema and the tables."""

    def compare(connection: sa.Connection) -> list[object]:
        options = {"compare_type": True, "compare_server_default": True}
        found: list[object] = compare_metadata(
            MigrationContext.configure(connection, opts=options), metadata
        )
        return found

    assert [] == await run_sync(database_url, compare)


@pytest.mark.parametrize(
    "query",
    [COLUMNS, CONSTRAINTS, INDEXES, OPTIONS],
    ids=["columns", "constraints", "indexes", "options"],
)
async def test_the_catalog_is_as_if_the_tables_had_made_it(
    database_url: str, empty_url: str, query: str
) -> None:
    """Columns, constraints, indexes and options are the same by migration and by the tables."""
    await run_sync(empty_url, metadata.create_all)

    assert await catalog(empty_url, query) == await catalog(database_url, query)


async def test_every_table_has_the_tenant(database_url: str) -> None:
    """Every table carries the tenant, never null, apart from those that have none by design."""
    rows = await catalog(
        database_url,
        "SELECT c.relname FROM pg_class c WHERE relnamespace = 'public'::regnamespace"
        " AND relkind = 'r' AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid"
        " AND a.attname = 'tenant_id' AND a.attnotnull)",
    )

    assert {row[0] for row in rows} == TENANT_FREE


async def test_the_view_of_steps_has_the_tenant(database_url: str) -> None:
    """People who read the view of steps can tell the tenants apart."""
    rows = await catalog(
        database_url, "SELECT attname FROM pg_attribute WHERE attrelid = 'saga_steps'::regclass"
    )

    assert ("tenant_id",) in rows


async def test_the_newest_revision_is_the_one_that_is_checked() -> None:
    """The revision that the service looks for is the only head of the migrations."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))

    assert [REVISION] == ScriptDirectory.from_config(config).get_heads()


def test_migrations_say_when_they_run() -> None:
    """A migration's name says whether it runs before or after the roll-out."""
    names = [path.name for path in Path(MIGRATIONS, "versions").glob("*.py")]

    assert names
    assert [] == [name for name in names if "_pre_" not in name and "_post_" not in name]


async def test_migrating_again_changes_nothing(empty_url: str) -> None:
    """A second run finds the schema in place and leaves what is stored alone."""
    await migrate(empty_url)
    async with a_place(empty_url) as place:
        saga = await place.start()

    await migrate(empty_url)

    await check(empty_url)
    assert [(saga.id,)] == await catalog(empty_url, "SELECT id FROM sagas")


async def test_two_may_migrate_at_once(empty_url: str) -> None:
    """Of two processes that bring up one empty database at once none fails."""
    code = "import asyncio, sys; from app.store import migrate; asyncio.run(migrate(sys.argv[1]))"
    async with connected(empty_url) as look:
        async with look.transaction():
            # Whoever makes this table too waits for the end of this transaction.
            await look.execute("CREATE TABLE alembic_version ()")
            other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, empty_url)
            await wait_until(is_blocked(look), seconds_max=60)
            own = asyncio.get_running_loop().create_task(migrate(empty_url))
            await wait_until(is_blocked(look, 2), seconds_max=60)
            await look.execute("DROP TABLE alembic_version")
        await own

    assert 0 == await other.wait()
    await check(empty_url)


async def test_a_schema_that_is_behind_is_named_with_the_remedy(empty_url: str) -> None:
    """On an empty database the check says which revision is needed, and what to run."""
    with pytest.raises(SchemaBehind, match=f"'{REVISION}'.*amends migrate"):
        await check(empty_url)


async def test_a_schema_of_another_release_is_refused(database_url: str) -> None:
    """A revision that this release does not know is refused by its name."""
    async with connected(database_url) as look:
        await look.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(SchemaBehind, match="'9999'"):
        await check(database_url)


async def test_the_role_has_its_settings(empty_url: str) -> None:
    """A new connection of the role to a migrated database has the planner and safety settings."""
    await migrate(empty_url)

    async with connected(empty_url) as look:
        found = {name: await look.fetchval(f"SHOW {name}") for name in ROLE_SETTINGS}
    assert ROLE_SETTINGS == found


async def test_settings_that_are_missing_are_noticed(database_url: str) -> None:
    """Without the role's settings (a restored dump, another role) the service does not just run."""
    async with connected(database_url) as look:
        name = await look.fetchval("SELECT current_database()")
        await look.execute(f"ALTER ROLE CURRENT_USER IN DATABASE {name} RESET lock_timeout")

    with pytest.raises(SchemaBehind):
        await check(database_url)


async def test_migrating_mends_settings_that_are_missing(database_url: str) -> None:
    """Migrating a database whose schema is current still sets the role's settings."""
    async with connected(database_url) as look:
        name = await look.fetchval("SELECT current_database()")
        await look.execute(f"ALTER ROLE CURRENT_USER IN DATABASE {name} RESET jit")

    await migrate(database_url)

    async with connected(database_url) as look:
        assert "off" == await look.fetchval("SHOW jit")


async def test_a_migration_does_not_wait_for_a_lock_for_long(database_url: str) -> None:
    """A migration gives up on a lock in seconds, since everybody behind it waits with it."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))

    def migrate_by_hand(connection: sa.Connection) -> list[str]:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        return [
            connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            for name in ("lock_timeout", "statement_timeout")
        ]

    assert ["5s", "15min"] == await run_sync(database_url, migrate_by_hand)

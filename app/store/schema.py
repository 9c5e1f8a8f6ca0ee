"""The schema's revision: bring it up, or say that it is behind.

Planner and safety settings sit on the role, in this database: a session's own settings are lost
behind PgBouncer in transaction mode.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import asyncpg
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from app.core.errors import CannotMigrate, SchemaBehind
from app.store.database import Database, ReadTx, make_engine

ROLE_SETTINGS = {
    # The hot statements join a few arrays with indexed tables. A generic plan made while a table
    # was empty would scan it for ever: measured at 0.3 to 0.5 of the rate.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    # One blocked row may hold up its flush for this long, not longer.
    "lock_timeout": "1s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "10s",
}


MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"

MIGRATION_LOCK = 4_726_173
"""Of the advisory lock under which migrations run; any number that nobody else uses."""

REVISION = "0002"
"""The newest migration; a test holds it equal to what Alembic finds."""


async def migrate(url: str) -> None:
    """Bring a database to this release: its schema, and the settings of the role that asks.

    Args:
        url: a plain ``postgresql://`` URL.

    Raises:
        StoreUnavailable: the database does not answer.
        CannotMigrate: a transaction pooler stands between; it would keep the migration's locks.
    """
    difference, is_pooled = await _find_difference(url)
    if difference is None:
        return
    if is_pooled:
        raise CannotMigrate
    # Alembic is half of the service's start-up time, and needed once in the life of a release.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))

    def upgrade(connection: sa.Connection) -> None:
        # Several replicas may come up at once; the second finds everything done.
        connection.exec_driver_sql("SET lock_timeout = 0")
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({MIGRATION_LOCK})")
        connection.commit()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        for name, value in ROLE_SETTINGS.items():
            connection.exec_driver_sql(_role_setting(connection, name, value))
        connection.commit()

    await _run(url, upgrade)


async def check(url: str) -> None:
    """Make sure that the database is as this release needs it.

    Raises:
        SchemaBehind: it is not; the message says what to run.
        StoreUnavailable: the database does not answer.
    """
    difference, _ = await _find_difference(url)
    if difference is not None:
        raise difference


async def _find_difference(url: str) -> tuple[SchemaBehind | None, bool]:
    """What is not as it must be, and whether a transaction pooler stands between."""
    database = Database(url, connections_max=1)
    await database.open()
    try:
        async with database.read() as tx:
            return await _compare(tx), database.is_pooled
    except asyncpg.UndefinedTableError:
        behind = SchemaBehind(what="revision", found=None, needed=REVISION)
        return behind, database.is_pooled
    finally:
        await database.close()


async def _compare(tx: ReadTx) -> SchemaBehind | None:
    found = await tx.fetch_value("SELECT version_num FROM alembic_version")
    if found != REVISION:
        return SchemaBehind(what="revision", found=found, needed=REVISION)
    for name, needed in ROLE_SETTINGS.items():
        value = await tx.fetch_value("SELECT current_setting($1)", name)
        if value != needed:
            return SchemaBehind(what=f"setting {name}", found=value, needed=needed)
    return None


def run_with_url(url: str, run: Callable[[sa.Connection], None]) -> None:
    """Run a function of a synchronous connection; for Alembic called by hand."""
    asyncio.run(_run(url, run))


async def _run(url: str, run: Callable[[sa.Connection], None]) -> None:
    engine = make_engine(url, poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(run)
    finally:
        await engine.dispose()


def _role_setting(connection: sa.Connection, name: str, value: str) -> str:
    database = connection.exec_driver_sql("SELECT quote_ident(current_database())").scalar_one()
    return f"ALTER ROLE CURRENT_USER IN DATABASE {database} SET {name} = '{value}'"

"""The schema's revision: bring it up, or say that it is behind.

Planner and safety settings sit on the role, in this database: a session's own settings are lost
behind PgBouncer in transaction mode.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.core.errors import SchemaBehind
from app.store.database import sqlalchemy_url

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


def _script() -> tuple[Config, ScriptDirectory]:
    root = Path(__file__).resolve().parents[2]
    config = Config()
    config.set_main_option("script_location", str(root / "migrations").replace("%", "%%"))
    return config, ScriptDirectory.from_config(config)


async def migrate(url: str) -> str:
    """Bring the schema of a database to this release's revision; does nothing if it is there.

    Args:
        url: a plain ``postgresql://`` URL.

    Returns:
        The revision.
    """
    config, script = _script()

    def upgrade(connection: sa.Connection) -> None:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        for name, value in ROLE_SETTINGS.items():
            connection.exec_driver_sql(_role_setting(connection, name, value))
        connection.commit()

    await _run(url, upgrade)
    head = script.get_current_head()
    assert head is not None
    return head


async def check(url: str) -> None:
    """Make sure that the schema is this release's.

    Raises:
        SchemaBehind: it is not; the message says what to run.
    """
    _, script = _script()
    found: list[str | None] = []

    def look(connection: sa.Connection) -> None:
        found.append(MigrationContext.configure(connection).get_current_revision())

    await _run(url, look)
    needed = script.get_current_head()
    assert needed is not None
    if found != [needed]:
        raise SchemaBehind(found=found[0], needed=needed)


def run_with_url(url: str, run: Callable[[sa.Connection], None]) -> None:
    """Run a function of a synchronous connection; for Alembic called by hand."""
    asyncio.run(_run(url, run))


async def _run(url: str, run: Callable[[sa.Connection], None]) -> None:
    engine = create_async_engine(sqlalchemy_url(url), poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(run)
    finally:
        await engine.dispose()


def _role_setting(connection: sa.Connection, name: str, value: str) -> str:
    database = connection.exec_driver_sql("SELECT quote_ident(current_database())").scalar_one()
    return f"ALTER ROLE CURRENT_USER IN DATABASE {database} SET {name} = '{value}'"

"""Alembic's entry point: runs the migrations on the connection that ``app.store`` hands in."""

import os

import sqlalchemy as sa
from alembic import context

from app.store.tables import metadata


def run(connection: sa.Connection) -> None:
    """Run what was asked for on one connection, each migration in its own transaction.

    A migration that waits for a lock stands in the way of everybody who comes after it: it gives
    up after a few seconds instead, and can be run again.
    """
    context.configure(
        connection=connection, target_metadata=metadata, transaction_per_migration=True
    )
    connection.exec_driver_sql("SET lock_timeout = '5s'")
    connection.exec_driver_sql("SET statement_timeout = '15min'")
    connection.commit()
    with context.begin_transaction():
        context.run_migrations()


connection = context.config.attributes.get("connection")
if connection is not None:
    run(connection)
else:
    # Called by hand: `AMENDS_DATABASE_URL=... alembic upgrade head`.
    from app.store.schema import run_with_url

    run_with_url(os.environ["AMENDS_DATABASE_URL"], run)

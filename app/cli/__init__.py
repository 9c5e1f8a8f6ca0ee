"""The command ``amends``: serve, migrate. Heavy imports stay inside the commands."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from app.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Runs sagas: every action is stored with the action that undoes it.",
)


@app.callback()
def _root() -> None:
    """Settings are environment variables, AMENDS_...; the README lists them."""


@app.command()
def serve(
    role: Annotated[
        str,
        typer.Option(help="all: API and engine in one process; api or engine: one of the two."),
    ] = "all",
) -> None:
    """Run the service."""
    import uvloop

    from app.core.errors import ServiceError
    from app.embedded_postgres import EmbeddedPostgresError
    from app.main import (
        CannotStart,
        Role,
        serve as run,
    )
    from app.telemetry import configure_logs

    if role not in set(Role):
        _fail(f"--role is {role!r}; it must be one of {', '.join(Role)}")
    settings = _settings()
    configure_logs(level=settings.log_level, as_json=settings.log_format == "json")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings, role=Role(role)))
    except (CannotStart, EmbeddedPostgresError, ServiceError) as error:
        _fail(str(error))


@app.command()
def migrate() -> None:
    """Bring the schema of AMENDS_DATABASE_URL to this release's."""
    from app.core.errors import ServiceError
    from app.store import migrate as run

    settings = _settings()
    if settings.database_url is None:
        _fail("AMENDS_DATABASE_URL is not set; the service's own Postgres is migrated by itself")
    try:
        asyncio.run(run(settings.database_url))
    except (ServiceError, OSError) as error:
        _fail(str(error))
    typer.echo("the schema is this release's")


def main() -> None:
    """The entry point of the command."""
    app()


def _settings() -> "Settings":
    from pydantic import ValidationError

    from app.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        lines = [
            f"  AMENDS_{'.'.join(str(part) for part in fault['loc']).upper()}: {fault['msg']}"
            for fault in error.errors()
        ]
        _fail("the settings are not valid:\n" + "\n".join(lines))


def _fail(message: str) -> NoReturn:
    typer.echo(f"amends: {message}", err=True)
    sys.exit(2)

"""The composition root: builds the service from its settings, runs it, and takes it down again.

What is started first is stopped last. On the first SIGTERM or SIGINT the service stops claiming
and accepting, follows what is out to its end, hands the rest back and exits within 30 s; on the
second it exits at once.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import override

import structlog
import uvicorn

from app.api import Readiness, create_api
from app.clock import Clock
from app.connectors import (
    AiohttpTransport,
    Connector,
    Connectors,
    Functions,
    HttpConnector,
    InvalidFunctions,
    MeteredConnector,
    PythonConnector,
    load_functions,
)
from app.core.errors import InvalidDefinition, StoreUnavailable
from app.embedded_postgres import EmbeddedPostgres
from app.engine import Engine, Heart, Surveyor, show_gauges
from app.metrics import Metrics
from app.operations import Context, publish_definition
from app.schemas.documents import read_document
from app.settings import Settings
from app.store import (
    DEFAULT_TENANT,
    Database,
    Definitions,
    Journal,
    Replica,
    Tally,
    Watch,
    Writer,
    check,
    ensure_tenant,
    migrate,
)
from app.version import installed_version

log = structlog.get_logger(__name__)

API_CONNECTIONS = 8
API_COMMAND_SECONDS_MAX = 5.0
"""Somebody waits for the answer; a statement that takes longer has met a dead line."""
ENGINE_CONNECTIONS = 4
WRITER_CONNECTIONS = 2
BEAT_CONNECTIONS = 2
"""Separate pools: neither a crowd of readers nor a recovery can starve a heartbeat or a commit."""

DEFINITION_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
DATABASE_WAIT_SECONDS = 30.0
REQUESTS_WAIT_SECONDS = 5
EXIT_SECONDS_MAX = 28.0
"""Orchestrators kill after 30 s; before that we say so ourselves."""


CALLBACKS_PATH = "/v1/callbacks/"
"""Up to the token; see ``app.api.routes.callbacks``."""


class Role(StrEnum):
    """What this process does."""

    ALL = "all"
    API = "api"
    ENGINE = "engine"


class CannotStart(Exception):
    """The service cannot start; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """The opened pools and what stands on them."""

    api: Database
    engine: Database
    writing: Database
    beating: Database


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """What the front door needs of what runs behind it."""

    context: Context
    replica: Replica
    engine: Engine
    metrics: Metrics


async def serve(settings: Settings, *, role: Role) -> None:
    """Run the service until it is told to stop.

    Raises:
        CannotStart: something outside is not as it must be.
    """
    if not settings.api_keys and not settings.is_loopback:
        message = (
            f"no API key is configured, so only loopback is served, and AMENDS_HOST is "
            f"{settings.host!r}; set AMENDS_API_KEYS, or AMENDS_HOST=127.0.0.1"
        )
        raise CannotStart(message)
    functions = _load_functions(settings.sagas_dir)
    listener = _bind(settings)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        url = await stack.enter_async_context(_postgres(settings))
        store = await stack.enter_async_context(_open(url))
        callbacks_url = f"{settings.public_url or _address(listener)}{CALLBACKS_PATH}"
        service = await stack.enter_async_context(
            _service(settings, store, role=role, functions=functions, callbacks_url=callbacks_url)
        )
        await _run_api(settings, service, role=role, listener=listener)


@contextlib.asynccontextmanager
async def _service(
    settings: Settings, store: _Store, *, role: Role, functions: Functions, callbacks_url: str
) -> AsyncIterator[_Service]:
    """Everything that runs in the background, from the lease to the engine."""
    metrics = Metrics(version=installed_version())
    clock = Clock()
    replica = Replica(store.beating, clock, role=role.value, lease_seconds=settings.lease_seconds)
    writer = Writer(store.writing)
    writer.on_flush = metrics.note_commit
    definitions = Definitions(store.api)
    watch = Watch(store.api)
    journal = Journal(
        database=store.engine,
        writer=writer,
        replica=replica,
        definitions=definitions,
        clock=clock,
        runs_engine=role is not Role.API,
        callbacks_url=callbacks_url,
    )
    journal.listen(watch.notify)
    journal.observe(Tally(metrics).observe)
    engine = Engine(
        database=store.engine,
        journal=journal,
        replica=replica,
        definitions=definitions,
        connector=_connector(settings, functions, metrics),
        clock=clock,
        callbacks_url=callbacks_url,
        secrets=settings.secrets,
        metrics=metrics,
    )
    heart = Heart(replica, on_revoked=engine.lose_all)
    show_gauges(metrics, writer=writer, replica=replica, engine=engine)
    async with contextlib.AsyncExitStack() as stack:
        async with store.api.write() as tx:
            tenant = await ensure_tenant(tx, DEFAULT_TENANT)
        context = Context(
            tenant=tenant,
            database=store.api,
            journal=journal,
            definitions=definitions,
            watch=watch,
            variables=settings.vars,
        )
        await replica.register()
        stack.push_async_callback(replica.retire)
        for part in (writer, watch, heart, Surveyor(store.api, metrics)):
            await part.start()
            stack.push_async_callback(part.stop)
        await _publish_shipped(context, settings.sagas_dir)
        if role is not Role.API:
            await engine.start()
        stack.push_async_callback(engine.stop)
        yield _Service(context=context, replica=replica, engine=engine, metrics=metrics)


def _connector(settings: Settings, functions: Functions, metrics: Metrics) -> Connector:
    """The ways to the world, each metered under its name in definitions."""
    transport = AiohttpTransport(connections_per_host_max=settings.connections_per_host)
    http, python = HttpConnector(transport), PythonConnector(functions)
    return Connectors(
        http=MeteredConnector(http, metrics, name="http"),
        python=MeteredConnector(python, metrics, name="python"),
    )


def _load_functions(directory: Path) -> Functions:
    """The functions that definitions may call."""
    try:
        return load_functions(directory)
    except InvalidFunctions as error:
        raise CannotStart(str(error)) from error


def _bind(settings: Settings) -> socket.socket:
    """Take the port first: if it is in use, nothing else needs to have started."""
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        message = (
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; "
            "set AMENDS_PORT to a free port (0 chooses one)"
        )
        raise CannotStart(message) from error
    return listener


@contextlib.asynccontextmanager
async def _postgres(settings: Settings) -> AsyncIterator[str]:
    """The URL of a database whose schema is this release's."""
    if settings.database_url is not None:
        await _wait_for_database(settings.database_url)
        await check(settings.database_url)
        yield settings.database_url
        return
    postgres = EmbeddedPostgres(settings.data_dir)
    url = await postgres.start()
    try:
        await migrate(url)
        keeping = asyncio.create_task(postgres.keep(), name="postgres")  # noqa: TID251 - owned: ended below
        try:
            yield url
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
    finally:
        await postgres.stop()


async def _wait_for_database(url: str) -> None:
    """Give a database that is just starting the time to do so."""
    database = Database(url, connections_max=1)
    deadline = asyncio.get_running_loop().time() + DATABASE_WAIT_SECONDS
    while True:
        try:
            await database.open()
        except StoreUnavailable as error:
            if asyncio.get_running_loop().time() > deadline:
                message = f"{error}; check AMENDS_DATABASE_URL, or unset it to use our own Postgres"
                raise CannotStart(message) from error
            log.warning("database_awaited", error=str(error))
            await asyncio.sleep(1.0)
        else:
            await database.close()
            return


@contextlib.asynccontextmanager
async def _open(url: str) -> AsyncIterator[_Store]:
    store = _Store(
        api=Database(
            url, connections_max=API_CONNECTIONS, command_seconds_max=API_COMMAND_SECONDS_MAX
        ),
        engine=Database(url, connections_max=ENGINE_CONNECTIONS),
        writing=Database(url, connections_max=WRITER_CONNECTIONS),
        beating=Database(url, connections_max=BEAT_CONNECTIONS),
    )
    pools = (store.api, store.engine, store.writing, store.beating)
    try:
        for pool in pools:
            await pool.open()
        yield store
    finally:
        for pool in pools:
            await pool.close()


async def _publish_shipped(context: Context, directory: Path) -> None:
    """Publish the definitions in a directory; what is unchanged makes no version."""
    for path, raw in await asyncio.to_thread(_read_shipped, directory):
        kind = "application/json" if path.suffix == ".json" else "application/yaml"
        try:
            result = await publish_definition(context, read_document(raw, content_type=kind))
        except InvalidDefinition as error:
            faults = "\n".join(f"  {f.path}: {f.message} ({f.accepted})" for f in error.faults)
            raise CannotStart(f"{path} is not a valid definition:\n{faults}") from error
        reference = result.published.reference
        if result.published.is_new:
            log.info("definition_published", name=reference.name, version=reference.version)


def _read_shipped(directory: Path) -> list[tuple[Path, bytes]]:
    if not directory.is_dir():
        log.info("no_sagas_directory", directory=str(directory))
        return []
    files = [path for path in sorted(directory.iterdir()) if path.suffix in DEFINITION_SUFFIXES]
    return [(path, path.read_bytes()) for path in files]


class _Server(uvicorn.Server):
    """Uvicorn without its signal handling: what a signal means is decided here."""

    def __init__(self, config: uvicorn.Config, *, announcement: str) -> None:
        super().__init__(config)
        self._announcement = announcement

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where the service listens, once it does."""
        await super().startup(sockets)
        print(self._announcement, file=sys.stderr, flush=True)  # noqa: T201 - for the person

    @contextlib.contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


async def _run_api(
    settings: Settings, service: _Service, *, role: Role, listener: socket.socket
) -> None:
    """Serve until a signal comes; then drain the engine while the last requests are answered."""

    async def readiness() -> Readiness:
        return await _readiness(service.context, service.replica)

    app = create_api(
        service.context,
        api_keys=settings.api_keys,
        readiness=readiness,
        version=installed_version(),
        metrics=service.metrics,
        serves_sagas=role is not Role.ENGINE,
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=REQUESTS_WAIT_SECONDS,
    )
    server = _Server(config, announcement=_announcement(settings, role, listener))
    draining: list[asyncio.Task[None]] = []

    def stop() -> None:
        if draining:
            server.force_exit = True
            service.engine.abandon()
            return
        log.info("stopping", in_hand=service.engine.held)
        service.replica.is_draining = True
        service.context.watch.close()
        server.should_exit = True
        draining.append(loop.create_task(service.engine.stop()))
        # Whatever hangs: the heir treats what is left here as it treats a crash.
        loop.call_later(EXIT_SECONDS_MAX, _exit_now)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await server.serve(sockets=[listener])
    await asyncio.gather(*draining)


def _exit_now() -> None:
    log.error("stop_took_too_long", seconds=EXIT_SECONDS_MAX)
    sys.stderr.flush()
    os._exit(1)


def _announcement(settings: Settings, role: Role, listener: socket.socket) -> str:
    announcement = f"amends listens on {_address(listener)} (role {role.value})"
    if settings.api_keys:
        return announcement
    return f"{announcement}; no API key is configured: loopback only, and all may do all"


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _readiness(context: Context, replica: Replica) -> Readiness:
    """Whether this replica can do its work now, and if not, why."""
    reasons = []
    if replica.is_draining:
        reasons.append("the service is stopping")
    if not replica.is_trusted:
        reasons.append("the lease could not be renewed: the database does not answer in time")
    try:
        async with asyncio.timeout(2.0), context.database.read() as tx:
            await tx.fetch_value("SELECT 1")
    except (StoreUnavailable, TimeoutError) as error:
        reasons.append(f"the database does not answer: {error}".rstrip(": "))
    return Readiness(is_ready=not reasons, reasons=tuple(reasons))

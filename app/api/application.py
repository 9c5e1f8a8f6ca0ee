"""Builds the HTTP application: middlewares, routes, problems, documentation."""

from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from app.api import documentation, problems
from app.api.auth import Authentication
from app.api.limits import BodyLimit
from app.api.routes import callbacks, definitions, events, health, language, sagas, verbs
from app.api.routes.health import AskReadiness
from app.api.routes.metrics import RequestTimes, router as metrics_router
from app.metrics import Metrics
from app.operations import Context

_HEADERS = (
    # What people put into sagas is data, in whatever a browser takes it for.
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"private, no-cache"),
)


def create_api(
    context: Context,
    *,
    api_keys: tuple[str, ...],
    readiness: AskReadiness,
    version: str,
    metrics: Metrics | None = None,
    serves_sagas: bool = True,
    lifespan: Lifespan[FastAPI] | None = None,
) -> FastAPI:
    """The HTTP application.

    Args:
        context: as whom, and on what, operations run; opened and closed by the caller.
        api_keys: one of them must come with every request, but for what ``auth`` leaves open; if
            there are none, nobody is asked for one.
        readiness: asked at every ``GET /health/ready``.
        version: of the service, for the documentation.
        metrics: of the process, told at ``GET /metrics``; without any, requests alone are counted.
        serves_sagas: False leaves health and metrics alone, for a replica that runs an engine only.
        lifespan: run around the time in which requests are served.
    """
    metrics = metrics or Metrics(version=version)
    quiet: Any = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}
    app = FastAPI(
        title="Amends",
        version=version,
        description=documentation.DESCRIPTION,
        openapi_url="/openapi.json" if serves_sagas else None,
        docs_url="/docs",
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=quiet,  # FastAPI's own would note what people send
        middleware=[
            Middleware(RequestTimes, metrics=metrics),
            Middleware(_CommonHeaders),
            Middleware(problems.Unhandled),
            Middleware(Authentication, api_keys=api_keys),
            Middleware(BodyLimit),
        ],
    )
    app.state.context = context
    app.state.readiness = readiness
    app.state.metrics = metrics
    problems.register(app)
    parts = (sagas, verbs, definitions, language, events, callbacks) if serves_sagas else ()
    for router in (*(part.router for part in parts), health.router, metrics_router):
        # Not ``include_router``: requests would look for their route twice, router by router.
        app.router.routes.extend(router.routes)
    if serves_sagas:
        documentation.complete(app, needs_key=bool(api_keys))
    return app


class _CommonHeaders:
    """Adds to every response the headers that it lacks of those that all have."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [header for header in _HEADERS if header[0] not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._app(scope, receive, with_headers)

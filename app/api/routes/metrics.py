"""``GET /metrics``: what Prometheus reads; and the clock that every request runs under.

It is for machines that speak Prometheus' text format, so the API's document leaves it out.
"""

import time

from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.metrics import CONTENT_TYPE, Metrics

router = APIRouter(include_in_schema=False)

NO_ROUTE = "none"
"""What led to no route: no path of ours, or a request that was refused before that was known."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@router.get("/metrics", operation_id="get_metrics")
async def get_metrics(request: Request) -> Response:
    """Everything that is counted in this process, and what it saw in the database last."""
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.render(), headers={"Content-Type": CONTENT_TYPE})


class RequestTimes:
    """Times every request, up to the begin of its answer: streams go on for as long as they like.

    Paths are counted by their templates, so that there are no more series than routes.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._seconds = metrics.request_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun_at = time.monotonic()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                series = self._seconds.labels(
                    scope["method"] if scope["method"] in _METHODS else "other",
                    getattr(scope.get("route"), "path", NO_ROUTE),
                    f"{message['status'] // 100}xx",
                )
                series.observe(time.monotonic() - begun_at)
            await send(message)

        await self._app(scope, receive, timed)

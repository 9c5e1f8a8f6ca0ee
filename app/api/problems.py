"""Errors as HTTP: the only place that knows statuses. Bodies are problem details (RFC 9457).

What is told about our own errors is written here, not taken from the exception: that may name
hosts, users and SQL, which belong in the log.
"""

import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Literal

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.refusals import ForeignHost, MalformedJson, Unauthorized, UnsupportedMediaType
from app.api.validation import faults_of
from app.core.errors import (
    AmendsError,
    BusinessKeyTaken,
    CallbackContradicts,
    CallerError,
    Fenced,
    InvalidDefinition,
    InvalidRequest,
    KeyReused,
    NotFound,
    PayloadTooLarge,
    RowRefused,
    ServiceError,
    StoreUnavailable,
    VerbRefused,
)
from app.schemas.definitions import FaultResponse
from app.schemas.problems import MEDIA_TYPE, Problem

log = structlog.get_logger(__name__)

RETRY_AFTER_SECONDS = 1
"""A database that fails over, or a replica that registers anew, takes about as long."""

_STATUS: Mapping[type[AmendsError], int] = {
    MalformedJson: 400,
    Unauthorized: 401,
    ForeignHost: 403,
    NotFound: 404,
    BusinessKeyTaken: 409,
    CallbackContradicts: 409,
    VerbRefused: 409,
    PayloadTooLarge: 413,
    UnsupportedMediaType: 415,
    InvalidDefinition: 422,
    InvalidRequest: 422,
    KeyReused: 422,
    # What has no row of its own:
    CallerError: 400,
    ServiceError: 503,
}

_DATA_CLASSES = frozenset({"22", "54"})
"""SQLSTATE classes for which the data are to blame: they cannot be held, today or tomorrow."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

type Effect = Literal["none", "unknown"]


def respond(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem as a response."""
    return Response(
        problem.model_dump_json(exclude_none=True),
        status_code=problem.status,
        headers=headers,
        media_type=MEDIA_TYPE,
    )


def respond_to(error: AmendsError, *, method: str) -> Response:
    """The response to an error of ours or of the caller's.

    Args:
        error: what was raised.
        method: of the request: what only reads has no effect, whatever went wrong.
    """
    status = _status_of(error)
    headers: dict[str, str] = {}
    effect: Effect = "none"
    if isinstance(error, StoreUnavailable) and method not in _SAFE:
        effect = "unknown"
        if error.saga is not None:
            headers["Location"] = f"/v1/sagas/{error.saga}"
    retry_after = RETRY_AFTER_SECONDS if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    faults = error.faults if isinstance(error, InvalidDefinition | InvalidRequest) else None
    saga = getattr(error, "saga", None)
    refusal = error if isinstance(error, VerbRefused) else None
    problem = _problem(
        status,
        error.code,
        detail=_detail_of(error, effect=effect),
        effect=effect,
        errors=None if faults is None else FaultResponse.of(faults),
        saga=None if saga is None else str(saga),
        saga_status=None if refusal is None else refusal.status,
        possible_verbs=None if refusal is None else list(refusal.possible),
        retry_after_seconds=retry_after,
    )
    return respond(problem, headers)


def register(app: FastAPI) -> None:
    """Answer with problem details to whatever is raised on the way to a route, or in it."""
    app.add_exception_handler(AmendsError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


class Unhandled:
    """Answers what nobody expected: a 500 that tells nothing, and a traceback in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on, and answer for it if it fails."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_started = False

        async def note(message: Message) -> None:
            nonlocal is_started
            is_started = is_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception:
            instance = f"urn:uuid:{uuid.uuid4()}"
            # Not the path itself: that of a callback ends with its token.
            method, route = scope["method"], getattr(scope.get("route"), "path", None)
            log.exception("request_failed", instance=instance, method=method, route=route)
            if is_started:
                raise  # the server breaks the connection off: half an answer is none
            problem = _problem(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "internal_error",
                detail="this is a fault of ours; the log tells more under the instance's id",
                effect="none" if method in _SAFE else "unknown",
                instance=instance,
            )
            await respond(problem)(scope, receive, send)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AmendsError), error
    if isinstance(error, ServiceError):
        log.warning("request_unavailable", code=error.code, error=str(error))
    return respond_to(error, method=request.method)


async def _on_invalid(request: Request, error: Exception) -> Response:
    """What FastAPI itself reads: headers. The first part of a place says where it was."""
    assert isinstance(error, RequestValidationError), error
    errors = [{**each, "loc": each["loc"][1:]} for each in error.errors()]
    refusal = InvalidRequest(list(faults_of(errors, names=())))
    return respond_to(refusal, method=request.method)


async def _on_http(request: Request, error: Exception) -> Response:
    """What the router raises: there is nothing at this path, or not for this method."""
    assert isinstance(error, HTTPException), error
    status = HTTPStatus(error.status_code)
    headers = dict(error.headers or {})
    path = request.url.path[:200]
    match status:
        case HTTPStatus.NOT_FOUND:
            detail = f"there is nothing at {path!r}; /openapi.json lists what there is"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_methods_at(request))
            detail = f"{request.method} cannot be used on {path!r}, but {headers['Allow']}"
        case _:
            detail = status.description or status.phrase
    code = status.phrase.lower().replace(" ", "_").replace("-", "_")
    return respond(_problem(status, code, detail=detail), headers)


def _methods_at(request: Request) -> list[str]:
    """All methods of a path: the router itself tells those of the first route that fits."""
    found: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        if route.path_regex.match(request.scope["path"]) is not None:
            found |= route.methods or set()
    return sorted(found)


def _status_of(error: AmendsError) -> int:
    if isinstance(error, RowRefused) and error.sqlstate[:2] in _DATA_CLASSES:
        return HTTPStatus.UNPROCESSABLE_ENTITY
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def _detail_of(error: AmendsError, *, effect: Effect) -> str:
    match error:
        case StoreUnavailable() if effect == "none":
            return "the database does not answer; ask again in a moment"
        case StoreUnavailable():
            return (
                "the database does not answer; what was asked may have happened, or not. Send it "
                "again: with the same Idempotency-Key a saga is started once"
            )
        case Fenced():
            return "this replica may not write at the moment; nothing was written; ask again"
        case RowRefused() if error.sqlstate[:2] in _DATA_CLASSES:
            return "the database cannot hold what is in this request; nothing was written"
        case RowRefused():
            return "the database does not accept this at the moment; nothing was written; ask again"
        case _:
            return str(error)


def _problem(
    status: int,
    code: str,
    *,
    detail: str,
    effect: Effect = "none",
    instance: str | None = None,
    errors: list[FaultResponse] | None = None,
    saga: str | None = None,
    saga_status: str | None = None,
    possible_verbs: list[str] | None = None,
    retry_after_seconds: int | None = None,
) -> Problem:
    return Problem(
        type=f"urn:amends:problem:{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=detail,
        code=code,
        effect=effect,
        instance=instance,
        errors=errors,
        saga=saga,
        saga_status=saga_status,
        possible_verbs=possible_verbs,
        retry_after_seconds=retry_after_seconds,
    )

"""Errors as HTTP: each class of them, and what is not told."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import override
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import httpx2
import orjson
import pytest
from fastapi import FastAPI, Response
from starlette.types import Receive, Scope, Send

from app.api.problems import respond_to
from app.core.errors import (
    AmendsError,
    BusinessKeyTaken,
    CallbackContradicts,
    CallerError,
    CannotMigrate,
    Fault,
    Fenced,
    InvalidDefinition,
    InvalidRequest,
    KeyReused,
    NewerFormat,
    NotFound,
    PayloadTooLarge,
    RowRefused,
    SchemaBehind,
    ServiceError,
    StoreUnavailable,
    VerbRefused,
)
from app.operations import Context
from app.schemas.problems import Problem
from tests.api.asgi import exchange
from tests.api.conftest import app_without_store, client_of
from tests.api.driver import Driver

type Client = httpx2.AsyncClient

SAGA = UUID("01a231a4-2977-76f0-8378-e1236cc16b53")
FAULT = Fault(path="a.b", message="is missing", accepted="a value")
SECRET = "password=hunter2 host=10.0.0.5 INSERT INTO sagas"

ERRORS: list[tuple[AmendsError, int, str]] = [
    (InvalidDefinition([FAULT]), 422, "invalid_definition"),
    (InvalidRequest([FAULT]), 422, "invalid_request"),
    (NotFound(kind="saga", name="x"), 404, "saga_not_found"),
    (NotFound(kind="definition", name="x"), 404, "definition_not_found"),
    (PayloadTooLarge(what="input", bytes_max=1), 413, "payload_too_large"),
    (KeyReused(saga=SAGA), 422, "idempotency_key_reused"),
    (BusinessKeyTaken(business_key="k", saga=SAGA), 409, "business_key_taken"),
    (VerbRefused(verb="retry", status="running", possible=["cancel"]), 409, "verb_refused"),
    (CallbackContradicts(saga=SAGA, step="charge"), 409, "callback_contradicts"),
    (StoreUnavailable(SECRET), 503, "store_unavailable"),
    (StoreUnavailable(SECRET, saga=SAGA), 503, "store_unavailable"),
    (SchemaBehind(what="schema", found=None, needed="0002"), 503, "schema_behind"),
    (CannotMigrate(), 503, "cannot_migrate"),
    (NewerFormat(saga=SAGA), 503, "newer_format"),
    (Fenced(incarnation=SAGA), 503, "fenced"),
    (RowRefused(saga=SAGA, sqlstate="22021", message=SECRET), 422, "row_refused"),
    (RowRefused(saga=SAGA, sqlstate="54000", message=SECRET), 422, "row_refused"),
    (RowRefused(saga=SAGA, sqlstate="23505", message=SECRET), 503, "row_refused"),
    (RowRefused(saga=SAGA, sqlstate="55P03", message=SECRET), 503, "row_refused"),
]


def problem_of(response: Response) -> Problem:
    """The problem in a response; what does not apply is not in it."""
    members = orjson.loads(response.body)
    assert None not in members.values()
    return Problem.model_validate(members)


def subclasses(kind: type[AmendsError]) -> set[type[AmendsError]]:
    """All kinds of an error, those of kinds too."""
    return {kind}.union(*(subclasses(each) for each in kind.__subclasses__()))


def test_every_error_of_the_core_is_tried() -> None:
    """The table above misses no class."""
    tried = {type(error) for error, _, _ in ERRORS}
    known = {kind for kind in subclasses(AmendsError) if kind.__module__ == "app.core.errors"}

    assert known - {AmendsError, CallerError, ServiceError} == tried


@pytest.mark.parametrize(("error", "status", "code"), ERRORS)
def test_each_error_has_its_status_and_code(error: AmendsError, status: int, code: str) -> None:
    """An error is a problem whose type, status and code agree."""
    response = respond_to(error, method="POST")
    problem = problem_of(response)

    assert response.status_code == problem.status == status
    assert response.media_type == "application/problem+json"
    assert problem.code == code
    assert problem.type == f"urn:amends:problem:{code}"
    assert problem.title
    assert problem.detail


@pytest.mark.parametrize(("error", "status", "code"), ERRORS)
def test_nothing_internal_is_told(error: AmendsError, status: int, code: str) -> None:
    """What a database says of itself is in no answer."""
    response = respond_to(error, method="POST")

    assert all(word not in bytes(response.body).decode() for word in SECRET.split())


@pytest.mark.parametrize(("error", "status", "code"), ERRORS)
def test_what_may_pass_can_be_asked_again(error: AmendsError, status: int, code: str) -> None:
    """Exactly the errors that may pass say when to ask again, twice."""
    response = respond_to(error, method="POST")
    problem = problem_of(response)
    expected = 1 if status == 503 else None

    assert problem.retry_after_seconds == expected
    assert response.headers.get("retry-after") == (None if expected is None else "1")


@pytest.mark.parametrize(
    ("method", "effect"),
    [("GET", "none"), ("HEAD", "none"), ("POST", "unknown"), ("PUT", "unknown")],
)
def test_only_a_lost_database_leaves_the_effect_open(method: str, effect: str) -> None:
    """Whether it happened is not known where something might have, and only there."""
    unsure = problem_of(respond_to(StoreUnavailable("x"), method=method))
    others = [
        problem_of(respond_to(error, method=method)).effect
        for error, _, _ in ERRORS
        if not isinstance(error, StoreUnavailable)
    ]

    assert unsure.effect == effect
    assert set(others) == {"none"}


def test_a_saga_that_may_exist_is_pointed_at() -> None:
    """Where a saga may have been stored, the answer says where it would be."""
    response = respond_to(StoreUnavailable("x", saga=SAGA), method="POST")

    assert response.headers["location"] == f"/v1/sagas/{SAGA}"
    assert problem_of(response).saga == str(SAGA)


def test_a_refused_verb_says_what_is_possible() -> None:
    """The state and the verbs it allows are members of their own."""
    problem = problem_of(respond_to(ERRORS[7][0], method="POST"))

    assert problem.saga_status == "running"
    assert problem.possible_verbs == ["cancel"]


async def test_a_path_without_anything_is_a_problem(bare: Client) -> None:
    """An unknown path is 404 with a code of its own."""
    response = await bare.get("/v1/nowhere/<script>")

    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == "not_found"


async def test_a_trailing_slash_is_another_path(bare: Client) -> None:
    """No redirect: a client that follows it might lose its body, or its key."""
    assert (await bare.get("/v1/sagas/")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/sagas", "GET, POST"),
        ("PATCH", "/v1/definitions/x", "GET, PUT"),
        ("GET", "/v1/sagas/x/cancel", "POST"),
        ("POST", "/health/live", "GET"),
        ("TRACE", "/v1/sagas/x", "GET"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(
    bare: Client, method: str, path: str, allowed: str
) -> None:
    """A method that a path does not have is 405 with all that it has."""
    response = await bare.request(method, path)

    assert response.status_code == 405
    assert response.headers["allow"] == allowed
    assert response.json()["code"] == "method_not_allowed"


@pytest.mark.parametrize(("method", "effect"), [("GET", "none"), ("POST", "unknown")])
async def test_a_fault_of_ours_tells_nothing(
    method: str, effect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unforeseen exception is a 500 that names its entry in the log, which tells it all."""
    app = app_without_store()

    async def fail() -> Response:
        raise RuntimeError(SECRET)

    app.add_api_route("/fail", fail, methods=[method])
    async with client_of(app) as client:
        response = await client.request(method, "/fail")
    problem = response.json()
    logged = capsys.readouterr()

    assert response.status_code == 500
    assert problem["code"] == "internal_error"
    assert problem["effect"] == effect
    assert problem["instance"].startswith("urn:uuid:")
    assert "hunter2" not in response.text
    assert problem["instance"] in logged.out + logged.err
    assert "RuntimeError" in logged.out + logged.err


async def test_half_an_answer_is_broken_off() -> None:
    """An exception after the answer has begun is raised, so that the server breaks it off."""
    app = app_without_store()

    async def fail_late() -> Response:
        class Late(Response):
            @override
            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                raise RuntimeError("late")

        return Late()

    app.add_api_route("/late", fail_late)
    with pytest.raises(ExceptionGroup) as caught:
        async with exchange(app, "GET", "/late") as held:
            await held.is_over.wait()

    assert caught.group_contains(RuntimeError, match="late")


async def test_what_fastapi_refuses_is_a_problem_too() -> None:
    """A parameter that FastAPI itself reads is told like any other."""
    app = app_without_store()

    async def count(number: int) -> int:
        return number

    app.add_api_route("/count", count)
    async with client_of(app) as client:
        response = await client.get("/count?number=x")

    assert response.status_code == 422
    assert response.json()["code"] == "invalid_request"
    assert response.json()["errors"] == [
        {
            "path": "number",
            "message": response.json()["errors"][0]["message"],
            "accepted": "a whole number",
        }
    ]


async def test_a_start_that_cannot_be_stored_in_time(app: FastAPI, context: Context) -> None:
    """While the database is held up, a start is 503, and says where the saga may be."""
    app.state.context = replace(context, answer_seconds_max=0.05)
    async with context.database.write() as tx, client_of(app) as client:
        await tx.execute("LOCK TABLE sagas IN ACCESS EXCLUSIVE MODE")
        response = await client.post(
            "/v1/sagas", json={"definition": "book_trip"}, headers={"Idempotency-Key": "k"}
        )
    app.state.context = context
    async with client_of(app) as client:
        again = await client.post(
            "/v1/sagas", json={"definition": "book_trip"}, headers={"Idempotency-Key": "k"}
        )

    assert response.status_code == 503
    assert response.json()["code"] == "store_unavailable"
    assert response.json()["effect"] == "unknown"
    assert again.status_code in {200, 202}
    assert response.headers["location"] == again.headers["location"]


@pytest.mark.parametrize("report", [False, True])
async def test_what_cannot_be_stored_in_time(
    app: FastAPI, context: Context, driver: Driver, *, report: bool
) -> None:
    """While the database is held up a verb and a report are 503; sent again, they are taken."""
    saga = await driver.start()
    url, body = f"/v1/sagas/{saga}/pause", {"reason": "wait"}
    if report:
        url, body = f"/v1/callbacks/{await driver.token(saga, 'flight')}", {"outcome": "succeeded"}
    app.state.context = replace(context, answer_seconds_max=0.05)
    async with context.database.write() as tx, client_of(app) as client:
        await tx.execute("LOCK TABLE sagas IN ACCESS EXCLUSIVE MODE")
        response = await client.post(url, json=body)
    app.state.context = context
    async with client_of(app) as client:
        again = await client.post(url, json=body)

    assert response.status_code == 503
    assert response.json()["code"] == "store_unavailable"
    assert response.json()["effect"] == "unknown"
    assert again.status_code == (200 if report else 202)


async def test_a_replica_that_was_revoked_writes_nothing(client: Client, context: Context) -> None:
    """A fenced replica answers 503, and surely did nothing."""
    async with context.database.write() as tx:
        await tx.execute("UPDATE replicas SET revoked_at = amends_now()")
    response = await client.post("/v1/sagas", json={"definition": "book_trip"})

    assert response.status_code == 503
    assert response.json()["code"] == "fenced"
    assert response.json()["effect"] == "none"


@contextlib.asynccontextmanager
async def closed_to_newcomers(server_url: str, url: str) -> AsyncIterator[None]:
    """Let nobody connect to a database for the time of the block; who is connected stays."""
    name = urlsplit(url).path.removeprefix("/")
    connection = await asyncpg.connect(server_url)
    await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    try:
        yield
    finally:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await connection.close()


async def test_a_database_that_is_away_is_told(
    client: Client, context: Context, postgres_url: str, database_url: str
) -> None:
    """Reading from a database that lets nobody in is 503 without an effect."""
    started = (await client.post("/v1/sagas", json={"definition": "book_trip"})).json()
    async with closed_to_newcomers(postgres_url, database_url):
        await context.database.close()
        response = await client.get(f"/v1/sagas/{started['id']}")

    assert response.status_code == 503
    assert response.json()["code"] == "store_unavailable"
    assert response.json()["effect"] == "none"
    assert response.headers["retry-after"] == "1"
    assert urlsplit(database_url).path.removeprefix("/") not in response.text


async def test_a_wait_that_fails_does_not_unmake_the_saga(
    client: Client, context: Context, postgres_url: str, database_url: str
) -> None:
    """A start is accepted though the database goes away while its client waits."""
    body = {"definition": "book_trip", "version": 1}
    await client.post("/v1/sagas", json=body)
    async with closed_to_newcomers(postgres_url, database_url):
        await context.database.close()  # the writer has a connection of its own
        response = await client.post("/v1/sagas", json=body, headers={"Prefer": "wait=60"})

    assert response.status_code == 202
    assert response.json()["status"] == "pending"

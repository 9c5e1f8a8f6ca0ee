"""`/health/*`, and a replica that serves nothing else."""

import json
from typing import cast

import httpx2
import pytest

from app.api import Readiness, create_api
from app.operations import Context
from tests.api.conftest import client_of

type Client = httpx2.AsyncClient


def app_that_is(readiness: Readiness, *, serves_sagas: bool = True) -> httpx2.AsyncClient:
    """A client of an application with this readiness."""

    async def ask() -> Readiness:
        return readiness

    context = cast("Context", None)
    return client_of(
        create_api(context, api_keys=(), readiness=ask, version="1.2.3", serves_sagas=serves_sagas)
    )


async def test_a_process_that_answers_is_alive() -> None:
    """Liveness is 200, whatever the readiness."""
    async with app_that_is(Readiness(is_ready=False, reasons=("stopping",))) as client:
        response = await client.get("/health/live")

    assert response.status_code == 200
    assert response.json() == {"status": "live"}


async def test_a_replica_that_can_work_is_ready() -> None:
    """Readiness is 200 without reasons."""
    async with app_that_is(Readiness(is_ready=True)) as client:
        response = await client.get("/health/ready")

    assert response.status_code == 200
    assert response.json() == {"status": "ready", "reasons": []}


async def test_a_replica_that_cannot_work_says_why() -> None:
    """Readiness is 503 with the reasons."""
    reasons = ("the service is stopping", "the lease is lost")
    async with app_that_is(Readiness(is_ready=False, reasons=reasons)) as client:
        response = await client.get("/health/ready")

    assert response.status_code == 503
    assert response.json() == {"status": "not_ready", "reasons": list(reasons)}


@pytest.mark.parametrize("path", ["/v1/sagas", "/v1/definitions", "/docs", "/openapi.json"])
async def test_an_engine_serves_health_alone(path: str) -> None:
    """A replica that runs an engine only has no other route."""
    async with app_that_is(Readiness(is_ready=True), serves_sagas=False) as client:
        health = await client.get("/health/ready")
        other = await client.get(path)

    assert health.status_code == 200
    assert other.status_code == 404
    assert other.json()["code"] == "not_found"


async def test_the_document_has_the_version() -> None:
    """The service's version is in its documentation."""
    async with app_that_is(Readiness(is_ready=True)) as client:
        document = json.loads((await client.get("/openapi.json")).text)

    assert document["info"]["version"] == "1.2.3"

"""`GET /metrics`, and how requests are counted."""

from typing import cast

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from app.api import create_api
from app.metrics import Metrics
from app.operations import Context
from tests.api.conftest import always_ready, app_without_store, client_of

KEY = "a-key-of-thirty-two-characters--"


def an_app(metrics: Metrics, *, serves_sagas: bool = True) -> FastAPI:
    """An application without a store that counts into these metrics."""
    return create_api(
        cast("Context", None),
        api_keys=(),
        readiness=always_ready,
        version="1.2.3",
        metrics=metrics,
        serves_sagas=serves_sagas,
    )


def requests(metrics: Metrics) -> dict[tuple[str, str, str], float]:
    """How many requests were counted, by method, route and status."""
    return {
        (each.labels["method"], each.labels["route"], each.labels["status"]): each.value
        for family in metrics.registry.collect()
        for each in family.samples
        if each.name == "amends_request_seconds_count"
    }


@pytest.mark.parametrize("serves_sagas", [True, False])
async def test_metrics_are_served_as_text(
    *,
    serves_sagas: bool,
) -> None:
    """Every replica, one that runs an engine only too, tells what Prometheus can read."""
    app = an_app(Metrics(version="1.2.3"), serves_sagas=serves_sagas)
    async with client_of(app) as client:
        response = await client.get("/metrics")

    assert 200 == response.status_code
    assert "text/plain; version=0.0.4; charset=utf-8" == response.headers["content-type"]
    families = {each.name: each for each in text_string_to_metric_families(response.text)}
    assert "1.2.3" == families["amends_build_info"].samples[0].labels["version"]
    assert "amends_sagas_started" in families


async def test_metrics_want_a_key() -> None:
    """Whoever may not ask for sagas may not ask for metrics."""
    async with client_of(app_without_store(KEY)) as client:
        stranger = await client.get("/metrics")
        friend = await client.get("/metrics", headers={"Authorization": f"Bearer {KEY}"})

    assert (401, 200) == (stranger.status_code, friend.status_code)


async def test_metrics_are_not_in_the_document() -> None:
    """The API's document is about sagas."""
    async with client_of(an_app(Metrics(version="1"))) as client:
        document = (await client.get("/openapi.json")).json()

    assert "/metrics" not in document["paths"]


async def test_requests_are_counted_by_route_and_status() -> None:
    """Paths are counted by their templates, whatever stands in them, and strangers' under none."""
    metrics = Metrics(version="1")
    async with client_of(an_app(metrics)) as client:
        await client.get("/health/live")
        await client.get("/v1/sagas/not-a-uuid")
        await client.get("/v1/sagas/no-uuid-either")
        await client.get("/nowhere")
        await client.request("BREW", "/coffee")
        await client.post("/v1/callbacks/a-secret-token", content=b"{")

    assert {
        ("GET", "/health/live", "2xx"): 1,
        ("GET", "/v1/sagas/{saga_id}", "4xx"): 2,
        ("GET", "none", "4xx"): 1,
        ("other", "none", "4xx"): 1,
        ("POST", "/v1/callbacks/{token}", "4xx"): 1,
    } == requests(metrics)


async def test_a_failure_of_ours_is_counted() -> None:
    """A request that meets a bug is a 5xx of its route."""
    metrics = Metrics(version="1")
    async with client_of(an_app(metrics)) as client:
        await client.get("/v1/definitions")  # there is no store

    assert {("GET", "/v1/definitions", "5xx"): 1} == requests(metrics)


async def test_applications_count_apart() -> None:
    """Two of them in one process do not share what they count."""
    mine, yours = Metrics(version="1"), Metrics(version="2")
    async with client_of(an_app(mine)) as client, client_of(an_app(yours)) as other:
        await client.get("/health/live")
        response: httpx2.Response = await other.get("/metrics")

    assert {("GET", "/health/live", "2xx"): 1} == requests(mine)
    assert 'version="2"' in response.text
    assert "/health/live" not in response.text

"""`POST /v1/sagas/{id}/cancel` and `/retry`."""

from typing import Any

import httpx2
import pytest

from app.operations import Context
from tests.api.conftest import always_ready, client_of
from tests.api.driver import Driver

type Client = httpx2.AsyncClient

REASON = {"reason": "the customer called"}


async def test_a_cancelled_saga_is_undone(client: Client, driver: Driver) -> None:
    """A cancel is accepted with 202 and the saga, which goes back."""
    started = await driver.start()
    await driver.answer(started, "flight", body={"id": "F1"})
    response = await client.post(f"/v1/sagas/{started}/cancel", json=REASON)
    saga = response.json()

    assert response.status_code == 202
    assert response.headers["etag"] == f'"{saga["revision"]}"'
    assert saga["status"] == "compensating"
    assert saga["failure"] == {
        "cause": "cancelled",
        "step": None,
        "code": "cancelled",
        "http_status": None,
        "message": "cancelled by local: the customer called",
    }


async def test_a_pending_saga_is_cancelled_at_once(client: Client, driver: Driver) -> None:
    """A saga that has not begun has nothing to undo."""
    started = (await client.post("/v1/sagas", json={"definition": "book_trip"})).json()
    response = await client.post(f"/v1/sagas/{started['id']}/cancel", json=REASON)

    assert response.json()["status"] == "compensated"


async def test_cancelling_again_changes_nothing(client: Client, driver: Driver) -> None:
    """A second cancel is 202 with the same revision."""
    started = await driver.start()
    first = await client.post(f"/v1/sagas/{started}/cancel", json=REASON)
    again = await client.post(f"/v1/sagas/{started}/cancel", json={"reason": "really"})

    assert again.status_code == 202
    assert again.json()["revision"] == first.json()["revision"]


@pytest.mark.parametrize("verb", ["cancel", "retry"])
async def test_a_saga_that_is_over_can_be_told_nothing(
    client: Client, driver: Driver, verb: str
) -> None:
    """A verb that the state does not allow is 409 with the state and the possible verbs."""
    started = await driver.start()
    await driver.complete(started)
    response = await client.post(f"/v1/sagas/{started}/{verb}", json=REASON)
    problem = response.json()

    assert response.status_code == 409
    assert problem["code"] == "verb_refused"
    assert problem["saga_status"] == "completed"
    assert problem["possible_verbs"] == []
    assert problem["effect"] == "none"


async def test_a_running_saga_cannot_be_retried(client: Client, driver: Driver) -> None:
    """The refusal says what can be done instead."""
    response = await client.post(f"/v1/sagas/{await driver.start()}/retry", json=REASON)

    assert response.status_code == 409
    assert response.json()["possible_verbs"] == ["cancel"]


async def test_a_stuck_saga_goes_on(client: Client, driver: Driver) -> None:
    """A retry is accepted with 202, and the saga is no longer stuck."""
    started = await driver.start()
    await driver.strand(started)
    response = await client.post(f"/v1/sagas/{started}/retry", json=REASON)
    saga = response.json()

    assert response.status_code == 202
    assert saga["status"] == "compensating"
    assert saga["stuck"] is None
    assert saga["waiting_for"][0]["what"] == "engine"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "reason"),
        ({"reason": ""}, "reason"),
        ({"reason": " \n"}, "reason"),
        ({"reason": "x" * 1001}, "reason"),
        ({"reason": None}, "reason"),
        ({"reason": "x", "force": True}, "force"),
        (None, ""),
    ],
)
@pytest.mark.parametrize("verb", ["cancel", "retry"])
async def test_a_reason_is_needed(bare: Client, verb: str, body: Any, path: str) -> None:
    """A verb without a reason, or with more than that, is 422."""
    response = await bare.post(f"/v1/sagas/x/{verb}", json=body)

    assert response.status_code == 422
    assert [fault["path"] for fault in response.json()["errors"]] == [path]


@pytest.mark.parametrize("verb", ["cancel", "retry"])
@pytest.mark.parametrize("name", ["nope", "01a231a4-2977-76f0-8378-e1236cc16b53"])
async def test_an_unknown_saga_cannot_be_told(client: Client, verb: str, name: str) -> None:
    """A verb for a saga that is not there is 404."""
    response = await client.post(f"/v1/sagas/{name}/{verb}", json=REASON)

    assert response.status_code == 404
    assert response.json()["code"] == "saga_not_found"


async def test_the_audit_names_the_key(context: Context, driver: Driver) -> None:
    """The journal says who asked, by the digest of the key, and why."""
    from app.api import create_api

    api = create_api(context, api_keys=("first", "second"), readiness=always_ready, version="0")
    started = await driver.start()
    async with client_of(api) as client:
        client.headers["Authorization"] = "bearer second"
        await client.post(f"/v1/sagas/{started}/cancel", json=REASON)
        events = (await client.get(f"/v1/sagas/{started}/events")).json()["items"]

    # printf second | sha256sum
    assert events[-1]["type"] == "cancel_requested"
    assert events[-1]["detail"]["actor"] == "key:16367aac"
    assert events[-1]["detail"]["reason"] == "the customer called"

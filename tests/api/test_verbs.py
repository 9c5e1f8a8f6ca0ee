"""What a saga can be told: every verb in every status, and what is wanted of whoever asks."""

from typing import Any

import httpx2
import pytest

from app.core.identity import Direction
from app.core.saga import SagaStatus
from app.operations import Context, publish_definition
from tests.api.builders import a_document, a_step
from tests.api.conftest import always_ready, client_of
from tests.api.driver import TIMED_OUT, Driver

type Client = httpx2.AsyncClient

REASON = {"reason": "the customer called"}

PATHS = {
    "cancel": "cancel",
    "terminate": "terminate",
    "pause": "pause",
    "resume": "resume",
    "retry": "retry",
    "resolve": "steps/flight/resolve",
    "skip": "steps/flight/skip",
    "undo": "steps/flight/undo",
}

MOVING = ["cancel", "pause", "terminate"]

POSSIBLE: dict[str, list[str]] = {
    "pending": MOVING,
    "running": MOVING,
    "compensating": MOVING,
    "paused": ["resume", "cancel", "terminate"],
    "stuck": ["retry", "resolve", "skip", "cancel", "terminate"],
    "completed": [],
    "compensated": [],
    "partially_compensated": [],
    "terminated": ["undo"],
}
"""What a saga that has come to a status in the usual way says that it can be told."""

TOLD: dict[tuple[str, str], str] = {
    ("pending", "cancel"): "compensated",
    ("pending", "pause"): "paused",
    ("pending", "terminate"): "terminated",
    ("running", "cancel"): "compensating",
    ("running", "pause"): "paused",
    ("running", "terminate"): "running",  # once what is out has ended
    ("compensating", "cancel"): "compensating",
    ("compensating", "pause"): "paused",
    ("compensating", "terminate"): "compensating",
    ("paused", "resume"): "running",
    ("paused", "cancel"): "compensating",
    ("paused", "terminate"): "paused",
    ("paused", "pause"): "paused",  # as it is already
    ("stuck", "retry"): "compensating",
    ("stuck", "resolve"): "compensated",
    ("stuck", "skip"): "partially_compensated",
    ("stuck", "cancel"): "stuck",
    ("stuck", "terminate"): "terminated",
    ("terminated", "undo"): "terminated",  # by a saga of its own
}
"""Where a verb that is accepted leads; what is not here is refused."""

UNCHANGED = {("compensating", "cancel"), ("paused", "pause"), ("stuck", "cancel")}
"""What asks for what is so already."""


def body_of(verb: str) -> dict[str, str]:
    """The least that a verb wants."""
    return REASON | ({"effect": "none"} if verb == "resolve" else {})


async def brought(client: Client, driver: Driver, status: str) -> str:
    """The id of a saga of that status."""
    if status == "pending":
        response = await client.post("/v1/sagas", json={"definition": "book_trip"})
        return str(response.json()["id"])
    return str(await driver.bring(SagaStatus(status)))


@pytest.mark.parametrize(("status", "verb"), TOLD)
async def test_a_verb_that_the_status_allows(
    client: Client, driver: Driver, status: str, verb: str
) -> None:
    """It is accepted with 202 and the saga, whose revision is the ETag."""
    saga = await brought(client, driver, status)
    before = (await client.get(f"/v1/sagas/{saga}")).json()
    response = await client.post(f"/v1/sagas/{saga}/{PATHS[verb]}", json=body_of(verb))
    after = response.json()

    assert response.status_code == 202, response.text
    assert (before["status"], after["status"]) == (status, TOLD[status, verb])
    assert response.headers["etag"] == f'"{after["revision"]}"'
    assert after == (await client.get(f"/v1/sagas/{saga}")).json()
    assert (after["revision"] == before["revision"]) is ((status, verb) in UNCHANGED)


@pytest.mark.parametrize(
    ("status", "verb"),
    [(status, verb) for status in POSSIBLE for verb in PATHS if (status, verb) not in TOLD],
)
async def test_a_verb_that_the_status_does_not_allow(
    client: Client, driver: Driver, status: str, verb: str
) -> None:
    """It is refused with 409, which says the state and what is possible instead."""
    saga = await brought(client, driver, status)
    response = await client.post(f"/v1/sagas/{saga}/{PATHS[verb]}", json=body_of(verb))
    problem = response.json()

    assert response.status_code == 409
    assert problem["code"] == "verb_refused"
    assert problem["saga_status"] == status
    assert problem["possible_verbs"] == POSSIBLE[status]
    assert problem["effect"] == "none"
    assert (await client.get(f"/v1/sagas/{saga}")).json()["verbs"] == POSSIBLE[status]


@pytest.mark.parametrize("verb", PATHS)
@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "reason"),
        ({"reason": ""}, "reason"),
        ({"reason": " \n"}, "reason"),
        ({"reason": "x" * 1001}, "reason"),
        ({"reason": None}, "reason"),
        ({"reason": ["x"]}, "reason"),
        ({"reason": "x", "force": True}, "force"),
        (None, ""),
        ([], ""),
    ],
)
async def test_a_reason_is_needed(bare: Client, verb: str, body: Any, path: str) -> None:
    """A verb without a reason, or with what it does not know, is 422."""
    if verb == "resolve" and isinstance(body, dict):
        body = {**body, "effect": "none"}
    response = await bare.post(f"/v1/sagas/x/{PATHS[verb]}", json=body)

    assert response.status_code == 422
    assert [fault["path"] for fault in response.json()["errors"]] == [path]


async def test_a_reason_of_a_thousand_characters_is_kept(client: Client, driver: Driver) -> None:
    """A reason may be long, and in any script."""
    saga, reason = await driver.start(), "ü" * 1000
    await client.post(f"/v1/sagas/{saga}/pause", json={"reason": reason})
    shown = (await client.get(f"/v1/sagas/{saga}")).json()

    assert shown["paused"]["reason"] == reason


@pytest.mark.parametrize("verb", PATHS)
@pytest.mark.parametrize("name", ["nope", "01a231a4-2977-76f0-8378-e1236cc16b53", "%00"])
async def test_an_unknown_saga_cannot_be_told(client: Client, verb: str, name: str) -> None:
    """A verb for a saga that is not there is 404."""
    response = await client.post(f"/v1/sagas/{name}/{PATHS[verb]}", json=body_of(verb))

    assert response.status_code == 404
    assert response.json()["code"] == "saga_not_found"


@pytest.mark.parametrize("verb", ["resolve", "skip", "undo"])
@pytest.mark.parametrize("step", ["nope", "Flight", "%00", "x" * 500, "%F0%9F%91%BB"])
async def test_an_unknown_step_cannot_be_told(
    client: Client, driver: Driver, verb: str, step: str
) -> None:
    """A verb for a step that the definition does not have is 404."""
    saga = await driver.bring(SagaStatus.STUCK)
    response = await client.post(f"/v1/sagas/{saga}/steps/{step}/{verb}", json=body_of(verb))

    assert response.status_code == 404
    assert response.json()["code"] == "step_not_found"
    assert len(response.content) < 1000


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


async def test_a_cancelled_saga_says_so(client: Client, driver: Driver) -> None:
    """The failure of a cancelled saga names who wanted it, and why."""
    started = await driver.start()
    await driver.answer(started, "flight", body={"id": "F1"})
    saga = (await client.post(f"/v1/sagas/{started}/cancel", json=REASON)).json()

    assert saga["failure"] == {
        "cause": "cancelled",
        "step": None,
        "code": "cancelled",
        "http_status": None,
        "message": "cancelled by local: the customer called",
    }
    assert saga["pending"] is None


async def test_a_paused_saga_follows_what_is_out_and_begins_nothing(
    client: Client, driver: Driver
) -> None:
    """A paused saga says who paused it, waits for a person, and takes the answer that is out."""
    started = await driver.start()
    paused = (await client.post(f"/v1/sagas/{started}/pause", json=REASON)).json()
    answered = await driver.answer(started, "flight", body={"id": "F1"})
    resumed = (await client.post(f"/v1/sagas/{started}/resume", json=REASON)).json()

    assert paused["paused"] == {"actor": "local", "reason": REASON["reason"], "resumes": "running"}
    assert [wait["what"] for wait in paused["waiting_for"]] == ["person", "answer"]
    assert answered.status is SagaStatus.PAUSED
    assert not answered.has_open_calls
    assert resumed["status"] == "running"
    assert resumed["paused"] is None
    assert [step["status"] for step in resumed["steps"]] == ["succeeded", "pending"]
    assert [wait["what"] for wait in resumed["waiting_for"]] == ["engine"]


async def test_a_pause_holds_an_undo_too(client: Client, driver: Driver) -> None:
    """A saga that was paused while it went back goes on going back."""
    started = await driver.bring(SagaStatus.COMPENSATING)
    await client.post(f"/v1/sagas/{started}/pause", json=REASON)
    await driver.answer(started, "flight", 204, direction=Direction.COMPENSATION)
    held = (await client.get(f"/v1/sagas/{started}")).json()
    resumed = (await client.post(f"/v1/sagas/{started}/resume", json=REASON)).json()

    assert (held["status"], held["paused"]["resumes"]) == ("paused", "compensating")
    assert resumed["status"] == "compensated"


async def test_a_terminated_saga_ends_with_what_is_out(client: Client, driver: Driver) -> None:
    """Termination waits for what is out, begins nothing, and lists what is live as residue."""
    started = await driver.start()
    await driver.answer(started, "flight", body={"id": "F1"})
    waiting = (await client.post(f"/v1/sagas/{started}/terminate", json=REASON)).json()
    await driver.answer(started, "hotel", body={"id": "H1"})
    over = (await client.get(f"/v1/sagas/{started}")).json()

    assert waiting["status"] == "running"
    assert waiting["verbs"] == []
    assert waiting["pending"] == {
        "wish": "terminate",
        "actor": "local",
        "reason": REASON["reason"],
        "lapsed": False,
    }
    assert waiting["terminated"] is None
    assert over["status"] == "terminated"
    assert over["terminated"] == {"actor": "local", "reason": REASON["reason"]}
    assert over["pending"] is None
    assert over["failure"] is None
    assert over["waiting_for"] == []
    assert over["residue"] == [
        {"step": "flight", "effect": "done", "reason": "terminated", "undo_saga": None},
        {"step": "hotel", "effect": "done", "reason": "terminated", "undo_saga": None},
    ]


async def test_terminating_again_changes_nothing(client: Client, driver: Driver) -> None:
    """A second termination is 202 with the same revision."""
    started = await driver.start()
    first = await client.post(f"/v1/sagas/{started}/terminate", json=REASON)
    again = await client.post(f"/v1/sagas/{started}/terminate", json=REASON)

    assert again.status_code == 202
    assert again.json() == first.json()


async def test_what_is_about_to_end_can_be_told_nothing_else(
    client: Client, driver: Driver
) -> None:
    """A cancel after a termination is refused: no verb is possible any more."""
    started = await driver.start()
    await client.post(f"/v1/sagas/{started}/terminate", json=REASON)
    response = await client.post(f"/v1/sagas/{started}/cancel", json=REASON)

    assert response.status_code == 409
    assert response.json()["possible_verbs"] == []


async def test_a_retried_saga_goes_on(client: Client, driver: Driver) -> None:
    """A retry is accepted, and the saga is no longer stuck; an engine takes it up."""
    started = await driver.bring(SagaStatus.STUCK)
    saga = (await client.post(f"/v1/sagas/{started}/retry", json=REASON)).json()

    assert saga["stuck"] is None
    assert saga["attention"] is False
    assert saga["waiting_for"][0]["what"] == "engine"


PIVOT = [a_step("flight"), {**a_step("charge"), "pivot": True}, a_step("ticket")]


@pytest.fixture
async def at_the_pivot(driver: Driver) -> Any:
    """A saga whose point of no return is out."""
    await publish_definition(driver.context, a_document("pay", steps=PIVOT))
    started = await driver.start("pay")
    await driver.answer(started, "flight", body={"id": "F1"})
    return started


async def test_a_cancel_waits_for_the_pivot(
    client: Client, driver: Driver, at_the_pivot: Any
) -> None:
    """While the pivot is out a cancel is pending; if it has no effect, the saga is undone."""
    told = (await client.post(f"/v1/sagas/{at_the_pivot}/cancel", json=REASON)).json()
    await driver.answer(at_the_pivot, "charge", 402)
    after = (await client.get(f"/v1/sagas/{at_the_pivot}")).json()

    assert told["status"] == "running"
    assert told["pending"] == {
        "wish": "cancel",
        "actor": "local",
        "reason": REASON["reason"],
        "lapsed": False,
    }
    assert after["status"] == "compensating"
    assert after["pending"] is None
    assert after["failure"]["cause"] == "step_failed"


async def test_a_cancel_lapses_at_the_pivot(
    client: Client, driver: Driver, at_the_pivot: Any
) -> None:
    """If the pivot is done, a cancel comes to nothing, visibly, and no other is possible."""
    await client.post(f"/v1/sagas/{at_the_pivot}/cancel", json=REASON)
    await driver.answer(at_the_pivot, "charge", body={"id": "C1"})
    after = (await client.get(f"/v1/sagas/{at_the_pivot}")).json()
    again = await client.post(f"/v1/sagas/{at_the_pivot}/cancel", json=REASON)

    assert after["status"] == "running"
    assert after["pending"]["lapsed"] is True
    assert after["verbs"] == ["pause", "terminate"]
    assert again.status_code == 409
    assert again.json()["possible_verbs"] == ["pause", "terminate"]


async def test_what_follows_the_pivot_is_not_undone(
    client: Client, driver: Driver, at_the_pivot: Any
) -> None:
    """A pivot without an answer is asked again; a step after it that is refused gets it stuck."""
    await driver.observe(at_the_pivot, "charge", TIMED_OUT)
    waits = (await client.get(f"/v1/sagas/{at_the_pivot}")).json()["waiting_for"]
    await driver.answer(at_the_pivot, "charge", body={"id": "C1"})
    await driver.answer(at_the_pivot, "ticket", 422)
    saga = (await client.get(f"/v1/sagas/{at_the_pivot}")).json()

    assert [wait["what"] for wait in waits] == ["retry"]
    assert saga["status"] == "stuck"
    assert saga["stuck"]["question"] == "how_to_go_on"
    assert saga["stuck"]["verbs"] == ["retry", "resolve", "terminate"]
    assert saga["failure"]["step"] == "ticket"

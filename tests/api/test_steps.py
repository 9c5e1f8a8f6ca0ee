"""What a saga can be told about one step: `resolve`, `skip` and `undo`."""

import asyncio
from typing import Any
from uuid import UUID

import httpx2
import orjson
import pytest

from app.core.identity import Direction, SagaId, StepId
from app.core.requests import HttpRequest
from app.core.saga import SagaStatus
from app.operations import Context, StartRequest, publish_definition, start_saga
from tests.api.builders import a_callback_step, a_document, a_step, an_undo_by_key
from tests.api.driver import TIMED_OUT, Driver

type Client = httpx2.AsyncClient

REASON = {"reason": "I asked the airline"}


async def get(client: Client, saga: object) -> Any:
    """Read a saga."""
    return (await client.get(f"/v1/sagas/{saga}")).json()


async def in_doubt(driver: Driver) -> SagaId:
    """A saga that is stuck at a step whose effect nobody can tell, and whose undo needs to know."""
    step = a_step("flight", idempotent=False)
    step["action"] |= {"late_window": "0s"}  # type: ignore[operator]  # an object
    await publish_definition(driver.context, a_document("doubt", steps=[step, a_step("hotel")]))
    saga = await driver.start("doubt")
    await driver.observe(saga, "flight", TIMED_OUT)
    return saga


async def found_late(driver: Driver, *steps: str) -> SagaId:
    """A compensated saga, of which an effect of each of these steps was found after the end."""
    built = [an_undo_by_key(step, late_window="0s") for step in steps]
    for each in built:
        each["needs"] = []
    await publish_definition(driver.context, a_document("late", steps=built))
    saga = await driver.start("late")
    for step in steps:
        await driver.observe(saga, step, TIMED_OUT)
    loaded = await driver.load(saga)
    while not loaded.status.is_final:
        (out,) = [call for call in loaded.calls.values() if call.open is not None]
        assert out.direction is Direction.COMPENSATION
        loaded = await driver.answer(saga, out.step, 204, direction=Direction.COMPENSATION)
    for step in steps:
        await driver.answer(saga, step, body={"id": f"{step}-1"})
    return saga


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "effect"),
        ({"effect": None}, "effect"),
        ({"effect": "unknown"}, "effect"),
        ({"effect": "Done"}, "effect"),
        ({"effect": True}, "effect"),
        ({"effect": ["done"]}, "effect"),
        ({"effect": "none", "output": {"id": 1}}, "output"),
        ({"effect": "none", "output": None}, "output"),
        ({"effect": "done", "outptu": 1}, "outptu"),
    ],
)
async def test_a_resolution_that_is_wrong(bare: Client, body: Any, path: str) -> None:
    """A resolution says done or none, an output only with done, and nothing else."""
    response = await bare.post("/v1/sagas/x/steps/y/resolve", json={**REASON, **body})

    assert response.status_code == 422
    assert [fault["path"] for fault in response.json()["errors"]] == [path]


async def test_all_faults_of_a_resolution_are_told(bare: Client) -> None:
    """Every fault comes at once."""
    response = await bare.post("/v1/sagas/x/steps/y/resolve", json={"effcet": "done"})

    assert {fault["path"] for fault in response.json()["errors"]} == {"reason", "effect", "effcet"}


async def test_a_doubt_is_a_question_to_a_person(client: Client, driver: Driver) -> None:
    """A saga that cannot be undone without knowing asks whether the step took effect."""
    saga = await get(client, await in_doubt(driver))

    assert saga["status"] == "stuck"
    assert saga["stuck"]["step"] == "flight"
    assert saga["stuck"]["question"] == "did_it_take_effect"
    assert "resolve" in saga["stuck"]["verbs"]
    assert saga["steps"][0]["effect"] == "unknown"


async def test_what_did_not_take_effect_need_not_be_undone(client: Client, driver: Driver) -> None:
    """Resolved as none, the step leaves nothing, and the saga ends."""
    saga = await in_doubt(driver)
    response = await client.post(
        f"/v1/sagas/{saga}/steps/flight/resolve",
        json={**REASON, "effect": "none", "evidence": {"ticket": 4711}},
    )
    events = (await client.get(f"/v1/sagas/{saga}/events")).json()["items"]

    assert response.status_code == 202
    assert response.json()["status"] == "compensated"
    assert events[-1]["type"] == "resolve_requested"
    assert events[-1]["step"] == "flight"
    assert events[-1]["detail"]["resolution"] == {"effect": "none", "evidence": {"ticket": 4711}}
    assert events[-1]["detail"]["actor"] == "local"


async def test_what_took_effect_is_undone_by_the_output_that_was_found(
    client: Client, driver: Driver
) -> None:
    """Resolved as done, with the output that the tool would have told, the step is undone by it."""
    saga = await in_doubt(driver)
    response = await client.post(
        f"/v1/sagas/{saga}/steps/flight/resolve",
        json={**REASON, "effect": "done", "output": {"id": "F7"}},
    )
    undo = (await driver.take_up(saga)).call(StepId("flight"), Direction.COMPENSATION)

    assert response.json()["status"] == "compensating"
    assert response.json()["steps"][0]["output"] == {"id": "F7"}
    assert isinstance(undo and undo.request, HttpRequest)
    assert undo.request.url == "http://tool.test/flight/F7"  # type: ignore[union-attr]  # as above


async def test_a_large_output_of_a_resolution_is_weighed(client: Client, driver: Driver) -> None:
    """The size of a resolution counts, also where the client sends it in pieces."""
    saga = await in_doubt(driver)
    before = (await driver.load(saga)).now.weight_bytes
    body = orjson.dumps({**REASON, "effect": "done", "output": {"id": "F7", "more": "x" * 100_000}})

    async def pieces() -> Any:
        yield body[:50_000]
        yield body[50_000:]

    await client.post(
        f"/v1/sagas/{saga}/steps/flight/resolve",
        content=pieces(),
        headers={"Content-Type": "application/json"},
    )

    assert (await driver.load(saga)).now.weight_bytes > before + 100_000


async def test_a_step_that_has_not_begun_cannot_be_resolved(client: Client, driver: Driver) -> None:
    """There is nothing to say of a step that was never sent."""
    saga = await in_doubt(driver)
    response = await client.post(
        f"/v1/sagas/{saga}/steps/hotel/resolve", json={**REASON, "effect": "none"}
    )

    assert response.status_code == 409
    assert response.json()["code"] == "verb_refused"


async def test_a_renounced_undo_is_residue(client: Client, driver: Driver) -> None:
    """A skipped compensation leaves the effect, which the saga lists with its reason."""
    saga = await driver.bring(SagaStatus.STUCK)
    shown = (await client.post(f"/v1/sagas/{saga}/steps/flight/skip", json=REASON)).json()

    assert shown["status"] == "partially_compensated"
    assert shown["residue"] == [
        {"step": "flight", "effect": "done", "reason": "skipped", "undo_saga": None}
    ]
    assert shown["steps"][0]["effect"] == "done"
    assert shown["steps"][0]["compensation"]["status"] == "skipped"


async def test_only_the_step_in_question_can_be_skipped(client: Client, driver: Driver) -> None:
    """Another step than the one that the saga is stuck at is refused."""
    saga = await driver.bring(SagaStatus.STUCK)
    response = await client.post(f"/v1/sagas/{saga}/steps/hotel/skip", json=REASON)

    assert response.status_code == 409
    assert "skip" in response.json()["possible_verbs"]


async def test_what_was_found_late_is_undone_by_a_saga_of_its_own(
    client: Client, driver: Driver
) -> None:
    """The undo is a saga with one step, linked in both directions, and the alert is over."""
    saga = await found_late(driver, "flight")
    before = await get(client, saga)
    response = await client.post(f"/v1/sagas/{saga}/steps/flight/undo", json=REASON)
    after = response.json()
    event = (await client.get(f"/v1/sagas/{saga}/events")).json()["items"][-1]
    undoing = await get(client, event["detail"]["undo_saga"])

    assert (before["status"], before["attention"], before["verbs"]) == (
        "compensated",
        True,
        ["undo"],
    )
    left = {"step": "flight", "effect": "done", "reason": "late_success"}
    assert before["residue"] == [{**left, "undo_saga": None}]
    assert after["residue"] == [{**left, "undo_saga": undoing["id"]}]
    assert response.status_code == 202
    assert (after["status"], after["attention"]) == ("compensated", False)
    assert (event["type"], event["step"]) == ("undo_requested", "flight")
    assert event["detail"]["reason"] == REASON["reason"]
    assert undoing["labels"] == {"amends.undoes": str(saga), "amends.step": "flight"}
    assert undoing["definition"] == {"name": "undo_late", "version": None}
    assert [step["id"] for step in undoing["steps"]] == ["flight"]


async def test_the_undo_sends_what_the_compensation_would(client: Client, driver: Driver) -> None:
    """What the linked saga sends is the compensation as it is rendered by what is known now."""
    saga = await found_late(driver, "flight")
    key = (await get(client, saga))["steps"][0]["idempotency_key"]
    await client.post(f"/v1/sagas/{saga}/steps/flight/undo", json=REASON)
    (undoing,) = (await client.get("/v1/sagas?definition=undo_late")).json()["items"]
    opened = await driver.take_up(SagaId(undoing["id"]))
    (call,) = opened.calls.values()

    assert isinstance(call.request, HttpRequest)
    assert call.request.url == "http://tool.test/undo"
    assert orjson.loads(call.request.body or "") == {"of": key}


async def test_an_undo_that_is_refused_asks_a_person(client: Client, driver: Driver) -> None:
    """There is nothing to undo of an undo: it is stuck, and not over as if all were well."""
    saga = await found_late(driver, "flight")
    told = (await client.post(f"/v1/sagas/{saga}/steps/flight/undo", json=REASON)).json()
    undoing = SagaId(UUID(told["residue"][0]["undo_saga"]))
    await driver.take_up(undoing)
    await driver.answer(undoing, "flight", 422)
    shown = await get(client, undoing)

    assert (shown["status"], shown["attention"]) == ("stuck", True)
    assert "cancel" not in shown["verbs"]
    assert "retry" in shown["verbs"]


async def test_undoing_again_starts_no_other(client: Client, driver: Driver) -> None:
    """Asked again, or twice at once, an undo is 202, and one saga undoes."""
    saga = await found_late(driver, "flight")
    url = f"/v1/sagas/{saga}/steps/flight/undo"
    both = await asyncio.gather(client.post(url, json=REASON), client.post(url, json=REASON))
    again = await client.post(url, json=REASON)
    undoing = (await client.get(f"/v1/sagas?label.amends.undoes={saga}")).json()["items"]
    events = (await client.get(f"/v1/sagas/{saga}/events")).json()["items"]

    assert {response.status_code for response in (*both, again)} == {202}
    assert len(undoing) == 1
    assert [event["type"] for event in events].count("undo_requested") == 1


async def test_nobody_else_can_take_the_name_of_an_undo(
    client: Client, context: Context, driver: Driver
) -> None:
    """No client can start another saga under the key that an undo starts its own with."""
    saga = await found_late(driver, "flight")
    name = f"undo:{saga}:flight:1"
    for key in (name, f" {name}", f"amends.{name}"):
        request = StartRequest(definition="book_trip", idempotency_key=key)
        await start_saga(context, request)
    response = await client.post(f"/v1/sagas/{saga}/steps/flight/undo", json=REASON)

    assert response.status_code == 202


async def test_an_undo_that_cannot_be_rendered(client: Client, driver: Driver) -> None:
    """An undo that needs what nobody has told is 422, says what it lacks, and starts nothing."""
    steps = [a_callback_step("charge")]
    await publish_definition(driver.context, a_document("pay", steps=steps))
    saga = await driver.start("pay")
    url = f"/v1/callbacks/{await driver.token(saga, 'charge')}"
    await client.post(url, json={"outcome": "failed"})
    await client.post(url, json={"outcome": "succeeded", "output": {}})
    response = await client.post(f"/v1/sagas/{saga}/steps/charge/undo", json=REASON)
    (fault,) = response.json()["errors"]

    assert (await get(client, saga))["verbs"] == ["undo"]
    assert response.status_code == 422
    assert fault["path"] == "step"
    assert "action.output" in fault["message"]
    assert len((await client.get("/v1/sagas")).json()["items"]) == 1


async def test_what_was_not_found_late_cannot_be_undone_so(client: Client, driver: Driver) -> None:
    """A step of which nothing is known to be left is refused."""
    saga = await found_late(driver, "flight")
    other = await driver.bring(SagaStatus.COMPENSATED)
    response = await client.post(f"/v1/sagas/{other}/steps/flight/undo", json=REASON)

    assert response.status_code == 409
    assert response.json()["possible_verbs"] == []
    assert (await get(client, saga))["attention"] is True


async def test_each_of_two_can_be_undone(client: Client, driver: Driver) -> None:
    """Of two effects found after the end each is undone by a saga of its own."""
    saga = await found_late(driver, "flight", "hotel")
    one = await client.post(f"/v1/sagas/{saga}/steps/flight/undo", json=REASON)
    other = await client.post(f"/v1/sagas/{saga}/steps/hotel/undo", json=REASON)

    assert (one.status_code, one.json()["attention"]) == (202, True)
    assert (other.status_code, other.json()["attention"]) == (202, False)

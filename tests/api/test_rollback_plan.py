"""`GET /v1/sagas/{id}/rollback-plan`: what undoing a saga would do now."""

from typing import Any

import httpx2
import pytest

from app.core.saga import SagaStatus
from app.operations import publish_definition
from tests.api.builders import a_document, a_step, an_undo_by_key
from tests.api.driver import TIMED_OUT, Driver

type Client = httpx2.AsyncClient


async def plan_of(client: Client, saga: object) -> Any:
    """The plan of a saga."""
    response = await client.get(f"/v1/sagas/{saga}/rollback-plan")
    assert response.status_code == 200, response.text
    return response.json()


async def start(driver: Driver, *steps: Any) -> Any:
    """Start a saga of these steps."""
    await publish_definition(driver.context, a_document("planned", steps=list(steps)))
    return await driver.start("planned")


def undo(step: str, effect: str = "done", how: str = "compensate") -> dict[str, Any]:
    """A step of a plan that needs no reason."""
    return {"step": step, "effect": effect, "how": how, "reason": None}


async def test_a_saga_that_has_not_begun(client: Client) -> None:
    """There is nothing to undo, which is possible."""
    saga = (await client.post("/v1/sagas", json={"definition": "book_trip"})).json()

    assert await plan_of(client, saga["id"]) == {"possible": True, "refused": None, "undos": []}


async def test_a_running_saga(client: Client, driver: Driver) -> None:
    """What is out comes first, and is settled before it is undone; then what is done, backwards."""
    saga = await driver.start()
    await driver.answer(saga, "flight", body={"id": "F1"})

    assert await plan_of(client, saga) == {
        "possible": True,
        "refused": None,
        "undos": [undo("hotel", "unknown", "settle_first"), undo("flight")],
    }


async def test_a_plan_changes_nothing(client: Client, driver: Driver) -> None:
    """Whoever asks for a plan leaves the saga as it is."""
    saga = await driver.start()
    await plan_of(client, saga)

    assert (await driver.load(saga)).seq == 1


async def test_a_saga_that_is_being_undone(client: Client, driver: Driver) -> None:
    """What is still to be undone is listed; what has no effect any more is not."""
    saga = await driver.bring(SagaStatus.COMPENSATING)

    assert await plan_of(client, saga) == {
        "possible": True,
        "refused": None,
        "undos": [undo("flight")],
    }


async def test_a_stuck_saga(client: Client, driver: Driver) -> None:
    """The step that it is stuck at is blocked, and the plan says why."""
    plan = await plan_of(client, await driver.bring(SagaStatus.STUCK))

    assert plan["possible"] is True
    assert [(each["step"], each["how"]) for each in plan["undos"]] == [("flight", "blocked")]
    assert plan["undos"][0]["reason"] == "its compensation has failed"


@pytest.mark.parametrize(
    "status",
    [
        SagaStatus.COMPLETED,
        SagaStatus.COMPENSATED,
        SagaStatus.PARTIALLY_COMPENSATED,
        SagaStatus.TERMINATED,
    ],
)
async def test_a_saga_that_is_over(client: Client, driver: Driver, status: SagaStatus) -> None:
    """A saga that is over is not undone, whatever it has left."""
    plan = await plan_of(client, await driver.bring(status))

    assert plan["possible"] is False
    assert plan["refused"] == f"the saga is {status}"


async def test_a_renounced_undo_stays(client: Client, driver: Driver) -> None:
    """A step whose undo was skipped is left, with the reason."""
    plan = await plan_of(client, await driver.bring(SagaStatus.PARTIALLY_COMPENSATED))

    assert plan["undos"] == [undo("flight", how="leave") | {"reason": "its undo was renounced"}]


async def test_the_point_of_no_return(client: Client, driver: Driver) -> None:
    """Once the pivot is done nothing can be undone, and the plan says so."""
    saga = await start(
        driver, a_step("flight"), {**a_step("charge"), "pivot": True}, a_step("mail")
    )
    before = await plan_of(client, saga)
    await driver.complete(saga, "flight", "charge")
    after = await plan_of(client, saga)

    assert before["possible"] is True
    assert after["possible"] is False
    assert after["refused"] == "the point of no return was passed"


async def test_what_cannot_be_undone_is_left(client: Client, driver: Driver) -> None:
    """An irreversible step stays, and the plan says why."""
    mail: Any = {**a_step("mail"), "irreversible": True}
    del mail["compensation"]
    saga = await start(driver, mail, a_step("flight"), a_step("hotel"))
    await driver.complete(saga, "mail", "flight")
    plan = await plan_of(client, saga)

    assert [(each["step"], each["how"]) for each in plan["undos"]] == [
        ("hotel", "settle_first"),
        ("flight", "compensate"),
        ("mail", "leave"),
    ]
    assert plan["undos"][-1]["reason"] == "it is irreversible"


async def test_an_effect_that_nobody_can_tell_of(client: Client, driver: Driver) -> None:
    """An unknown effect whose undo needs the output is blocked; one whose undo does not is sent."""
    silent: Any = a_step("flight", idempotent=False)
    blocked = await start(driver, silent)
    sent = await start(driver, an_undo_by_key("flight"))
    for saga in (blocked, sent):
        await driver.observe(saga, "flight", TIMED_OUT)
    (blocked_undo,) = (await plan_of(client, blocked))["undos"]
    (sent_undo,) = (await plan_of(client, sent))["undos"]

    assert (blocked_undo["effect"], blocked_undo["how"]) == ("unknown", "blocked")
    assert "action.output" in blocked_undo["reason"]
    assert sent_undo == undo("flight", "unknown")


async def test_a_graph_is_undone_backwards(client: Client, driver: Driver) -> None:
    """Of parallel branches what was done last comes first, and nothing before what needs it."""
    needs = {"left": [], "right": [], "above": ["left"], "last": ["above", "right"]}
    saga = await start(driver, *(a_step(step) | {"needs": of} for step, of in needs.items()))
    await driver.complete(saga, "left", "above", "right")
    plan = await plan_of(client, saga)

    assert [each["step"] for each in plan["undos"]] == ["last", "right", "above", "left"]


@pytest.mark.parametrize("name", ["nope", "01a231a4-2977-76f0-8378-e1236cc16b53"])
async def test_no_saga_has_no_plan(client: Client, name: str) -> None:
    """The plan of a saga that is not there is 404."""
    response = await client.get(f"/v1/sagas/{name}/rollback-plan")

    assert response.status_code == 404
    assert response.json()["code"] == "saga_not_found"

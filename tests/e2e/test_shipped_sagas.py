"""The definitions in `sagas/`, run by the service against the example world in all its moods."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import SHIPPED, Stage
from tests.e2e.load import Api
from tests.e2e.postgres import Cluster
from tests.e2e.processes import Amends
from tests.e2e.worlds import World, by_key, judged, sent_twice, switch
from tests.examples.client import Client

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e-shipped")]

TRIP = {"city": "Rome", "card": "4242"}
DECLINED = {"city": "Rome", "card": "declined"}
ORDER = {"sku": "lamp", "card": "4242", "address": "Oslo"}
CUSTOMER = {"email": "ann@example.com", "newsletter": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The processes of this module: a front door that runs no engine, and an engine."""

    stage: Stage
    world: World
    front: Amends
    engine: Amends


@pytest.fixture(scope="module")
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    """Yield a replica that tools call back, another one that does the work, and the world."""
    stage = Stage(cluster)
    try:
        world = await stage.set_up()
        front = stage.replica("front", lease=2.0, role="api", sagas_dir=SHIPPED)
        async with aiohttp.ClientSession() as session:
            await stage.start(session, front)
            engine = stage.replica(
                "engine", lease=1.0, role="engine", sagas_dir=SHIPPED, public_url=front.url
            )
            await stage.start(session, engine)
        yield Scene(stage=stage, world=world, front=front, engine=engine)
    finally:
        stage.clean_up()


@pytest.fixture
async def world(scene: Scene, session: aiohttp.ClientSession) -> AsyncIterator[Client]:
    """Yield the world, well-behaved before and after the test."""
    client = scene.world.client(session)
    await switch(client)
    yield client
    await switch(client)
    await client.send("POST", "/world/release", {})


@pytest.fixture
def api(scene: Scene, session: aiohttp.ClientSession) -> Api:
    """A client of the front door."""
    return Api(session, scene.front)


async def ended(api: Api, name: str, value: Mapping[str, Any]) -> Any:
    """Start a saga, and wait for its end."""
    return await api.rested(await api.start(name, value))


async def verdict(world: Client, saga: dict[str, Any], *residue: str) -> str:
    """What is wrong with one saga, by what it says of itself and the world of it."""
    ledger = await world.ledger(saga["id"])
    return judged(ledger, {saga["id"]: saga["status"]}, residue_steps=residue)


def statuses(saga: dict[str, Any]) -> dict[str, str]:
    """The status of each step."""
    return {step["id"]: step["status"] for step in saga["steps"]}


async def tell(api: Api, saga: str, verb: str, **more: Any) -> Any:
    """Tell a saga something; returns it as it then is."""
    answer = await api.call("POST", f"/v1/sagas/{saga}/{verb}", {"reason": "a test", **more})
    assert answer.status == 202, answer.text
    return answer.json


@pytest.mark.parametrize(
    ("name", "value", "residue"),
    [
        ("book_trip", TRIP, ()),
        ("book_trip_by_callback", TRIP, ()),
        ("book_trip_in_parallel", {**TRIP, "car": True, "email": "ann@example.com"}, ()),
        ("book_trip_in_parallel", TRIP, ()),
        ("rent_car", TRIP, ()),
        ("rent_car_in_python", {**TRIP, "days": 3}, ()),
        ("fulfil_order", ORDER, ()),
        ("onboard_customer", CUSTOMER, ()),
    ],
)
async def test_it_completes(
    name: str, value: Mapping[str, Any], residue: tuple[str, ...], api: Api, world: Client
) -> None:
    """When every tool does its part, everything stands, each call was made once."""
    saga = await ended(api, name, value)

    assert "completed" == saga["status"], saga["failure"]
    assert [] == saga["residue"]
    assert "" == await verdict(world, saga, *residue)
    assert [] == sent_twice(await world.ledger(saga["id"]))


@pytest.mark.parametrize(
    "name",
    [
        "book_trip",
        "book_trip_by_callback",
        "book_trip_in_parallel",
        "rent_car",
        "rent_car_in_python",
    ],
)
async def test_a_declined_card_leaves_nothing(name: str, api: Api, world: Client) -> None:
    """What was done before is undone, whether the refusal comes by answer, callback or function."""
    saga = await ended(api, name, DECLINED)

    assert "compensated" == saga["status"], saga["stuck"]
    assert "charge" == saga["failure"]["step"]
    assert "" == await verdict(world, saga)


@pytest.mark.parametrize(
    ("reports", "end"),
    [
        pytest.param([{"say": "truth", "before": True}], "completed", id="before the answer"),
        pytest.param(["truth", "truth"], "completed", id="twice"),
        pytest.param(["in_progress", "in_progress", "truth"], "completed", id="progress first"),
        pytest.param(["succeeded", "failed"], "completed", id="success contradicted"),
        pytest.param(["failed", "succeeded"], "compensated", id="failure contradicted"),
        pytest.param(
            [{"say": "truth", "to": "forged"}, "truth"], "completed", id="a forged one first"
        ),
    ],
)
async def test_callbacks_of_all_kinds(
    reports: list[Any], end: str, api: Api, world: Client
) -> None:
    """However the bank calls back, the saga ends as the first word says."""
    await switch(world, {"match": {"path": "/charges"}, "do": {"callback": reports}})

    saga = await ended(api, "book_trip_by_callback", TRIP)

    assert end == saga["status"], (saga["failure"], saga["stuck"])
    await world.callbacks(len(reports), saga=saga["id"])
    saga = await api.rested(saga["id"])
    if end == "completed":
        assert "" == await verdict(world, saga)


@pytest.mark.parametrize("ending", [{"drop": "after"}, {"fail": 500, "effect": True}])
async def test_a_callback_counts_though_the_answer_was_lost(
    ending: dict[str, Any], api: Api, world: Client
) -> None:
    """The exchange ended uncertain, and the outcome came by webhook all the same."""
    await switch(
        world,
        {"match": {"path": "/charges"}, "times": 1, "do": {**ending, "callback": ["truth"]}},
    )

    saga = await ended(api, "book_trip_by_callback", TRIP)

    assert "completed" == saga["status"]
    assert "" == await verdict(world, saga)


async def test_killed_while_it_waits_for_a_callback(scene: Scene, api: Api, world: Client) -> None:
    """The engine dies after the bank's acknowledgement: the callback is stored without it, once."""
    held = {"callback": [{"say": "truth", "hold": "bank"}]}
    await switch(world, {"match": {"path": "/charges"}, "do": held})
    saga = await api.start("book_trip_by_callback", TRIP)
    await world.held("bank")
    scene.engine.kill()

    await world.release("bank")
    (callback,) = await world.callbacks(1, saga=saga)
    scene.engine.spawn()
    await scene.engine.announced()
    shown = await api.rested(saga)

    assert 200 == callback.status
    assert "completed" == shown["status"]
    assert [] == sent_twice(await world.ledger(saga))


async def test_a_success_after_the_undo_is_undone_by_a_saga_of_its_own(
    api: Api, world: Client
) -> None:
    """The bank's word comes when the trip was undone long ago: a person has it undone as well."""
    held = {"callback": [{"say": "truth", "hold": "bank"}], "acts": "later"}
    await switch(
        world,
        # A bank that charges even what was refunded before.
        {"resource": "charges", "barrier": False},
        {"match": {"path": "/charges", "method": "POST"}, "do": held},
    )
    saga = await api.start("book_trip_by_callback", TRIP)
    await world.held("bank")
    await tell(api, saga, "cancel")
    undone = await api.rested(saga, seconds_max=60)
    if undone["status"] == "stuck":
        # Nobody could tell whether the charge would come: a person says that there is none.
        await tell(api, saga, "steps/charge/resolve", effect="none")
        undone = await api.rested(saga)
    assert "compensated" == undone["status"], undone

    await world.release("bank")
    (callback,) = await world.callbacks(1, saga=saga)
    alerted = await api.saga(saga)

    assert 202 == callback.status
    assert alerted["attention"]
    assert [("charge", "done", "late_success")] == [
        (left["step"], left["effect"], left["reason"]) for left in alerted["residue"]
    ]
    told = await tell(api, saga, "steps/charge/undo")
    assert not told["attention"]
    events = (await api.call("GET", f"/v1/sagas/{saga}/events?limit=1000")).json["items"]
    linked = await api.rested(events[-1]["detail"]["undo_saga"])
    assert "completed" == linked["status"], linked
    assert saga == linked["labels"]["amends.undoes"]


async def test_a_part_that_fails_beside_others_undoes_them(api: Api, world: Client) -> None:
    """The hotel is refused while flight and car are out: they are followed, and then undone."""
    await switch(
        world,
        {"match": {"path": "/hotels"}, "do": {"decline": 409}},
        {"match": {"path": "/flights", "method": "POST"}, "do": {"late": 0.5}},
        {"match": {"path": "/cars", "method": "POST"}, "do": {"drop": "after"}, "times": 1},
    )

    saga = await ended(api, "book_trip_in_parallel", {**TRIP, "car": True})

    assert "compensated" == saga["status"], saga["stuck"]
    assert "hotel" == saga["failure"]["step"]
    assert "" == await verdict(world, saga)


async def test_what_is_optional_does_not_fail_the_saga(api: Api, world: Client) -> None:
    """No picture can be had: the default stands for it, and the account is kept."""
    await switch(world, {"match": {"path": "/avatars"}, "do": {"decline": 422}})

    saga = await ended(api, "onboard_customer", CUSTOMER)

    assert "completed" == saga["status"]
    assert {"id": "none"} == next(s["output"] for s in saga["steps"] if s["id"] == "avatar")
    assert "failed" == statuses(saga)["avatar"]


async def test_a_mail_whose_answer_is_lost_is_asked_for_and_not_sent_again(
    api: Api, world: Client
) -> None:
    """The mail tool keeps no keys: it is asked whether there is a mail with ours."""
    await switch(world, {"match": {"path": "/mails", "method": "POST"}, "do": {"drop": "after"}})

    saga = await ended(api, "onboard_customer", CUSTOMER)

    assert "completed" == saga["status"], saga["failure"]
    mails = [
        effect for effect in (await world.ledger(saga["id"])).effects if effect.kind == "mails"
    ]
    assert 1 == len(mails)


async def test_a_mail_that_cannot_be_sent_undoes_the_account(api: Api, world: Client) -> None:
    """The last step is refused: the account, its avatar and the newsletter are undone."""
    saga = await ended(api, "onboard_customer", {"email": "nobody@example.com"})

    assert "compensated" == saga["status"], saga["stuck"]
    assert "" == await verdict(world, saga)


async def test_a_cancel_waits_for_the_point_of_no_return(api: Api, world: Client) -> None:
    """The charge is out when the order is cancelled: it is done, and so the cancel lapses."""
    await switch(world, {"match": {"path": "/charges"}, "do": {"hold": "after", "name": "bank"}})
    saga = await api.start("fulfil_order", ORDER)
    await world.held("bank")

    pending = await tell(api, saga, "cancel")
    await world.release("bank")
    shown = await api.rested(saga)

    assert ("running", "cancel") == (pending["status"], pending["pending"]["wish"])
    assert "completed" == shown["status"]
    assert shown["pending"]["lapsed"]
    refused = await api.call("POST", f"/v1/sagas/{saga}/cancel", {"reason": "too late"})
    assert 409 == refused.status


async def test_after_the_point_of_no_return_a_failure_asks_a_person(
    api: Api, world: Client
) -> None:
    """The parcel is refused: nothing is undone, and with another word it goes out."""
    await switch(world, {"match": {"path": "/shipments"}, "times": 1, "do": {"decline": 422}})

    saga = await ended(api, "fulfil_order", ORDER)
    assert ("stuck", "shipment") == (saga["status"], saga["stuck"]["step"])
    assert "cancel" not in saga["verbs"]
    await tell(api, saga["id"], "retry")
    shown = await api.rested(saga["id"])

    assert "completed" == shown["status"], shown["stuck"]
    assert "" == await verdict(world, shown)


async def test_functions_survive_a_kill(scene: Scene, api: Api, world: Client) -> None:
    """The engine dies while a function waits for its tool: the call is made again, the car not."""
    await switch(world, {"match": {"path": "/cars"}, "do": {"hold": "after", "name": "cars"}})
    saga = await api.start("rent_car_in_python", TRIP)
    await world.held("cars")
    scene.engine.kill()
    await world.release("cars")
    await switch(world)
    scene.engine.spawn()
    await scene.engine.announced()

    shown = await api.rested(saga)

    assert "completed" == shown["status"], shown["failure"]
    ledger = await world.ledger(saga)
    assert "" == judged(ledger, {saga: "completed"})
    assert [2] == [len(sent) for sent in by_key(ledger).values() if sent[0].step == "car"]


async def test_a_pause_holds_and_a_resume_goes_on(api: Api, world: Client) -> None:
    """While it is paused no new call is made; what is out is followed to its end."""
    await switch(world, {"match": {"path": "/flights"}, "do": {"hold": "after", "name": "air"}})
    saga = await api.start("book_trip", TRIP)
    await world.held("air")

    paused = await tell(api, saga, "pause")
    await world.release("air")
    waited = await api.rested(saga)
    await tell(api, saga, "resume")
    shown = await api.rested(saga, statuses=("completed",))

    assert ("paused", "paused") == (paused["status"], waited["status"])
    assert "completed" == shown["status"]
    assert [] == sent_twice(await world.ledger(saga))


async def test_a_termination_lists_what_is_live(api: Api, world: Client) -> None:
    """It ends as it is: what was booked stays, and is said to."""
    await switch(world, {"match": {"path": "/hotels"}, "do": {"hold": "after", "name": "inn"}})
    saga = await api.start("book_trip", TRIP)
    await world.held("inn")

    await tell(api, saga, "terminate")
    await world.release("inn")
    shown = await api.rested(saga)

    assert "terminated" == shown["status"]
    assert [("flight", "done"), ("hotel", "done")] == [
        (left["step"], left["effect"]) for left in shown["residue"]
    ]
    assert json.dumps(shown)

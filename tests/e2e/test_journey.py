"""What a user sees: one replica, one world, and everything a plain client does with them."""

import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Stage
from tests.e2e.load import TRIP, Answer, Api
from tests.e2e.postgres import Cluster
from tests.e2e.processes import Amends
from tests.e2e.worlds import World, judged, switch
from tests.examples.client import Client
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e-journey")]

NONSENSE = (
    "html",
    "bad_json",
    "bad_utf8",
    "nan",
    "deep",
    "nul",
    "huge",
    "empty",
    "redirect",
    "truncated",
    "gzip_bomb",
)

READABLE = {"html": "a page is a text", "empty": "no body is null"}
"""A success whose body is odd, but can be kept: why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The processes of this module."""

    stage: Stage
    world: World
    replica: Amends


@pytest.fixture(scope="module")
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    """Yield a replica that is ready, and the world it acts on."""
    stage = Stage(cluster)
    try:
        world = await stage.set_up()
        replica = stage.replica("replica", lease=2.0)
        async with aiohttp.ClientSession() as session:
            await stage.start(session, replica)
        yield Scene(stage=stage, world=world, replica=replica)
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
    """A client of the service."""
    return Api(session, scene.replica)


async def start(
    api: Api, body: dict[str, Any], *, wait: int | None = None, key: str | None = None
) -> Answer:
    """POST a saga once."""
    headers = {} if wait is None else {"Prefer": f"wait={wait}"}
    headers |= {} if key is None else {"Idempotency-Key": key}
    return await api.call("POST", "/v1/sagas", body, headers=headers, seconds_max=wait or 15)


async def judge_alone(world: Client, saga: dict[str, Any]) -> str:
    """What is wrong with one saga, by what it says of itself and the world of it."""
    return judged(await world.ledger(saga["id"]), {saga["id"]: saga["status"]})


async def test_health_and_documentation(api: Api) -> None:
    """A service that runs is live and ready, and describes itself."""
    live = await api.call("GET", "/health/live")
    ready = await api.call("GET", "/health/ready")
    described = await api.call("GET", "/openapi.json")

    assert (200, "live") == (live.status, live.json["status"])
    assert (200, "ready") == (ready.status, ready.json["status"])
    assert "/v1/sagas" in described.json["paths"]


async def test_publish_run_and_read(api: Api, world: Client) -> None:
    """A definition is published once, run, waited for in the same request, and read again."""
    document = {
        "amends": 1,
        "name": "one_flight",
        "steps": [
            {
                "id": "flight",
                "action": {
                    "http": {
                        "method": "POST",
                        "url": "${{ vars.world }}/flights",
                        "json": {"city": "${{ input.city }}"},
                    },
                    "idempotent": True,
                },
                "compensation": {
                    "http": {
                        "method": "DELETE",
                        "url": "${{ vars.world }}/flights/${{ action.output.id }}",
                    }
                },
            }
        ],
        "output": {"flight": "${{ steps.flight.output.id }}"},
    }
    first = await api.call("PUT", "/v1/definitions/one_flight", document)
    again = await api.call("PUT", "/v1/definitions/one_flight", document)

    done = await start(api, {"definition": "one_flight", "input": {"city": "Rome"}}, wait=20)
    read = await api.call("GET", f"/v1/sagas/{done.json['id']}")
    events = await api.call("GET", f"/v1/sagas/{done.json['id']}/events")

    assert [201, 200] == [first.status, again.status]
    assert (200, "completed") == (done.status, done.json["status"]), done.text
    assert done.json == read.json
    assert done.json["output"]["flight"] in await world.effects()
    assert f'"{done.json["revision"]}"' == read.headers["ETag"]
    numbers = [event["seq"] for event in events.json["items"]]
    assert list(range(1, done.json["revision"] + 1)) == numbers
    assert "" == await judge_alone(world, done.json)


async def test_a_declined_card_undoes_in_reverse(api: Api, world: Client) -> None:
    """A refusal undoes what was done, the last first, and says why."""
    trip = {"definition": "trip", "input": {"city": "Rome", "card": "declined"}}
    saga = (await start(api, trip, wait=20)).json
    calls = [(request.step, request.call) for request in (await world.ledger(saga["id"])).requests]

    assert "compensated" == saga["status"]
    assert (
        "step_failed",
        "charge",
        "refused",
        402,
    ) == tuple(saga["failure"][name] for name in ("cause", "step", "code", "http_status"))
    assert [
        ("flight", "action"),
        ("hotel", "action"),
        ("charge", "action"),
        ("hotel", "compensation"),
        ("flight", "compensation"),
    ] == calls
    assert ["compensated", "compensated", "failed"] == [step["status"] for step in saga["steps"]]
    assert "" == await judge_alone(world, saga)


@pytest.mark.parametrize("where", ["before", "after"])
async def test_cancel_in_mid_call(api: Api, world: Client, where: str) -> None:
    """A cancel while a call is out follows it to its end, then undoes all, once."""
    await switch(
        world, {"match": {"step": "hotel"}, "times": 1, "do": {"hold": where, "name": where}}
    )
    saga = await api.start("trip", TRIP)
    await world.held(where)

    accepted = await api.call("POST", f"/v1/sagas/{saga}/cancel", {"reason": "changed my mind"})
    again = await api.call("POST", f"/v1/sagas/{saga}/cancel", {"reason": "still"})
    await world.release(where)
    rested = await api.rested(saga)
    refused = await api.call("POST", f"/v1/sagas/{saga}/cancel", {"reason": "late"})

    assert [202, 202, 409] == [accepted.status, again.status, refused.status]
    assert ("compensated", "cancelled") == (rested["status"], rested["failure"]["cause"])
    assert "charge" not in {each.step for each in (await world.ledger(saga)).requests}
    assert "" == await judge_alone(world, rested)


async def test_the_deadline_undoes(api: Api, world: Client) -> None:
    """A saga that is not done by its deadline is undone, though its tool asks it to wait on."""
    busy = {"answer": {"status": 429, "headers": {"Retry-After": "60"}, "body": None}}
    await switch(world, {"match": {"step": "hotel", "call": "action"}, "do": busy})

    answer = await start(api, {"definition": "trip", "input": TRIP, "deadline": "700ms"}, wait=20)

    assert ("compensated", "deadline") == (
        answer.json["status"],
        answer.json["failure"]["cause"],
    )
    assert "" == await judge_alone(world, answer.json)


async def test_stuck_until_a_person_retries(api: Api, world: Client) -> None:
    """An undo that is refused leaves the saga stuck, with its question; a retry lets it go on."""
    refuse = {"match": {"step": "hotel", "call": "compensation"}, "do": {"decline": 422}}
    await switch(world, refuse)
    trip = {"definition": "trip", "input": {"city": "Rome", "card": "declined"}}

    stuck = (await start(api, trip, wait=20)).json
    path = f"/v1/sagas/{stuck['id']}"
    listed = await api.call("GET", "/v1/sagas?attention=true")
    in_vain = await api.call("POST", f"{path}/retry", {"reason": "hoping"})
    still = await api.rested(stuck["id"])
    await switch(world)
    mended = await api.call("POST", f"{path}/retry", {"reason": "the hotel takes cancellations"})
    rested = await api.rested(stuck["id"])

    assert ("stuck", "hotel") == (stuck["status"], stuck["stuck"]["step"])
    assert "retry" in stuck["stuck"]["verbs"]
    assert stuck["id"] in {item["id"] for item in listed.json["items"]}
    assert (202, "stuck", 202) == (in_vain.status, still["status"], mended.status)
    assert ("compensated", None) == (rested["status"], rested["stuck"])
    assert "" == await judge_alone(world, rested)


def nonsensical(kind: str) -> dict[str, Any]:
    """A saga of two charges, of which the second is named after what its tool will answer."""

    def charge(name: str) -> dict[str, Any]:
        limits = {
            "timeout": "2s",
            "late_window": "200ms",
            "retry": {"max_attempts": 3, "initial_delay": "50ms"},
        }
        return {
            "id": name,
            "action": {
                "http": {
                    "method": "POST",
                    "url": "${{ vars.world }}/charges",
                    "json": {"card": "4242", "amount": 7},
                },
                "idempotent": True,
                **limits,
            },
            "compensation": {
                "http": {
                    "method": "POST",
                    "url": "${{ vars.world }}/refunds",
                    "json": {"charge_key": "${{ action.key }}"},
                },
                "idempotent": True,
                **limits,
            },
        }

    return {"amends": 1, "name": f"nonsense_{kind}", "steps": [charge("sane"), charge(kind)]}


async def start_nonsense(api: Api, kind: str) -> str:
    """Publish and start the saga of that kind of nonsense."""
    name = f"nonsense_{kind}"
    published = await api.call("PUT", f"/v1/definitions/{name}", nonsensical(kind))
    assert published.status in {200, 201}, published.text
    return await api.start(name, None)


@pytest.mark.parametrize("effect", [True, False])
async def test_a_tool_that_answers_nonsense(api: Api, world: Client, effect: bool) -> None:  # noqa: FBT001
    """Whatever a tool answers ends in a typed failure or a stored success, never wedged."""
    rules = [
        {"match": {"step": kind, "call": "action"}, "do": {"nonsense": kind, "effect": effect}}
        for kind in NONSENSE
    ]
    await switch(world, *rules)

    sagas = {kind: await start_nonsense(api, kind) for kind in NONSENSE}
    rested = {kind: await api.rested(saga, seconds_max=40) for kind, saga in sagas.items()}

    for kind, saga in rested.items():
        assert (kind, "completed" if kind in READABLE else "compensated") == (kind, saga["status"])
        if kind not in READABLE:
            assert (kind, "unknown_outcome") == (kind, saga["failure"]["code"])
        if effect or kind not in READABLE:
            assert (kind, "") == (kind, await judge_alone(world, saga))


async def test_an_undo_whose_tool_answers_nonsense(api: Api, world: Client) -> None:
    """Nonsense in answer to an undo is asked again, until it can be understood."""
    rules: list[dict[str, Any]] = []
    for kind in NONSENSE:
        match = {"step": kind, "call": "compensation"}
        rules.append({"match": match, "times": 2, "do": {"nonsense": kind}})
        rules.append(
            {"match": {"step": kind, "call": "action"}, "do": {"hold": "after", "name": "n"}}
        )
    await switch(world, *rules)

    sagas = {kind: await start_nonsense(api, kind) for kind in NONSENSE}
    await world.held("n", count=len(NONSENSE))
    for saga in sagas.values():
        await api.call("POST", f"/v1/sagas/{saga}/cancel", {"reason": "to undo it"})
    await world.release("n")
    rested = {kind: await api.rested(saga, seconds_max=40) for kind, saga in sagas.items()}

    for kind, saga in rested.items():
        assert (kind, "compensated") == (kind, saga["status"]), saga
        assert (kind, "") == (kind, await judge_alone(world, saga))
        undo = saga["steps"][1]["compensation"]
        assert (kind, 1 if kind in READABLE else 3) == (kind, undo["attempts"])


async def test_a_nul_character_is_kept(api: Api, world: Client) -> None:
    """A character that Postgres cannot hold in a text is kept and shown as the tool said it."""
    said = {"answer": {"status": 200, "body": {"id": "F\u00001"}}, "effect": True}
    await switch(world, {"match": {"step": "nul", "call": "action"}, "do": said})

    saga = await api.rested(await start_nonsense(api, "nul"))

    assert ("completed", {"id": "F\u00001"}) == (saga["status"], saga["steps"][1]["output"])
    assert "" == await judge_alone(world, saga)


async def test_too_much_is_refused(api: Api) -> None:
    """A body over 1 MiB is answered 413, announced or in chunks, and the service goes on."""
    huge = json.dumps({"definition": "trip", "input": {"city": "x" * 1_100_000, "card": "1"}})
    headers = {"Content-Type": "application/json"}

    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(huge), 65_536):
            yield huge[begin : begin + 65_536].encode()

    announced = await api.call("POST", "/v1/sagas", data=io.BytesIO(huge.encode()), headers=headers)
    in_chunks = await api.call("POST", "/v1/sagas", data=chunks(), headers=headers)
    ready = await api.call("GET", "/health/ready")

    for answer in (announced, in_chunks):
        assert (413, "payload_too_large") == (answer.status, answer.json["code"])
    assert 200 == ready.status


async def test_a_saga_that_is_not_there(api: Api) -> None:
    """An unknown id, and one that is no id, are 404; so is an unknown definition."""
    unknown = "0190a7f0-0000-7000-8000-000000000000"
    answers = [
        await api.call("GET", f"/v1/sagas/{unknown}"),
        await api.call("GET", f"/v1/sagas/{unknown}/events"),
        await api.call("GET", "/v1/sagas/nonsense"),
        await api.call("POST", f"/v1/sagas/{unknown}/cancel", {"reason": "?"}),
        await start(api, {"definition": "no_such_definition", "input": {}}),
    ]

    assert [404] * 5 == [answer.status for answer in answers]
    assert "definition_not_found" == answers[-1].json["code"]


async def test_a_verb_at_the_wrong_time(api: Api) -> None:
    """A verb that the status does not allow is 409, and says which would be possible."""
    saga = (await start(api, {"definition": "trip", "input": TRIP}, wait=20)).json

    answer = await api.call("POST", f"/v1/sagas/{saga['id']}/retry", {"reason": "no reason"})

    assert (409, "verb_refused") == (answer.status, answer.json["code"])
    assert ("completed", []) == (answer.json["saga_status"], answer.json["possible_verbs"])


async def test_the_same_key(api: Api, world: Client) -> None:
    """The same key and body start one saga, the same key with another body none."""
    body = {"definition": "trip", "input": TRIP}

    first = await start(api, body, key="the-same-key")
    again = await start(api, body, key="the-same-key", wait=20)
    other = await start(api, {**body, "input": {**TRIP, "city": "Oslo"}}, key="the-same-key")

    assert [202, 200, 422] == [first.status, again.status, other.status]
    assert first.json["id"] == again.json["id"]
    assert ("true", "completed") == (
        again.headers["Idempotent-Replayed"],
        again.json["status"],
    )
    assert "idempotency_key_reused" == other.json["code"]
    assert "" == await judge_alone(world, again.json)


async def test_the_same_business_key(api: Api, world: Client) -> None:
    """While a saga is live no other has its business key; afterwards another may."""
    await switch(
        world, {"match": {"step": "flight"}, "times": 1, "do": {"hold": "after", "name": "b"}}
    )
    body = {"definition": "trip", "input": TRIP, "business_key": "order-7"}

    live = await start(api, body)
    await world.held("b")
    refused = await start(api, body)
    await world.release("b")
    await api.rested(live.json["id"])
    next_one = await start(api, body, wait=20)

    assert [202, 409, 200] == [live.status, refused.status, next_one.status]
    assert ("business_key_taken", live.json["id"]) == (refused.json["code"], refused.json["saga"])


async def test_a_client_that_follows_the_events(api: Api, world: Client) -> None:
    """The stream of a saga's events shows each once, in order, and ends with the saga."""
    await switch(
        world, {"match": {"step": "hotel"}, "times": 1, "do": {"hold": "after", "name": "e"}}
    )
    saga = await api.start("trip", TRIP)
    await world.held("e")

    async def released() -> bool:
        return await world.release("e") == 1

    await wait_until(released)
    streamed = await api.call(
        "GET", f"/v1/sagas/{saga}/events", headers={"Accept": "text/event-stream"}
    )
    read = await api.saga(saga)

    numbers = [
        int(line.removeprefix("id:")) for line in streamed.text.splitlines() if line[:3] == "id:"
    ]
    assert list(range(1, read["revision"] + 1)) == numbers
    assert "completed" == read["status"]

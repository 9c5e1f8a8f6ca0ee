"""Two replicas on one database: one is killed, frozen or stopped, and the other goes on."""

import asyncio
import random
import time
from collections.abc import Sequence

import aiohttp
import psutil
import pytest

from examples.world import Ledger, Received
from tests.e2e.conftest import Stage
from tests.e2e.load import PATIENT, TRIP, Api, disagreements, make_orders, start_all
from tests.e2e.processes import Amends
from tests.e2e.worlds import (
    SLOW,
    by_key,
    count_requests,
    judged,
    sent_twice,
    switch,
    wait_requests,
)
from tests.examples.client import Client
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TAKEOVER_SECONDS_MAX = 10.0
"""What the service promises at a lease of six seconds; ours is a second and a half."""


async def test_a_killed_replica_is_taken_over(stage: Stage, session: aiohttp.ClientSession) -> None:
    """What a killed replica had in mid-call another finishes within seconds, with the same keys."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=1.5), stage.replica("other", lease=1.5)
    api = await stage.start(session, one, other)
    await switch(
        world, {"match": {"step": "hotel"}, "times": 1, "do": {"hold": "after", "name": "h"}}
    )
    saga = await api.start("trip", TRIP)
    await world.held("h")

    one.kill()
    killed_at = time.monotonic()
    rested = await Api(session, other).rested(saga, seconds_max=TAKEOVER_SECONDS_MAX)
    seconds = time.monotonic() - killed_at
    await world.release("h")
    ledger = await world.ledger(saga)
    hotels = [request for request in ledger.requests if request.step == "hotel"]

    assert ("completed", 2) == (rested["status"], rested["steps"][1]["attempts"])
    assert seconds < TAKEOVER_SECONDS_MAX
    assert (["1", "2"], ["applied", "replayed"]) == (
        [request.attempt for request in hotels],
        [request.outcome for request in hotels],
    )
    assert "" == judged(ledger, {saga: "completed"})


async def test_a_frozen_replica_wakes_as_another(
    stage: Stage, session: aiohttp.ClientSession
) -> None:
    """Whoever was frozen in mid-call beyond its lease sends no more, and works on as a new one."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=1.5), stage.replica("other", lease=1.5)
    api = await stage.start(session, one, other)
    before = set(await stage.heads.living_replicas())
    await switch(
        world, {"match": {"step": "hotel"}, "times": 1, "do": {"hold": "after", "name": "h"}}
    )
    saga = await api.start("trip", {"city": "Rome", "card": "declined"})
    await world.held("h")

    one.freeze()
    frozen_at = time.monotonic()
    rested = await Api(session, other).rested(saga, seconds_max=TAKEOVER_SECONDS_MAX)
    seconds = time.monotonic() - frozen_at
    # The answer that it still waits for lies in its socket when it wakes.
    await world.release("h")
    frozen = await world.ledger()
    one.thaw()
    await stage.heads.registered_anew(before)
    other.kill()
    alone = Api(session, one)
    await alone.ready()
    next_one = await alone.rested(await alone.start("trip", TRIP))
    ledger = await world.ledger()
    late = [
        each for each in ledger.requests if each.saga == saga and each.seq > _last(frozen.requests)
    ]

    assert ("compensated", "completed") == (rested["status"], next_one["status"])
    assert seconds < TAKEOVER_SECONDS_MAX
    assert [] == late
    assert rested["steps"] == (await alone.saga(saga))["steps"]
    assert "" == judged(ledger, {saga: "compensated", next_one["id"]: "completed"})


async def test_a_freeze_under_load(stage: Stage, session: aiohttp.ClientSession) -> None:
    """Wherever a freeze hits, nothing is sent after the thaw that others have finished."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 - for pytest to show
    dice = random.Random(seed)
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=1.0), stage.replica("other", lease=1.0)
    api = await stage.start(session, one, other)
    await switch(world, *SLOW)
    orders = make_orders(24, dice)
    late: list[Received] = []
    frozen = Ledger()
    frozen_in_flight = 0

    ids: dict[str, str] = {}
    for batch in (orders[:12], orders[12:]):
        living = set(await stage.heads.living_replicas())
        begin = await count_requests(world)
        ids |= await start_all(api, batch)
        await wait_requests(world, begin + dice.randint(6, 30))
        one.freeze()
        frozen_in_flight += len(await stage.heads.unfinished()) > 0
        await stage.heads.all_at_rest()
        frozen = await world.ledger()
        one.thaw()
        await stage.heads.registered_anew(living)
        await Api(session, one).ready()
        late += [
            each for each in (await world.ledger()).requests if each.seq > _last(frozen.requests)
        ]
    # The next one shows that it works on, and gives what is late the time to come.
    last = await Api(session, one).rested(await Api(session, one).start("trip", TRIP))
    statuses = dict(await stage.heads.statuses())
    ledger = await world.ledger()

    assert 2 == frozen_in_flight
    assert [] == late
    assert {last["id"]} == {
        each.saga for each in ledger.requests if each.seq > _last(frozen.requests)
    }
    assert [] == disagreements(orders, ids, statuses)
    assert "" == judged(ledger, statuses)


async def test_a_stop_under_load_hands_over(stage: Stage, session: aiohttp.ClientSession) -> None:
    """SIGTERM follows what is out to its end and hands over the rest; nothing is sent twice."""
    dice = random.Random(7)
    world = (await stage.set_up()).client(session)
    # Who had to wait for the end of this lease would wait for ever.
    one, other = stage.replica("one", lease=120), stage.replica("other", lease=120)
    api = await stage.start(session, one, other)
    await switch(world, *SLOW)
    orders = make_orders(24, dice)
    ids = await start_all(api, orders)
    await wait_requests(world, 30)

    one.terminate()
    unfinished = await stage.heads.unfinished()
    seconds = await one.ended()
    statuses = await stage.heads.all_at_rest()
    ledger = await world.ledger()

    assert (0, True) == (one.code, seconds < 30)
    assert len(unfinished) > 3
    assert [] == disagreements(orders, ids, statuses)
    assert "" == judged(ledger, statuses)
    assert [] == sent_twice(ledger)


async def test_a_stop_does_not_wait_for_a_tool_that_hangs(
    stage: Stage, session: aiohttp.ClientSession
) -> None:
    """SIGTERM ends within 30 s though a call hangs; another asks again with the same key."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=120), stage.replica("other", lease=120)
    api = await stage.start(session, one, other)
    published = await api.call("PUT", "/v1/definitions/patient", PATIENT)
    await switch(world, {"match": {}, "times": 1, "do": {"hold": "after", "name": "h"}})
    saga = await api.start("patient", None)
    await world.held("h")

    one.terminate()
    seconds = await one.ended()
    rested = await Api(session, other).rested(saga, seconds_max=TAKEOVER_SECONDS_MAX)
    ledger = await world.ledger()
    requests = next(iter(by_key(ledger).values()))

    assert 201 == published.status
    assert (0, True) == (one.code, seconds < 30)
    assert ("completed", ["applied", "replayed"]) == (
        rested["status"],
        [request.outcome for request in requests],
    )
    assert "" == judged(ledger, {saga: "completed"})


async def test_a_second_signal_ends_at_once(stage: Stage, session: aiohttp.ClientSession) -> None:
    """The second SIGTERM does not wait for a call that is out; its saga is finished by others."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=1.0), stage.replica("other", lease=1.0)
    api = await stage.start(session, one, other)
    published = await api.call("PUT", "/v1/definitions/patient", PATIENT)
    await switch(world, {"match": {}, "times": 1, "do": {"hold": "after", "name": "h"}})
    saga = await api.start("patient", None)
    await world.held("h")

    one.terminate()
    await wait_until(lambda: "stopping" in one.said(), what="the first signal to be taken")
    one.terminate()
    seconds = await one.ended()
    rested = await api.only(1).rested(saga, seconds_max=TAKEOVER_SECONDS_MAX)
    ledger = await world.ledger()

    assert 201 == published.status
    assert seconds < 10
    assert "completed" == rested["status"]
    assert "" == judged(ledger, {saga: "completed"})


async def test_a_stop_lets_waiting_clients_go(stage: Stage, session: aiohttp.ClientSession) -> None:
    """Clients that wait or follow a stream are answered at once when the service stops."""
    world = (await stage.set_up()).client(session)
    replica = stage.replica("replica", lease=1.0)
    api = await stage.start(session, replica)
    busy = {"answer": {"status": 429, "headers": {"Retry-After": "60"}}}
    await switch(world, {"match": {"step": "hotel"}, "do": busy})
    saga = await api.start("trip", TRIP)
    path = f"/v1/sagas/{saga}"

    async with asyncio.TaskGroup() as group:
        waits = group.create_task(
            api.call("GET", path, headers={"Prefer": "wait=60"}, seconds_max=70)
        )
        follows = group.create_task(
            api.call(
                "GET", f"{path}/events", headers={"Accept": "text/event-stream"}, seconds_max=70
            )
        )
        await wait_until(lambda: connections_to(replica) >= 2, what="two clients to wait")
        seconds = await replica.stop()

    assert (0, True) == (replica.code, seconds < 10)
    assert (200, "running") == (waits.result().status, waits.result().json["status"])
    assert 200 == follows.result().status
    assert "id: 1" in follows.result().text.replace("id:1", "id: 1")


def connections_to(replica: Amends) -> int:
    """How many clients are connected."""
    port = int(replica.url.rpartition(":")[2])
    return sum(
        each.status == psutil.CONN_ESTABLISHED and each.laddr.port == port
        for each in psutil.Process(replica.pid).net_connections("tcp")
    )


async def test_a_saga_that_kills_its_replicas(stage: Stage, session: aiohttp.ClientSession) -> None:
    """Whoever runs it dies: the third time it runs alone, the fourth it is stuck."""
    world = (await stage.set_up()).client(session)
    replica = stage.replica("replica", lease=0.5)
    api = await stage.start(session, replica)
    hold = {"match": {"step": "hotel"}, "do": {"hold": "before", "name": "h"}}
    await switch(world, hold)
    killer = await api.start("trip", TRIP)
    deaths = 0

    while deaths < 4:
        await world.held("h")
        replica.kill()
        deaths += 1
        await world.release("h")
        await replica.start()
        # What has not killed anybody is served all the time.
        await api.rested(await api.start("rental", TRIP))
    stuck = await api.rested(killer)
    await switch(world)
    retried = await api.call("POST", f"/v1/sagas/{killer}/retry", {"reason": "mended"})
    rested = await api.rested(killer)
    statuses = dict(await stage.heads.statuses())

    assert ("stuck", "how_to_go_on") == (stuck["status"], stuck["stuck"]["question"])
    assert "retry" in stuck["stuck"]["verbs"]
    assert (202, "completed") == (retried.status, rested["status"])
    assert {"completed"} == set(statuses.values())
    assert "" == judged(await world.ledger(), statuses)


async def test_api_and_engine_apart(stage: Stage, session: aiohttp.ClientSession) -> None:
    """A saga posted to an API replica is run by an engine, and can be cancelled through the API."""
    world = (await stage.set_up()).client(session)
    front, engine = stage.replica("front", role="api"), stage.replica("engine", role="engine")
    # The front alone first: what is posted waits for an engine.
    api = await stage.start(session, front)
    waiting = await api.start("trip", TRIP, key="waits-for-an-engine")
    pending = await api.saga(waiting)
    none_yet = await count_of_all(world)
    await switch(
        world, {"match": {"step": "charge"}, "times": 1, "do": {"hold": "after", "name": "h"}}
    )
    await stage.start(session, engine)
    await world.held("h")
    no_sagas_here = await Api(session, engine).call("GET", f"/v1/sagas/{waiting}")

    cancelled = await api.call("POST", f"/v1/sagas/{waiting}/cancel", {"reason": "too late?"})
    await world.release("h")
    undone = await api.rested(waiting)
    done = await api.call(
        "POST",
        "/v1/sagas",
        {"definition": "rental", "input": TRIP},
        headers={"Prefer": "wait=20"},
        seconds_max=25,
    )
    statuses = {waiting: undone["status"], done.json["id"]: done.json["status"]}

    assert ("pending", 0) == (pending["status"], none_yet)
    assert (404, 202) == (no_sagas_here.status, cancelled.status)
    assert {waiting: "compensated", done.json["id"]: "completed"} == statuses
    assert "" == judged(await world.ledger(), statuses)


async def test_a_verb_through_another_replica_is_seen(
    stage: Stage, session: aiohttp.ClientSession
) -> None:
    """A cancel through a replica that does not own the saga reaches the owner in mid-call."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=2.0), stage.replica("other", lease=2.0)
    api = await stage.start(session, one, other)
    busy = {"answer": {"status": 503, "headers": {"Retry-After": "0"}}}
    await switch(
        world,
        {"match": {"step": "hotel"}, "times": 1, "do": {"hold": "before", "name": "h"}},
        {"match": {"step": "hotel", "call": "compensation"}, "times": 3, "do": busy},
    )
    saga = await api.start("trip", TRIP)
    await world.held("h")

    cancelled = await Api(session, other).call(
        "POST", f"/v1/sagas/{saga}/cancel", {"reason": "seen from afar"}
    )
    await world.release("h")
    rested = await Api(session, other).rested(saga)
    ledger = await world.ledger(saga)

    assert (202, "compensated") == (cancelled.status, rested["status"])
    assert {"flight", "hotel"} == {request.step for request in ledger.requests}
    assert "" == judged(ledger, {saga: "compensated"})


async def count_of_all(world: Client) -> int:
    """How many requests the world has received in all."""
    return len((await world.ledger()).requests)


def _last(requests: Sequence[Received]) -> int:
    """The number of the last thing that happened."""
    return max((max(each.seq, each.outcome_seq or 0) for each in requests), default=0)

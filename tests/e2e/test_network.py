"""The network to Postgres: cut before or after a commit, or silent."""

import asyncio
import random
import time

import aiohttp
import pytest

from tests.e2e.conftest import Stage
from tests.e2e.load import TRIP, disagreements, make_orders, start_all
from tests.e2e.postgres import START, Lock
from tests.e2e.proxy import Proxy
from tests.e2e.worlds import SLOW, by_key, count_requests, judged, switch, wait_requests
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SILENCE_SECONDS_MAX = 60.0
"""Twice the limit of a statement. The kernel alone would wait for a quarter of an hour."""

CUTS = 14


async def test_commits_whose_answer_is_lost(stage: Stage, session: aiohttp.ClientSession) -> None:
    """Connections that break right before or right after a commit lose and double nothing."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 - for pytest to show
    dice = random.Random(seed)
    world = (await stage.set_up()).client(session)
    async with Proxy(stage.database_url).serving() as proxy:
        replica = stage.replica("replica", lease=2.0, database_url=proxy.database_url)
        api = await stage.start(session, replica)
        await switch(world, *SLOW)
        orders = make_orders(3 * CUTS, dice)
        ids: dict[str, str] = {}

        for number in range(CUTS):
            begin = await count_requests(world)
            ids |= await start_all(api, orders[3 * number : 3 * (number + 1)])
            await wait_requests(world, begin + dice.randint(1, 6))
            proxy.cut_some(dice)
        statuses = await stage.heads.all_at_rest()
        ledger = await world.ledger()
        replica.kill()

    assert proxy.cuts > CUTS
    assert [] == disagreements(orders, ids, statuses)
    assert "" == judged(ledger, statuses)
    # One replica, alive all the time: whatever it sent, it knows the answer of.
    assert {1} == {len(requests) for requests in by_key(ledger).values()}


async def test_connections_that_fall_silent(stage: Stage, session: aiohttp.ClientSession) -> None:
    """Connections on which nothing comes any more, not even an error, are given up in time."""
    world = (await stage.set_up()).client(session)
    async with Proxy(stage.database_url).serving() as proxy:
        replica = stage.replica("replica", lease=2.0, database_url=proxy.database_url)
        api = await stage.start(session, replica)
        await switch(
            world, {"match": {"step": "hotel"}, "times": 1, "do": {"hold": "after", "name": "h"}}
        )
        saga = await api.start("trip", TRIP)
        await world.held("h")

        swallowed = proxy.swallow()
        silent_at = time.monotonic()
        await world.release("h")
        # A reader is not left hanging, either.
        read = await api.call("GET", f"/v1/sagas/{saga}", seconds_max=SILENCE_SECONDS_MAX)
        answered_seconds = time.monotonic() - silent_at

        async def done() -> bool:
            return (await stage.heads.statuses())[saga] == "completed"

        await wait_until(done, seconds_max=SILENCE_SECONDS_MAX, what="the saga to complete")
        fresh = await api.rested(await api.start("rental", TRIP))
        ledger = await world.ledger(saga)
        replica.kill()

    assert swallowed > 2
    assert read.status in {200, 503}
    assert answered_seconds < 30
    assert "completed" == fresh["status"]
    assert "" == judged(ledger, {saga: "completed"})


async def test_a_start_that_is_stored_unheard(stage: Stage, session: aiohttp.ClientSession) -> None:
    """A start that is put off with 503, and was stored all the same, is run without being asked."""
    world = (await stage.set_up()).client(session)
    async with Proxy(stage.database_url).serving() as proxy:
        replica = stage.replica("replica", lease=60.0, database_url=proxy.database_url)
        api = await stage.start(session, replica)
        # A statement that was sent once is sent in one piece the next time.
        earlier = await api.rested(await api.start("trip", TRIP))
        body = {"definition": "trip", "version": 1, "input": TRIP}

        async with Lock(stage.database_url, None) as lock, asyncio.TaskGroup() as group:
            unheard = group.create_task(api.call("POST", "/v1/sagas", body, seconds_max=30))
            await stage.heads.wait_for_a_lock(START)
            deafened = proxy.deafen()
            await lock.lift()
        answer = unheard.result()

        async def done() -> bool:
            statuses = await stage.heads.statuses()
            return len(statuses) == 2 and set(statuses.values()) == {"completed"}

        try:
            await wait_until(done, seconds_max=SILENCE_SECONDS_MAX, what="both to complete")
        except AssertionError as error:
            error.add_note(await stage.heads.describe(list(await stage.heads.statuses())))
            raise
        ledger = await world.ledger()
        statuses = dict(await stage.heads.statuses())
        replica.kill()

    assert deafened > 2
    assert (503, "unknown") == (answer.status, answer.json["effect"])
    assert earlier["id"] in statuses
    assert "" == judged(ledger, statuses)
    assert {1} == {len(requests) for requests in by_key(ledger).values()}


async def test_a_retry_that_is_stored_unheard(stage: Stage, session: aiohttp.ClientSession) -> None:
    """A retry that is put off with 503, and was stored all the same, is carried out."""
    world = (await stage.set_up()).client(session)
    async with Proxy(stage.database_url).serving() as proxy:
        replica = stage.replica("replica", lease=60.0, database_url=proxy.database_url)
        api = await stage.start(session, replica)
        refuse = {"match": {"step": "hotel", "call": "compensation"}, "do": {"decline": 422}}
        await switch(world, refuse)
        saga = await api.start("trip", {"city": "Rome", "card": "declined"})
        stuck = await api.rested(saga)
        await switch(world)

        async with Lock(stage.database_url, saga) as lock, asyncio.TaskGroup() as group:
            path = f"/v1/sagas/{saga}/retry"
            unheard = group.create_task(
                api.call("POST", path, {"reason": "mended"}, seconds_max=30)
            )
            await stage.heads.wait_for_a_lock()
            proxy.deafen()
            await lock.lift()
        answer = unheard.result()

        async def done() -> bool:
            return (await stage.heads.statuses())[saga] == "compensated"

        await wait_until(done, seconds_max=SILENCE_SECONDS_MAX, what="the saga to be undone")
        ledger = await world.ledger()
        replica.kill()

    assert "stuck" == stuck["status"]
    assert (503, "unknown") == (answer.status, answer.json["effect"])
    assert "" == judged(ledger, {saga: "compensated"})


async def test_postgres_that_does_not_move(stage: Stage, session: aiohttp.ClientSession) -> None:
    """While Postgres stands still the API says so in time; afterwards all goes on, once."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=1.0), stage.replica("other", lease=1.0)
    api = await stage.start(session, one, other)
    await switch(
        world, {"match": {"step": "hotel"}, "times": 4, "do": {"hold": "after", "name": "h"}}
    )
    sagas = [await api.start("trip", TRIP) for _ in range(4)]
    await world.held("h", count=4)

    with stage.cluster.frozen():
        await world.release("h")
        said = {
            path: await api.call("GET", path, seconds_max=30)
            for path in ("/health/live", "/health/ready", f"/v1/sagas/{sagas[0]}", "/v1/sagas")
        }
        start = await api.call(
            "POST",
            "/v1/sagas",
            {"definition": "trip", "input": TRIP},
            headers={"Idempotency-Key": "while-it-stands-still"},
            seconds_max=30,
        )
    last = await api.start("trip", TRIP, key="while-it-stands-still")
    rested = [await api.rested(saga) for saga in [*sagas, last]]
    ledger = await world.ledger()

    assert [200, 503, 503, 503] == [answer.status for answer in said.values()]
    assert (503, "unknown") == (start.status, start.json["effect"])
    assert ["completed"] * 5 == [saga["status"] for saga in rested]
    assert "" == judged(ledger, {saga["id"]: "completed" for saga in rested})

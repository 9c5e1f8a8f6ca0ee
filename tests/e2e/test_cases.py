"""Cases that only real processes show: killed right before a commit, and with Postgres gone too.

``tests/cases.toml`` lists all cases, and where those are that are not here.
"""

import asyncio
from collections.abc import Iterator

import aiohttp
import pytest

from tests.e2e.conftest import Stage
from tests.e2e.load import TRIP
from tests.e2e.postgres import Cluster, Heads, Lock
from tests.e2e.processes import Amends
from tests.e2e.worlds import judged, switch
from tests.examples.client import Client
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("e2e-cases"),
]

SAGAS = 60


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """Yield a Postgres that these tests may break."""
    made = Cluster()
    try:
        asyncio.run(made.start())
        yield made
    finally:
        made.kill()
        asyncio.run(made.stop())


@pytest.fixture
def stage(own_cluster: Cluster) -> Iterator[Stage]:
    """Yield an empty stage on the Postgres of this module."""
    made = Stage(own_cluster)
    try:
        yield made
    finally:
        made.clean_up()


async def owned_by_the_living(heads: Heads) -> bool:
    """Whether a replica that was not revoked owns a saga."""
    rows = await heads.fetch(
        "SELECT count(*) FROM sagas JOIN replicas r ON r.id = owner WHERE revoked_at IS NULL"
        " AND EXISTS (SELECT FROM replicas WHERE revoked_at IS NOT NULL)"
    )
    return bool(rows[0]["count"])


async def test_durable_engines_b01_postgres_restarts_during_a_takeover(
    stage: Stage, session: aiohttp.ClientSession
) -> None:
    """A dead replica's sagas are all finished by another, though Postgres falls as it begins."""
    world = (await stage.set_up()).client(session)
    dead, heir = stage.replica("dead", lease=1.0), stage.replica("heir", lease=1.0)
    api = await stage.start(session, dead)
    await switch(
        world,
        {"match": {"step": "hotel"}, "times": SAGAS, "do": {"hold": "after", "name": "h"}},
        {"match": {"step": "charge"}, "times": SAGAS, "do": {"hold": "after", "name": "c"}},
    )
    async with asyncio.TaskGroup() as group:
        for number in range(SAGAS):
            group.create_task(api.start("trip", TRIP, key=f"order-{number}"))
    await world.held("h", count=SAGAS)

    dead.kill()
    heir.spawn()
    await wait_until(
        lambda: owned_by_the_living(stage.heads),
        seconds_max=60,
        every_seconds=0.005,
        what="the takeover to begin",
    )
    stage.cluster.crash()
    await wait_until(lambda: stage.cluster.pid is None, what="the server to be gone")
    await stage.cluster.start()
    # Until now no charge was answered, so that none of them was done when Postgres fell.
    await world.release("c")
    statuses = await stage.heads.all_at_rest(seconds_max=90)
    await world.release("h")

    assert ["completed"] * SAGAS == list(statuses.values())
    assert "" == judged(await world.ledger(), statuses)


async def kill_before_its_commit(stage: Stage, world: Client, replica: Amends, saga: str) -> None:
    """Release the call that is held as `h`, and kill the replica that cannot store its answer."""
    async with Lock(stage.database_url, saga) as lock:
        await world.release("h")
        await stage.heads.wait_for_a_lock()
        replica.kill()
        await wait_until(
            lambda: _nobody_waits(stage.heads), what="Postgres to give up the statement"
        )
        await lock.lift()


async def _nobody_waits(heads: Heads) -> bool:
    rows = await heads.fetch(
        "SELECT FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return not rows


@pytest.mark.parametrize("definition", ["trip", "careful"])
async def test_durable_engines_b06_killed_between_the_answer_and_its_commit(
    stage: Stage, session: aiohttp.ClientSession, definition: str
) -> None:
    """A deed whose answer was never stored is done once: asked again by its key, or never."""
    step = "hotel" if definition == "trip" else "fee"
    world = (await stage.set_up()).client(session)
    replica = stage.replica("replica", lease=1.0)
    api = await stage.start(session, replica)
    await switch(world, {"match": {"step": step}, "times": 1, "do": {"hold": "after", "name": "h"}})
    saga = await api.start(definition, TRIP)
    await world.held("h")

    await kill_before_its_commit(stage, world, replica, saga)
    lost = await stage.heads.fetch("SELECT seq FROM sagas")
    await replica.start()
    rested = await api.rested(saga)
    ledger = await world.ledger(saga)
    sent = [each for each in ledger.requests if (each.step, each.call) == (step, "action")]

    assert 2 == lost[0]["seq"]
    assert 1 == len({(each.key, each.body_sha256) for each in sent})
    if definition == "trip":
        assert ["applied", "replayed"] == [each.outcome for each in sent]
    else:
        assert ["applied"] == [each.outcome for each in sent]
    assert ("completed" if definition == "trip" else "compensated") == rested["status"]
    assert "" == judged(ledger, {saga: rested["status"]})


async def test_saga_coordinators_b6_killed_after_the_first_undo(
    stage: Stage, session: aiohttp.ClientSession
) -> None:
    """Whoever goes on with a saga that was going back goes back, though it could go forward now."""
    world = (await stage.set_up()).client(session)
    replica = stage.replica("replica", lease=1.0)
    api = await stage.start(session, replica)
    hold = {"hold": "after", "name": "h"}
    await switch(
        world,
        {"match": {"step": "charge"}, "times": 1, "do": {"answer": {"status": 402}}},
        {"match": {"step": "hotel", "call": "compensation"}, "times": 1, "do": hold},
    )
    saga = await api.start("trip", TRIP)
    await world.held("h")

    await kill_before_its_commit(stage, world, replica, saga)
    await switch(world)
    await replica.start()
    rested = await api.rested(saga)
    ledger = await world.ledger(saga)
    sent = [(each.step, each.call) for each in ledger.requests]

    assert ("compensated", 402) == (rested["status"], rested["failure"]["http_status"])
    assert 1 == sent.count(("charge", "action"))
    assert [
        ("hotel", "compensation"),
        ("hotel", "compensation"),
        ("flight", "compensation"),
    ] == sent[-3:]
    assert "" == judged(ledger, {saga: "compensated"})

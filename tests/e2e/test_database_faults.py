"""Postgres crashes, drops connections, holds a lock or a bad row; the sagas come to their end."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest

from tests.e2e.conftest import Stage
from tests.e2e.load import (
    PATIENT,
    TRIP,
    UNANSWERED,
    Answer,
    Api,
    Order,
    disagreements,
    make_orders,
    start_all,
)
from tests.e2e.postgres import Cluster, Heads, Lock, Sampler
from tests.e2e.worlds import (
    SLOW,
    by_key,
    count_requests,
    judged,
    lost_and_resent,
    switch,
    wait_requests,
)
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("e2e-database"),
]

CRASHES = 3
TERMINATIONS = 10

LOCK_SECONDS_MAX = 20.0
"""After a lock is gone, a saga may wait a moment for its next try, not a minute."""


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


async def ask(
    api: Api, method: str, path: str, body: object = None, **options: Any
) -> Answer | None:
    """One request; None if it was not answered at all."""
    with suppress(*UNANSWERED):
        return await api.call(method, path, body, **options)
    return None


async def test_crashes_under_load(stage: Stage, session: aiohttp.ClientSession) -> None:
    """While Postgres is down the API says 503 and when to ask again; afterwards all sagas end."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 - for pytest to show
    dice = random.Random(seed)
    world = (await stage.set_up()).client(session)
    api = await stage.start(session, stage.replica("replica", lease=2.0))
    await switch(world, *SLOW)
    orders = make_orders(8 * (CRASHES + 1), dice)
    ids = await start_all(api, orders[:8])
    down: list[dict[str, Answer]] = []
    in_flight = 0

    for crash in range(1, CRASHES + 1):
        await wait_requests(world, await count_requests(world) + dice.randint(3, 12))
        in_flight += len(await stage.heads.unfinished()) > 0
        stage.cluster.crash()
        await wait_until(lambda: stage.cluster.pid is None, what="the server to be gone")
        batch = orders[8 * crash : 8 * (crash + 1)]
        down.append(await what_it_says(api, order=batch[0]))
        async with asyncio.TaskGroup() as group:
            # Clients that insist are put off, and served as soon as Postgres is back.
            starting = group.create_task(start_all(api, batch))
            await stage.cluster.start()
        ids |= starting.result()
        await api.ready()
    statuses = await stage.heads.all_at_rest(seconds_max=60)
    ledger = await world.ledger()

    for said in down:
        assert [503] * 4 == [answer.status for answer in said.values()], said
        for name in ("start", "read", "cancel"):
            assert int(said[name].headers["Retry-After"]) >= 1
        assert said["ready"].json["reasons"]
    assert CRASHES == in_flight
    assert len(orders) == len(statuses)
    assert [] == disagreements(orders, ids, statuses)
    assert "" == judged(ledger, statuses)


async def what_it_says(api: Api, *, order: Order) -> dict[str, Answer]:
    """What the service answers, to different questions, while its database is away."""
    unknown = f"/v1/sagas/{uuid4()}"
    body = {"definition": order.definition, "input": dict(order.input)}

    async def put_off(method: str, path: str, body: object = None, **options: Any) -> Answer:
        async def answered() -> Answer | None:
            answer = await ask(api, method, path, body, **options)
            return answer if answer is not None and answer.status == 503 else None

        answer = await wait_until(answered, seconds_max=15, what=f"503 to {method} {path}")
        assert answer is not None
        return answer

    live = await api.call("GET", "/health/live")
    assert 200 == live.status
    return {
        "ready": await put_off("GET", "/health/ready"),
        # Whether that was stored is not known: it is sent again with the same key.
        "start": await put_off("POST", "/v1/sagas", body, headers={"Idempotency-Key": order.key}),
        "read": await put_off("GET", unknown),
        "cancel": await put_off("POST", f"{unknown}/cancel", {"reason": "in vain"}),
    }


async def test_connections_cut_under_load(stage: Stage, session: aiohttp.ClientSession) -> None:
    """Backends that are terminated at random delay sagas, and neither lose nor double anything."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 - for pytest to show
    dice = random.Random(seed)
    world = (await stage.set_up()).client(session)
    api = await stage.start(session, stage.replica("replica", lease=2.0))
    await switch(world, *SLOW)
    orders = make_orders(4 * TERMINATIONS, dice)
    ids: dict[str, str] = {}
    sampler = Sampler(stage.database_url)

    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sampler.run())
        cut = in_flight = 0
        for number in range(TERMINATIONS):
            begin = await count_requests(world)
            batch = orders[4 * number : 4 * (number + 1)]
            starting = group.create_task(start_all(api, batch))
            await wait_requests(world, begin + dice.randint(1, 8))
            cut += await cut_connections(stage.heads, dice)
            in_flight += len(await stage.heads.unfinished()) > 0
            ids |= await starting
        statuses = await stage.heads.all_at_rest()
        sampler.stop()
        await sampling

    assert cut >= TERMINATIONS
    assert TERMINATIONS == in_flight
    assert [] == disagreements(orders, ids, statuses)
    assert "" == judged(await world.ledger(), statuses)
    assert [] == sampler.found


async def cut_connections(heads: Heads, dice: random.Random) -> int:
    """Terminate some connections of this database, or all; returns how many."""
    rows = await heads.fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY pid"
    )
    pids = [row["pid"] for row in rows]
    chosen = dice.sample(pids, max(1, dice.choice([len(pids), len(pids) // 2, len(pids) // 3])))
    for pid in chosen:
        await heads.fetch("SELECT pg_terminate_backend($1)", pid)
    return len(chosen)


@pytest.mark.parametrize("definition", ["trip", "careful"])
async def test_a_lock_holds_one_saga(
    stage: Stage, session: aiohttp.ClientSession, definition: str
) -> None:
    """A foreign lock on a head row holds that saga alone, which then goes on with what it knew."""
    world = (await stage.set_up()).client(session)
    api = await stage.start(session, stage.replica("replica", lease=2.0))
    # The last call of each: its answer comes while the head is locked.
    last = {"trip": "charge", "careful": "fee"}[definition]
    await switch(world, {"match": {"step": last}, "times": 1, "do": {"hold": "after", "name": "h"}})
    locked = await api.start(definition, TRIP)
    await world.held("h")

    async with Lock(stage.database_url, locked):
        await world.release("h")
        await stage.heads.wait_for_a_lock()
        others = [await api.start("trip", TRIP) for _ in range(6)]
        for saga in others:
            await api.rested(saga, seconds_max=15)
        during = dict(await stage.heads.statuses())
        others.append(await api.start("rental", TRIP))
        await api.rested(others[-1], seconds_max=15)
    rested = await api.rested(locked, seconds_max=LOCK_SECONDS_MAX)
    ledger = await world.ledger()
    statuses = dict(await stage.heads.statuses())

    assert ("running", "completed") == (during[locked], rested["status"])
    assert {"completed"} == {statuses[saga] for saga in others}
    assert "" == judged(ledger, statuses)
    if definition == "careful":
        fees = [requests for requests in by_key(ledger).values() if requests[0].step == "fee"]
        assert [1] == [len(requests) for requests in fees]


async def test_a_bad_row_holds_no_other(stage: Stage, session: aiohttp.ClientSession) -> None:
    """A journal that cannot be read holds up its own saga, not those that are claimed with it."""
    world = (await stage.set_up()).client(session)
    replica = stage.replica("replica", lease=1.0)
    api = await stage.start(session, replica)
    await switch(
        world, {"match": {"step": "hotel"}, "times": 5, "do": {"hold": "after", "name": "h"}}
    )
    sagas = [await api.start("trip", TRIP) for _ in range(5)]
    await world.held("h", count=5)
    replica.kill()
    poisoned, sound = sagas[2], [*sagas[:2], *sagas[3:]]
    await stage.heads.fetch(
        'UPDATE saga_journal SET data = \'{"no": "entry"}\' WHERE saga_id = $1 AND seq = 2',
        UUID(poisoned),
    )
    await world.release("h")

    await replica.start()
    await api.ready()
    rested = [await api.rested(saga, seconds_max=20) for saga in sound]
    # And a saga that was never among them.
    fresh = await api.rested(await api.start("rental", TRIP))
    read = await api.call("GET", f"/v1/sagas/{poisoned}")
    listed = await api.call("GET", "/v1/sagas")
    stats = dict(await stage.heads.statuses())

    assert ["completed"] * 4 == [saga["status"] for saga in rested]
    assert "completed" == fresh["status"]
    assert 500 == read.status
    assert 6 == len(listed.json["items"])
    del stats[poisoned]
    assert "" == judged(await world.ledger(), stats)


async def test_a_bad_row_that_is_due_holds_no_other(
    stage: Stage, session: aiohttp.ClientSession
) -> None:
    """A parked saga whose journal cannot be read holds up no other that is due at the same time."""
    world = (await stage.set_up()).client(session)
    api = await stage.start(session, stage.replica("replica", lease=2.0))
    busy = {"answer": {"status": 429, "headers": {"Retry-After": "3"}}}
    await switch(world, {"match": {"step": "hotel"}, "times": 5, "do": busy})
    sagas = [await api.start("trip", TRIP) for _ in range(5)]
    await wait_parked(stage.heads, 5)
    await stage.heads.fetch(
        'UPDATE saga_journal SET data = \'{"no": "entry"}\' WHERE saga_id = $1 AND seq = 2',
        UUID(sagas[0]),
    )

    rested = [await api.rested(saga, seconds_max=20) for saga in sagas[1:]]
    fresh = await api.rested(await api.start("rental", TRIP))

    assert ["completed"] * 5 == [saga["status"] for saga in [*rested, fresh]]


async def wait_parked(heads: Heads, count: int) -> None:
    """Return once so many sagas are parked: no owner, and due later."""

    async def parked() -> bool:
        rows = await heads.fetch(
            "SELECT count(*) FROM sagas WHERE owner IS NULL AND due_at > now()"
        )
        return bool(rows[0]["count"] == count)

    await wait_until(parked, what=f"{count} sagas to be parked")


async def test_two_replicas_and_a_crash(stage: Stage, session: aiohttp.ClientSession) -> None:
    """After an outage longer than a lease nobody is taken for dead, and nothing is sent twice."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=1.0), stage.replica("other", lease=1.0)
    api = await stage.start(session, one, other)
    living = set(await stage.heads.living_replicas())
    published = await api.call("PUT", "/v1/definitions/patient", PATIENT)
    await switch(world, {"match": {}, "times": 4, "do": {"hold": "after", "name": "h"}})
    sagas = [await api.start("patient", None) for _ in range(4)]
    await world.held("h", count=4)

    stage.cluster.crash()
    for replica in (one, other):
        await not_ready(Api(session, replica), reason="lease")
    await stage.cluster.start()
    for replica in (one, other):
        await Api(session, replica).ready()
    await world.release("h")
    rested = [await api.rested(saga) for saga in sagas]
    ledger = await world.ledger()

    assert 201 == published.status
    assert ["completed"] * 4 == [saga["status"] for saga in rested]
    assert living == set(await stage.heads.living_replicas())
    assert {1} == {len(requests) for requests in by_key(ledger).values()}
    assert "" == judged(ledger, dict.fromkeys(sagas, "completed"))


async def test_a_stop_while_postgres_is_down(stage: Stage, session: aiohttp.ClientSession) -> None:
    """SIGTERM ends within 30 s though nothing can be stored; what was seen is asked again later."""
    world = (await stage.set_up()).client(session)
    replica = stage.replica("replica", lease=1.0)
    api = await stage.start(session, replica)
    await switch(
        world, {"match": {"step": "hotel"}, "times": 3, "do": {"hold": "after", "name": "h"}}
    )
    sagas = [await api.start("trip", TRIP) for _ in range(3)]
    await world.held("h", count=3)

    stage.cluster.crash()
    await not_ready(api, reason="database")
    await world.release("h")
    seconds = await replica.stop()
    code = replica.code
    await stage.cluster.start()
    await replica.start()
    rested = [await api.rested(saga) for saga in sagas]
    ledger = await world.ledger()

    assert (0, True) == (code, seconds < 30)
    assert ["completed"] * 3 == [saga["status"] for saga in rested]
    assert "" == judged(ledger, dict.fromkeys(sagas, "completed"))
    assert 3 == len(lost_and_resent(ledger))


async def not_ready(api: Api, *, reason: str) -> None:
    """Return once the replica says that it is not ready, for that reason among others."""

    async def says() -> bool:
        answer = await ask(api, "GET", "/health/ready")
        if answer is None or answer.status != 503:
            return False
        return any(reason in each for each in answer.json["reasons"])

    await wait_until(says, seconds_max=20, what=f"{api.replicas[0].name} not to be ready")

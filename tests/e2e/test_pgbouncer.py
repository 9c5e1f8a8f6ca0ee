"""Everything between the service and Postgres goes through PgBouncer in transaction mode."""

import asyncio
import os
import random
import shutil
import socket
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from tests.e2e.conftest import Stage
from tests.e2e.load import Api, disagreements, make_orders, start_all
from tests.e2e.processes import Child
from tests.e2e.worlds import (
    SLOW,
    count_requests,
    judged,
    lost_and_resent,
    switch,
    wait_requests,
)
from tests.examples.client import Client
from tests.waiting import wait_until

PGBOUNCER = shutil.which(
    "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.pgbouncer,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        PGBOUNCER is None, reason="there is no pgbouncer in PATH or /usr/sbin: install it"
    ),
]


class PgBouncer(Child):
    """PgBouncer in transaction mode before one database, with few server connections."""

    def __init__(self, database_url: str, *, place: Path) -> None:
        assert PGBOUNCER is not None
        parts = urlsplit(database_url)
        server = parse_qs(parts.query)
        self.port = _free_port()
        self.database_url = f"postgresql://amends@127.0.0.1:{self.port}{parts.path}"
        users = place / "pgbouncer.users"
        users.write_text('"amends" ""\n')
        configuration = place / "pgbouncer.ini"
        configuration.write_text(
            "[databases]\n"
            f"* = host={server['host'][0]} port={server['port'][0]}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\n"
            "pool_mode = transaction\ndefault_pool_size = 6\nmax_client_conn = 200\n"
            "server_reset_query =\n"
        )
        # As root it refuses to run; Postgres lets in whoever owns the directory of its socket.
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        super().__init__(
            "pgbouncer",
            [PGBOUNCER, *user, str(configuration)],
            log=place / "pgbouncer.log",
            announces=r"listening on (127[0-9.:]+)",
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def bounced(stage: Stage) -> PgBouncer:
    """Start PgBouncer before the database of the stage."""
    bouncer = PgBouncer(stage.database_url, place=stage.place)
    stage.children.append(bouncer)
    await bouncer.start()
    return bouncer


async def test_sagas_and_a_kill(stage: Stage, session: aiohttp.ClientSession) -> None:
    """Sagas run, are taken over after a kill, and are watched and cancelled, all through it."""
    dice = random.Random(11)
    world = (await stage.set_up()).client(session)
    bouncer = await bounced(stage)
    replica = stage.replica("replica", lease=1.0, database_url=bouncer.database_url)
    api = await stage.start(session, replica)
    await switch(world, *SLOW)
    orders = make_orders(16, dice)
    ids = await start_all(api, orders)
    await wait_requests(world, 20)

    replica.kill()
    in_flight = len(await stage.heads.unfinished())
    await replica.start()
    await api.ready()
    await switch(
        world, {"match": {"step": "hotel"}, "times": 1, "do": {"hold": "after", "name": "h"}}
    )
    held = await api.start("trip", {"city": "Rome", "card": "4242"})
    cancelled = await hold_and_cancel(api, world, held)
    waited = await api.call(
        "POST",
        "/v1/sagas",
        {"definition": "rental", "input": {"city": "Rome", "card": "4242"}},
        headers={"Prefer": "wait=20"},
        seconds_max=25,
    )
    statuses = await stage.heads.all_at_rest()
    ledger = await world.ledger()

    assert in_flight > 3
    assert len(lost_and_resent(ledger)) > 0
    assert (202, "compensated") == (cancelled, statuses[held])
    assert (200, "completed") == (waited.status, waited.json["status"])
    assert [] == disagreements(orders, ids, statuses)
    assert "" == judged(ledger, statuses)
    for complaint in ("prepared statement", "loop_round_crashed", "Traceback"):
        assert complaint not in replica.said()


async def hold_and_cancel(api: Api, world: Client, saga: str) -> int:
    """Cancel a saga in mid-call; returns the status of the answer."""
    await world.held("h")
    answer = await api.call("POST", f"/v1/sagas/{saga}/cancel", {"reason": "not needed"})
    await world.release("h")
    return answer.status


async def test_it_restarts_under_load(stage: Stage, session: aiohttp.ClientSession) -> None:
    """PgBouncer may be killed and started again under load; nothing is lost or doubled."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 - for pytest to show
    dice = random.Random(seed)
    world = (await stage.set_up()).client(session)
    bouncer = await bounced(stage)
    replica = stage.replica("replica", lease=2.0, database_url=bouncer.database_url)
    api = await stage.start(session, replica)
    await switch(world, *SLOW)
    orders = make_orders(24, dice)
    in_flight = 0

    async with asyncio.TaskGroup() as group:
        starting = group.create_task(start_all(api, orders))
        for _ in range(4):
            await wait_requests(world, await count_requests(world) + dice.randint(2, 8))
            bouncer.kill()
            in_flight += len(await stage.heads.unfinished()) > 0
            await wait_until(lambda: says_not_ready(api), what="the service to notice")
            await bouncer.start()
            await api.ready()
    statuses = await stage.heads.all_at_rest()

    assert 4 == in_flight
    assert len(orders) == len(statuses)
    assert [] == disagreements(orders, starting.result(), statuses)
    assert "" == judged(await world.ledger(), statuses)


async def says_not_ready(api: Api) -> bool:
    """Whether the replica answers 503 when asked whether it is ready."""
    return (await api.call("GET", "/health/ready")).status == 503

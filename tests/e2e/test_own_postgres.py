"""Zero set-up: the service with its own Postgres, killed, and started again on the same data."""

import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from app.embedded_postgres import EmbeddedPostgres
from tests.e2e.conftest import SAGAS
from tests.e2e.load import TRIP, Api
from tests.e2e.postgres import make_place
from tests.e2e.processes import Amends, Child
from tests.e2e.worlds import World, judged, switch
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
async def place() -> AsyncIterator[Path]:
    """Yield a directory; afterwards no Postgres runs in it, whatever happened."""
    made = make_place("amends-e2e-own-")
    yield made
    pid = EmbeddedPostgres(made / "data").server_pid()
    if pid is not None:
        psutil.Process(pid).kill()
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
async def world(place: Path) -> AsyncIterator[World]:
    """Yield a world."""
    made = World(place=place)
    try:
        await made.start()
        yield made
    finally:
        made.clean_up()


async def test_killed_with_its_own_postgres(
    place: Path, world: World, session: aiohttp.ClientSession
) -> None:
    """Killed and started again it finds its data and finishes; stopped it stops both."""
    desk = world.client(session)
    service = _service(place, world)
    postgres = EmbeddedPostgres(place / "data")
    try:
        await service.start()
        api = Api(session, service)
        await api.ready()
        await switch(
            desk, {"match": {"step": "hotel"}, "times": 1, "do": {"hold": "after", "name": "h"}}
        )
        saga = await api.start("trip", TRIP)
        await desk.held("h")

        service.kill()
        survivor = postgres.server_pid()
        await desk.release("h")
        await service.start()
        await api.ready()
        rested = await api.rested(saga)
        seconds = await service.stop()
        after_stop = postgres.server_pid()
        await service.start()
        read = await api.saga(saga)
        await service.stop()
    finally:
        service.clean_up()
    ledger = await desk.ledger(saga)

    assert survivor is not None
    assert after_stop is None
    assert (0, True) == (service.code, seconds < 30)
    assert "completed" == rested["status"]
    assert rested == read
    assert "" == judged(ledger, {saga: "completed"})


async def test_its_own_postgres_killed_under_it(
    place: Path, world: World, session: aiohttp.ClientSession
) -> None:
    """A service whose Postgres is killed starts it again, is ready again, and goes on working."""
    desk = world.client(session)
    service = _service(place, world)
    postgres = EmbeddedPostgres(place / "data")
    try:
        await service.start()
        api = Api(session, service)
        await api.ready()
        await switch(
            desk, {"match": {"step": "hotel"}, "times": 1, "do": {"hold": "after", "name": "h"}}
        )
        begun = await api.start("trip", TRIP)
        await desk.held("h")

        killed = postgres.server_pid()
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        await desk.release("h")
        await wait_until(lambda: postgres.server_pid() not in {None, killed}, seconds_max=30)
        await api.ready()
        sagas = [begun, await api.start("trip", TRIP)]
        rested = [await api.rested(saga) for saga in sagas]
        seconds = await service.stop()
    finally:
        service.clean_up()
    ledger = await desk.ledger(sagas[0])
    said = service.said()

    assert ["completed", "completed"] == [saga["status"] for saga in rested]
    assert "" == judged(ledger, {begun: "completed"})
    assert (0, True) == (service.code, seconds < 30)
    assert postgres.server_pid() is None
    assert (1, 1) == (said.count("postgres_lost"), said.count("postgres_restarted"))


async def test_what_is_not_as_it_must_be_is_said(place: Path) -> None:
    """A service that cannot start ends at once, with one sentence that says what to do."""
    cases = {
        "AMENDS_HOST": ({"AMENDS_HOST": "0.0.0.0"}, "AMENDS_API_KEYS"),
        "AMENDS_VARS": ({"AMENDS_VARS": "no json"}, "AMENDS_VARS"),
        "AMENDS_DATABASE_URL": ({"AMENDS_DATABASE_URL": "mysql://x"}, "postgresql://"),
    }
    said = {}
    for name, (environment, _) in cases.items():
        child = Child(
            name,
            [sys.executable, "-m", "app", "serve"],
            log=place / f"{name}.log",
            environment={"AMENDS_PORT": "0", "AMENDS_DATA_DIR": str(place / "data"), **environment},
        )
        try:
            child.spawn()
            await child.ended(seconds_max=60)
            said[name] = (child.code, child.said())
        finally:
            child.clean_up()

    for name, (_, hint) in cases.items():
        code, text = said[name]
        assert 2 == code, text
        assert hint in text
        assert "Traceback" not in text


async def test_a_port_that_is_taken(place: Path, world: World) -> None:
    """A port in use is said before anything else is started."""
    port = world.url.rpartition(":")[2]
    child = Child(
        "second",
        [sys.executable, "-m", "app", "serve"],
        log=place / "second.log",
        environment={"AMENDS_PORT": port, "AMENDS_DATA_DIR": str(place / "data")},
    )
    try:
        child.spawn()
        await child.ended(seconds_max=60)
    finally:
        child.clean_up()

    assert 2 == child.code, child.said()
    assert "AMENDS_PORT" in child.said()
    assert not (place / "data").exists()


def _service(place: Path, world: World) -> Amends:
    """Make a service with its own Postgres in the place."""
    return Amends(
        "service",
        place=place,
        database_url="",
        environment={
            "AMENDS_DATA_DIR": str(place / "data"),
            "AMENDS_SAGAS_DIR": str(SAGAS),
            "AMENDS_LEASE_SECONDS": "1",
            "AMENDS_VARS": json.dumps({"world": world.url}),
        },
    )

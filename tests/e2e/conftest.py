"""A stage for every test: a database, a world and replicas, all gone when the test is over."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.load import Api
from tests.e2e.postgres import Cluster, Heads, make_place
from tests.e2e.processes import Amends, Child
from tests.e2e.worlds import World

SAGAS = Path(__file__).with_name("sagas")
SHIPPED = Path(__file__).parents[2] / "sagas"


class Stage:
    """What a test has started; the fixture ends all of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.place = make_place("amends-e2e-")
        self.children: list[Child] = []
        self.database_url = ""
        self._world_url = ""

    @property
    def heads(self) -> Heads:
        """What the database says."""
        return Heads(self.database_url)

    async def set_up(self) -> World:
        """Make a database and start a world; replicas can then be started."""
        self.database_url = await self.cluster.create_database()
        world = World(place=self.place)
        self.children.append(world)
        await world.start()
        self._world_url = world.url
        return world

    def replica(
        self,
        name: str,
        *,
        lease: float = 1.0,
        role: str = "all",
        database_url: str | None = None,
        sagas_dir: Path = SAGAS,
        public_url: str = "",
    ) -> Amends:
        """A replica, not yet started."""
        amends = Amends(
            name,
            place=self.place,
            database_url=database_url or self.database_url,
            role=role,
            environment={
                "AMENDS_LEASE_SECONDS": str(lease),
                "AMENDS_SAGAS_DIR": str(sagas_dir),
                "AMENDS_PUBLIC_URL": public_url,
                "AMENDS_VARS": json.dumps({"world": self._world_url}),
            },
        )
        self.children.append(amends)
        return amends

    async def start(self, session: aiohttp.ClientSession, *replicas: Amends) -> Api:
        """Start replicas, all at once, and wait until they are ready; returns a client of them."""
        for replica in replicas:
            replica.spawn()
        for replica in replicas:
            await replica.announced()
            await Api(session, replica).ready()
        return Api(session, *replicas)

    def clean_up(self) -> None:
        """End whatever still runs."""
        for child in reversed(self.children):
            child.clean_up()
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Yield a Postgres for all tests of this process but those that break it."""
    made = Cluster()
    try:
        asyncio.run(made.start())
        yield made
    finally:
        asyncio.run(made.stop())


@pytest.fixture
def stage(cluster: Cluster) -> Iterator[Stage]:
    """Yield an empty stage."""
    made = Stage(cluster)
    try:
        yield made
    finally:
        made.clean_up()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session whose connections are never used twice: replicas come and go."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(
        connector=connector, skip_auto_headers=["Accept-Encoding"], auto_decompress=False
    ) as made:
        yield made

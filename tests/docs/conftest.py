"""What the examples of the pages run against: the service, the world, and the print shop."""

import json
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest

from tests.docs.pages import ROOT, blocks_in
from tests.e2e.load import Api
from tests.e2e.postgres import Cluster, make_place
from tests.e2e.processes import Amends
from tests.e2e.worlds import World


def module_of(name: str) -> ModuleType:
    """A Python block of the pages, run as a module."""
    (block,) = [each for each in blocks_in("python") if each.notes.get("module") == name]
    module = ModuleType(name)
    exec(compile(block.text, f"{block.where}.py", "exec"), vars(module))
    return module


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What runs while the examples do.

    Attributes:
        shop: the module of the print shop, whose server runs in this process.
    """

    place: Path
    service: Amends
    world: World
    shop: ModuleType


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[ModuleType, str]]:
    """Yield the print shop of the page on callbacks, and where it listens."""
    module = module_of("print_shop")
    server = ThreadingHTTPServer(("127.0.0.1", 0), module.PrintShop)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield module, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
async def scene(shop: tuple[ModuleType, str]) -> AsyncIterator[Scene]:
    """Yield a service with a database of its own, that knows the world and the print shop."""
    place = make_place("amends-docs-")
    cluster = Cluster()
    module, url = shop
    world = World(place=place)
    children: list[World | Amends] = [world]
    try:
        await cluster.start()
        await world.start()
        variables = {"world": world.url, "print_shop": url}
        service = Amends(
            "service",
            place=place,
            database_url=await cluster.create_database(),
            environment={
                "AMENDS_SAGAS_DIR": str(ROOT / "sagas"),
                "AMENDS_VARS": json.dumps(variables),
            },
        )
        children.append(service)
        await service.start()
        async with aiohttp.ClientSession() as session:
            await Api(session, service).ready()
        yield Scene(place=place, service=service, world=world, shop=module)
    finally:
        for child in reversed(children):
            child.clean_up()
        await cluster.stop()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session whose connections are never used twice."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as made:
        yield made


@pytest.fixture
def api(scene: Scene, session: aiohttp.ClientSession) -> Api:
    """A client of the service."""
    return Api(session, scene.service)

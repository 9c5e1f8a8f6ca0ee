"""The suite runs on both event loops; connectors are made here, and closed after each test."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Protocol

import pytest
import uvloop

from app.connectors import AiohttpTransport, Connector, HttpConnector
from app.connectors.transport import ANSWER_BYTES_MAX
from tests.connectors.python_tool import MakePython


class MakeConnector(Protocol):
    """Makes a connector that is closed after the test."""

    def __call__(
        self,
        *,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        connections_max: int = 500,
        connections_per_host_max: int = 100,
        ssl_context: ssl.SSLContext | None = None,
    ) -> Connector:
        """As ``AiohttpTransport`` has it."""
        ...


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Production runs on uvloop, whose sockets end in other ways than asyncio's."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=["aiohttp"])
async def make_connector(request: pytest.FixtureRequest) -> AsyncIterator[MakeConnector]:
    """Makes connectors over each transport there is; closes them after the test."""
    made: list[Connector] = []

    def make(
        *,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        connections_max: int = 500,
        connections_per_host_max: int = 100,
        ssl_context: ssl.SSLContext | None = None,
    ) -> Connector:
        match request.param:
            case "aiohttp":
                transport = AiohttpTransport(
                    answer_bytes_max=answer_bytes_max,
                    connections_max=connections_max,
                    connections_per_host_max=connections_per_host_max,
                    ssl_context=ssl_context,
                )
            case other:
                raise AssertionError(f"no transport is called {other!r}")
        made.append(HttpConnector(transport, answer_bytes_max=answer_bytes_max))
        return made[-1]

    yield make
    for connector in made:
        await connector.close()


@pytest.fixture
async def connector(make_connector: MakeConnector) -> Connector:
    """A connector with the default limits."""
    return make_connector()


@pytest.fixture
async def make_python() -> AsyncIterator[MakePython]:
    """Makes connectors over functions; closes them after the test."""
    make = MakePython()
    yield make
    for connector in make.made:
        await connector.close()


@pytest.fixture
def let_go() -> Iterator[threading.Event]:
    """What functions in threads wait for; set after the test, so that none is left."""
    event = threading.Event()
    yield event
    event.set()

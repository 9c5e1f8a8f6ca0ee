"""The suite runs on both event loops, and over every connector that speaks HTTP."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

import pytest
import uvloop

from app.connectors import AiohttpTransport, Connector, HttpConnector
from app.connectors.transport import ANSWER_BYTES_MAX


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

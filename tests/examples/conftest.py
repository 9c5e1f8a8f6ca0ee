"""A world on a loopback socket, and a client to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.world import serving
from tests.examples.client import Client, client_of
from tests.examples.listener import Listener, listening


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    """Where the ledger of the test lies."""
    return tmp_path / "world.db"


@pytest.fixture
async def world(ledger_path: Path) -> AsyncIterator[Client]:
    """A client of a world of the test's own."""
    async with serving(ledger=ledger_path) as served, client_of(served.url) as client:
        yield client


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    """Somebody to call back."""
    async with listening() as listens:
        yield listens

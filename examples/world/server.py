"""The HTTP server of the world, started and stopped as one thing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from examples.world.arrivals import BODY_BYTES_MAX
from examples.world.control import Control
from examples.world.holds import Holds
from examples.world.storage import Storage
from examples.world.switches import Switches
from examples.world.tool import Tool

_BACKLOG: Final = 1024
"""Hundreds of clients connect at once; the default of 128 would turn some away."""
_SHUTDOWN_SECONDS: Final = 0.2
"""How long a stop waits for requests under way; held ones would never end by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A world that runs."""

    url: str
    """Without a slash at the end."""
    switches: Switches


@asynccontextmanager
async def serving(
    *, ledger: Path, host: str = "127.0.0.1", port: int = 0, switches: Switches | None = None
) -> AsyncIterator[World]:
    """Serve the world while the context is open; port 0 picks a free one."""
    storage = await Storage.open(ledger)
    try:
        world = switches or Switches()
        holds = Holds()
        # This limit is for the control desk; `arrivals` has its own, to record what is over it.
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        Control(storage=storage, switches=world, holds=holds).add_to(application.router)
        tool = Tool(storage=storage, switches=world, holds=holds)
        application.router.add_route("*", "/{path:.*}", tool.answer)
        # A client that goes away must not take an effect that is under way with it.
        runner = web.AppRunner(
            application,
            handler_cancellation=False,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
            bound_port = runner.addresses[0][1]
            yield World(url=f"http://{host}:{bound_port}", switches=world)
        finally:
            await runner.cleanup()
    finally:
        await storage.close()

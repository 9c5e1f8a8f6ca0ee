"""The HTTP server of the world, started and stopped as one thing."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from examples.world.arrivals import BODY_BYTES_MAX
from examples.world.caller import Caller
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
    *,
    ledger: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    switches: Switches | None = None,
    calls_anywhere: bool = False,
) -> AsyncIterator[World]:
    """Serve the world while the context is open.

    Args:
        ledger: the file; taken up again if it is there, with what is still to be reported.
        host: an address of this machine.
        port: 0 picks a free one.
        switches: to begin with.
        calls_anywhere: call back any URL, not only those on this machine.
    """
    world = switches or Switches()
    holds = Holds()
    async with AsyncExitStack() as stack:
        storage = await Storage.open(ledger)
        stack.push_async_callback(storage.close)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        caller = Caller(
            storage=storage,
            switches=world,
            holds=holds,
            session=session,
            calls_anywhere=calls_anywhere,
        )
        stack.push_async_callback(caller.stop)
        # This limit is for the control desk; `arrivals` has its own, to record what is over it.
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        desk = Control(storage=storage, switches=world, holds=holds, caller=caller)
        desk.add_to(application.router)
        tool = Tool(storage=storage, switches=world, holds=holds, caller=caller)
        application.router.add_route("*", "/{path:.*}", tool.answer)
        # A client that goes away must not take an effect that is under way with it.
        runner = web.AppRunner(
            application,
            handler_cancellation=False,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
        await caller.resume()
        yield World(url=f"http://{host}:{runner.addresses[0][1]}", switches=world)

"""Somebody to call back, for tests: keeps what it is told, and answers as planned."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(slots=True, kw_only=True)
class Listener:
    """Listens at ``url`` while its context is open."""

    url: str = ""
    """With a token at the end."""
    answers: list[int] = field(default_factory=list)
    """The statuses to answer with, in order; 200 when there are none left, 0 to hang up."""
    bodies: list[bytes] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    silence: asyncio.Event | None = None
    """If there is one, nothing is answered until it is set."""

    @property
    def told(self) -> list[Any]:
        """What was told, read as JSON."""
        return [json.loads(body) for body in self.bodies]

    @property
    def outcomes(self) -> list[str]:
        """What outcomes were told."""
        return [each["outcome"] for each in self.told]

    async def take(self, http: web.Request) -> web.Response:
        """Be told something."""
        self.tokens.append(http.match_info["token"])
        self.bodies.append(await http.read())
        self.heard.set()
        if self.silence is not None:
            await self.silence.wait()
        status = self.answers.pop(0) if self.answers else 200
        if status == 0 and http.transport is not None:
            http.transport.abort()
        return web.Response(status=status or 200, headers={"Location": "/elsewhere"})


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    """Listen on a loopback socket."""
    listener = Listener()
    application = web.Application()
    application.router.add_post("/v1/callbacks/{token}", listener.take)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/callbacks/token-abc"
        yield listener
    finally:
        await runner.cleanup()

"""An exchange that a test holds open: it reads what comes as it comes, and may hang up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.types import Message, Scope

from tests.waiting import wait_until


@dataclass(slots=True)
class Exchange:
    """One request, seen from the client's side of the server."""

    request_body: bytes
    sent: list[Message] = field(default_factory=list)
    is_taken: bool = False
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    has_left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> int | None:
        """The status, once the response has begun."""
        return next((each["status"] for each in self.sent if "status" in each), None)

    @property
    def text(self) -> str:
        """What has come of the body so far."""
        return b"".join(each.get("body", b"") for each in self.sent).decode()

    def leave(self) -> None:
        """Hang up."""
        self.has_left.set()

    async def wait_for(self, text: str) -> None:
        """Wait until the body holds ``text``."""
        await wait_until(lambda: text in self.text, what=f"{text!r} to be sent")

    async def receive(self) -> Message:
        """What the server hands to the application: the body, then the news that we left."""
        if not self.is_taken:
            self.is_taken = True
            return {"type": "http.request", "body": self.request_body, "more_body": False}
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """What the application hands to the server."""
        self.sent.append(message)


@contextlib.asynccontextmanager
async def exchange(
    app: FastAPI,
    method: str,
    url: str,
    *,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> AsyncIterator[Exchange]:
    """Send a request, and hold it open for the time of the block; leave at its end."""
    target = urlsplit(url)
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},  # as uvicorn says
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": target.path,
        "raw_path": target.path.encode(),
        "query_string": target.query.encode(),
        "root_path": "",
        "headers": [
            (name.lower().encode(), value.encode()) for name, value in (headers or {}).items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    held = Exchange(request_body=body)

    async def serve() -> None:
        await app(scope, held.receive, held.send)
        held.is_over.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve())
        try:
            yield held
        finally:
            held.leave()

"""A client of the world for tests: short calls, plain replies, no retries, no redirects."""

import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from examples.world import Callback, Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)

    @property
    def is_replayed(self) -> bool:
        """Whether it says that it is a replay."""
        return self.headers.get("Idempotent-Replayed") == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Speaks to one world; what `send` does not name is not sent."""

    url: str
    session: aiohttp.ClientSession

    async def send(
        self,
        method: str,
        path: str,
        asked: object = None,
        *,
        key: str | None = None,
        named: str = "",
        data: bytes | None = None,
        callback_url: str | None = None,
    ) -> Reply:
        """Send one request; `named` is "saga step call", as many words as there are."""
        headers = {"Content-Type": "application/json"}
        if callback_url is not None:
            headers["Amends-Callback-Url"] = callback_url
        if key is not None:
            headers["Idempotency-Key"] = key
        names = ("Amends-Saga", "Amends-Step", "Amends-Call", "Amends-Attempt")
        headers |= dict(zip(names, named.split(), strict=False))
        body = data if asked is None else json.dumps(asked).encode()
        sent = None if body is None else io.BytesIO(body)
        async with self.session.request(
            method, self.url + path, data=sent, headers=headers, allow_redirects=False
        ) as response:
            return Reply(
                status=response.status,
                headers=dict(response.headers),
                body=await response.read(),
            )

    async def switch(self, *switches: object) -> None:
        """Set the switches."""
        reply = await self.send("PUT", "/world/switches", list(switches))
        assert reply.status == 200, reply.body

    async def held(self, name: str, *, count: int = 1) -> list[dict[str, Any]]:
        """Wait until `count` requests are held under a name."""
        reply = await self.send("GET", f"/world/held?name={name}&count={count}&wait=20")
        held: list[dict[str, Any]] = reply.json["held"]
        assert len(held) >= count, held
        return held

    async def release(self, name: str) -> int:
        """Let go who is held under a name; say how many that were."""
        reply = await self.send("POST", "/world/release", {"name": name})
        released: int = reply.json["released"]
        return released

    async def callbacks(
        self, count: int, *, saga: str | None = None, key: str | None = None
    ) -> list[Callback]:
        """Wait until `count` reports are answered, or found nobody, and list all that were sent."""
        query = f"?count={count}&wait=20"
        query += "" if saga is None else f"&saga={saga}"
        query += "" if key is None else f"&key={key}"
        reply = await self.send("GET", f"/world/callbacks{query}")
        found = [Callback(**each) for each in reply.json["callbacks"]]
        assert sum(each.answered_seq is not None for each in found) >= count, found
        return found

    async def ledger(self, saga: str | None = None) -> Ledger:
        """Read the ledger."""
        query = "" if saga is None else f"?saga={saga}"
        return Ledger.from_json((await self.send("GET", f"/world/ledger{query}")).body)

    async def outcomes(self) -> Sequence[str | None]:
        """List how the requests ended, in order of receipt."""
        return [request.outcome for request in (await self.ledger()).requests]

    async def effects(self) -> Sequence[str]:
        """List what is live."""
        return [each.resource for each in (await self.ledger()).effects if each.live]

    async def summary(self, saga: str) -> Any:
        """Read the summary of a saga."""
        return (await self.send("GET", "/world/summary")).json["sagas"][saga]


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Client]:
    """Speak to the world at `url`; no limit on connections, no compression asked for."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=30),
        skip_auto_headers=["Accept-Encoding"],
        auto_decompress=False,
    ) as session:
        yield Client(url=url, session=session)

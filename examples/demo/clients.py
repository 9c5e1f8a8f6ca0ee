"""What the demo says over HTTP: to the service, as any agent would, and to the world."""

import asyncio
from typing import Any

import aiohttp

type Json = dict[str, Any]


class Clients:
    """Speaks to both; the URLs may change when a process is started again."""

    def __init__(self, session: aiohttp.ClientSession, *, world_url: str) -> None:
        self._session = session
        self._world_url = world_url
        self.service_url = ""

    async def start_saga(self, definition: str, saga_input: Json, *, key: str) -> Json:
        """Start a saga; the key makes repeating it harmless."""
        return await self._call(
            "POST",
            f"{self.service_url}/v1/sagas",
            json={"definition": definition, "input": saga_input},
            headers={"Idempotency-Key": key},
        )

    async def get_saga(self, saga_id: str) -> Json | None:
        """The saga, or None while the service does not answer."""
        try:
            return await self._call("GET", f"{self.service_url}/v1/sagas/{saga_id}")
        except (aiohttp.ClientConnectionError, TimeoutError):
            return None

    async def set_switches(self, rules: list[Json]) -> None:
        """Tell the world how to behave."""
        await self._call("PUT", f"{self._world_url}/world/switches", json=rules)

    async def wait_held(self, name: str) -> None:
        """Return once the world holds a request under that name."""
        held = await self._call("GET", f"{self._world_url}/world/held?name={name}&wait=20")
        assert held, "the world held nothing"

    async def release(self, name: str) -> None:
        """Let the held request go on."""
        await self._call("POST", f"{self._world_url}/world/release", json={"name": name})

    async def ledger_text(self) -> str:
        """Everything that the world received and did, as JSON."""
        async with self._session.get(f"{self._world_url}/world/ledger") as answer:
            answer.raise_for_status()
            return await answer.text()

    async def _call(self, method: str, url: str, **options: Any) -> Json:  # noqa: ANN401 - aiohttp's
        async with asyncio.timeout(30), self._session.request(method, url, **options) as answer:
            if answer.status >= 400:
                raise RuntimeError(f"{method} {url}: {answer.status} {await answer.text()}")
            body: Json = await answer.json(content_type=None)
            return body

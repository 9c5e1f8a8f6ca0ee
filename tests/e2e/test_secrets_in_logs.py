"""Whatever goes through the service, and goes wrong in it: neither log nor metrics quote it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from tests.e2e.conftest import Stage
from tests.e2e.load import AT_REST, Api
from tests.e2e.processes import Amends
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

SECRET = "sesame4242"
"""Part of every secret of this test."""
API_KEY = f"{SECRET}-a-long-enough-api-key"

FUNCTIONS = """
async def lose(card: str) -> None:
    raise ValueError(f"the bank does not take {card}")
"""

TOOL = "${{ vars.tool }}"
CALL = {
    "method": "POST",
    "headers": {"Authorization": f"Bearer {SECRET}"},
    "json": {"card": "${{ input.card }}"},
}
ONCE = {"timeout": "500ms", "retry": {"max_attempts": 1}, "late_window": "0s"}


def a_definition(name: str, action: dict[str, Any]) -> dict[str, Any]:
    """One step, whose tool is told a secret in every place where one can be."""
    undo = {**CALL, "url": f"{TOOL}/undo?token={SECRET}", "json": {"key": "${{ action.key }}"}}
    step = {"id": name, "action": action, "compensation": {"http": undo, **ONCE}}
    return {"amends": 1, "name": name, "steps": [step]}


def by_http(name: str, **more: Any) -> dict[str, Any]:
    """A call of a tool by its name."""
    return {"http": {**CALL, "url": f"{TOOL}/{name}?token={SECRET}"}, **ONCE, **more}


DEFINITIONS = [
    *(a_definition(name, by_http(name)) for name in ("works", "refuses", "fails", "hangs")),
    a_definition("drops", by_http("drops")),
    a_definition("mumbles", by_http("mumbles")),
    a_definition(
        "nowhere", {"http": {**CALL, "url": f"http://127.0.0.1:1/?token={SECRET}"}, **ONCE}
    ),
    a_definition("calls_back", by_http("calls_back", completion={"callback": {"within": "1h"}})),
    a_definition(
        "raises",
        {
            "python": {"function": "functions.lose", "arguments": {"card": "${{ input.card }}"}},
            **ONCE,
        },
    ),
]


class Tool:
    """A tool that does as its paths say, and that keeps the callback URLs it was given."""

    def __init__(self) -> None:
        self.url = ""
        self.callbacks: list[str] = []
        self.is_over = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a call; every answer holds a secret."""
        self.callbacks += request.headers.getall("Amends-Callback-Url", [])
        said = {"id": SECRET, "card": SECRET}
        match request.match_info["name"]:
            case "refuses":
                return web.json_response(said, status=402)
            case "fails":
                return web.json_response(said, status=500)
            case "hangs":
                await self.is_over.wait()
            case "drops":
                assert request.transport is not None
                request.transport.abort()
            case "mumbles":
                return web.Response(body=SECRET.encode() + b"\x00\xff{", content_type="text/html")
            case _:
                pass
        return web.json_response(said)


@contextlib.asynccontextmanager
async def serving(tool: Tool) -> AsyncIterator[None]:
    """The tool, on a port of its own."""
    application = web.Application()
    application.router.add_route("*", "/{name}", tool.answer)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        tool.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield
    finally:
        tool.is_over.set()
        await runner.cleanup()


def a_replica(stage: Stage, tool: Tool, sagas_dir: Path) -> Amends:
    """A replica that logs all it can."""
    (sagas_dir / "functions.py").write_text(FUNCTIONS)
    replica = Amends(
        "talkative",
        place=stage.place,
        database_url=stage.database_url,
        environment={
            "AMENDS_API_KEYS": API_KEY,
            "AMENDS_LOG_LEVEL": "DEBUG",
            "AMENDS_LOG_FORMAT": "json",
            "AMENDS_SAGAS_DIR": str(sagas_dir),
            "AMENDS_VARS": json.dumps({"tool": tool.url, "secret": SECRET}),
        },
    )
    stage.children.append(replica)
    return replica


async def run_all(api: Api) -> list[dict[str, Any]]:
    """Start a saga of every definition, and return all as they rest; one waits for a callback."""
    mine = {"Authorization": f"Bearer {API_KEY}"}
    for definition in DEFINITIONS:
        published = await api.call(
            "PUT", f"/v1/definitions/{definition['name']}", definition, headers=mine
        )
        assert published.status == 201, published.text
        started = await api.call(
            "POST",
            "/v1/sagas",
            {
                "definition": definition["name"],
                "input": {"card": SECRET},
                "business_key": SECRET,
                "labels": {"card": SECRET},
            },
            headers={**mine, "Idempotency-Key": f"{SECRET}-{definition['name']}"},
        )
        assert started.status == 202, started.text

    async def rested() -> list[dict[str, Any]]:
        listed = await api.call("GET", "/v1/sagas?limit=100", headers=mine)
        heads = listed.json["items"]
        resting = [each for each in heads if each["status"] in AT_REST]
        if len(resting) < len(DEFINITIONS) - 1:
            return []
        paths = (f"/v1/sagas/{each['id']}" for each in heads)
        return [(await api.call("GET", path, headers=mine)).json for path in paths]

    return await wait_until(rested, seconds_max=60, what="sagas to rest")


async def err(api: Api, saga: str, callback: str) -> None:
    """Ask for all kinds of things in a wrong way, with secrets in them."""
    mine = {"Authorization": f"Bearer {API_KEY}"}
    wrong = {"Authorization": f"Bearer {SECRET}-wrong"}
    path = callback.removeprefix(api.replicas[0].url)
    calls: list[tuple[str, str, dict[str, str], bytes]] = [
        ("GET", f"/v1/sagas?token={SECRET}", wrong, b""),
        ("GET", f"/v1/sagas?label.card={SECRET}&cursor={SECRET}", mine, b""),
        ("GET", f"/{SECRET}", mine, b""),
        ("POST", "/v1/sagas", mine, f'{{"definition": "{SECRET}'.encode()),
        ("POST", "/v1/sagas", mine, json.dumps({"definition": SECRET, "input": {}}).encode()),
        ("POST", f"/v1/sagas/{saga}/retry", mine, json.dumps({"reason": SECRET}).encode()),
        ("POST", f"/v1/callbacks/{SECRET}", {}, b'{"outcome": "succeeded"}'),
        ("POST", path, {}, json.dumps({"outcome": SECRET}).encode()),
        ("POST", path, {}, json.dumps({"outcome": "succeeded", "output": SECRET}).encode()),
        ("POST", path, {}, json.dumps({"outcome": "failed", "error": SECRET}).encode()),
    ]
    for method, url, headers, body in calls:
        answer = await api.call(method, url, data=body, headers=headers)
        assert answer.status < 500, answer.text


async def cut_off(url: str) -> None:
    """End every connection of the service's to its database."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()


async def test_the_log_holds_no_secret(
    stage: Stage, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Bodies, queries, headers, keys and tokens leave no trace in logs, nor in metrics."""
    tool = Tool()
    await stage.set_up()
    async with serving(tool):
        replica = a_replica(stage, tool, tmp_path)
        api = await stage.start(session, replica)
        sagas = await run_all(api)
        (callback,) = set(tool.callbacks)
        await err(api, sagas[0]["id"], callback)
        await cut_off(stage.database_url)
        again = {"definition": "works", "input": {"card": SECRET}}
        mine = {"Authorization": f"Bearer {API_KEY}", "Idempotency-Key": f"{SECRET}-again"}
        await api.insist("POST", "/v1/sagas", again, headers=mine)
        await wait_until(lambda: "writer_connection_lost" in replica.said())
        scraped = (await api.call("GET", "/metrics", headers=mine)).text
        await replica.stop()

    log = replica.said()
    keys = {step["idempotency_key"] for saga in sagas for step in saga["steps"]}
    tokens = {callback.rpartition("/")[2]}
    assert "function_raised" in log
    assert [] == [secret for secret in (SECRET, *keys, *tokens) if secret and secret in log]
    assert f"\namends_sagas_started_total {len(sagas) + 1}.0\n" in scraped
    assert SECRET not in scraped
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert all(event["event"] for event in events)

"""A tool of the conformance suite that is reached by the ``http`` connector."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import assert_never

from app.connectors import Connector, OutgoingCall
from app.core.json_value import JsonValue
from tests.connectors.calls import a_call
from tests.connectors.conformance import WAIT_SECONDS, Answer, Behaviour, Deed, Seen
from tests.connectors.raw_server import Peer, RawServer, answer, serving


class HttpTool:
    """A ``Tool`` that listens on loopback; made by ``http_tool``."""

    def __init__(self, connector: Connector) -> None:
        self.connector = connector
        self.behaviour: Behaviour = Deed.SAY_NOTHING
        self.seen: list[Seen] = []
        self.arrived = asyncio.Semaphore(0)
        self.server: RawServer

    def make_call(
        self,
        *,
        arguments: dict[str, JsonValue] | None = None,
        attempt: int = 1,
        timeout_seconds: float = 30.0,
        expired: Callable[[], bool] = lambda: False,
        callback_url: str | None = None,
    ) -> OutgoingCall:
        """A call of this tool."""
        call = a_call(
            self.server.url(),
            body=json.dumps(arguments or {}),
            attempt=attempt,
            timeout_seconds=timeout_seconds,
            expired=expired,
        )
        return replace(call, callback_url=callback_url)

    def make_call_of_nobody(self) -> OutgoingCall:
        """A call of a port that nobody listens on."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        return a_call(f"http://127.0.0.1:{port}/")

    async def behave(self, peer: Peer) -> None:
        """One connection."""
        while True:
            self.seen.append(_read(await peer.read_request()))
            self.arrived.release()
            match self.behaviour:
                case Answer(value=value):
                    await peer.send(answer(json.dumps(value).encode()))
                case Deed.SAY_NOTHING:
                    await peer.send(answer(status=b"204 No Content"))
                case Deed.REFUSE:
                    await peer.send(answer(b'"no"', status=b"402 Payment Required"))
                case Deed.ASK_TO_RETRY:
                    wait = b"Retry-After: %d" % WAIT_SECONDS
                    await peer.send(answer(b'"busy"', wait, status=b"429 Too Many Requests"))
                case Deed.SAY_UNKNOWN:
                    await peer.send(answer(b'"?"', status=b"500 Internal Server Error"))
                case Deed.BREAK_OFF:
                    peer.reset()
                    return
                case Deed.HANG:
                    await peer.wait_until_gone()
                    return
                case Deed.SAY_TOO_MUCH:
                    await peer.send(answer(b'"' + b"x" * 1024 * 1024 + b'"'))
                case _:
                    assert_never(self.behaviour)


@contextlib.asynccontextmanager
async def http_tool(connector: Connector) -> AsyncIterator[HttpTool]:
    """A tool behind ``connector``, listening."""
    tool = HttpTool(connector)
    async with serving(tool.behave) as server:
        tool.server = server
        yield tool


def _read(request: bytes) -> Seen:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = (line.decode().partition(": ") for line in head.split(b"\r\n")[1:])
    headers = {name: value for name, _, value in lines}
    return Seen(
        saga_id=headers["Amends-Saga"],
        step=headers["Amends-Step"],
        call=headers["Amends-Call"],
        attempt=int(headers["Amends-Attempt"]),
        key=headers["Idempotency-Key"],
        callback_url=headers.get("Amends-Callback-Url"),
        arguments=json.loads(body),
    )

"""What leaves for the client: the tool's own answer, or what a fault puts in its place."""

import asyncio
import json
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final, assert_never

from aiohttp import web

from examples.world.decisions import Decision, refusal
from examples.world.faults import (
    Absurdity,
    Custom,
    Cut,
    Decline,
    Drip,
    Drop,
    Ending,
    Fail,
    Hang,
    Middle,
    Nonsense,
)
from examples.world.records import JsonValue

HUGE_BYTES: Final = 50 * 1024 * 1024
"""Far over the limit of any client that has one; Amends stops at 1 MiB."""
BOMB_BYTES: Final = 100 * 1024 * 1024
"""What the gzip bomb, of about 100 KiB, grows to."""
_CHUNK: Final = b"x" * 65_536
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """Bytes that make no sense, and how they are announced."""

    content: bytes
    content_type: str = _JSON
    content_encoding: str | None = None


def failure(status: int) -> Decision:
    """Word the 5xx that a switch ordered."""
    return refusal(status, "failure_ordered", f"a switch ordered this {status}")


def reply(decision: Decision) -> web.Response:
    """Word the tool's own answer."""
    headers = {"Idempotent-Replayed": "true"} if decision.outcome == "replayed" else {}
    return web.Response(
        status=decision.status, text=decision.body, content_type=_JSON, headers=headers
    )


def reply_json(value: JsonValue, *, status: int = 200) -> web.Response:
    """Answer with a JSON value."""
    return web.json_response(value, status=status)


async def send(
    request: web.Request, decision: Decision | None, ending: Ending | None
) -> web.StreamResponse:
    """Answer a request.

    Args:
        request: the request.
        decision: what the tool says; ``None`` if it was not reached.
        ending: what replaces that.
    """
    match ending:
        case None | Decline():
            assert decision is not None, "only an ending can keep a request from the tool"
            return reply(decision)
        case Fail(status=status):
            return reply(failure(status))
        case Drop():
            return _cut(request)
        case Hang(seconds=seconds):
            await asyncio.sleep(seconds)
            return _cut(request)
        case Custom():
            return _custom(ending)
        case Drip(seconds=seconds):
            assert decision is not None, "the tool answers, if slowly"
            return await _drip(request, reply(decision), seconds)
        case Cut(where=where):
            assert decision is not None, "the tool begins to answer"
            return await _cut_within(request, reply(decision), where)
        case Nonsense(kind=kind, status=status):
            return await _nonsense(request, kind, status or 200)
        case _:
            assert_never(ending)


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    # aiohttp wants a response, and finds that it cannot be sent.
    return web.Response()


async def finish(request: web.Request, response: web.StreamResponse) -> None:
    """Send a response to its end, so that the client has it, or never will."""
    with suppress(ConnectionError):
        await response.prepare(request)
        await response.write_eof()


async def _drip(request: web.Request, own: web.Response, seconds: float) -> web.StreamResponse:
    response, body = _announce(own)
    with suppress(ConnectionError):
        await response.prepare(request)
        for place in range(len(body)):
            await response.write(body[place : place + 1])
            await asyncio.sleep(seconds)
    return response


async def _cut_within(request: web.Request, own: web.Response, where: Middle) -> web.StreamResponse:
    response, body = _announce(own)
    if where == "headers":
        begun = f"HTTP/1.1 {own.status} {own.reason}\r\nContent-Type: appli"
        return _send_raw(request, begun.encode())
    with suppress(ConnectionError):
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def _announce(own: web.Response) -> tuple[web.StreamResponse, bytes]:
    """Prepare to send an answer in parts: its head, and its body."""
    body = (own.text or "").encode()
    headers = dict(own.headers) | {"Content-Length": str(len(body))}
    return web.StreamResponse(status=own.status, headers=headers), body


def _send_raw(request: web.Request, content: bytes) -> web.Response:
    """Send bytes that are no HTTP answer, and close."""
    if request.transport is not None:
        request.transport.write(content)
        request.transport.close()
    # As in `_cut`.
    return web.Response()


def _custom(ending: Custom) -> web.Response:
    headers = {name.title(): value for name, value in ending.headers.items()}
    if isinstance(ending.body, str):
        return web.Response(
            status=ending.status,
            body=ending.body.encode(errors="replace"),
            headers={"Content-Type": "text/plain; charset=utf-8"} | headers,
        )
    text = "" if ending.body is None else json.dumps(ending.body)
    return web.Response(
        status=ending.status, body=text.encode(), headers={"Content-Type": _JSON} | headers
    )


async def _nonsense(request: web.Request, kind: Absurdity, status: int) -> web.StreamResponse:
    match kind:
        case "huge":
            return await _huge(request, status)
        case "truncated":
            return await _truncated(request, status)
        case "redirect":
            # Whoever follows it is recorded, for the path is one of ours.
            return web.Response(status=302, headers={"Location": "/redirected"})
        case "wrong_chunks":
            head = f"HTTP/1.1 {status} OK\r\nContent-Type: {_JSON}\r\n"
            chunks = (
                'Transfer-Encoding: chunked\r\n\r\n8\r\n{"id": "\r\nno hex\r\nF1"}\r\n0\r\n\r\n'
            )
            return _send_raw(request, (head + chunks).encode())
        case _:
            # The bomb takes a second to make, the first time.
            body = await asyncio.to_thread(_body, kind)
    headers = {"Content-Type": body.content_type}
    if body.content_encoding is not None:
        headers["Content-Encoding"] = body.content_encoding
    return web.Response(status=status, body=body.content, headers=headers)


@cache
def _body(kind: Absurdity) -> Body:
    match kind:
        case "html":
            page = b"<!doctype html><title>Oops</title><h1>It works!</h1>"
            return Body(content=page, content_type="text/html")
        case "bad_json":
            return Body(content=b'{"id": "F1", "city": ')
        case "bad_utf8":
            return Body(content=b'{"id": "\xff\xfe"}')
        case "nan":
            return Body(content=b'{"id": NaN, "amount": Infinity}')
        case "deep":
            return Body(content=b"[" * 10_000 + b"]" * 10_000)
        case "nul":
            return Body(content=b'{"id": "F\\u00001", "city": "\\ud800"}')
        case "empty":
            return Body(content=b"")
        case "gzip_bomb":
            return Body(content=_bomb(), content_encoding="gzip")
        case _:
            message = f"{kind!r} is not a plain body"
            raise ValueError(message)


def _bomb() -> bytes:
    gzip = zlib.compressobj(level=9, wbits=31)
    zeros = bytes(1024 * 1024)
    parts = [gzip.compress(zeros) for _ in range(BOMB_BYTES // len(zeros))]
    return b"".join([*parts, gzip.flush()])


async def _huge(request: web.Request, status: int) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers={"Content-Type": _JSON})
    with suppress(ConnectionError):
        await response.prepare(request)
        for _ in range(HUGE_BYTES // len(_CHUNK)):
            await response.write(_CHUNK)
    return response


async def _truncated(request: web.Request, status: int) -> web.StreamResponse:
    response = web.StreamResponse(
        status=status, headers={"Content-Type": _JSON, "Content-Length": "1000"}
    )
    with suppress(ConnectionError):
        await response.prepare(request)
        await response.write(b'{"id": "F1", "ci')
    if request.transport is not None:
        request.transport.close()
    return response

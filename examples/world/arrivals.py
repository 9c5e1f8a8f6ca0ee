"""Reading a request off the wire into the row that records it."""

import datetime as dt
import hashlib
import json
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from examples.world.records import Received
from examples.world.switches import Match

BODY_BYTES_MAX: Final = 1024 * 1024
"""What Amends itself allows for a request body."""
_DRAINED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Who sends more than this may see a reset."""
BODY_TEXT_BYTES_MAX: Final = 2048
"""How much of a body the ledger shows to people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request that is wholly here; ``row`` gets its ``seq`` when it is recorded."""

    row: Received
    body: bytes | None
    """``None`` if it is over the limit."""
    path: str
    """Decoded and without the query."""
    callback_url: str | None = None
    """Where the caller wants the outcome reported to."""

    @property
    def described(self) -> Match:
        """Describe it in the terms of a rule."""
        return Match(
            method=self.row.method,
            path=self.path,
            saga=self.row.saga,
            step=self.row.step,
            call=self.row.call,
        )


async def read_arrival(request: web.Request) -> Arrival:
    """Read a request to its end, keeping a body of up to 1 MiB."""
    body = await _read_body(request)
    row = Received(
        seq=0,
        at=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        method=request.method,
        path=_storable(request.raw_path),
        key=_header(request, "Idempotency-Key"),
        saga=_header(request, "Amends-Saga"),
        step=_header(request, "Amends-Step"),
        call=_header(request, "Amends-Call"),
        attempt=_header(request, "Amends-Attempt"),
        body_sha256=None if body is None else hashlib.sha256(body).hexdigest(),
        body_text=(body or b"")[:BODY_TEXT_BYTES_MAX].decode(errors="replace"),
    )
    url = _header(request, "Amends-Callback-Url") or _url_in(body)
    return Arrival(row=row, body=body, path=request.path, callback_url=url)


async def _read_body(request: web.Request) -> bytes | None:
    kept = bytearray()
    seen = 0
    # What is over the limit is read and thrown away: a client that is still sending when the
    # connection closes would see a reset and not the 413.
    async for chunk in request.content.iter_any():
        seen += len(chunk)
        if seen <= BODY_BYTES_MAX:
            kept += chunk
        if seen > _DRAINED_BYTES_MAX:
            break
    return bytes(kept) if seen <= BODY_BYTES_MAX else None


def _url_in(body: bytes | None) -> str | None:
    if body is None or b'"callback_url"' not in body:
        return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    url = value.get("callback_url") if isinstance(value, dict) else None
    return _storable(url) if isinstance(url, str) else None


def _header(request: web.Request, name: str) -> str | None:
    value = request.headers.get(name)
    return None if value is None else _storable(value)


def _storable(text: str) -> str:
    # aiohttp keeps bytes that are not UTF-8 as surrogates, which SQLite does not take.
    return text.encode(errors="backslashreplace").decode()

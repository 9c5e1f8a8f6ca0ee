"""How much a request may bring: counted before anything is parsed, also when it comes in chunks."""

import asyncio
import contextlib
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import respond_to
from app.core.errors import PayloadTooLarge
from app.core.json_value import JsonValue

BODY_BYTES_MAX = 1024 * 1024
"""DESIGN.md section 8: an input, and a definition, may have 1 MiB."""

DROP_BYTES_MAX = 64 * 1024 * 1024
DROP_SECONDS_MAX = 10.0
"""How much, and how long, is read of a body that was refused; beyond it a reset is fair."""

_WITHOUT_BODY = frozenset({"GET", "HEAD"})
"""Methods whose body means nothing (RFC 9110 section 9.3.1); here it is never read."""


class BodyLimit:
    """Takes a body in whole, so that it is parsed only if it is all there and not too large.

    The rest of one that is too large is read and dropped, as far as that is reasonable: a server
    that closes with unread bytes resets the connection, and the answer is lost on its way.
    """

    def __init__(self, app: ASGIApp, *, bytes_max: int = BODY_BYTES_MAX) -> None:
        self._app = app
        self._bytes_max = bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or answer 413."""
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        body = await self._take(receive, is_too_large=self._announces_too_much(scope))
        if body is None:
            error = PayloadTooLarge(what="body of the request", bytes_max=self._bytes_max)
            await respond_to(error, method=scope["method"])(scope, receive, send)
            return
        ahead: Iterator[Message] = iter([body])

        async def replay() -> Message:
            return next(ahead, None) or await receive()

        if body["type"] == "http.request":
            await self._app(scope, replay, send)

    def _announces_too_much(self, scope: Scope) -> bool:
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        # What is not a number, the server has refused already.
        return any(value.isdigit() and int(value[:20]) > self._bytes_max for value in lengths)

    async def _take(self, receive: Receive, *, is_too_large: bool) -> Message | None:
        """The whole body as one message, or the news that the client went; None if too large."""
        chunks: list[bytes] = []
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                while size <= DROP_BYTES_MAX:
                    message = await receive()
                    if message["type"] != "http.request":
                        return message
                    chunk: bytes = message.get("body", b"")
                    size += len(chunk)
                    is_too_large = is_too_large or size > self._bytes_max
                    if not is_too_large:
                        chunks.append(chunk)
                    elif limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + DROP_SECONDS_MAX)
                    if not message.get("more_body", False):
                        whole = {"type": "http.request", "body": b"".join(chunks)}
                        return None if is_too_large else {**whole, "more_body": False}
        return None


def measure(document: JsonValue) -> tuple[int, int]:
    """How many names a document has, and how deep its lists and objects lie within one another."""
    names, depth = 0, 0
    level = [document]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        below: list[JsonValue] = []
        for each in level:
            if isinstance(each, dict):
                names += len(each)
                below.extend(each.values())
            else:
                below.extend(each)
        level = below
    return names, depth

"""How much a request may bring: counted before anything is parsed, also when it comes in chunks."""

from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import respond_to
from app.core.errors import PayloadTooLarge
from app.core.json_value import JsonValue

BODY_BYTES_MAX = 1024 * 1024
"""DESIGN.md section 8: an input, and a definition, may have 1 MiB."""

_WITHOUT_BODY = frozenset({"GET", "HEAD"})
"""Methods whose body means nothing (RFC 9110 section 9.3.1); here it is never read."""


class BodyLimit:
    """Takes a body in whole, so that it is parsed only if it is all there and not too large.

    The rest of one that is too large is left to the server, which drops it as it comes.
    """

    def __init__(self, app: ASGIApp, *, bytes_max: int = BODY_BYTES_MAX) -> None:
        self._app = app
        self._bytes_max = bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or answer 413."""
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        body = None if self._announces_too_much(scope) else await self._take(receive)
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

    async def _take(self, receive: Receive) -> Message | None:
        """The whole body as one message, or the news that the client went; None if too large."""
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return message
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > self._bytes_max:
                return None
            chunks.append(chunk)
            if not message.get("more_body", False):
                whole = b"".join(chunks)
                return {"type": "http.request", "body": whole, "more_body": False}


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

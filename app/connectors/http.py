"""The ``http`` connector: one attempt is one HTTP exchange.

It says who is calling (the headers that tools deduplicate and trace by) and reads what comes back.
The rest of the request is sent as it was stored.
"""

import hashlib

from app.connectors import content_encoding
from app.connectors.answers import read_answer
from app.connectors.base import OutgoingCall
from app.connectors.transport import (
    ANSWER_BYTES_MAX,
    Transport,
    TransportAnswer,
    TransportRequest,
)
from app.core.observation import NotSent, NotSentReason, Observation
from app.core.requests import HttpRequest
from app.version import DISTRIBUTION, installed_version


class HttpConnector:
    """Carries out calls over HTTP; a ``Connector``.

    Args:
        transport: what exchanges the bytes; closed with the connector.
        answer_bytes_max: of an answer's body after decompression.
    """

    def __init__(self, transport: Transport, *, answer_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._transport = transport
        self._answer_bytes_max = answer_bytes_max
        self._user_agent = f"{DISTRIBUTION}/{installed_version()}"

    async def attempt(self, call: OutgoingCall) -> Observation:
        """Carry out one attempt and say what was seen; see ``Connector``."""
        request = call.request
        assert isinstance(request, HttpRequest), request
        try:
            body = None if request.body is None else request.body.encode()
        except UnicodeEncodeError:
            message = "the body holds half a character (a lone surrogate)"
            return NotSent(reason=NotSentReason.FORBIDDEN, message=message)
        seen = await self._transport.exchange(
            TransportRequest(
                method=request.method,
                url=request.url,
                headers=self._headers(call, request),
                body=body,
            ),
            within=call.timeout,
            expired=call.expired,
        )
        if isinstance(seen, TransportAnswer):
            return read_answer(seen, bytes_max=self._answer_bytes_max)
        return seen

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()

    def _headers(self, call: OutgoingCall, request: HttpRequest) -> tuple[tuple[str, str], ...]:
        """Ours, then those of the definition whose names are not ours.

        What the body is and what answer is wanted is the definition's to say, if it does.
        """
        ours = {
            "Idempotency-Key": str(call.key),
            "Amends-Saga": str(call.saga_id),
            "Amends-Step": call.step,
            "Amends-Call": call.call,
            "Amends-Attempt": str(call.attempt),
            "traceparent": _traceparent(call),
            "User-Agent": self._user_agent,
            "Accept": "application/json",
            "Accept-Encoding": content_encoding.ACCEPTED,
        }
        if call.callback_url is not None:
            ours["Amends-Callback-Url"] = call.callback_url
        if request.body is not None and request.content_type is not None:
            ours["Content-Type"] = request.content_type
        if not request.headers:
            return tuple(ours.items())
        given = {name.lower() for name, _ in request.headers}
        for name in ("User-Agent", "Accept", "Content-Type"):
            if name.lower() in given:
                ours.pop(name, None)
        names = {name.lower() for name in ours}
        theirs = (pair for pair in request.headers if pair[0].lower() not in names)
        return (*ours.items(), *theirs)


def _traceparent(call: OutgoingCall) -> str:
    """W3C Trace Context: the saga is the trace, each attempt a span of it.

    Derived, so that whoever knows the saga finds its traces, and nothing needs to be stored.
    """
    attempt = call.key.bytes + call.attempt.to_bytes(4)
    span_id = hashlib.blake2b(attempt, digest_size=8).hexdigest()
    return f"00-{call.saga_id.hex}-{span_id}-01"

"""Builders of calls: valid by default, a test names what it cares about."""

import asyncio
import datetime as dt
from collections.abc import Callable
from uuid import UUID

from app.connectors import OutgoingCall
from app.core.identity import CallKey, SagaId, StepId
from app.core.requests import FunctionRequest, HttpRequest

SAGA = SagaId(UUID("01890a5d-ac96-774b-bcce-b302099a8057"))
KEY = CallKey(UUID("00112233-4455-8677-8899-aabbccddeeff"))


def a_call(
    url: str,
    *,
    method: str = "POST",
    headers: tuple[tuple[str, str], ...] = (),
    body: str | None = '{"seat": 1}',
    content_type: str | None = "application/json",
    attempt: int = 1,
    timeout_seconds: float = 30.0,
    expired: Callable[[], bool] = lambda: False,
) -> OutgoingCall:
    """A call that a tool at ``url`` would take."""
    return OutgoingCall(
        saga_id=SAGA,
        step=StepId("flight"),
        call="action",
        attempt=attempt,
        key=KEY,
        request=HttpRequest(
            method=method, url=url, headers=headers, body=body, content_type=content_type
        ),
        timeout=dt.timedelta(seconds=timeout_seconds),
        expired=expired,
    )


def a_get(url: str, *, timeout_seconds: float = 30.0) -> OutgoingCall:
    """A call without a body."""
    return a_call(url, method="GET", body=None, content_type=None, timeout_seconds=timeout_seconds)


def a_function_call(
    function: str = "tool.act",
    *,
    arguments: str = "{}",
    attempt: int = 1,
    timeout_seconds: float = 30.0,
    expired: Callable[[], bool] = lambda: False,
    callback_url: str | None = None,
) -> OutgoingCall:
    """A call of a function without arguments."""
    return OutgoingCall(
        saga_id=SAGA,
        step=StepId("flight"),
        call="action",
        attempt=attempt,
        key=KEY,
        request=FunctionRequest(function=function, arguments=arguments),
        timeout=dt.timedelta(seconds=timeout_seconds),
        expired=expired,
        callback_url=callback_url,
    )


async def a_turn() -> None:
    """Let the event loop run what is ready, once."""
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()

"""Clients that go away while their answer is awaited."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastapi import Request, Response


async def while_connected[T](request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Do what a client waits for, and drop it if the client goes; then it returns None.

    The server tells us of a client that goes, but does not stop us. Only for what changes nothing:
    it is cancelled wherever it is.

    Args:
        request: its body has been read.
        work: what to wait for. What it raises is raised.
    """
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(_settle(work))
        leaving = tasks.create_task(_wait_until_gone(request))
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        leaving.cancel()
    if working.cancelled():
        return None
    outcome = working.result()
    if isinstance(outcome, _Raised):
        raise outcome.error
    return outcome


def answer_nobody() -> Response:
    """For a client that has gone: a route must return something."""
    return Response(status_code=204)


class _Raised:
    """An exception as a value: a task group would wrap it."""

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _settle[T](work: Coroutine[Any, Any, T]) -> T | _Raised:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - raised again, by the one who waits
        return _Raised(error)


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

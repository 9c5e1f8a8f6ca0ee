"""Wait for what happens elsewhere: in another process, behind a socket, in the database.

Tests never sleep for a guessed time. Inside one process they await signals; for the rest they poll
a real condition here, the one place where a test may sleep (`tests/house` sees to it).
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import cast, overload


@overload
async def wait_until[T](
    condition: Callable[[], Awaitable[T]],
    *,
    seconds_max: float = ...,
    every_seconds: float = ...,
    what: str = ...,
    not_yet: tuple[type[Exception], ...] = ...,
) -> T: ...


@overload
async def wait_until[T](
    condition: Callable[[], T],
    *,
    seconds_max: float = ...,
    every_seconds: float = ...,
    what: str = ...,
    not_yet: tuple[type[Exception], ...] = ...,
) -> T: ...


async def wait_until[T](
    condition: Callable[[], Awaitable[T] | T],
    *,
    seconds_max: float = 10.0,
    every_seconds: float = 0.02,
    what: str = "",
    not_yet: tuple[type[Exception], ...] = (),
) -> T:
    """Call `condition` until it returns something true, and return that.

    Args:
        condition: Called again and again; sync or async. An async call still running at the
            deadline is cancelled.
        seconds_max: How long to wait, on the monotonic clock. Ten seconds are far more than any
            local event takes, so that a busy machine does not fail a test.
        every_seconds: The pause between two calls.
        what: Names in the failure what was waited for: "the service to be ready".
        not_yet: Exceptions that mean "not yet", such as `ConnectionError` while a server starts.
            Others end the wait at once.

    Returns:
        The first true value.

    Raises:
        AssertionError: Nothing true came in time. Says what was waited for, how long, how often
            it was looked at, and what was seen last.
    """
    assert seconds_max > 0, "seconds_max must be positive"
    assert every_seconds > 0, "every_seconds must be positive"
    what = what or getattr(condition, "__name__", repr(condition))
    begin = time.monotonic()
    looks = 0
    seen = "nothing: the first look did not end"
    limit = asyncio.timeout(seconds_max)
    try:
        async with limit:
            while True:
                looks += 1
                try:
                    answer = condition()
                    value = cast("T", await answer if inspect.isawaitable(answer) else answer)
                except not_yet as error:
                    seen = repr(error)
                else:
                    if value:
                        return value
                    seen = repr(value)
                await asyncio.sleep(every_seconds)
    except TimeoutError as error:
        if not limit.expired():
            raise  # the condition's own
        message = (
            f"waited {time.monotonic() - begin:.1f} s for {what}, looked {looks} times, "
            f"saw last: {seen}"
        )
        raise AssertionError(message) from error

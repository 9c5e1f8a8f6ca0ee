"""One call of a function: called at most once, and what it did as an observation.

Whether it is called is decided in one place and once: by ``_begin``, right before the call, in the
thread or task that makes it; or by ``withdraw``, where the attempt ends sooner than that.
"""

import asyncio
import inspect
import math
import threading
from collections.abc import Mapping

import orjson
import structlog

from app.connectors.base import OutgoingCall
from app.connectors.functions import CALL, KEY, Function, Functions
from app.connectors.returned import read_returned
from app.core.json_value import JsonValue
from app.core.observation import (
    BrokenOff,
    BrokenOffReason,
    Claim,
    Claimed,
    NotSent,
    NotSentReason,
    Observation,
)
from app.core.requests import FunctionRequest
from app.functions import Call, Refused, Retry, Unknown

log = structlog.get_logger(__name__)

MESSAGE_CHARACTERS_MAX = 500


class Invocation:
    """A function, what it is called with, and whether it has been.

    Attributes:
        function: what is called.
        call: on whose behalf.
        is_abandoned: the attempt is over; nobody wants to know any more.
    """

    def __init__(
        self,
        function: Function,
        call: OutgoingCall,
        arguments: Mapping[str, object],
        *,
        answer_bytes_max: int,
    ) -> None:
        self.function = function
        self.call = call
        self.is_abandoned = False
        self._arguments = arguments
        self._answer_bytes_max = answer_bytes_max
        self._deciding = threading.Lock()
        self._has_begun = False
        self._is_withdrawn = False

    @property
    def facts(self) -> dict[str, object]:
        """For logs: whose call it is; no arguments."""
        return {
            "function": self.function.name,
            "saga_id": str(self.call.saga_id),
            "step": self.call.step,
            "call": self.call.call,
            "attempt": self.call.attempt,
        }

    def withdraw(self) -> bool:
        """Make sure that it is not called any more; returns False if it was, already."""
        with self._deciding:
            self._is_withdrawn = not self._has_begun
            return self._is_withdrawn

    def run(self) -> Observation:
        """Call a function that blocks, in this thread. Raises nothing that the function raises."""
        if not self._begin():
            return self.not_sent()
        try:
            value = self.function.implementation(**self._arguments)
        except BaseException as error:  # noqa: BLE001 - the function's, not ours
            return self._read_raised(error)
        if inspect.iscoroutine(value):
            value.close()  # it has not begun; left alone it would warn that nobody awaited it
        return read_returned(value, bytes_max=self._answer_bytes_max)

    async def run_in_loop(self) -> Observation:
        """Call an async function; to be run in a task of its own.

        The task ends without an error whatever the function raises: ``SystemExit`` would end the
        event loop, and a ``CancelledError`` of the function's making looks like one of ours.
        """
        if not self._begin():
            return self.not_sent()
        try:
            pending = self.function.implementation(**self._arguments)
            assert inspect.isawaitable(pending)
            value = await pending
        except BaseException as error:
            if self.is_abandoned and isinstance(error, asyncio.CancelledError | GeneratorExit):
                raise  # that was us
            return self._read_raised(error)
        return read_returned(value, bytes_max=self._answer_bytes_max)

    def not_sent(self) -> NotSent:
        """What is seen of a function whose turn came too late."""
        message = f"the function {self.function.name!r} could not be called in time"
        return NotSent(reason=NotSentReason.EXPIRED, message=message)

    def _begin(self) -> bool:
        with self._deciding:
            self._has_begun = not self._is_withdrawn and not self.call.expired()
            return self._has_begun

    def _read_raised(self, error: BaseException) -> Claimed | BrokenOff:
        match error:
            case Refused():
                return Claimed(claim=Claim.REFUSED, message=_text_of(error))
            case Retry():
                return Claimed(
                    claim=Claim.RETRY,
                    message=_text_of(error),
                    retry_after_seconds=_seconds(error.after_seconds),
                )
            case Unknown():
                return Claimed(claim=Claim.UNKNOWN, message=_text_of(error))
            case _:
                log.warning("function_raised", **self.facts, exc_info=error)
                message = _cut(f"{type(error).__name__}: {_text_of(error)}")
                return BrokenOff(reason=BrokenOffReason.RAISED, message=message)


def prepare(
    functions: Functions, call: OutgoingCall, *, answer_bytes_max: int
) -> Invocation | NotSent:
    """What ``call`` asks for; or why that cannot be called, here or at all."""
    request = call.request
    assert isinstance(request, FunctionRequest), request
    try:
        arguments: JsonValue = orjson.loads(request.arguments)
    except ValueError as error:
        return _forbidden(f"the arguments are not JSON: {error}")
    if not isinstance(arguments, dict):
        return _forbidden("the arguments are not a JSON object")
    function = functions.find(request.function)
    fault = functions.find_fault(request.function, arguments)
    if fault is not None and function is None:
        # While a new release is rolled out, another replica has it, or this one after its start.
        return NotSent(reason=NotSentReason.UNREACHABLE, message=_cut(fault))
    if fault is not None:
        return _forbidden(fault)
    assert function is not None
    given: dict[str, object] = {**arguments}
    if function.takes(KEY):
        given[KEY] = str(call.key)
    if function.takes(CALL):
        given[CALL] = _call_of(call)
    return Invocation(function, call, given, answer_bytes_max=answer_bytes_max)


def _call_of(call: OutgoingCall) -> Call:
    return Call(
        saga_id=str(call.saga_id),
        step=call.step,
        call=call.call,
        attempt=call.attempt,
        key=str(call.key),
        timeout_seconds=call.timeout.total_seconds(),
        callback_url=call.callback_url,
    )


def _forbidden(message: str) -> NotSent:
    return NotSent(reason=NotSentReason.FORBIDDEN, message=_cut(message))


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - its class is the function's, and so is what it runs
        text = "(an error that cannot be put into words)"
    return _cut(text)


def _cut(text: str) -> str:
    """At most so long, and without the half characters that cannot be stored."""
    return text[:MESSAGE_CHARACTERS_MAX].encode(errors="replace").decode()


def _seconds(value: object) -> float | None:
    """A wait that makes sense; None for any other."""
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)

"""A tool of the conformance suite that is a Python function."""

import asyncio
import contextlib
import inspect
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, assert_never

from app.connectors import Connector, Function, Functions, OutgoingCall, PythonConnector
from app.core.json_value import JsonValue
from app.functions import Call, Refused, Retry, Unknown
from tests.connectors.calls import a_function_call
from tests.connectors.conformance import WAIT_SECONDS, Answer, Behaviour, Deed, Seen


def a_function(implementation: Callable[..., object], *, name: str = "tool.act") -> Function:
    """As the loader would make it of a function in a module."""
    return Function(
        name=name,
        implementation=implementation,
        parameters=inspect.signature(implementation).parameters,
        is_async=inspect.iscoroutinefunction(implementation),
    )


class MakePython:
    """Makes connectors over functions; each is called ``tool.<name>``."""

    def __init__(self) -> None:
        self.made: list[PythonConnector] = []

    def __call__(self, *implementations: Callable[..., object], **limits: Any) -> PythonConnector:
        """A connector for these functions, with limits as ``PythonConnector`` has them."""
        functions = (a_function(each, name=f"tool.{each.__name__}") for each in implementations)
        self.made.append(PythonConnector(Functions(functions), **limits))
        return self.made[-1]


class PythonTool:
    """A ``Tool`` that is a function, async or not; made by ``python_tool``."""

    def __init__(self, *, is_async: bool) -> None:
        function = a_function(self._act_in_loop if is_async else self._act)
        self.connector: Connector = PythonConnector(Functions([function]))
        self.behaviour: Behaviour = Deed.SAY_NOTHING
        self.seen: list[Seen] = []
        self.arrived = asyncio.Semaphore(0)
        self.let_go = threading.Event()
        self._loop = asyncio.get_running_loop()

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
        return a_function_call(
            "tool.act",
            arguments=json.dumps(arguments or {}),
            attempt=attempt,
            timeout_seconds=timeout_seconds,
            expired=expired,
            callback_url=callback_url,
        )

    def make_call_of_nobody(self) -> OutgoingCall:
        """A call of a function that nobody defined."""
        return a_function_call("tool.nobody")

    def _act(self, key: str, call: Call, **arguments: Any) -> JsonValue:
        self._see(key, call, arguments)
        if self.behaviour is Deed.HANG:
            self.let_go.wait()
        return self._answer()

    async def _act_in_loop(self, key: str, call: Call, **arguments: Any) -> JsonValue:
        self._see(key, call, arguments)
        if self.behaviour is Deed.HANG:
            await asyncio.Event().wait()
        return self._answer()

    def _see(self, key: str, call: Call, arguments: dict[str, JsonValue]) -> None:
        seen = Seen(
            saga_id=call.saga_id,
            step=call.step,
            call=call.call,
            attempt=call.attempt,
            key=key,
            callback_url=call.callback_url,
            arguments=arguments,
        )
        self.seen.append(seen)
        self._loop.call_soon_threadsafe(self.arrived.release)

    def _answer(self) -> JsonValue:
        match self.behaviour:
            case Answer(value=value):
                return value
            case Deed.SAY_NOTHING | Deed.HANG:
                return None
            case Deed.REFUSE:
                raise Refused("no")
            case Deed.ASK_TO_RETRY:
                raise Retry("busy", after_seconds=WAIT_SECONDS)
            case Deed.SAY_UNKNOWN:
                raise Unknown("?")
            case Deed.BREAK_OFF:
                raise ConnectionResetError("the tool's own tool hung up")
            case Deed.SAY_TOO_MUCH:
                return "x" * 1024 * 1024
            case _:
                assert_never(self.behaviour)


@contextlib.asynccontextmanager
async def python_tool(*, is_async: bool) -> AsyncIterator[PythonTool]:
    """A function and its connector, which is closed in the end."""
    tool = PythonTool(is_async=is_async)
    try:
        yield tool
    finally:
        tool.let_go.set()
        await tool.connector.close()

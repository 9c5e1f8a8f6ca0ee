"""Each call goes to the connector that its request is made for."""

import pytest

from app.connectors import Connectors, OutgoingCall
from app.core.observation import Answered, Observation
from tests.connectors.calls import a_call, a_function_call


class Noting:
    """A connector that says its name."""

    def __init__(self, name: str, *, error: Exception | None = None) -> None:
        self.name = name
        self.error = error
        self.is_closed = False

    async def attempt(self, call: OutgoingCall) -> Observation:
        """Answer with the name."""
        return Answered(status=200, body=self.name)

    async def close(self) -> None:
        """Fail, if that is wanted."""
        self.is_closed = True
        if self.error is not None:
            raise self.error


async def test_calls_are_told_apart() -> None:
    """An HTTP request goes to ``http``, a function to ``python``."""
    connectors = Connectors(http=Noting("http"), python=Noting("python"))

    answers = [
        await connectors.attempt(call)
        for call in (a_call("http://127.0.0.1/"), a_function_call("tool.act"))
    ]

    assert answers == [Answered(status=200, body="http"), Answered(status=200, body="python")]


async def test_all_are_closed() -> None:
    """Closing closes all, also where one of them fails, and tells of the failure."""
    http, python = Noting("http", error=OSError("stuck")), Noting("python")

    with pytest.raises(ExceptionGroup) as raised:
        await Connectors(http=http, python=python).close()

    assert raised.group_contains(OSError, match="stuck")
    assert (http.is_closed, python.is_closed) == (True, True)

"""All connectors as one: each call goes to the one that its request is made for."""

import asyncio
from typing import assert_never

from app.connectors.base import Connector, OutgoingCall
from app.core.observation import Observation
from app.core.requests import FunctionRequest, HttpRequest


class Connectors:
    """Picks a connector by the type of the request; a ``Connector``.

    Args:
        http: for an ``HttpRequest``; closed with this.
        python: for a ``FunctionRequest``; closed with this.
    """

    def __init__(self, *, http: Connector, python: Connector) -> None:
        self._http = http
        self._python = python

    async def attempt(self, call: OutgoingCall) -> Observation:
        """Carry out one attempt and say what was seen; see ``Connector``."""
        match call.request:
            case HttpRequest():
                return await self._http.attempt(call)
            case FunctionRequest():
                return await self._python.attempt(call)
            case _:
                assert_never(call.request)

    async def close(self) -> None:
        """Close all; if one fails at it, the others are closed, and then it is told.

        Raises:
            ExceptionGroup: Whatever went wrong.
        """
        closings = (self._http.close(), self._python.close())
        results = await asyncio.gather(*closings, return_exceptions=True)
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise ExceptionGroup("connectors could not be closed", errors)

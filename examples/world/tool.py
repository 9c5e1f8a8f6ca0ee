"""Leading one request through the world: record, faults before, effect, faults after, answer.

What is to be reported later is handed to the caller (``caller``) once the answer has left, or, if
no answer is to come, at once. A client that goes away stops nothing: the server runs handlers to
their end.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from examples.world import wire
from examples.world.arrivals import Arrival, read_arrival
from examples.world.caller import Caller
from examples.world.decisions import Decision, key_reused, refusal
from examples.world.faults import Decline, Fail, Fault
from examples.world.holds import Holds
from examples.world.keys import Asked, fingerprint
from examples.world.records import Received
from examples.world.routes import route
from examples.world.storage import Storage
from examples.world.switches import Mode, Switches


class Tool:
    """All tools of the world behind one handler, ``answer``."""

    def __init__(
        self, *, storage: Storage, switches: Switches, holds: Holds, caller: Caller
    ) -> None:
        """Take what the control desk works on, too."""
        self._caller = caller
        self._storage = storage
        self._switches = switches
        self._holds = holds
        self._running: dict[str, str] = {}
        """The fingerprint of the request that is running under a key, until its effect."""

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """Handle one request to a tool."""
        arrival = await read_arrival(http)
        fault = self._switches.fault_for(arrival.described)
        request = await self._storage.receive(arrival, fault=fault.text)
        await asyncio.sleep(fault.late_effect)
        decision = await self._reach(arrival, request, fault)
        calls_back = decision is not None and decision.calls_back
        if calls_back:
            await self._caller.tell_early(request.seq)
        if fault.hold is not None and fault.hold.where == "after":
            await self._holds.hold(fault.hold, request)
        await asyncio.sleep(fault.late)
        if calls_back and fault.status_on_wire(0) is None:
            self._caller.start(request.seq)
            calls_back = False
        response = await wire.send(http, decision, fault.ending)
        if calls_back:
            await wire.finish(http, response)
            self._caller.start(request.seq)
        return response

    async def _reach(self, arrival: Arrival, request: Received, fault: Fault) -> Decision | None:
        """Lead a request to the tool, if its fault lets it get there."""
        mode = self._switches.mode_of(route(request.method, request.path).resource)
        # A tool that stores failures has to see a request to store one.
        stores_failure = mode.caches_errors and isinstance(fault.ending, Fail)
        if not fault.reaches_tool and not stores_failure:
            await self._dawdle(request, fault)
            await self._storage.finish(request, outcome="none", status=fault.status_on_wire(0))
            return None
        if arrival.body is None:
            return await self._refuse(
                request, refusal(413, "too_large", "the limit is 1 MiB"), fault
            )
        url = None if request.is_read or not mode.calls_back else arrival.callback_url
        if url is not None and not self._caller.may_call(url):
            message = f"{url!r} may not be called back: it is not on this machine"
            return await self._refuse(request, refusal(422, "callback_url", message), fault)
        with self._claim(request, mode) as refused:
            if refused is not None:
                return await self._refuse(request, refused, fault)
            await self._dawdle(request, fault)
            return await self._storage.act(
                request,
                arrival.body,
                Asked(
                    mode=mode,
                    ordered=_ordered_refusal(fault),
                    stored_instead=_stored_instead(fault),
                    callback_url=url,
                    acts_now=fault.plan.acts == "now",
                ),
                on_wire=fault.status_on_wire,
            )

    async def _dawdle(self, request: Received, fault: Fault) -> None:
        await asyncio.sleep(fault.delay)
        if fault.hold is not None and fault.hold.where == "before":
            await self._holds.hold(fault.hold, request)

    async def _refuse(self, request: Received, refused: Decision, fault: Fault) -> Decision:
        status = fault.status_on_wire(refused.status)
        await self._storage.finish(request, outcome="refused", status=status)
        return refused

    @contextmanager
    def _claim(self, request: Received, mode: Mode) -> Iterator[Decision | None]:
        """Take the key until the effect is there; yield a refusal if it is taken."""
        key = request.key
        if key is None or request.is_read or not mode.honours_keys:
            yield None
        elif key not in self._running:
            self._running[key] = fingerprint(request)
            try:
                yield None
            finally:
                del self._running[key]
        elif self._running[key] == fingerprint(request):
            yield refusal(409, "in_progress", f"the first request with key {key!r} is running")
        else:
            yield key_reused(key)


def _ordered_refusal(fault: Fault) -> Decision | None:
    match fault.ending:
        case Decline(status=status, code=code):
            return refusal(status, code, "a switch ordered this refusal")
        case Fail(status=status, effect=False):
            return wire.failure(status)
        case _:
            return None


def _stored_instead(fault: Fault) -> Decision | None:
    match fault.ending:
        case Fail(status=status, effect=True):
            return wire.failure(status)
        case _:
            return None

"""The control desk: the routes under ``/world``, which are not part of the world's business."""

import dataclasses
import json

from aiohttp import web

from examples.world import wire
from examples.world.caller import Caller
from examples.world.fields import Complaint, Fields
from examples.world.holds import Holds
from examples.world.records import JsonValue
from examples.world.storage import Storage
from examples.world.summary import summarize
from examples.world.switches import InvalidSwitchesError, Switches

WAIT_SECONDS_MAX = 60.0


class Control:
    """Handlers for setting switches, watching and releasing holds, and reading the ledger."""

    def __init__(
        self, *, storage: Storage, switches: Switches, holds: Holds, caller: Caller
    ) -> None:
        """Take what the tool works on, too."""
        self._caller = caller
        self._storage = storage
        self._switches = switches
        self._holds = holds

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        router.add_get("/health", self.health)
        router.add_get("/world/switches", self.show_switches)
        router.add_put("/world/switches", self.set_switches)
        router.add_delete("/world/switches", self.clear_switches)
        router.add_get("/world/held", self.show_held)
        router.add_post("/world/release", self.release)
        router.add_get("/world/callbacks", self.show_callbacks)
        router.add_get("/world/ledger", self.show_ledger)
        router.add_get("/world/summary", self.show_summary)
        router.add_route("*", "/world{rest:(/.*)?}", self.refuse)

    async def health(self, _: web.Request) -> web.Response:
        """Say that the world is there."""
        return wire.reply_json({"status": "ok"})

    async def refuse(self, http: web.Request) -> web.Response:
        """Refuse a path that is not on this desk, so that a slip is not taken for a tool call."""
        return _problem(404, "no_such_path", f"no {http.method} {http.path} here")

    async def show_switches(self, _: web.Request) -> web.Response:
        """Show the switches with their counts."""
        return wire.reply_json(self._switches.to_json())

    async def set_switches(self, http: web.Request) -> web.Response:
        """Replace all switches, or say all that is wrong with the list and change nothing."""
        try:
            self._switches.replace(json.loads(await http.read()))
        except InvalidSwitchesError as error:
            return _invalid(*error.complaints)
        except (ValueError, RecursionError) as error:
            return _problem(400, "malformed_json", str(error))
        return wire.reply_json(self._switches.to_json())

    async def clear_switches(self, _: web.Request) -> web.Response:
        """Remove all switches; who is held stays held."""
        self._switches.replace([])
        return wire.reply_json([])

    async def show_held(self, http: web.Request) -> web.Response:
        """Show who is held, waiting ``wait`` seconds for ``count`` of them, under ``name``."""
        patience = _read_patience(http)
        if isinstance(patience, web.Response):
            return patience
        count, wait_seconds = patience
        held = await self._holds.wait_until_held(
            http.query.get("name"), count=count, wait_seconds=wait_seconds
        )
        return wire.reply_json({"held": [each.to_json() for each in held]})

    async def show_callbacks(self, http: web.Request) -> web.Response:
        """Show what was reported, waiting ``wait`` seconds until ``count`` reports are answered.

        Those of one ``saga`` or one ``key``, or all; an attempt that found nobody counts, too.
        """
        patience = _read_patience(http)
        if isinstance(patience, web.Response):
            return patience
        count, wait_seconds = patience
        saga, key = http.query.get("saga"), http.query.get("key")
        ledger = await self._caller.wait_answered(
            saga=saga, key=key, count=count, wait_seconds=wait_seconds
        )
        shown: list[JsonValue] = [
            dataclasses.asdict(each) for each in ledger.callbacks if key in {None, each.key}
        ]
        return wire.reply_json({"callbacks": shown})

    async def release(self, http: web.Request) -> web.Response:
        """Let go who is held under ``name`` now; without a name, everybody."""
        complaints: list[Complaint] = []
        try:
            asked = Fields(
                value=json.loads(await http.read() or b"{}"), path="$", complaints=complaints
            )
        except (ValueError, RecursionError) as error:
            return _problem(400, "malformed_json", str(error))
        name = asked.text("name")
        asked.finish()
        if complaints:
            return _invalid(*complaints)
        return wire.reply_json({"released": self._holds.release(name)})

    async def show_ledger(self, http: web.Request) -> web.Response:
        """Show what was received and done, of all or of one ``saga``."""
        ledger = await self._storage.ledger(saga=http.query.get("saga"))
        return web.Response(text=ledger.to_json(), content_type="application/json")

    async def show_summary(self, http: web.Request) -> web.Response:
        """Show counts and what is wrong, for each saga."""
        ledger = await self._storage.ledger(saga=http.query.get("saga"))
        return wire.reply_json(summarize(ledger))


def _read_patience(http: web.Request) -> tuple[int, float] | web.Response:
    """Read ``count`` and ``wait`` from a query, or refuse them."""
    try:
        wait_seconds = float(http.query.get("wait", "0"))
        count = int(http.query.get("count", "1"))
    except ValueError as error:
        return _problem(422, "invalid", f"wait and count must be numbers: {error}")
    if not 0 <= wait_seconds <= WAIT_SECONDS_MAX:
        return _problem(422, "invalid", f"wait must be from 0 to {WAIT_SECONDS_MAX:g} seconds")
    return count, wait_seconds


def _problem(status: int, code: str, message: str) -> web.Response:
    return wire.reply_json({"error": code, "message": message}, status=status)


def _invalid(*complaints: Complaint) -> web.Response:
    errors: list[JsonValue] = [dataclasses.asdict(each) for each in complaints]
    return wire.reply_json({"error": "invalid", "errors": errors}, status=422)

"""Connection slots: at most so many exchanges at once, in all and per host.

The HTTP library could count connections too. This counts instead, so that waiting for a slot has
its own time limit, is not lost when a waiter gives up just as its turn comes, and is the same for
every library.

A call waits in its host's queue first, and only holds up others once its host has room: a slow
host fills its own queue and no other. Both queues are first come, first served.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

RECHECK_SECONDS = 1.0
"""How often a waiting call asks whether to give up. Its ``send_by`` is checked again before the
first byte, so this only limits how long a hopeless call stays in memory."""


class Turnstile:
    """Lets at most ``limit`` in at once, first come, first served."""

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        self._free = limit
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    @property
    def is_unused(self) -> bool:
        """Nobody is in, and nobody waits."""
        return self._free == self._limit and not self._waiting

    async def enter(self, *, give_up: Callable[[], bool]) -> bool:
        """Wait for a place.

        Args:
            give_up: asked every ``RECHECK_SECONDS`` while waiting.

        Returns:
            True: the place is taken, and ``leave`` must follow. False: ``give_up`` said so.
        """
        if self._free:
            assert not self._waiting
            self._free -= 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        entered = False
        try:
            while not turn.done() and not give_up():
                await asyncio.wait((turn,), timeout=RECHECK_SECONDS)
            entered = turn.done()
        finally:
            if not entered:
                self._withdraw(turn)
        return entered

    def leave(self) -> None:
        """Give the place to whoever waits longest, or keep it free."""
        if self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            turn.set_result(None)
        else:
            self._free += 1
            assert self._free <= self._limit

    def _withdraw(self, turn: asyncio.Future[None]) -> None:
        if turn.done():  # the turn came just as its waiter was cancelled: pass it on
            self.leave()
        else:
            del self._waiting[turn]


class Slots[Host]:
    """Limits in all and per host.

    Args:
        limit: exchanges at once, in all.
        limit_per_host: exchanges at once with one host.
    """

    def __init__(self, *, limit: int, limit_per_host: int) -> None:
        self._all = Turnstile(limit)
        self._limit_per_host = limit_per_host
        self._hosts: dict[Host, Turnstile] = {}

    async def enter(self, host: Host, *, give_up: Callable[[], bool]) -> bool:
        """Wait for a slot; as ``Turnstile.enter``."""
        turnstile = self._hosts.get(host)
        if turnstile is None:
            turnstile = self._hosts[host] = Turnstile(self._limit_per_host)
        entered_all = False
        try:
            if not await turnstile.enter(give_up=give_up):
                return False
            try:
                entered_all = await self._all.enter(give_up=give_up)
            finally:
                if not entered_all:
                    turnstile.leave()
        finally:
            self._forget_if_unused(host, turnstile)
        return entered_all

    def leave(self, host: Host) -> None:
        """Give the slot back."""
        turnstile = self._hosts[host]
        turnstile.leave()
        self._all.leave()
        self._forget_if_unused(host, turnstile)

    def _forget_if_unused(self, host: Host, turnstile: Turnstile) -> None:
        """Hosts come and go; what is remembered of them is bounded by what is going on."""
        if turnstile.is_unused:
            del self._hosts[host]

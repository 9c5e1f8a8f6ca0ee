"""The world as a process, and what the tests ask its ledger."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from examples.world import Expectation, Ledger, Received, judge
from tests.e2e.processes import Child, python
from tests.examples.client import Client
from tests.waiting import wait_until

SLOW = ({"match": {}, "chance": 0.5, "do": {"delay": 0.25}}, {"match": {}, "do": {"late": 0.2}})
"""Calls that take a moment, before or after their effect, so that many are in flight."""

ENDINGS = ("decline", "fail", "drop", "hang", "nonsense", "answer")


class World(Child):
    """A tool server with a durable ledger, in a process of its own."""

    def __init__(self, *, place: Path) -> None:
        super().__init__(
            "world",
            python("-m", "examples.world", "--port", "0", "--ledger", str(place / "world.db")),
            log=place / "world.log",
        )

    def client(self, session: aiohttp.ClientSession) -> Client:
        """A client of it."""
        return Client(url=self.url, session=session)


async def switch(world: Client, *switches: object) -> None:
    """Set the switches, and begin to count the requests anew."""
    counter = {"times": 0, "do": {"late": 0.001}}
    await world.switch(counter, *switches)


async def wait_requests(world: Client, count: int, *, seconds_max: float = 30.0) -> None:
    """Return once so many requests came since the switches were set."""

    async def came() -> bool:
        return await count_requests(world) >= count

    await wait_until(came, seconds_max=seconds_max, what=f"{count} requests to the world")


async def count_requests(world: Client) -> int:
    """How many requests came since the switches were set."""
    reply = await world.send("GET", "/world/switches")
    seen: int = reply.json[0]["seen"]
    return seen


def judged(ledger: Ledger, statuses: dict[str, str], *, residue_steps: Sequence[str] = ()) -> str:
    """All that is wrong with a run, a line each, by how each saga says that it ended."""
    expectations: dict[str, Expectation] = {}
    for saga, status in statuses.items():
        match status:
            case "completed" | "compensated" | "partially_compensated":
                expectations[saga] = status
            case _:
                raise AssertionError(f"saga {saga} ended as {status!r}")
    return "\n".join(
        str(violation) for violation in judge(ledger, expectations, residue_steps=residue_steps)
    )


def by_key(ledger: Ledger) -> dict[str, list[Received]]:
    """The requests that may change something, by idempotency key, in order."""
    found: defaultdict[str, list[Received]] = defaultdict(list)
    for request in ledger.requests:
        if request.key is not None and not request.is_read:
            found[request.key].append(request)
    return dict(found)


def lost_and_resent(ledger: Ledger) -> list[Received]:
    """Requests that were sent again though nothing was wrong with the answer to the one before.

    Only a sender that was lost before it could store the answer does that.
    """
    return [
        later
        for requests in by_key(ledger).values()
        for earlier, later in itertools.pairwise(requests)
        if not _had_bad_ending(earlier) and earlier.outcome in {"applied", "replayed"}
    ]


def sent_twice(ledger: Ledger) -> Sequence[str]:
    """The keys that came more than once."""
    return [
        f"{requests[0].step} {requests[0].call} of {requests[0].saga}: {len(requests)} times"
        for requests in by_key(ledger).values()
        if len(requests) > 1
    ]


def _had_bad_ending(request: Received) -> bool:
    return request.fault is not None and any(f'"{name}"' in request.fault for name in ENDINGS)

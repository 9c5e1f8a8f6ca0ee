"""Clients of the service: patient as good clients are, and a mixed load of sagas."""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.e2e.processes import Child
from tests.waiting import wait_until

TRIP: Mapping[str, str] = {"city": "Rome", "card": "4242"}
"""An input of any of our definitions that completes."""

_FLIGHTS = "${{ vars.world }}/flights"

PATIENT: Mapping[str, Any] = {
    "amends": 1,
    "name": "patient",
    "steps": [
        {
            "id": "flight",
            "action": {
                "http": {"method": "POST", "url": _FLIGHTS, "json": {"city": "Rome"}},
                "timeout": "5m",
                "idempotent": True,
            },
            "compensation": {
                "http": {"method": "DELETE", "url": _FLIGHTS + "/${{ action.output.id }}"}
            },
        }
    ],
}
"""A definition of a saga that waits for its tool for as long as a test may take."""

CALL_SECONDS_MAX = 15.0
PATIENCE_SECONDS = 60.0

UNANSWERED = (aiohttp.ClientError, TimeoutError, ConnectionError)
"""What a client meets whose service was killed, or is not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the service."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.text)


AT_REST = (
    "completed",
    "compensated",
    "partially_compensated",
    "terminated",
    "stuck",
    "paused",
)


class Api:
    """Speaks to whichever of some replicas answers; their URLs may change as they are restarted."""

    def __init__(self, session: aiohttp.ClientSession, *replicas: Child) -> None:
        self._session = session
        self.replicas = list(replicas)

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        data: object = None,
        seconds_max: float = CALL_SECONDS_MAX,
    ) -> Answer:
        """One request to the first replica, once; raises one of `UNANSWERED`."""
        async with self._session.request(
            method,
            self.replicas[0].url + path,
            json=body,
            data=data,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=seconds_max),
        ) as answer:
            return Answer(
                status=answer.status, headers=answer.headers.copy(), text=await answer.text()
            )

    async def insist(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        seconds_max: float = PATIENCE_SECONDS,
    ) -> Answer:
        """The same request again and again, to each replica in turn, until it is not put off."""
        turn = 0

        async def attempt() -> Answer | None:
            nonlocal turn
            replica = self.only(turn % len(self.replicas))
            turn += 1
            answer = await replica.call(method, path, body, headers=headers)
            return None if answer.status == 503 else answer

        answer = await wait_until(
            attempt,
            seconds_max=seconds_max,
            every_seconds=0.1,
            what=f"{method} {path} to be answered",
            not_yet=UNANSWERED,
        )
        assert answer is not None
        return answer

    async def start(self, definition: str, saga_input: object, *, key: str | None = None) -> str:
        """Start a saga, with the same key as often as it takes; returns its id."""
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = await self.insist(
            "POST", "/v1/sagas", {"definition": definition, "input": saga_input}, headers=headers
        )
        assert answer.status in {200, 202}, f"{answer.status} {answer.text}"
        saga: str = answer.json["id"]
        return saga

    async def saga(self, saga: str) -> Any:
        """A saga as it is now."""
        answer = await self.insist("GET", f"/v1/sagas/{saga}")
        assert answer.status == 200, f"{answer.status} {answer.text}"
        return answer.json

    async def rested(
        self, saga: str, *, seconds_max: float = 30.0, statuses: Sequence[str] = AT_REST
    ) -> Any:
        """A saga once it is at rest: final, stuck or paused."""

        async def at_rest() -> Any:
            shown = await self.saga(saga)
            return shown if shown["status"] in statuses else None

        return await wait_until(at_rest, seconds_max=seconds_max, what=f"saga {saga} to rest")

    def only(self, number: int) -> "Api":
        """A client of one of the replicas."""
        return Api(self._session, self.replicas[number])

    async def is_ready(self) -> bool:
        """Whether the first replica says that it can do its work."""
        with suppress(*UNANSWERED):
            return (await self.call("GET", "/health/ready")).status == 200
        return False

    async def ready(self) -> None:
        """Return once the first replica is ready."""
        await wait_until(self.is_ready, seconds_max=30, what=f"{self.replicas[0].name} to be ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A saga that is to be started, and how it has to end."""

    key: str
    definition: str
    input: Mapping[str, str]
    ends: str

    @property
    def may_give_up(self) -> bool:
        """Whether a lost answer alone may undo it."""
        return self.definition == "careful"


_KINDS: Sequence[tuple[str, Mapping[str, str], str]] = (
    ("trip", {"city": "Rome", "card": "4242"}, "completed"),
    ("rental", {"city": "Rome", "card": "4242"}, "completed"),
    ("trip", {"city": "Rome", "card": "declined"}, "compensated"),
    ("careful", {"city": "Rome", "card": "4242"}, "completed"),
    ("rental", {"city": "Rome", "card": "4000000000000002"}, "compensated"),
    ("trip", {"city": "Rome", "hotel_city": "Atlantis", "card": "4242"}, "compensated"),
    ("careful", {"city": "Rome", "card": "declined"}, "compensated"),
    ("trip", {"city": "Oslo", "card": "4242"}, "completed"),
)


def make_orders(count: int, dice: random.Random) -> list[Order]:
    """A mixed load: about half of it has to be undone, for one reason or another."""
    orders = [
        Order(key=f"order-{number}", definition=name, input=saga_input, ends=ends)
        for number in range(count)
        for name, saga_input, ends in [_KINDS[number % len(_KINDS)]]
    ]
    dice.shuffle(orders)
    return orders


async def start_all(api: Api, orders: Sequence[Order]) -> dict[str, str]:
    """Start orders all at once, through the first replica; returns their ids by key."""
    alone = api.only(0)

    async def start(order: Order) -> tuple[str, str]:
        return order.key, await alone.start(order.definition, order.input, key=order.key)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(start(order)) for order in orders]
    return dict(task.result() for task in tasks)


def disagreements(
    orders: Sequence[Order], ids: Mapping[str, str], statuses: Mapping[str, str]
) -> list[str]:
    """Sagas that did not end as their input demands.

    Args:
        orders: what was started.
        ids: of the sagas, by the key of the order.
        statuses: of the sagas, by id.
    """
    found = []
    for order in orders:
        status = statuses[ids[order.key]]
        is_given_up = order.may_give_up and status == "compensated"
        if status != order.ends and not is_given_up:
            found.append(f"{order} ({ids[order.key]}) ended {status}")
    return found

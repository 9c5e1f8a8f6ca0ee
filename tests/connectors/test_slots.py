"""Connections are limited in all and per host; a slow host takes none from another."""

import asyncio
import random
from collections import Counter

import pytest

from app.connectors.slots import Slots, Turnstile
from app.core.observation import Answered
from tests.connectors.calls import a_call, a_turn
from tests.connectors.conftest import MakeConnector
from tests.connectors.raw_server import Peer, answer, answering, serving


def never() -> bool:
    """Wait on."""
    return False


async def test_slow_host_does_not_starve_another(make_connector: MakeConnector) -> None:
    """While one host holds all it may, and more wait for it, calls to another go through."""
    connector = make_connector(connections_max=3, connections_per_host_max=2)
    let_go = asyncio.Event()
    arrived = asyncio.Semaphore(0)

    async def behave(peer: Peer) -> None:
        while True:
            await peer.read_request()
            arrived.release()
            await let_go.wait()
            await peer.send(answer(b"1"))

    async with (
        serving(behave) as slow,
        serving(answering(answer(b"2"))) as quick,
        asyncio.TaskGroup() as group,
    ):
        slow_ones = [group.create_task(connector.attempt(a_call(slow.url()))) for _ in range(10)]
        for _ in range(2):
            await arrived.acquire()
        quick_ones = [await connector.attempt(a_call(quick.url())) for _ in range(5)]
        connections = slow.connections
        let_go.set()

    assert all(isinstance(each, Answered) and each.body == 2 for each in quick_ones)
    assert connections == 2
    assert all(isinstance(each.result(), Answered) for each in slow_ones)
    assert slow.connections <= 3  # at most one more where a connection was closed in between


async def test_turnstile_is_first_come_first_served() -> None:
    """Places are given in the order in which they were asked for."""
    turnstile = Turnstile(1)
    order: list[int] = []

    async def visit(number: int) -> None:
        assert await turnstile.enter(give_up=never)
        order.append(number)
        turnstile.leave()

    await turnstile.enter(give_up=never)
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(visit(number))
        await a_turn()
        turnstile.leave()

    assert order == [0, 1, 2, 3, 4]
    assert turnstile.is_unused


async def test_turn_of_a_cancelled_waiter_is_passed_on() -> None:
    """A waiter that is cancelled in the very moment its turn comes does not take it along."""
    turnstile = Turnstile(1)
    await turnstile.enter(give_up=never)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(turnstile.enter(give_up=never))
        second = group.create_task(turnstile.enter(give_up=never))
        await a_turn()
        turnstile.leave()
        first.cancel()

    assert first.cancelled()
    assert second.result()


async def test_failing_question_frees_the_place() -> None:
    """If asking whether to give up fails, the waiter leaves the queue."""
    turnstile = Turnstile(1)
    await turnstile.enter(give_up=never)

    def fail() -> bool:
        raise RuntimeError("no clock")

    with pytest.raises(RuntimeError):
        await turnstile.enter(give_up=fail)

    turnstile.leave()
    assert turnstile.is_unused


async def test_slots_survive_any_order_of_cancellations() -> None:
    """However waiters come, go and are cancelled, limits hold and no slot is lost."""
    choose = random.Random(7)
    slots = Slots[int](limit=5, limit_per_host=2)
    inside: Counter[int] = Counter()

    async def visit(host: int, turns: int) -> None:
        entered = await slots.enter(host, give_up=never)
        assert entered
        inside[host] += 1
        try:
            assert inside[host] <= 2
            assert inside.total() <= 5
            for _ in range(turns):
                await a_turn()
        finally:
            inside[host] -= 1
            slots.leave(host)

    async with asyncio.TaskGroup() as group:
        visits = [
            group.create_task(visit(choose.randrange(6), choose.randrange(4))) for _ in range(600)
        ]
        while not all(each.done() for each in visits):
            choose.choice(visits).cancel()
            await a_turn()

    assert slots._all.is_unused
    assert slots._hosts == {}
    assert any(not each.cancelled() for each in visits)

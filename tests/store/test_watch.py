"""Watching: any number of waiters, one poll, and nobody is left behind."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.core.identity import SagaId
from app.core.saga import Saga, SagaStatus
from app.store import Watch
from tests.store.place import Place, a_place, answered, new_saga_id
from tests.store.proxy import Cut, Proxy, a_proxy
from tests.waiting import wait_until

POLL = "FROM sagas WHERE id = ANY"
"""What only the shared poll asks."""


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """The way of the watching replica to the database."""
    async with a_proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def watch(proxy: Proxy) -> AsyncIterator[Watch]:
    """The watch of a replica that moves no saga itself."""
    async with a_place(proxy.url, runs_engine=False) as front:
        watch = Watch(front.database)
        await watch.start()
        yield watch
        await watch.stop()


def is_final(_: int, status: SagaStatus) -> bool:
    """What most clients wait for."""
    return status.is_final


def waits(watch: Watch, saga: SagaId, *, seconds: float = 20) -> asyncio.Task[bool]:
    """Somebody who waits for a saga to be final."""
    waiting = watch.wait(saga, until=is_final, seconds=seconds)
    return asyncio.get_running_loop().create_task(waiting)


async def finish(place: Place, saga: Saga) -> Saga:
    """Let a saga complete."""
    await place.observe(saga, "flight", answered())
    return await place.observe(saga, "hotel", answered())


async def test_five_hundred_waiters_share_one_poll(
    watch: Watch, place: Place, proxy: Proxy
) -> None:
    """Five hundred clients wait for fifty sagas of another replica: a few queries serve them."""
    sagas = [await place.start() for _ in range(50)]
    waiters = [waits(watch, sagas[number % 50].id) for number in range(500)]
    await wait_until(lambda: proxy.runs(POLL) >= 2)
    before = proxy.runs(POLL)

    await asyncio.gather(*(finish(place, saga) for saga in sagas))
    assert [True] * 500 == await asyncio.gather(*waiters)

    assert proxy.runs(POLL) - before <= 12
    assert {} == watch._watchers


async def test_what_this_process_commits_is_known_at_once(database_url: str, proxy: Proxy) -> None:
    """A commit of the same process wakes its waiters without any query."""
    async with a_place(database_url) as place, a_place(proxy.url) as far:
        watch = Watch(far.database)  # not started: nothing polls
        place.journal.listen(watch.notify)
        saga = await place.start()
        waiter = waits(watch, saga.id)

        await finish(place, saga)

        assert await waiter
        assert 0 == proxy.runs(POLL)


async def test_what_holds_already_is_found_soon(watch: Watch, place: Place) -> None:
    """Who begins to wait for what has happened already does not wait for long."""
    saga = await finish(place, await place.start())

    async with asyncio.timeout(5):
        assert await watch.wait(saga.id, until=is_final, seconds=20)


async def test_waiting_ends_by_itself(watch: Watch, place: Place) -> None:
    """After the time that was asked for the waiter is told that nothing was met."""
    saga = await place.start()

    assert not await watch.wait(saga.id, until=is_final, seconds=0.05)
    assert not await watch.wait(new_saga_id(), until=is_final, seconds=0.05)
    assert {} == watch._watchers


async def test_nobody_waits_nobody_asks(watch: Watch, place: Place, proxy: Proxy) -> None:
    """Without waiters there are no queries."""
    saga = await place.start()
    waiter = waits(watch, saga.id)
    await wait_until(lambda: proxy.runs(POLL) >= 1)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    before = proxy.runs(POLL)

    await finish(place, saga)
    with pytest.raises(AssertionError):
        await wait_until(lambda: proxy.runs(POLL) > before + 1, seconds_max=0.8)


async def test_close_lets_everybody_go(watch: Watch, place: Place) -> None:
    """At the end of the service all waiters return at once, and new ones do not begin."""
    saga = await place.start()
    waiters = [waits(watch, saga.id) for _ in range(100)]
    await wait_until(lambda: len(watch._watchers.get(saga.id, ())) == 100)

    watch.close()

    async with asyncio.timeout(2):
        assert [False] * 100 == await asyncio.gather(*waiters)
        assert not await watch.wait(saga.id, until=is_final, seconds=20)
        await watch.stop()
        await watch.stop()


async def test_stop_works_before_start(place: Place) -> None:
    """A watch that never started is stopped at once."""
    await Watch(place.database).stop()


@pytest.mark.parametrize("when", [Cut.BEFORE, Cut.AFTER])
async def test_a_lost_line_only_delays(watch: Watch, place: Place, proxy: Proxy, when: Cut) -> None:
    """A poll that fails is repeated, and the waiter is served by the next."""
    saga = await place.start()
    cut = proxy.cut(POLL, when)
    waiter = waits(watch, saga.id)
    await cut.wait()

    await finish(place, saga)

    assert await waiter


async def test_a_locked_table_only_delays(
    watch: Watch, place: Place, proxy: Proxy, look: asyncpg.Connection
) -> None:
    """A poll that runs into a lock, as of a migration, is repeated too."""
    saga = await place.start()
    async with look.transaction():
        await look.execute("LOCK TABLE sagas IN ACCESS EXCLUSIVE MODE")
        waiter = waits(watch, saga.id)
        await wait_until(lambda: proxy.errors["55P03"] >= 1)

    await finish(place, saga)

    assert await waiter


async def test_any_refusal_by_the_server_only_delays(
    database_url: str, place: Place, proxy: Proxy, look: asyncpg.Connection
) -> None:
    """A poll that the server refuses for reasons of its own is repeated as well."""
    async with a_place(proxy.url) as far:
        watch = Watch(far.database)
        await watch.start()
        saga = await place.start()
        await look.execute("ALTER TABLE sagas RENAME TO elsewhere")
        try:
            waiter = waits(watch, saga.id, seconds=3)
            await wait_until(lambda: proxy.errors["42P01"] >= 1)
        finally:
            await look.execute("ALTER TABLE elsewhere RENAME TO sagas")
        await finish(place, saga)

        assert await waiter
        await watch.stop()

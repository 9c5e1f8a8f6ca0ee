"""A caller is cancelled in the middle of recording: the journal is whole, and goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import asyncpg
import pytest

from app.core.saga import SagaStatus
from app.store import fetch_saga
from tests.store.place import Place, a_start, answered, journal_of, new_saga_id, written


async def turn() -> None:
    """Let the event loop go round once."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


def moments() -> Iterator[int]:
    """So many turns of the loop after its beginning a caller is cancelled: often, then rarely."""
    number = 0
    while number < 400:
        yield number
        number += 1 + number // 12


async def cancel_after(turns: int, work: Awaitable[object]) -> bool:
    """Cancel work after so many turns of the loop; returns whether it was still under way."""
    task = asyncio.ensure_future(work)  # noqa: TID251 - awaited below
    for _ in range(turns):
        if task.done():
            break
        await turn()
    if task.done():
        await task  # it did not fail
        return False
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return True


async def sweep(work: Callable[[], Awaitable[object]], check: Callable[[], Awaitable[None]]) -> int:
    """Cancel work at every moment, and check after each; returns how often it was under way."""
    cancelled = 0
    for turns in moments():
        cancelled += await cancel_after(turns, work())
        await check()
    return cancelled


async def test_a_cancelled_record_leaves_the_next_one_able(
    place: Place, look: asyncpg.Connection
) -> None:
    """Wherever a result's caller is cancelled, the same result is recorded by the next caller."""
    sagas = [await place.start()]

    async def record() -> None:
        await place.observe(sagas[-1], "flight", answered())

    async def check() -> None:
        async with asyncio.timeout(5):
            after = await place.observe(sagas[-1], "flight", answered())
        assert (2, SagaStatus.RUNNING) == (after.seq, after.status)
        assert 2 == len(await journal_of(look, after.id))
        sagas.append(await place.start())

    assert await sweep(record, check) >= 2


async def test_a_cancelled_record_that_has_to_load_leaves_the_next_one_able(
    place: Place, other: Place, look: asyncpg.Connection
) -> None:
    """The same where the saga is another's, so that it is read first."""
    sagas = [await other.start()]

    async def record() -> None:
        await place.cancel(sagas[-1])

    async def check() -> None:
        async with asyncio.timeout(5):
            after = await place.cancel(sagas[-1])
        assert (2, SagaStatus.COMPENSATING) == (after.seq, after.status)
        assert 2 == len(await journal_of(look, after.id))
        assert {} == place.journal._lanes
        sagas.append(await other.start())

    assert await sweep(record, check) >= 2


async def test_a_cancelled_start_may_be_repeated(place: Place, look: asyncpg.Connection) -> None:
    """Wherever a start is cancelled, the same request again meets or makes the one saga."""
    ids = [new_saga_id()]

    async def start() -> None:
        await place.journal.start(place.a_request(saga=ids[-1]), fingerprint=b"same")

    async def check() -> None:
        async with asyncio.timeout(5):
            again = await place.journal.start(place.a_request(saga=ids[-1]), fingerprint=b"same")
        assert 1 == len(await journal_of(look, again.saga.id))
        ids.append(new_saga_id())

    assert await sweep(start, check) >= 2
    assert len(ids) - 1 == await look.fetchval("SELECT count(*) FROM sagas")


async def test_others_in_the_lane_go_on_when_one_is_cancelled(place: Place) -> None:
    """Of ten that wait in a saga's lane every other is cancelled; the rest is answered."""
    loop = asyncio.get_running_loop()
    saga = await place.start()

    callers = [loop.create_task(place.observe(saga, "flight", answered())) for _ in range(10)]
    await turn()
    for caller in callers[::2]:
        caller.cancel()
    async with asyncio.timeout(5):
        ends = await asyncio.gather(*callers, return_exceptions=True)

    assert {2} == {end.seq for end in ends[1::2]}  # type: ignore[union-attr]  # or it fails
    assert 0 == place.journal._lanes[saga.id].users


async def test_a_cancelled_row_does_not_block_its_successor(
    place: Place, look: asyncpg.Connection
) -> None:
    """A row is out, its caller leaves, the saga's next fact comes: one entry follows the other."""
    blocker = a_start()
    await written(place, [blocker])
    saga = await place.start()
    loop = asyncio.get_running_loop()

    leaving = loop.create_task(place.observe(saga, "flight", answered()))
    await turn()
    leaving.cancel()
    after = await place.cancel(saga)
    await place.observe(saga, "flight", answered())

    async with place.database.read() as tx:
        stored = await fetch_saga(tx, saga.id)
    assert SagaStatus.COMPENSATING is stored.status
    assert list(range(1, stored.seq + 1)) == [e["seq"] for e in await journal_of(look, saga.id)]
    assert after.seq in {2, 3}


@pytest.mark.parametrize("kept", [True, False], ids=["kept here", "read first"])
async def test_random_cancellations_of_many_callers(
    place: Place, other: Place, look: asyncpg.Connection, *, kept: bool
) -> None:
    """A hundred sagas, each with a caller that is cancelled at some moment, all go on."""
    owner = place if kept else other
    sagas = [await owner.start() for _ in range(100)]
    loop = asyncio.get_running_loop()

    callers = [loop.create_task(place.cancel(saga)) for saga in sagas]
    for number, caller in enumerate(callers):
        loop.call_later(number / 10_000, caller.cancel)
    await asyncio.gather(*callers, return_exceptions=True)
    async with asyncio.timeout(10):
        after = await asyncio.gather(*(place.cancel(saga) for saga in sagas))

    assert {(2, SagaStatus.COMPENSATING)} == {(saga.seq, saga.status) for saga in after}
    assert 200 == await look.fetchval("SELECT count(*) FROM saga_journal")
    assert 200 == await look.fetchval("SELECT sum(seq) FROM sagas")

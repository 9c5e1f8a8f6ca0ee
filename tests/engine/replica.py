"""A whole replica, wired as ``main`` wires it, with fake tools; it can be stopped, or die."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg

from app.clock import Clock
from app.connectors import MeteredConnector
from app.core.saga import Saga, SagaStatus
from app.engine import Engine, Heart, show_gauges
from app.metrics import Metrics
from app.store import (
    DEFAULT_TENANT,
    Database,
    Definitions,
    Journal,
    Replica,
    Tally,
    Writer,
    ensure_tenant,
    fetch_saga,
    list_without_reason,
    publish,
)
from tests.core.builders import a_definition
from tests.engine.tools import Tools
from tests.store.place import Place
from tests.waiting import wait_until

SECRETS = {"bank_key": 's3cr3t "quoted" & more'}
"""What definitions may name in requests."""

LEASE_SECONDS = 10.0
"""Longer than a busy machine takes its time; tests of the lease itself choose a brief one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(Place):
    """A replica at work."""

    engine: Engine
    heart: Heart
    tools: Tools
    metrics: Metrics
    is_dead: asyncio.Event

    async def rest(self, *sagas: Saga, seconds_max: float = 20) -> list[Saga]:
        """Wait until sagas are at rest, and return them as they are then."""

        async def rested() -> list[Saga]:
            found = [await self.fetch(saga) for saga in sagas]
            return found if all(saga.status.is_at_rest for saga in found) else []

        return await wait_until(rested, seconds_max=seconds_max, what="sagas to rest")

    async def fetch(self, saga: Saga) -> Saga:
        """A saga as the database has it."""
        async with self.database.read() as tx:
            return await fetch_saga(tx, saga.id)

    async def is_sound(self) -> None:
        """No saga is without a reason to move."""
        async with self.database.read() as tx:
            assert [] == await list_without_reason(tx)

    async def die(self) -> None:
        """Do nothing any more, as a process that was killed: no goodbye, nothing reported."""
        self.is_dead.set()
        loops = [*self.engine._loops, self.heart._loop]
        tasks = [loop._task for loop in loops if loop._task is not None]
        tasks += [*self.engine._tasks, *self.engine._dispatcher._out.values()]
        for timer in self.engine._timers.values():
            timer.cancel()
        self.engine._timers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """End as ``main`` does after a signal; the dead have ended already."""
        if self.is_dead.is_set():
            await self.writer.stop()
            return
        self.replica.is_draining = True
        await self.engine.stop()
        await self.heart.stop()
        await self.writer.stop()
        await self.replica.retire()


@contextlib.asynccontextmanager
async def a_replica(
    url: str,
    *,
    tools: Tools | None = None,
    lease_seconds: float = LEASE_SECONDS,
    sagas_max: int = 2000,
    runs_engine: bool = True,
) -> AsyncIterator[Running]:
    """A replica that runs until the block ends; the default definition is published."""
    tools = tools or Tools()
    async with contextlib.AsyncExitStack() as stack:
        pools = [Database(url, connections_max=count) for count in (4, 1, 1)]
        for pool in pools:
            await pool.open()
            stack.push_async_callback(pool.close)
        database, writing, beating = pools
        clock = Clock()
        replica = Replica(beating, clock, role="all", lease_seconds=lease_seconds)
        metrics = Metrics(version="test")
        writer = Writer(writing)
        writer.on_flush = metrics.note_commit
        definitions = Definitions(database)
        journal = Journal(
            database=database,
            writer=writer,
            replica=replica,
            definitions=definitions,
            clock=clock,
            runs_engine=runs_engine,
            callbacks_url="http://amends.test/v1/callbacks/",
        )
        journal.observe(Tally(metrics).observe)
        engine = Engine(
            database=database,
            journal=journal,
            replica=replica,
            definitions=definitions,
            connector=MeteredConnector(tools, metrics, name="http"),
            clock=clock,
            callbacks_url="http://amends.test/v1/callbacks/",
            secrets=SECRETS,
            metrics=metrics,
            sagas_max=sagas_max,
        )
        heart = Heart(replica, on_revoked=engine.lose_all)
        show_gauges(metrics, writer=writer, replica=replica, engine=engine)
        async with database.write() as tx:
            tenant = await ensure_tenant(tx, DEFAULT_TENANT)
            await publish(tx, tenant.id, a_definition())
        await replica.register()
        await writer.start()
        await heart.start()
        if runs_engine:
            await engine.start()
        running = Running(
            url=url,
            tenant=tenant,
            database=database,
            writer=writer,
            replica=replica,
            clock=clock,
            definitions=definitions,
            journal=journal,
            engine=engine,
            heart=heart,
            tools=tools,
            metrics=metrics,
            is_dead=asyncio.Event(),
        )
        stack.push_async_callback(running.stop)
        yield running


async def heads_of(look: asyncpg.Connection) -> dict[str, int]:
    """How many sagas there are in each status."""
    rows = await look.fetch("SELECT status, count(*) FROM sagas GROUP BY status")
    return {row["status"]: row["count"] for row in rows}


def all_completed(look: asyncpg.Connection, count: int) -> "AllCompleted":
    """A condition: so many sagas there are, and all of them are completed."""
    return AllCompleted(look, count)


@dataclass(frozen=True, slots=True)
class AllCompleted:
    """See ``all_completed``."""

    look: asyncpg.Connection
    count: int

    async def __call__(self) -> bool:
        """Whether it is so."""
        return await heads_of(self.look) == {SagaStatus.COMPLETED.value: self.count}

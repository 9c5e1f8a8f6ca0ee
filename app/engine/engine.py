"""The engine: sends what committed entries open, and keeps every saga it owns moving.

It learns of its sagas from the journal's listener: whatever entry is committed in this process is
offered here. If the entry makes this incarnation the owner, the open attempts are dispatched and
the saga's next timer is set; if not, the saga is let go. Sagas of others come in through claims.

* ``claims``: sagas that are due, and those whose owner was revoked, in batches.
* ``moves``: which of the sagas held here did others move? (evidence through another replica)
* ``rescue``: revoke the incarnations whose lease is over.
* ``beats``: renew the own lease; when it was revoked, start again as a new incarnation.
"""

import asyncio
import contextlib
import datetime as dt
import itertools
from collections.abc import Coroutine, Mapping
from dataclasses import replace

import structlog

from app.clock import Clock
from app.connectors import Connector
from app.core.definition import Definition
from app.core.errors import (
    Fenced,
    NewerFormat,
    NotFound,
    RowRefused,
    ServiceError,
    StoreUnavailable,
)
from app.core.events import AttemptObserved, Fact, SagaWoken
from app.core.identity import Incarnation, SagaId
from app.core.observation import Answered
from app.core.saga import Saga
from app.engine.dispatcher import Dispatcher
from app.engine.loop import Loop
from app.metrics import Metrics
from app.store import (
    Claim,
    ClaimLost,
    Database,
    Definitions,
    Journal,
    Replica,
    claim_due,
    claim_orphans,
    list_owned,
    set_aside,
)

log = structlog.get_logger(__name__)

CLAIM_BATCH = 500
TAKE_UP_PORTION = 50
"""Journals that are read and folded at a time: they may be large, and heartbeats wait meanwhile."""

CLAIM_SECONDS = 0.5
MOVES_SECONDS = 0.5
RESCUE_SECONDS = 1.0
RETRY_SECONDS = 0.2
PRUNE_SECONDS = 3600.0
TIMER_SLACK_SECONDS = 0.002
"""A timer rings a little late rather than a little early, when nothing would be due yet."""
SET_ASIDE = dt.timedelta(seconds=60)
DRAIN_SECONDS_MAX = 18.0
"""Calls still out after this long are broken off at shutdown; the whole must end within 30 s."""


class Engine:
    """One replica's engine."""

    def __init__(
        self,
        *,
        database: Database,
        journal: Journal,
        replica: Replica,
        definitions: Definitions,
        connector: Connector,
        clock: Clock,
        callbacks_url: str,
        secrets: Mapping[str, str],
        metrics: Metrics,
        sagas_max: int = 2000,
    ) -> None:
        """``callbacks_url`` is where tools report, up to the token.

        ``secrets`` are put into requests as they are sent.
        ``sagas_max`` bounds the sagas held at a time; what is due beyond waits in the table.
        """
        self._database = database
        self._journal = journal
        self._replica = replica
        self._definitions = definitions
        self._connector = connector
        self._clock = clock
        self._sagas_max = sagas_max
        self._claimed_due = metrics.sagas_claimed.labels("due")
        self._claimed_orphans = metrics.sagas_claimed.labels("orphaned")
        self._claimed_suspects = metrics.sagas_claimed.labels("suspect")
        self._replicas_revoked = metrics.replicas_revoked
        self._leases_lost = metrics.leases_lost
        self._dispatcher = Dispatcher(
            connector=connector,
            clock=clock,
            callbacks_url=callbacks_url,
            secrets=secrets,
            report=self._report,
        )
        self._held: dict[SagaId, Saga] = {}
        self._timers: dict[SagaId, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._suspect: SagaId | None = None
        self._prune_at = 0.0
        self._is_stopped = False
        self._is_abandoned = False
        self._ending: asyncio.Task[None] | None = None
        self._drain_limit: asyncio.Timeout | None = None
        self._differing: dict[SagaId, int | None] = {}
        self._claims = Loop("claims", self._claim, every_seconds=CLAIM_SECONDS)
        self._loops = [
            self._claims,
            Loop("moves", self._follow_moves, every_seconds=MOVES_SECONDS),
            Loop("rescue", self._rescue, every_seconds=RESCUE_SECONDS),
        ]

    @property
    def held(self) -> int:
        """How many sagas this engine owns now."""
        return len(self._held)

    @property
    def in_flight(self) -> int:
        """How many attempts are out now."""
        return self._dispatcher.in_flight

    def has_room(self) -> bool:
        """Whether a new saga may be begun here at once."""
        return len(self._held) + self._journal.starting <= self._sagas_max

    async def start(self) -> None:
        """Start claiming and sending; the replica is registered and beats already."""
        self._journal.listen(self.offer)
        self._journal.may_begin = self.has_room
        for loop in self._loops:
            await loop.start()

    async def stop(self) -> None:
        """Claim nothing more, follow what is out to its end, hand back the rest.

        The replica is set draining first: from then on nothing is opened, and every saga that is
        recorded is parked. Works before ``start`` and twice: there is one end, which all await.
        """
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._ending)

    def abandon(self) -> None:
        """Do not wait for what is out any longer: to the heir it is lost, as after a crash."""
        self._is_abandoned = True
        if self._drain_limit is not None:
            self._drain_limit.reschedule(asyncio.get_running_loop().time())

    async def _end(self) -> None:
        self._replica.is_draining = True
        for loop in self._loops:
            await loop.stop()
        for saga in list(self._held.values()):
            if not saga.open_calls(self._replica.incarnation):
                self._spawn(self._wake(saga.id))
        with contextlib.suppress(TimeoutError):
            seconds = 0.0 if self._is_abandoned else DRAIN_SECONDS_MAX
            async with asyncio.timeout(seconds) as self._drain_limit:
                await self._wait_quiet()
        self._drain_limit = None
        self._is_stopped = True
        if self.in_flight:
            log.warning("attempts_broken_off", count=self.in_flight)
        await self._dispatcher.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connector.close()

    async def _wait_quiet(self) -> None:
        """Wait until nothing is out, and nothing on its way to the database can bring more."""
        while True:
            await self._journal.wait_settled()
            await self._dispatcher.wait_quiet()
            if self._tasks:
                await asyncio.wait(self._tasks)
            elif not self._dispatcher.in_flight:
                return

    def lose_all(self) -> None:
        """This incarnation was revoked: others have its sagas; nothing more is done for them.

        Attempts that are out go on to their end: what they see is reported as evidence.
        """
        self._leases_lost.inc()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for saga_id in list(self._held):
            self._journal.forget(saga_id)
        self._held.clear()
        self._suspect = None

    def offer(self, saga: Saga) -> None:
        """Take in a saga as a commit of this process has left it."""
        held = self._held.get(saga.id)
        is_old = held is not None and held.seq > saga.seq
        if self._is_stopped or is_old:
            return
        if saga.now.owner != self._replica.incarnation:
            self._let_go(saga.id)
            return
        self._held[saga.id] = saga
        self._set_timer(saga)
        calls = saga.open_calls(self._replica.incarnation)
        if calls:
            self._spawn(self._send(saga))

    async def _send(self, saga: Saga) -> None:
        definition = await self._definition(saga)
        # Reading it may have taken a while: what is sent is what is open now.
        current = self._held.get(saga.id)
        if current is not None:
            for call in current.open_calls(self._replica.incarnation):
                self._dispatcher.dispatch(current, call, definition)

    async def _definition(self, saga: Saga) -> Definition:
        """The saga's definition; kept in memory as a rule, else read until it is."""
        while True:
            try:
                return await self._definitions.fetch(saga.facts.tenant, saga.facts.definition)
            except ServiceError as error:
                log.warning("send_waits", saga_id=str(saga.id), error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    def _let_go(self, saga_id: SagaId) -> None:
        if self._held.pop(saga_id, None) is not None:
            room = self._sagas_max - len(self._held)
            if room == max(1, min(CLAIM_BATCH, self._sagas_max // 10)):
                self._claims.kick()  # what waits for room need not wait for the next round
        timer = self._timers.pop(saga_id, None)
        if timer is not None:
            timer.cancel()
        if self._suspect == saga_id:
            self._suspect = None

    def _set_timer(self, saga: Saga) -> None:
        timer = self._timers.pop(saga.id, None)
        if timer is not None:
            timer.cancel()
        if saga.now.due_at is None:
            return
        delay = max(0.0, (saga.now.due_at - self._clock.now()).total_seconds())
        loop = asyncio.get_running_loop()
        self._timers[saga.id] = loop.call_later(delay + TIMER_SLACK_SECONDS, self._ring, saga.id)

    def _ring(self, saga_id: SagaId) -> None:
        self._timers.pop(saga_id, None)
        self._spawn(self._wake(saga_id))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self, saga_id: SagaId, *, losses: int = 0) -> None:
        """Do what is due for a saga that this replica owns or has claimed."""
        try:
            saga = await self._record(saga_id, SagaWoken(losses=losses))
        except (ClaimLost, Fenced):
            self._journal.forget(saga_id)
            self._let_go(saga_id)
            return
        if saga is not None:
            # Nothing may have been committed, and so nothing offered; but what is owned must be
            # held, have its timer, and have its calls sent.
            self.offer(saga)

    async def _report(self, saga_id: SagaId, fact: AttemptObserved) -> bool:
        """Record what an attempt came to, however long that takes; returns whether it is stored.

        If this incarnation is revoked meanwhile, the observation is evidence all the same, and is
        reported again as the next incarnation.
        """
        while True:
            try:
                return await self._record(saga_id, fact) is not None
            except Fenced:
                await asyncio.sleep(RETRY_SECONDS)

    async def _record(self, saga_id: SagaId, fact: Fact) -> Saga | None:
        """Record a fact; what goes wrong with this saga alone sets it aside, and gives None.

        Raises:
            ClaimLost, Fenced: as ``Journal.record``.
        """
        while True:
            try:
                return await self._journal.record(saga_id, fact)
            except (ClaimLost, Fenced):
                raise
            except NotFound:
                log.warning("saga_gone", saga_id=str(saga_id))
                self._let_go(saga_id)
            except NewerFormat:
                # A newer release moved it, and goes on with it; to it, what we sent is lost.
                log.warning("saga_of_newer_release", saga_id=str(saga_id))
                self._journal.forget(saga_id)
                self._let_go(saga_id)
            except RowRefused as error:
                if error.is_contention:
                    # What was observed must not be lost because somebody holds a lock.
                    log.warning("record_waits", saga_id=str(saga_id), error=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                storable = _storable(fact)
                if storable is not None:
                    fact = storable
                    continue
                await self._set_aside(saga_id, reason=str(error))
            except ServiceError as error:
                log.warning("record_waits", saga_id=str(saga_id), error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception:
                log.exception("record_crashed", saga_id=str(saga_id))
                await self._set_aside(saga_id, reason="our own code failed")
            return None

    async def _set_aside(self, saga_id: SagaId, *, reason: str) -> None:
        """Park a saga that cannot go on here: it holds up no other, and is tried again later."""
        log.error("saga_set_aside", saga_id=str(saga_id), reason=reason)
        self._journal.forget(saga_id)
        self._let_go(saga_id)
        incarnation = self._replica.incarnation
        while True:
            try:
                async with self._database.write() as tx:
                    await set_aside(tx, incarnation=incarnation, saga=saga_id, delay=SET_ASIDE)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _claim(self) -> bool:
        """Claim one batch of what is due or orphaned; returns whether there may be more."""
        room = min(CLAIM_BATCH, self._sagas_max - len(self._held))
        if room <= 0 or not self._replica.is_trusted or self._replica.is_draining:
            return False
        incarnation = self._replica.incarnation
        async with self._database.write() as tx:
            claims, found = await claim_orphans(tx, incarnation=incarnation, limit=room)
        self._claimed_orphans.inc(len(claims))
        if found < room:
            async with self._database.write() as tx:
                due = await claim_due(
                    tx, incarnation=incarnation, limit=room - found, suspects=False
                )
            self._claimed_due.inc(len(due))
            claims, found = [*claims, *due], found + len(due)
        await self._take_up(claims, incarnation)
        if self._suspect is None:
            await self._claim_suspect(incarnation)
        return found >= room

    async def _claim_suspect(self, incarnation: Incarnation) -> None:
        """Sagas that may kill their process run one at a time: only the guilty one is charged."""
        async with self._database.write() as tx:
            claims = await claim_due(tx, incarnation=incarnation, limit=1, suspects=True)
        self._claimed_suspects.inc(len(claims))
        for claim in claims:
            self._suspect = claim.saga
            log.warning("suspect_claimed", saga_id=str(claim.saga), losses=claim.losses)
        await self._take_up(claims, incarnation)

    async def _take_up(self, claims: list[Claim], incarnation: Incarnation) -> None:
        """Fold the claimed sagas, and wake them."""
        if not claims:
            return
        log.info("sagas_claimed", count=len(claims))
        for portion in itertools.batched(claims, TAKE_UP_PORTION):
            sagas = await self._journal.load([claim.saga for claim in portion])
            if incarnation != self._replica.incarnation:
                return  # revoked meanwhile: they are orphans again
            for claim in portion:
                saga = sagas.get(claim.saga)
                if saga is not None:
                    self._held[saga.id] = saga
                    self._journal.adopt(saga)
                self._spawn(self._wake(claim.saga, losses=claim.losses))

    async def _follow_moves(self) -> bool:
        """Compare what this replica holds with what it owns, and mend the difference.

        Others may have moved a saga that is held here, or taken it; and one that was claimed may
        never have been taken up. What differs is read again and woken, once it has differed the
        same way for two rounds: a commit of our own may be on its way to us.
        """
        incarnation = self._replica.incarnation
        async with self._database.read() as tx:
            owned = await list_owned(tx, incarnation=incarnation)
        if incarnation != self._replica.incarnation:
            return False
        held = {saga_id: saga.seq for saga_id, saga in self._held.items()}
        differing = {
            saga_id: owned.get(saga_id)
            for saga_id in {*owned, *held}
            if owned.get(saga_id) != held.get(saga_id)
        }
        for saga_id, seq in differing.items():
            if saga_id in self._differing and self._differing[saga_id] == seq:
                self._journal.forget(saga_id)
                self._spawn(self._wake(saga_id))
        self._differing = differing
        return False

    async def _rescue(self) -> bool:
        """Revoke the incarnations whose lease is over; their sagas are claimed at once."""
        revoked = await self._replica.revoke_expired()
        self._replicas_revoked.inc(len(revoked))
        if revoked:
            self._claims.kick()
        now = asyncio.get_running_loop().time()
        if now >= self._prune_at:
            await self._replica.prune()
            self._prune_at = now + PRUNE_SECONDS
        return False


def _storable(fact: Fact) -> Fact | None:
    """The fact without the answer's body, which the database refuses; None if that is not it."""
    if not isinstance(fact, AttemptObserved) or not isinstance(fact.observation, Answered):
        return None
    if not fact.observation.readable:
        return None
    return replace(fact, observation=replace(fact.observation, body=None, readable=False))

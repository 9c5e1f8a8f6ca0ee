"""The journal: the only writer of saga state.

``record`` takes one fact: it loads the saga, lets the core decide, and appends the entry by
compare-and-set through the shared writer. Whoever loses the race reloads and decides again on what
is now true. Within this process a saga's facts wait for each other in a *lane*: a saga has at most
one unanswered transition at a time.

A lane keeps the folded saga while this replica owns it, so that a result costs no read. A parked
or finished saga has no lane and takes no memory.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import asyncpg
import orjson
import structlog
import uuid_utils.compat

from app.clock import Clock
from app.core.definition import Definition
from app.core.entries import FORMAT, Entry, Ignored, Reception
from app.core.errors import (
    BusinessKeyTaken,
    KeyReused,
    NewerFormat,
    NotFound,
    StoreUnavailable,
)
from app.core.events import (
    AttemptObserved,
    CallbackReceived,
    Event,
    Fact,
    Reporter,
    ResolveRequested,
    ResumeRequested,
    RetryRequested,
    SagaRequested,
    SagaWoken,
    SkipRequested,
)
from app.core.identity import EntryId, Incarnation, SagaId
from app.core.machine import apply, decide
from app.core.saga import Saga
from app.store.database import Database, ReadTx
from app.store.definitions import Definitions
from app.store.encoding import FACT_NAMES, dump_entry, dump_failure, load_entry
from app.store.replicas import Replica
from app.store.statements import FIND, FIND_BUSINESS_KEY, MoveRow, StartRow
from app.store.writer import Outcome, Writer

log = structlog.get_logger(__name__)

RACES_MAX = 100
"""So many lost races in a row are no contention any more, but a fault."""

_PROGRESS = (
    AttemptObserved,
    CallbackReceived,
    ResumeRequested,
    RetryRequested,
    ResolveRequested,
    SkipRequested,
)
"""Facts after which the owners that were lost before do not count any more."""

_LOAD = """
SELECT j.saga_id, j.seq, j.id, j.at, j.type, j.format, j.data FROM saga_journal j
WHERE j.saga_id = $1 AND j.seq > $2 ORDER BY j.seq LIMIT $3
"""

_LOAD_MANY = """
SELECT j.saga_id, j.seq, j.id, j.at, j.type, j.format, j.data FROM saga_journal j
WHERE j.saga_id = ANY($1::uuid[]) ORDER BY j.saga_id, j.seq
"""

_OWNER = "SELECT owner FROM sagas WHERE id = $1"


type Observer = Callable[[Definition, Saga | None, Fact, Entry | Ignored], None]
"""Is told of each fact: the saga before it, if there was one, and what was concluded of it."""


class ClaimLost(Exception):
    """The saga is another replica's by now; there is nothing to do here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a start came to.

    Attributes:
        saga: the new one, or the one that the same request started before.
        is_replay: it existed.
    """

    saga: Saga
    is_replay: bool


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The saga after a fact; ``reception`` tells what became of a callback."""

    saga: Saga
    reception: Reception | None


@dataclass(slots=True)
class _Lane:
    """Where one saga's facts wait for each other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    saga: Saga | None = None
    users: int = 0


class Journal:
    """Appends entries, folds them, and keeps the sagas that this replica owns."""

    def __init__(
        self,
        *,
        database: Database,
        writer: Writer,
        replica: Replica,
        definitions: Definitions,
        clock: Clock,
        runs_engine: bool,
        callbacks_url: str,
    ) -> None:
        """``callbacks_url`` is where tools report, up to the token."""
        self._database = database
        self._writer = writer
        self._replica = replica
        self._definitions = definitions
        self._clock = clock
        self._runs_engine = runs_engine
        self._callbacks_url = callbacks_url
        self._lanes: dict[SagaId, _Lane] = {}
        self._listeners: list[Callable[[Saga], None]] = []
        self._observers: list[Observer] = []
        self.starting = 0
        """How many starts are under way here, this one included."""
        self.may_begin: Callable[[], bool] = lambda: True
        """Whether a new saga may be begun here at once; else it waits to be claimed."""

    def listen(self, listener: Callable[[Saga], None]) -> None:
        """Call ``listener`` after every commit with the saga as it then is; it must not block."""
        self._listeners.append(listener)

    def observe(self, observer: Observer) -> None:
        """Tell ``observer`` of every fact: once its entry is committed, or when it is ignored.

        It only watches: what it raises is logged, and changes nothing.
        """
        self._observers.append(observer)

    async def start(self, fact: SagaRequested, *, fingerprint: bytes | None) -> Started:
        """Create a saga, with its first intent if this replica may send it.

        Args:
            fact: what was asked for; its id is new, or derived from the ``Idempotency-Key``.
            fingerprint: of the request, where it came with a key; None without one.

        Raises:
            KeyReused: the key was used with another request.
            BusinessKeyTaken: a live saga has the business key.
            RowRefused: the database refuses the row.
        """
        self.starting += 1
        try:
            return await self._start(fact, fingerprint=fingerprint)
        finally:
            self.starting -= 1

    async def _start(self, fact: SagaRequested, *, fingerprint: bytes | None) -> Started:
        definition = await self._definitions.fetch(fact.tenant, fact.definition)
        for _ in range(RACES_MAX):
            incarnation = self._replica.incarnation
            entry = decide(definition, None, self._event(fact))
            assert isinstance(entry, Entry), entry
            saga = apply(None, entry)
            outcome = await self._writer.write(
                _start_row(saga, entry, fingerprint=fingerprint),
                incarnation=incarnation,
                on_written=partial(self._committed, definition, None, entry, saga),
            )
            if outcome is Outcome.WRITTEN:
                return Started(saga=saga, is_replay=False)
            existing = await self._find_started(fact, fingerprint=fingerprint)
            if existing is not None:
                return existing
        raise StoreUnavailable("the saga could not be stored for contention", saga=fact.id)

    async def record(self, saga_id: SagaId, fact: Fact, *, urgent: bool = False) -> Saga:
        """Append what follows from ``fact``; returns the saga after it.

        Args:
            saga_id: whose it is.
            fact: what is reported. ``SagaWoken`` needs a valid claim.
            urgent: before what else waits to be written.

        Raises:
            NotFound: there is no such saga.
            VerbRefused: its status does not allow the verb.
            ClaimLost: it was to be woken, and is another's by now.
            Fenced: this incarnation was revoked.
            RowRefused: the database refuses the row.
        """
        return (await self._record_in_lane(saga_id, fact, urgent=urgent)).saga

    async def receive(self, saga_id: SagaId, fact: CallbackReceived) -> Reception:
        """Append what follows from a callback; returns what became of it.

        Raises:
            As ``record``.
        """
        recorded = await self._record_in_lane(saga_id, fact, urgent=True)
        assert recorded.reception is not None, fact
        return recorded.reception

    async def load(self, saga_ids: list[SagaId]) -> dict[SagaId, Saga]:
        """Fold the journals of many sagas; those that do not exist are missing."""
        async with self._database.read() as tx:
            rows = await tx.fetch(_LOAD_MANY, saga_ids)
        sagas: dict[SagaId, Saga] = {}
        for row in rows:
            saga_id = SagaId(row["saga_id"])
            sagas[saga_id] = apply(sagas.get(saga_id), _entry(row))
        return sagas

    async def wait_settled(self) -> None:
        """Wait until no decision is on its way to the database."""
        await self._writer.wait_idle()

    def adopt(self, saga: Saga) -> None:
        """Keep a saga that was claimed and loaded, so that waking it needs no further read."""
        lane = self._lanes.setdefault(saga.id, _Lane())
        if not lane.lock.locked():
            lane.saga = saga

    def forget(self, saga_id: SagaId) -> None:
        """Drop what is kept of a saga: the next fact reads it afresh."""
        lane = self._lanes.get(saga_id)
        if lane is not None:
            lane.saga = None
            self._tidy(saga_id, lane)

    async def _record_in_lane(self, saga_id: SagaId, fact: Fact, *, urgent: bool) -> _Recorded:
        lane = self._lanes.setdefault(saga_id, _Lane())
        lane.users += 1
        try:
            async with lane.lock:
                return await self._record(saga_id, lane, fact, urgent=urgent)
        finally:
            lane.users -= 1
            self._tidy(saga_id, lane)

    async def _record(self, saga_id: SagaId, lane: _Lane, fact: Fact, *, urgent: bool) -> _Recorded:
        for _ in range(RACES_MAX):
            incarnation = self._replica.incarnation
            if lane.saga is None:
                lane.saga = await self._load(saga_id, fact, incarnation)
            saga = lane.saga
            reference = saga.facts.definition
            definition = await self._definitions.fetch(saga.facts.tenant, reference)
            entry = decide(definition, saga, self._event(fact))
            if isinstance(entry, Ignored):
                self._tell(definition, saga, fact, entry)
                return _Recorded(saga, entry.reception)
            # Whatever happens while the row is out, what is kept is no longer sure.
            lane.saga = None
            after = apply(saga, entry)
            outcome = await self._writer.write(
                _move_row(saga, entry, reporter=incarnation),
                incarnation=incarnation,
                on_written=partial(self._committed, definition, saga, entry, after),
                urgent=urgent,
            )
            if outcome is Outcome.WRITTEN:
                return _Recorded(after, entry.reception)
        raise StoreUnavailable("the saga could not be moved for contention", saga=saga_id)

    async def _load(self, saga_id: SagaId, fact: Fact, incarnation: Incarnation) -> Saga:
        async with self._database.read() as tx:
            if isinstance(fact, SagaWoken):
                # First the claim, then the journal: what is appended in between is seen.
                owner = await tx.fetch_value(_OWNER, saga_id)
                if owner != incarnation:
                    raise ClaimLost
            return await fetch_saga(tx, saga_id)

    async def find_replay(self, saga_id: SagaId, *, fingerprint: bytes) -> Started | None:
        """What the same request started before, or None.

        Raises:
            KeyReused: the saga exists, and another request started it.
        """
        async with self._database.read() as tx:
            row = await tx.fetch_row(FIND, [saga_id], [1])
            if row is None:
                return None
            if row["fingerprint"] != fingerprint:
                raise KeyReused(saga=saga_id)
            return Started(saga=await fetch_saga(tx, saga_id), is_replay=True)

    async def _find_started(
        self, fact: SagaRequested, *, fingerprint: bytes | None
    ) -> Started | None:
        """Why a start was not written; None if the reason has gone meanwhile."""
        if fingerprint is not None:
            replay = await self.find_replay(fact.id, fingerprint=fingerprint)
            if replay is not None:
                return replay
        if fact.business_key is None:
            return None
        async with self._database.read() as tx:
            live = await tx.fetch_value(
                FIND_BUSINESS_KEY, fact.tenant, fact.definition.name, fact.business_key
            )
        if live is not None:
            raise BusinessKeyTaken(business_key=fact.business_key, saga=live)
        return None

    def _event(self, fact: Fact) -> Event:
        replica = self._replica
        may_open = self._runs_engine and not replica.is_draining and replica.is_trusted
        if isinstance(fact, SagaRequested):
            may_open = may_open and self.may_begin()
        return Event(
            at=self._clock.now(),
            entry_id=EntryId(uuid_utils.compat.uuid7()),
            seed=random.getrandbits(63),
            reporter=Reporter(
                incarnation=replica.incarnation,
                may_open=may_open,
                send_until=replica.expires_at,
                callbacks_url=self._callbacks_url,
            ),
            fact=fact,
        )

    def _committed(
        self, definition: Definition, before: Saga | None, entry: Entry, saga: Saga
    ) -> None:
        """An entry is stored: keep the saga if it is ours, and tell everybody.

        Called by the writer, since whoever reported the fact may have given up waiting.
        """
        if saga.now.owner == self._replica.incarnation:
            self._lanes.setdefault(saga.id, _Lane()).saga = saga
        for listener in self._listeners:
            listener(saga)
        self._tell(definition, before, entry.fact, entry)

    def _tell(
        self, definition: Definition, before: Saga | None, fact: Fact, concluded: Entry | Ignored
    ) -> None:
        for observer in self._observers:
            try:
                observer(definition, before, fact, concluded)
            except Exception:
                log.exception("observer_crashed")

    def _tidy(self, saga_id: SagaId, lane: _Lane) -> None:
        mine = lane.saga is not None and lane.saga.now.owner == self._replica.incarnation
        if lane.users == 0 and not mine and self._lanes.get(saga_id) is lane:
            del self._lanes[saga_id]


async def fetch_saga(tx: ReadTx, saga_id: SagaId) -> Saga:
    """Fold one saga's journal.

    Raises:
        NotFound: there is no such saga.
    """
    saga: Saga | None = None
    for entry in await list_entries(tx, saga_id):
        saga = apply(saga, entry)
    if saga is None:
        raise NotFound(kind="saga", name=saga_id)
    return saga


async def list_entries(
    tx: ReadTx, saga_id: SagaId, *, after: int = 0, limit: int | None = None
) -> list[Entry]:
    """A saga's entries with ``seq`` greater than ``after``, in order; all, or so many."""
    return [_entry(row) for row in await tx.fetch(_LOAD, saga_id, after, limit)]


def _entry(row: asyncpg.Record) -> Entry:
    if row["format"] > FORMAT:
        raise NewerFormat(saga=row["saga_id"])
    return load_entry(
        seq=row["seq"], id=row["id"], at=row["at"], type=row["type"], data=row["data"]
    )


def _start_row(saga: Saga, entry: Entry, *, fingerprint: bytes | None) -> StartRow:
    facts = saga.facts
    return StartRow(
        **_row(saga, entry),
        tenant_id=facts.tenant,
        definition_name=facts.definition.name,
        definition_version=facts.definition.version,
        business_key=facts.business_key,
        labels=orjson.dumps(dict(facts.labels)).decode(),
        fingerprint=fingerprint,
    )


def _move_row(saga: Saga, entry: Entry, *, reporter: Incarnation) -> MoveRow:
    owner = entry.now.owner
    return MoveRow(
        **_row(saga, entry),
        seq=entry.seq,
        before=saga.entry_id,
        progress=isinstance(entry.fact, _PROGRESS),
        is_evidence=owner == saga.now.owner
        and owner != reporter
        # At rest nobody owns it, whoever has claimed it meanwhile.
        and (owner is not None or entry.now.due_at is not None),
    )


def _row(saga: Saga, entry: Entry) -> dict[str, Any]:
    """What every row has: the head as the entry leaves it, and the entry."""
    now = entry.now
    return {
        "id": saga.id,
        "entry_id": entry.id,
        "at": entry.at,
        "status": now.status.value,
        "owner": now.owner,
        "due_at": now.due_at,
        "attention": now.attention,
        "failure": None if now.failure is None else dump_failure(now.failure),
        "finished_at": now.finished_at,
        "format": FORMAT,
        "type": FACT_NAMES[type(entry.fact)],
        "data": dump_entry(entry),
    }

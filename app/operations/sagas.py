"""Verbs on sagas: start, get, list, watch, and what they can be told."""

import asyncio
import datetime as dt
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import orjson
import uuid_utils.compat

from app.core.definition import Definition
from app.core.entries import Entry
from app.core.errors import CallerError, InvalidRequest, NotFound, StoreUnavailable
from app.core.events import Fact, SagaRequested, SagaVerb
from app.core.identity import SagaId, derive_key_seed, derive_saga_id
from app.core.json_value import JsonValue
from app.core.plan import RollbackPlan, plan_rollback
from app.core.saga import DefinitionRef, Saga, SagaStatus
from app.operations.context import Context
from app.operations.definitions import publish_inline
from app.schemas.documents import check_input
from app.store import (
    Filter,
    Head,
    Started,
    fetch_saga,
    find_latest,
    list_entries,
    list_progress,
    list_sagas,
)

STREAM_PAGE = 200
"""Entries that a stream reads at a time."""

WATCH_SECONDS = 15.0
"""How long a stream stays silent before it shows that it lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What a client asks for.

    Attributes:
        definition: a published name, or a whole document.
        version: of a published one; None for the latest.
        deadline: overrides the definition's.
        idempotency_key: the client's; the same key and request start one saga, for ever.
        forward_only: see ``SagaRequested``.
    """

    definition: str | Mapping[str, JsonValue]
    version: int | None = None
    input: JsonValue = None
    business_key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    deadline: dt.timedelta | None = None
    idempotency_key: str | None = None
    forward_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """A saga and the definition that it pins: what it takes to show its steps."""

    saga: Saga
    definition: Definition


async def start_saga(context: Context, request: StartRequest) -> Started:
    """Start a saga; once it returns, the saga is stored and will come to an end.

    Raises:
        NotFound: there is no such definition or version.
        InvalidRequest: the input does not fit the definition's schema; with every fault.
        KeyReused: the idempotency key was used with another request.
        BusinessKeyTaken: a live saga of this definition has the business key.
        StoreUnavailable: the database does not answer; ``saga`` names what may exist.
    """
    tenant = context.tenant
    if request.idempotency_key is None:
        saga_id = SagaId(uuid_utils.compat.uuid7())
        fingerprint = None
    else:
        saga_id = derive_saga_id(
            tenant_secret=tenant.secret, idempotency_key=request.idempotency_key
        )
        fingerprint = _fingerprint(request)
    try:
        async with asyncio.timeout(context.answer_seconds_max):
            try:
                fact = await _fact(context, request, saga_id)
            except CallerError:
                # The definition may have moved on since the same request started this saga.
                if fingerprint is not None:
                    replay = await context.journal.find_replay(saga_id, fingerprint=fingerprint)
                    if replay is not None:
                        return replay
                raise
            return await context.journal.start(fact, fingerprint=fingerprint)
    except TimeoutError as error:
        message = "the database does not answer; whether the saga was stored is not known"
        raise StoreUnavailable(message, saga=saga_id) from error


async def get_saga(context: Context, saga_id: UUID) -> Detail:
    """A saga as its journal tells.

    Raises:
        NotFound: there is no such saga.
    """
    async with context.database.read() as tx:
        saga = await fetch_saga(tx, SagaId(saga_id))
    return await _detail(context, saga)


async def get_rested_saga(context: Context, saga_id: UUID, *, wait_seconds: float) -> Detail:
    """A saga once it is at rest (final, stuck, paused), or as it is after ``wait_seconds``.

    Raises:
        NotFound: there is no such saga.
    """
    detail = await get_saga(context, saga_id)
    if wait_seconds <= 0 or detail.saga.status.is_at_rest:
        return detail
    await context.watch.wait(
        detail.saga.id, until=lambda _, status: status.is_at_rest, seconds=wait_seconds
    )
    return await get_saga(context, saga_id)


async def find_sagas(context: Context, chosen: Filter, *, limit: int) -> list[Head]:
    """Heads of sagas, newest first."""
    async with context.database.read() as tx:
        return await list_sagas(tx, context.tenant.id, chosen, limit=limit)


async def list_events(
    context: Context, saga_id: UUID, *, after: int = 0, limit: int
) -> list[Entry]:
    """A saga's journal from the entry after ``after`` on, at most so many.

    Raises:
        NotFound: there is no such saga.
    """
    async with context.database.read() as tx:
        entries = await list_entries(tx, SagaId(saga_id), after=after, limit=limit)
        if not entries and not await list_progress(tx, [SagaId(saga_id)]):
            raise NotFound(kind="saga", name=saga_id)
    return entries


async def stream_events(
    context: Context, saga_id: UUID, *, after: int = 0
) -> AsyncIterator[Entry | None]:
    """A saga's entries as they are appended, until it is final or the service stops.

    Yields None when nothing happened for ``WATCH_SECONDS``, so that the caller can show that it
    is still there.

    Raises:
        NotFound: there is no such saga.
    """
    seen = after
    known_id = SagaId(saga_id)
    while True:
        entries = await list_events(context, saga_id, after=seen, limit=STREAM_PAGE)
        for entry in entries:
            yield entry
            seen = entry.seq
        async with context.database.read() as tx:
            seq, status = (await list_progress(tx, [known_id]))[known_id]
        if status.is_final and seq <= seen:
            return
        if seq > seen:
            continue
        moved = await context.watch.wait(known_id, until=_is_past(seen), seconds=WATCH_SECONDS)
        if context.watch.is_closed:
            return
        if not moved:
            yield None


def _is_past(seen: int) -> Callable[[int, SagaStatus], bool]:
    return lambda seq, _: seq > seen


async def tell_saga(context: Context, saga_id: UUID, verb: SagaVerb) -> Detail:
    """Tell a saga something; what is so already changes nothing.

    Raises:
        NotFound: there is no such saga, or the verb names a step that it does not have.
        VerbRefused: the saga does not allow it now.
        StoreUnavailable: the database does not answer.
    """
    step = getattr(verb, "step", None)
    if step is not None:
        detail = await get_saga(context, saga_id)
        if step not in {each.id for each in detail.definition.steps}:
            raise NotFound(kind="step", name=step)
    return await _tell(context, saga_id, verb)


async def get_rollback_plan(context: Context, saga_id: UUID) -> RollbackPlan:
    """What undoing a saga as it is now would do, and in which order.

    Raises:
        NotFound: there is no such saga.
    """
    detail = await get_saga(context, saga_id)
    return plan_rollback(detail.definition, detail.saga)


async def _tell(context: Context, saga_id: UUID, fact: Fact) -> Detail:
    try:
        async with asyncio.timeout(context.answer_seconds_max):
            saga = await context.journal.record(SagaId(saga_id), fact, urgent=True)
            return await _detail(context, saga)
    except TimeoutError as error:
        message = "the database does not answer; whether it was stored is not known; ask again"
        raise StoreUnavailable(message, saga=saga_id) from error


async def _detail(context: Context, saga: Saga) -> Detail:
    definition = await context.definitions.fetch(context.tenant.id, saga.facts.definition)
    return Detail(saga=saga, definition=definition)


async def _fact(context: Context, request: StartRequest, saga_id: SagaId) -> SagaRequested:
    """What is asked for, checked against the definition that it names."""
    tenant = context.tenant
    reference = await _resolve(context, request)
    definition = await context.definitions.fetch(tenant.id, reference)
    faults = check_input(definition.input_schema, request.input)
    if faults:
        raise InvalidRequest(faults)
    return SagaRequested(
        id=saga_id,
        tenant=tenant.id,
        definition=reference,
        input=request.input,
        vars=context.variables,
        key_seed=derive_key_seed(tenant_secret=tenant.secret, saga=saga_id),
        business_key=request.business_key,
        labels=request.labels,
        deadline=request.deadline,
        forward_only=request.forward_only,
    )


async def _resolve(context: Context, request: StartRequest) -> DefinitionRef:
    if not isinstance(request.definition, str):
        return await publish_inline(context, dict(request.definition))
    if request.version is not None:
        return DefinitionRef(name=request.definition, version=request.version)
    async with context.database.read() as tx:
        latest = await find_latest(tx, context.tenant.id, request.definition)
    if latest is None:
        raise NotFound(kind="definition", name=request.definition)
    return latest


def _fingerprint(request: StartRequest) -> bytes:
    """What makes two requests with one key the same request."""
    document = {
        "definition": request.definition,
        "version": request.version,
        "input": request.input,
        "business_key": request.business_key,
        "labels": dict(request.labels),
        "deadline": request.deadline and request.deadline.total_seconds(),
    }
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).digest()

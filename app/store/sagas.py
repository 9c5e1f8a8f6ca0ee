"""Reading sagas: heads and lists. Never for decisions: those fold the journal."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

import asyncpg
import orjson

from app.core.identity import SagaId, TenantId
from app.core.saga import DefinitionRef, Failure, SagaStatus
from app.store.database import ReadTx
from app.store.encoding import load_failure
from app.store.tables import LIVE_STATUSES

_COLUMNS = """
id, definition_name, definition_version, status, seq, attention, business_key, labels, failure,
due_at, created_at, updated_at, finished_at
"""

_HEADS = "SELECT id, seq, status FROM sagas WHERE id = ANY($1::uuid[])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A saga as its head row tells: what a list shows."""

    id: SagaId
    definition: DefinitionRef
    status: SagaStatus
    seq: int
    attention: bool
    business_key: str | None
    labels: Mapping[str, str]
    failure: Failure | None
    due_at: dt.datetime | None
    created_at: dt.datetime
    updated_at: dt.datetime
    finished_at: dt.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which sagas a list shows; None means any.

    Attributes:
        before: only sagas older than this (created, id): where the page before ended.
        attention: only those that a person should look at (stuck ones among them).
    """

    status: SagaStatus | None = None
    definition: str | None = None
    business_key: str | None = None
    labels: Mapping[str, str] | None = None
    created_after: dt.datetime | None = None
    attention: bool | None = None
    before: tuple[dt.datetime, SagaId] | None = None


async def list_sagas(tx: ReadTx, tenant: TenantId, chosen: Filter, *, limit: int) -> list[Head]:
    """Heads of sagas, newest first."""
    clauses, args = ["tenant_id = $1"], [tenant, limit]

    def where(clause: str, *values: object) -> None:
        places = [f"${len(args) + index + 1}" for index in range(len(values))]
        clauses.append(clause.format(*places))
        args.extend(values)  # type: ignore[arg-type]  # any SQL value

    if chosen.status is not None:
        where("status = {}", chosen.status.value)
        if chosen.status.value in LIVE_STATUSES:
            where("finished_at IS NULL")  # meets the partial index
    if chosen.definition is not None:
        where("definition_name = {}", chosen.definition)
    if chosen.business_key is not None:
        where("business_key = {}", chosen.business_key)
    if chosen.labels:
        where(
            "labels <> '{{}}' AND labels @> {}::jsonb", orjson.dumps(dict(chosen.labels)).decode()
        )
    if chosen.created_after is not None:
        where("created_at > {}", chosen.created_after)
    if chosen.attention is not None:
        where("(attention OR status = 'stuck')" + ("" if chosen.attention else " IS FALSE"))
    if chosen.before is not None:
        where("(created_at, id) < ({}, {})", *chosen.before)
    rows = await tx.fetch(
        f"SELECT {_COLUMNS} FROM sagas WHERE {' AND '.join(clauses)} "  # noqa: S608 - own words
        "ORDER BY created_at DESC, id DESC LIMIT $2",
        *args,
    )
    return [_head(row) for row in rows]


async def list_progress(tx: ReadTx, saga_ids: list[SagaId]) -> dict[SagaId, tuple[int, SagaStatus]]:
    """``seq`` and status of many sagas at once; for those who wait for them."""
    return {
        SagaId(row["id"]): (row["seq"], SagaStatus(row["status"]))
        for row in await tx.fetch(_HEADS, saga_ids)
    }


def _head(row: asyncpg.Record) -> Head:
    return Head(
        id=SagaId(row["id"]),
        definition=DefinitionRef(name=row["definition_name"], version=row["definition_version"]),
        status=SagaStatus(row["status"]),
        seq=row["seq"],
        attention=row["attention"],
        business_key=row["business_key"],
        labels=orjson.loads(row["labels"]),
        failure=None if row["failure"] is None else load_failure(orjson.loads(row["failure"])),
        due_at=row["due_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        finished_at=row["finished_at"],
    )

"""The one statement of a flush: starts and moves of many sagas, one commit.

Lock order: the fence row, then heads in id order, then the journal; each part reads the RETURNING
of the one before. A move is a compare-and-set of the head: it updates where ``seq`` and
``entry_id`` are those that were read, and its entry is appended for the rows that it updated. A
statement that reaches the server twice, or late, so either applies wholly or changes nothing.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from uuid import UUID

_FENCE = """
fence AS MATERIALIZED (
    SELECT 1 AS valid FROM replicas WHERE id = $1 AND revoked_at IS NULL FOR SHARE
)"""

_STARTED = """
started AS (
    INSERT INTO sagas (id, tenant_id, definition_name, definition_version, status, seq, entry_id,
        owner, due_at, attention, format, business_key, labels, failure, fingerprint,
        created_at, updated_at, finished_at)
    SELECT x.id, x.tenant_id, x.definition_name, x.definition_version, x.status, 1, x.entry_id,
        x.owner, x.due_at, x.attention, x.format, x.business_key, x.labels::jsonb,
        x.failure::json, x.fingerprint, x.at, x.at, x.finished_at
    FROM fence, {source}
    ON CONFLICT DO NOTHING
    RETURNING entry_id
), started_journal AS (
    INSERT INTO saga_journal (saga_id, seq, id, tenant_id, at, type, format, data)
    SELECT x.id, 1, x.entry_id, x.tenant_id, x.at, x.type, x.format, x.data::json
    FROM {source}
    WHERE (x.entry_id IN (SELECT entry_id FROM started)) IS TRUE
)"""
# An INSERT returns nothing but its own table's columns, so the entries are looked up again. IS TRUE
# keeps the planner from making a join of it: without hash joins that would compare each with each.

_MOVED = """
moved AS (
    UPDATE sagas s SET
        status = x.status, seq = x.seq, entry_id = x.entry_id,
        owner = CASE WHEN x.is_evidence THEN coalesce(s.owner, x.owner) ELSE x.owner END,
        due_at = x.due_at, attention = x.attention, failure = x.failure::json,
        losses = CASE WHEN x.progress THEN 0 ELSE s.losses END,
        format = greatest(s.format, x.format), updated_at = x.at, finished_at = x.finished_at
    FROM fence, {source}
    WHERE s.id = x.id AND s.seq = x.seq - 1 AND s.entry_id = x.before
    RETURNING s.id, x.seq, x.entry_id, s.tenant_id, x.at, x.type, x.format, x.data
), moved_journal AS (
    INSERT INTO saga_journal (saga_id, seq, id, tenant_id, at, type, format, data)
    SELECT m.id, m.seq, m.entry_id, m.tenant_id, m.at, m.type, m.format, m.data::json
    FROM moved m
)"""

FREE = "SELECT id FROM sagas WHERE id = ANY($1::uuid[]) FOR NO KEY UPDATE SKIP LOCKED"
"""Which heads nobody else holds; asked when a flush met a lock, before it is sent again."""

FREE_FENCE = "SELECT 1 FROM replicas WHERE id = $1 FOR SHARE SKIP LOCKED"
"""Whether nobody is about to revoke this incarnation."""

FIND = """
SELECT s.id, s.seq, s.entry_id, s.fingerprint, j.id AS appended
FROM unnest($1::uuid[], $2::integer[]) AS x (id, seq)
JOIN sagas s ON s.id = x.id
LEFT JOIN saga_journal j ON j.saga_id = x.id AND j.seq = x.seq
"""
"""What became of rows that a flush did not return: run after it, so that it sees the winner."""

FIND_BUSINESS_KEY = """
SELECT id FROM sagas
WHERE tenant_id = $1 AND definition_name = $2 AND business_key = $3 AND finished_at IS NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A head as an entry leaves it, and the entry; the order of the fields is the parameters'."""

    id: UUID
    entry_id: UUID
    at: dt.datetime
    status: str
    owner: UUID | None
    due_at: dt.datetime | None
    attention: bool
    failure: str | None
    finished_at: dt.datetime | None
    format: int
    type: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRow(_Row):
    """A new head row and its first entry."""

    tenant_id: int
    definition_name: str
    definition_version: int
    business_key: str | None
    labels: str
    fingerprint: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRow(_Row):
    """The next state of a head row, and its entry."""

    seq: int
    before: UUID
    progress: bool
    is_evidence: bool
    """Whoever reports it leaves the owner as it was. The head knows better: it may be claimed."""


_TYPES = {
    "id": "uuid",
    "entry_id": "uuid",
    "at": "timestamptz",
    "owner": "uuid",
    "due_at": "timestamptz",
    "attention": "boolean",
    "finished_at": "timestamptz",
    "format": "smallint",
    "tenant_id": "integer",
    "definition_version": "integer",
    "fingerprint": "bytea",
    "seq": "integer",
    "before": "uuid",
    "progress": "boolean",
    "is_evidence": "boolean",
}
"""SQL types of the fields that are not text."""


@cache
def flush_statement(*, starts: bool, moves: bool) -> str:
    """The statement for a flush that holds starts, moves, or both.

    Parameters: the incarnation, then one array for every field of ``StartRow`` if there are
    starts, then one for every field of ``MoveRow`` if there are moves. Returns one row: ``valid``
    (the incarnation is not revoked) and ``won`` (ids of the entries that were appended).
    """
    parts, won = [_FENCE], []
    first = 2
    if starts:
        parts.append(_STARTED.format(source=_source(StartRow, first=first)))
        won.append("SELECT entry_id FROM started")
        first += len(fields(StartRow))
    if moves:
        parts.append(_MOVED.format(source=_source(MoveRow, first=first)))
        won.append("SELECT entry_id FROM moved")
    return (
        f"WITH {','.join(parts)}\n"
        "SELECT EXISTS (SELECT FROM fence) AS valid, "
        f"ARRAY({' UNION ALL '.join(won)}) AS won"
    )


def columns(rows: Sequence[StartRow] | Sequence[MoveRow]) -> list[list[object]]:
    """The rows turned on their side: one array a field."""
    if not rows:
        return []
    return [[getattr(row, field.name) for row in rows] for field in fields(rows[0])]


def _source(row: type[StartRow | MoveRow], *, first: int) -> str:
    names = [field.name for field in fields(row)]
    arrays = ", ".join(
        f"${first + index}::{_TYPES.get(name, 'text')}[]" for index, name in enumerate(names)
    )
    return f"unnest({arrays}) AS x ({', '.join(names)})"

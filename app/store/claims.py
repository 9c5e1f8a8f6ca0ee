"""Claims: how an engine comes to own sagas that are due or whose owner is gone.

A claim is a hint that lessens contention: it marks the head, and the first entry that the
claimer appends makes it the owner. If another replica's entry comes first, that one decides.
All claiming is in this module; ``FOR UPDATE SKIP LOCKED`` is in no other.
"""

import datetime as dt
from dataclasses import dataclass

from app.core.entries import FORMAT
from app.core.identity import Incarnation, SagaId
from app.store.database import ReadTx, WriteTx

SUSPECT_LOSSES = 3
"""After this many lost owners in a row a saga is suspected of killing them: it runs alone."""

SUSPECT_DELAY = dt.timedelta(seconds=5)

# Due and without an owner, oldest first. A partial index each: ``sagas_due``, ``sagas_suspects``.
# The bound on ``losses`` is literal, since a parameter matches no partial index, and the time is a
# sub-select, since a volatile function is no index condition.
_CLAIM_DUE = """
WITH fence AS MATERIALIZED (
    SELECT 1 FROM replicas WHERE id = $1 AND revoked_at IS NULL FOR SHARE
), due AS MATERIALIZED (
    SELECT id FROM sagas
    WHERE owner IS NULL AND due_at <= (SELECT amends_now())
      AND losses {losses} AND format <= $2
    ORDER BY due_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE sagas s SET owner = $1 FROM due, fence WHERE s.id = due.id
RETURNING s.id, s.losses
"""

# Owned by the revoked. Each claim counts one more lost owner; suspects are parked for a while.
_CLAIM_ORPHANS = """
WITH fence AS MATERIALIZED (
    SELECT 1 FROM replicas WHERE id = $1 AND revoked_at IS NULL FOR SHARE
), gone AS MATERIALIZED (
    SELECT id FROM replicas WHERE revoked_at IS NOT NULL
), orphans AS MATERIALIZED (
    SELECT s.id FROM gone JOIN sagas s ON s.owner = gone.id
    WHERE s.format <= $2
    LIMIT $3
    FOR UPDATE OF s SKIP LOCKED
)
UPDATE sagas s SET
    losses = s.losses + 1,
    owner = CASE WHEN s.losses + 1 < $4 THEN $1::uuid END,
    due_at = CASE WHEN s.losses + 1 < $4 THEN s.due_at ELSE amends_now() + $5::interval END
FROM orphans, fence WHERE s.id = orphans.id
RETURNING s.id, s.losses, s.owner
"""

# What cannot go on here for a reason of its own: nobody's, and due later.
_SET_ASIDE = """
UPDATE sagas SET owner = NULL, due_at = amends_now() + $3::interval, losses = losses + 1
WHERE id = $1 AND owner = $2
"""

# What this replica owns, by the heads: to be compared with what it believes that it owns.
_OWNED = "SELECT id, seq FROM sagas WHERE owner = $1"

# Must return no rows, in tests and in production: a saga that is not at rest and that nothing
# will move. Its owner is unknown, or it has neither owner nor due time. (Owners that are revoked
# or expired are a reason to move: they are looked for all the time.)
WITHOUT_REASON = """
SELECT s.id, s.status, s.owner, s.due_at FROM sagas s
WHERE s.finished_at IS NULL AND s.status NOT IN ('stuck', 'paused')
  AND (
    (s.owner IS NULL AND s.due_at IS NULL)
    OR (s.owner IS NOT NULL AND NOT EXISTS (SELECT FROM replicas r WHERE r.id = s.owner))
    OR (s.owner IS NOT NULL AND NOT EXISTS
          (SELECT FROM heartbeats h WHERE h.replica_id = s.owner))
  )
LIMIT 100
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claimed saga, and how many of its owners were lost in a row."""

    saga: SagaId
    losses: int


async def claim_due(
    tx: WriteTx, *, incarnation: Incarnation, limit: int, suspects: bool
) -> list[Claim]:
    """Claim sagas whose due time has come; those under suspicion, or those that are not."""
    losses = f">= {SUSPECT_LOSSES}" if suspects else f"< {SUSPECT_LOSSES}"
    rows = await tx.fetch(_CLAIM_DUE.format(losses=losses), incarnation, FORMAT, limit)
    return [Claim(saga=SagaId(row["id"]), losses=row["losses"]) for row in rows]


async def claim_orphans(
    tx: WriteTx, *, incarnation: Incarnation, limit: int
) -> tuple[list[Claim], int]:
    """Claim sagas whose owner was revoked.

    Returns:
        What was claimed, and how many sagas were found in all: suspects are parked instead.
    """
    rows = await tx.fetch(_CLAIM_ORPHANS, incarnation, FORMAT, limit, SUSPECT_LOSSES, SUSPECT_DELAY)
    claims = [
        Claim(saga=SagaId(row["id"]), losses=row["losses"])
        for row in rows
        if row["owner"] is not None
    ]
    return claims, len(rows)


async def set_aside(
    tx: WriteTx, *, incarnation: Incarnation, saga: SagaId, delay: dt.timedelta
) -> None:
    """Park a saga that fails in our own hands, counted as a lost owner: at last it is stuck."""
    await tx.execute(_SET_ASIDE, saga, incarnation, delay)


async def list_owned(tx: ReadTx, *, incarnation: Incarnation) -> dict[SagaId, int]:
    """The sagas that an incarnation owns, with their ``seq``."""
    rows = await tx.fetch(_OWNED, incarnation)
    return {SagaId(row["id"]): row["seq"] for row in rows}


async def list_without_reason(tx: ReadTx) -> list[SagaId]:
    """Sagas that nothing will ever move: must be empty; at most 100."""
    return [SagaId(row["id"]) for row in await tx.fetch(WITHOUT_REASON)]

"""The survey: what the database holds now, for whoever watches the service. Decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.saga import SagaStatus
from app.store.claims import list_without_reason
from app.store.database import ReadTx

# By the partial index ``sagas_live``: as many rows as there are sagas under way.
_LIVE = "SELECT status, count(*) AS sagas FROM sagas WHERE finished_at IS NULL GROUP BY status"

# They stay until somebody has dealt with them: the count stops where it tells nothing new.
_ATTENTION = "SELECT count(*) FROM (SELECT FROM sagas WHERE attention LIMIT 10000) AS those"

# The first row of ``sagas_due``. Suspects are left out: they wait their turn on purpose.
_DUE_OLDEST = """
SELECT coalesce(extract(epoch FROM greatest(amends_now() - min(due_at), '0')), 0)::float8
FROM sagas WHERE owner IS NULL AND due_at IS NOT NULL AND losses < 3
"""

_LEASE_OVERDUE = """
SELECT coalesce(extract(epoch FROM max(greatest(amends_now() - h.expires_at, '0'))), 0)::float8
FROM heartbeats h JOIN replicas r ON r.id = h.replica_id
WHERE r.revoked_at IS NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What there is, in all tenants.

    Attributes:
        live: how many sagas are in each status that is not final; every such status is there.
        attention: sagas that a person should look at; at most 10,000.
        without_reason: sagas that nothing will ever move; at most 100, and there must be none.
        due_oldest_seconds: for how long the saga that is due longest has been without an owner.
        lease_overdue_seconds: for how long a lease has been over whose replica is not revoked.
    """

    live: Mapping[SagaStatus, int]
    attention: int
    without_reason: int
    due_oldest_seconds: float
    lease_overdue_seconds: float


async def make_survey(tx: ReadTx) -> Survey:
    """Look at all there is; reads as many rows as there are sagas that are not final."""
    found = {SagaStatus(row["status"]): row["sagas"] for row in await tx.fetch(_LIVE)}
    return Survey(
        live={status: found.get(status, 0) for status in SagaStatus if not status.is_final},
        attention=await tx.fetch_value(_ATTENTION),
        without_reason=len(await list_without_reason(tx)),
        due_oldest_seconds=await tx.fetch_value(_DUE_OLDEST),
        lease_overdue_seconds=await tx.fetch_value(_LEASE_OVERDUE),
    )

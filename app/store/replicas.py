"""Replicas: one row a start, one heartbeat row, and the lease that follows from it.

A replica's right to act is a lease of a few seconds, renewed apart from the work. Its sagas belong
to its *incarnation*; none of them has a lease of its own. Who has not renewed in time is *revoked*
by another replica: from that commit on, every flush of the revoked incarnation is refused, and its
sagas may be claimed.
"""

import asyncio
import datetime as dt
from uuid import UUID

import structlog
import uuid_utils.compat

from app.clock import Clock, elapsed_seconds
from app.core.errors import StoreUnavailable
from app.core.identity import Incarnation
from app.store.database import Database

log = structlog.get_logger(__name__)

BEATS_PER_LEASE = 3
"""Two beats may fail before a lease is lost."""

_REGISTER = """
WITH born AS (
    INSERT INTO replicas (id, role, started_at) VALUES ($1, $2, amends_now())
)
INSERT INTO heartbeats (replica_id, beat_at, expires_at)
SELECT $1, now.at, now.at + $3 FROM (SELECT amends_now() AS at) now
RETURNING beat_at
"""

# Revoked incarnations get no further beat: they learn here that they are.
_BEAT = """
UPDATE heartbeats h SET beat_at = now.at, expires_at = now.at + $2
FROM (SELECT amends_now() AS at) now
WHERE h.replica_id = $1
  AND EXISTS (SELECT FROM replicas r WHERE r.id = $1 AND r.revoked_at IS NULL)
RETURNING h.beat_at
"""

_REVOKE_EXPIRED = """
UPDATE replicas r SET revoked_at = amends_now()
WHERE r.revoked_at IS NULL AND r.id <> $1
  AND r.id IN (SELECT h.replica_id FROM heartbeats h WHERE h.expires_at < amends_now())
RETURNING r.id
"""

_RETIRE = "UPDATE replicas SET revoked_at = amends_now() WHERE id = $1 AND revoked_at IS NULL"

# A replica is forgotten a day after its revocation, once it owns nothing.
_PRUNE = """
WITH gone AS (
    DELETE FROM replicas r
    WHERE r.revoked_at < amends_now() - interval '1 day'
      AND NOT EXISTS (SELECT FROM sagas s WHERE s.owner = r.id)
    RETURNING r.id
)
DELETE FROM heartbeats h USING gone WHERE h.replica_id = gone.id
"""


class Replica:
    """This process as the database knows it: its incarnation and its lease.

    Attributes:
        incarnation: new at every start, and after a revocation.
        is_draining: it claims nothing and opens nothing any more.
        revoked: set when others have revoked this incarnation.
    """

    def __init__(
        self, database: Database, clock: Clock, *, role: str, lease_seconds: float
    ) -> None:
        self._database = database
        self._clock = clock
        self._role = role
        self._lease = dt.timedelta(seconds=lease_seconds)
        self._trusted_since_seconds = 0.0
        self.incarnation = Incarnation(UUID(int=0))
        self.expires_at = dt.datetime.min.replace(tzinfo=dt.UTC)
        self.is_draining = False
        self.revoked = asyncio.Event()

    @property
    def beat_seconds(self) -> float:
        """How far apart heartbeats are."""
        return self._lease.total_seconds() / BEATS_PER_LEASE

    @property
    def lease_seconds(self) -> float:
        """Until the lease ends; negative once it has."""
        return (self.expires_at - self._clock.now()).total_seconds()

    @property
    def beat_age_seconds(self) -> float:
        """Since the lease was last renewed."""
        return self._lease.total_seconds() - self.lease_seconds

    @property
    def is_trusted(self) -> bool:
        """The lease is valid, by this process's estimate of the database's clock."""
        return self._clock.now() < self.expires_at

    async def register(self) -> None:
        """Become a new incarnation, with a lease.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        incarnation = Incarnation(uuid_utils.compat.uuid7())
        asked_at = elapsed_seconds()
        async with self._database.write() as tx:
            beat_at = await tx.fetch_value(_REGISTER, incarnation, self._role, self._lease)
        self.incarnation = incarnation
        self.revoked = asyncio.Event()
        self._trusted_since_seconds = asked_at
        self._learn(beat_at, asked_at_seconds=asked_at)
        log.info("replica_registered", incarnation=str(incarnation), role=self._role)

    async def beat(self) -> None:
        """Renew the lease; sets ``revoked`` if there is none to renew any more.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        asked_at = elapsed_seconds()
        was_trusted = self.is_trusted
        try:
            # A connection that hangs must not cost the lease: the next beat takes another.
            async with asyncio.timeout(self.beat_seconds), self._database.write() as tx:
                beat_at = await tx.fetch_value(_BEAT, self.incarnation, self._lease)
        except TimeoutError as error:
            raise StoreUnavailable("the lease could not be renewed in time") from error
        if beat_at is None:
            if not self.revoked.is_set():
                log.warning("lease_lost", incarnation=str(self.incarnation))
            self.revoked.set()
            return
        if not was_trusted:
            self._trusted_since_seconds = asked_at
        self._learn(beat_at, asked_at_seconds=asked_at)

    async def revoke_expired(self) -> list[Incarnation]:
        """Revoke the incarnations whose lease is over; returns them.

        Not before this replica has itself held its lease for a whole lease without a gap: after
        an outage of the database all leases are over, and the others must be given the time to
        renew theirs.
        """
        held_for = elapsed_seconds() - self._trusted_since_seconds
        if not self.is_trusted or held_for < self._lease.total_seconds():
            return []
        async with self._database.write() as tx:
            rows = await tx.fetch(_REVOKE_EXPIRED, self.incarnation)
        revoked = [Incarnation(row["id"]) for row in rows]
        for incarnation in revoked:
            log.warning("replica_revoked", incarnation=str(incarnation))
        return revoked

    async def retire(self) -> None:
        """Give the lease back: whatever this incarnation still owns may be claimed at once."""
        try:
            async with self._database.write() as tx:
                await tx.execute(_RETIRE, self.incarnation)
        except StoreUnavailable:
            log.warning("replica_not_retired", incarnation=str(self.incarnation))

    async def prune(self) -> None:
        """Forget the replicas that are long gone."""
        async with self._database.write() as tx:
            await tx.execute(_PRUNE)

    def _learn(self, beat_at: dt.datetime, *, asked_at_seconds: float) -> None:
        self._clock.learn(beat_at, asked_at_seconds=asked_at_seconds)
        self.expires_at = beat_at + self._lease

"""The surveyor: looks at the whole database now and then, and shows what it saw as gauges.

Every replica has one, whatever its role: should all engines be gone, the others still say so.
"""

import time

from app.engine.loop import Loop
from app.metrics import Metrics
from app.store import Database, make_survey

SURVEY_SECONDS = 30.0
"""Prometheus scrapes every 15 to 60 s. A survey reads as many rows as there are live sagas."""


class Surveyor:
    """Makes a survey at a slow pace."""

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics
        self._loop = Loop("survey", self._survey, every_seconds=SURVEY_SECONDS)

    async def start(self) -> None:
        """Start; the first survey is made at once."""
        await self._loop.start()

    async def stop(self) -> None:
        """End after the survey under way; works before ``start`` and twice."""
        await self._loop.stop()

    async def _survey(self) -> bool:
        async with self._database.read() as tx:
            seen = await make_survey(tx)
        metrics = self._metrics
        for status, count in seen.live.items():
            metrics.sagas_live.labels(status.value).set(count)
        metrics.sagas_attention.set(seen.attention)
        metrics.sagas_without_reason.set(seen.without_reason)
        metrics.due_oldest_seconds.set(seen.due_oldest_seconds)
        metrics.lease_overdue_seconds.set(seen.lease_overdue_seconds)
        metrics.survey_timestamp_seconds.set(time.time())
        return False

"""Metrics: every instrument of one process, in a registry of its own.

They are made in ``main`` and handed down. Each part counts what it does itself; nothing here knows
what a saga is. Label values are words from closed lists and route templates: never an id, a host
or the name of a definition, of which there may be any number (``docs/operations.md``).
"""

import platform
from collections.abc import Iterator
from typing import Final, override

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

_COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_ROW_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Up to the writer's own limit."""
_ATTEMPT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_REQUEST_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""A client may ask to be held for half a minute."""
_CALLBACK_BUCKETS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 24 * 3600)


class Metrics:
    """The instruments; their meaning is the text that each is made with.

    Counters and histograms are of this process: added up over replicas, they are the service's.
    Gauges of the *survey* tell what is in the database: each replica says the same of all sagas,
    so the largest is taken, never the sum.
    """

    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        build = Info("amends_build", "The release that runs.", registry=self.registry)
        build.info({"version": version, "python": platform.python_version()})
        self._make_saga_counters()
        self._make_call_counters()
        self._make_store_instruments()
        self._make_survey_gauges()
        self.request_seconds = self._histogram(
            "request_seconds",
            "From a request to the begin of its answer, by method, route template and class of "
            "status; route is 'none' where there is none.",
            "method",
            "route",
            "status",
            buckets=_REQUEST_BUCKETS,
        )

    def render(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(_WithoutCreated(self.registry))

    def note_commit(self, rows: int, seconds: float) -> None:
        """A batch of so many transitions was stored in so many seconds."""
        self.commit_rows.observe(rows)
        self.commit_seconds.observe(seconds)

    def _make_saga_counters(self) -> None:
        self.sagas_started = self._counter("sagas_started", "Sagas that were started.")
        self.sagas_ended = self._counter(
            "sagas_ended", "Sagas that became final, by status.", "status"
        )
        self.sagas_stuck = self._counter(
            "sagas_stuck", "Times that a saga got stuck, by its question.", "question"
        )
        self.rollbacks = self._counter("rollbacks", "Decisions to undo, by cause.", "cause")

    def _make_call_counters(self) -> None:
        self.calls_concluded = self._counter(
            "calls_concluded",
            "Calls of steps that were concluded, by call and outcome; 'unknown' failed, and may "
            "have taken effect.",
            "call",
            "outcome",
        )
        self.retries = self._counter(
            "retries", "Attempts opened under a key that had one before, by call.", "call"
        )
        self.attempts = self._counter(
            "attempts",
            "Attempts that ended, by connector and what was seen.",
            "connector",
            "observation",
        )
        self.attempt_seconds = self._histogram(
            "attempt_seconds",
            "How long attempts took, the wait for a free connection included, by connector.",
            "connector",
            buckets=_ATTEMPT_BUCKETS,
        )
        self.attempts_in_flight = self._gauge("attempts_in_flight", "Attempts that are out now.")
        self.callbacks = self._counter(
            "callbacks", "Callbacks for known calls, by what became of them.", "reception"
        )
        self.callback_lag_seconds = self._histogram(
            "callback_lag_seconds",
            "From the acknowledgement, or the last in_progress, to the callback that was awaited.",
            buckets=_CALLBACK_BUCKETS,
        )

    def _make_store_instruments(self) -> None:
        self.commit_rows = self._histogram(
            "commit_rows", "Transitions in one commit.", buckets=_ROW_BUCKETS
        )
        self.commit_seconds = self._histogram(
            "commit_seconds", "How long a batch took to be stored.", buckets=_COMMIT_BUCKETS
        )
        self.writer_rows = self._gauge("writer_rows", "Transitions that wait to be stored.")
        self.writer_bytes = self._gauge("writer_bytes", "Their size, roughly.")
        self.writer_wait_seconds = self._gauge(
            "writer_wait_seconds", "For how long the oldest of them has waited; 0 if none does."
        )
        self.sagas_held = self._gauge("sagas_held", "Sagas that this replica owns now.")
        self.sagas_claimed = self._counter(
            "sagas_claimed",
            "Sagas that this replica took up: due, orphaned by a lost owner, or suspected of "
            "losing their owners.",
            "reason",
        )
        self.replicas_revoked = self._counter(
            "replicas_revoked", "Replicas that this one revoked, for their lease was over."
        )
        self.leases_lost = self._counter(
            "leases_lost", "Times that this replica was revoked, and began anew."
        )
        self.heartbeat_age_seconds = self._gauge(
            "heartbeat_age_seconds", "Since this replica last renewed its lease."
        )
        self.lease_seconds = self._gauge(
            "lease_seconds", "Until its lease ends; below 0 it sends and opens nothing."
        )

    def _make_survey_gauges(self) -> None:
        self.sagas_live = self._gauge(
            "sagas_live", "Survey: sagas that are not final, by status.", "status"
        )
        self.sagas_attention = self._gauge(
            "sagas_attention", "Survey: sagas that a person should look at; at most 10000."
        )
        self.sagas_without_reason = self._gauge(
            "sagas_without_reason",
            "Survey: sagas that nothing will ever move; at most 100. Must be 0.",
        )
        self.due_oldest_seconds = self._gauge(
            "due_oldest_seconds", "Survey: for how long the saga due longest has been unclaimed."
        )
        self.lease_overdue_seconds = self._gauge(
            "lease_overdue_seconds",
            "Survey: for how long a lease has been over whose replica nobody has revoked.",
        )
        self.survey_timestamp_seconds = self._gauge(
            "survey_timestamp_seconds", "When the last survey was made, in Unix time."
        )

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"amends_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"amends_{name}", meaning, labels, registry=self.registry)

    def _histogram(
        self, name: str, meaning: str, *labels: str, buckets: tuple[float, ...]
    ) -> Histogram:
        return Histogram(f"amends_{name}", meaning, labels, registry=self.registry, buckets=buckets)


class _WithoutCreated(Collector):
    """A registry without the times at which series began: Prometheus' text format has no use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    @override
    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [each for each in metric.samples if not each.name.endswith("_created")]
            yield metric

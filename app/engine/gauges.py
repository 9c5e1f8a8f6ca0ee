"""Gauges that are read off the running parts whenever somebody asks for the metrics."""

from app.engine.engine import Engine
from app.metrics import Metrics
from app.store import Replica, Writer


def show_gauges(metrics: Metrics, *, writer: Writer, replica: Replica, engine: Engine) -> None:
    """From now on ``metrics`` tell the state of these parts."""
    metrics.writer_rows.set_function(lambda: writer.waiting_rows)
    metrics.writer_bytes.set_function(lambda: writer.waiting_bytes)
    metrics.writer_wait_seconds.set_function(lambda: writer.waiting_seconds)
    metrics.heartbeat_age_seconds.set_function(lambda: replica.beat_age_seconds)
    metrics.lease_seconds.set_function(lambda: replica.lease_seconds)
    metrics.sagas_held.set_function(lambda: engine.held)
    metrics.attempts_in_flight.set_function(lambda: engine.in_flight)

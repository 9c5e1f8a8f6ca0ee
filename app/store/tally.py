"""The tally: counts what the journal's entries conclude. An observer; it moves nothing.

An entry is committed by one replica and counted by that one, so the counts of all replicas add up
to what happened. A process that dies between a commit and its count loses that count; the database
remains the truth.
"""

from app.core.definition import Definition
from app.core.entries import Entry, Ignored, Reception
from app.core.events import CallbackReceived, Fact
from app.core.identity import Direction
from app.core.saga import (
    CallState,
    CallStatus,
    Cause,
    Effect,
    Question,
    Saga,
    SagaStatus,
)
from app.metrics import Metrics

_CALLS = {
    Direction.ACTION: "action",
    Direction.COMPENSATION: "compensation",
    Direction.VERIFY: "verify",
    Direction.COMPENSATION_VERIFY: "verify",
}
_OUTCOMES = ("succeeded", "failed", "unknown", "skipped")


class Tally:
    """Counts into ``metrics``; every series it may ever count is there from the start, at 0."""

    def __init__(self, metrics: Metrics) -> None:
        self._started = metrics.sagas_started
        self._callback_lag = metrics.callback_lag_seconds
        self._ended = {
            status: metrics.sagas_ended.labels(status.value)
            for status in SagaStatus
            if status.is_final
        }
        self._stuck = {each: metrics.sagas_stuck.labels(each.value) for each in Question}
        self._rollbacks = {each: metrics.rollbacks.labels(each.value) for each in Cause}
        self._callbacks = {each: metrics.callbacks.labels(each.value) for each in Reception}
        self._retries = {way: metrics.retries.labels(call) for way, call in _CALLS.items()}
        self._concluded = {
            (way, outcome): metrics.calls_concluded.labels(call, outcome)
            for way, call in _CALLS.items()
            for outcome in _OUTCOMES
        }

    def observe(
        self,
        definition: Definition,
        before: Saga | None,
        fact: Fact,
        concluded: Entry | Ignored,
    ) -> None:
        """Count one fact and what followed from it; see ``Journal.observe``."""
        if isinstance(fact, CallbackReceived):
            self._count_callback(definition, before, fact, concluded)
        if isinstance(concluded, Ignored):
            return
        self._count_saga(before, concluded)
        for call in concluded.calls:
            known = None if before is None else before.call(call.step, call.direction)
            self._count_call(known, call, seq=concluded.seq)

    def _count_saga(self, before: Saga | None, entry: Entry) -> None:
        then, now = None if before is None else before.now, entry.now
        if then is None:
            self._started.inc()
        if now.failure is not None and (then is None or then.failure is None):
            self._rollbacks[now.failure.cause].inc()
        if now.stuck is not None and (then is None or then.stuck is None):
            self._stuck[now.stuck.question].inc()
        if now.status.is_final and (then is None or not then.status.is_final):
            self._ended[now.status].inc()

    def _count_call(self, before: CallState | None, call: CallState, *, seq: int) -> None:
        was_open = None if before is None else before.open
        is_new = call.open is not None and (was_open is None or was_open.number != call.open.number)
        if is_new and call.open is not None and call.open.number > call.first_attempt:
            self._retries[call.direction].inc()
        if call.concluded_seq == seq and not call.status.is_under_way:
            self._concluded[call.direction, _outcome(call)].inc()

    def _count_callback(
        self,
        definition: Definition,
        before: Saga | None,
        fact: CallbackReceived,
        concluded: Entry | Ignored,
    ) -> None:
        if concluded.reception is not None:
            self._callbacks[concluded.reception].inc()
        call = None if before is None else before.call(fact.step, fact.direction)
        if isinstance(concluded, Ignored) or call is None or call.status is not CallStatus.WAITING:
            return
        awaited = definition.step(fact.step).call(fact.direction).callback
        if awaited is not None and call.due_at is not None and call.generation == fact.generation:
            silent_since = call.due_at - awaited.within
            self._callback_lag.observe((concluded.at - silent_since).total_seconds())


def _outcome(call: CallState) -> str:
    if call.status is CallStatus.FAILED and call.effect is Effect.UNKNOWN:
        return "unknown"
    return call.status.value

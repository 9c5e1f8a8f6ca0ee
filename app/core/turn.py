"""One decision under way: the saga as it becomes while an event is concluded.

``machine`` begins a turn, ``forward`` and ``backward`` change the saga in it, and ``entry`` closes
it: who owns the saga now, when something is next to be done, and which calls changed.
"""

import datetime as dt
from dataclasses import replace
from typing import Any

from app.core.callbacks import token_of
from app.core.definition import Call, Definition
from app.core.entries import Entry, Reception
from app.core.events import Event, SagaWoken, Verb
from app.core.identity import Direction, StepId, derive_call_key
from app.core.requests import HttpRequest, Request
from app.core.saga import (
    Attempt,
    CallState,
    CallStatus,
    Conclusion,
    Effect,
    Failure,
    Output,
    Problem,
    Question,
    Saga,
    SagaStatus,
    Settling,
    Stuck,
    Wish,
)

PARKED_AFTER = dt.timedelta(seconds=1)
"""A saga that waits longer than this is parked: no owner, no task, no memory, a due time."""

ENTRIES_MAX = 10_000
WEIGHT_BYTES_MAX = 16 * 1024 * 1024
FORWARD_SHARE = 0.8
"""The forward phase may use this share of a saga's limits; the rest is kept for undoing."""

ENTRY_WEIGHT_BYTES = 400
"""What an entry weighs beside its request and output, roughly."""

_BACKWARD = frozenset(
    {SagaStatus.COMPENSATING, SagaStatus.COMPENSATED, SagaStatus.PARTIALLY_COMPENSATED}
)


class Turn:
    """The saga while one event is concluded; made, changed and closed within one ``decide``."""

    def __init__(self, definition: Definition, saga: Saga, event: Event) -> None:
        self.definition = definition
        self.event = event
        self.before = saga
        self.saga = saga
        self.at = max(event.at, saga.updated_at)
        self.seq = saga.seq + 1
        self.owed = False
        self.reception: Reception | None = None
        self._wake_at: dt.datetime | None = None

    @property
    def may_open(self) -> bool:
        """Whether this turn may open intents: the reporter runs an engine, and is or becomes owner.

        Another's saga may be taken only by waking it: whoever wakes has claimed it, and made sure
        that its owner is revoked.
        """
        if self.saga.status.is_at_rest or self.is_terminating:
            return False
        reporter = self.event.reporter
        mine = self.saga.now.owner in {None, reporter.incarnation}
        return reporter.may_open and (mine or isinstance(self.event.fact, SagaWoken))

    @property
    def is_terminating(self) -> bool:
        """No new call may be made; the saga ends once those that are out have."""
        pending = self.saga.now.pending
        return pending is not None and pending.wish is Wish.TERMINATE

    @property
    def is_rolling_back(self) -> bool:
        """The rollback decision was made."""
        return self.saga.now.phase in _BACKWARD

    def put(self, call: CallState) -> None:
        """Change one call."""
        calls = {**self.saga.calls, (call.step, call.direction): call}
        self.saga = replace(self.saga, calls=calls)

    def conclude(self, **changes: Any) -> None:  # noqa: ANN401 - as ``replace``
        """Change the saga as a whole."""
        self.saga = replace(self.saga, now=replace(self.saga.now, **changes))

    def become(self, status: SagaStatus, *, stuck: Stuck | None = None) -> None:
        """Change where the saga stands."""
        finished_at = self.at if status.is_final else None
        self.conclude(status=status, stuck=stuck, pause=None, finished_at=finished_at)

    def turn_to(self, status: SagaStatus) -> None:
        """Change where the saga goes; one that a person holds goes there once it may go on.

        One that is stuck at a step goes there now: it need not go on from that step any more.
        """
        pause, stuck = self.saga.now.pause, self.saga.now.stuck
        by_person = isinstance(self.event.fact, Verb)
        if pause is not None:
            self.conclude(pause=replace(pause, resumes=status))
        elif stuck is not None and stuck.step is None and not by_person:
            self.conclude(stuck=replace(stuck, resumes=status))
        else:
            self.become(status)

    def fail(self, failure: Failure | None) -> None:
        """Set or lift why the saga cannot go on."""
        self.conclude(failure=failure)

    def finish(self, output: Output | None) -> None:
        """All actions are done."""
        self.conclude(output=output)
        self.become(SagaStatus.COMPLETED)

    def alert(self) -> None:
        """A person should look."""
        self.conclude(attention=True)

    def get_stuck(self, question: Question, *, step: StepId | None, problem: Problem) -> None:
        """Nothing can be done without a person."""
        assert self.saga.now.pause is None, "a paused saga begins nothing"
        resumes = SagaStatus.COMPENSATING if self.is_rolling_back else SagaStatus.RUNNING
        stuck = Stuck(step=step, question=question, problem=problem, resumes=resumes)
        self.become(SagaStatus.STUCK, stuck=stuck)

    def weigh(self, size_bytes: int) -> None:
        """Count what this entry stores against the saga's limit."""
        self.conclude(weight_bytes=self.saga.now.weight_bytes + size_bytes)

    def wake_at(self, moment: dt.datetime | None) -> None:
        """Something is to be done at ``moment``; the earliest counts."""
        if moment is not None and (self._wake_at is None or moment < self._wake_at):
            self._wake_at = moment

    @property
    def forward_limit_reached(self) -> bool:
        """No further action may begin: the rest of the journal is kept for undoing."""
        entries = self.seq > ENTRIES_MAX * FORWARD_SHARE
        return entries or self.saga.now.weight_bytes > WEIGHT_BYTES_MAX * FORWARD_SHARE

    @property
    def limit_reached(self) -> bool:
        """Nothing more may be opened."""
        return self.seq > ENTRIES_MAX or self.saga.now.weight_bytes > WEIGHT_BYTES_MAX

    def begin(
        self, step: StepId, direction: Direction, *, generation: int, before: CallState | None
    ) -> CallState:
        """A call that has not been sent in this generation; not yet put."""
        attempts = before.attempts if before is not None else 0
        key = derive_call_key(
            key_seed=self.saga.facts.key_seed,
            step=step,
            direction=direction,
            generation=generation,
        )
        return CallState(
            step=step,
            direction=direction,
            status=CallStatus.RUNNING,
            effect=Effect.NONE,
            generation=generation,
            key=key,
            request=None,
            attempts=attempts,
            first_attempt=attempts + 1,
            tries=0,
            failures=0,
            round_started_at=self.at,
            first_sent_at=self.at,
            open=None,
            due_at=None,
            not_before=before.not_before if before is not None else None,
            uncertain=False,
            doubts=(),
            settling=Settling.NOT_ASKED,
            output=None,
            accepted=None,
            progress=None,
            heard=None,
            error=None,
            started_at=before.started_at if before is not None else self.at,
            finished_at=None,
            concluded_seq=None,
        )

    def open_first(self, state: CallState, call: Call, request: Request) -> None:
        """Open the first intent of a generation, with the request that all of them will carry."""
        self.weigh(_size(request))
        self.open(replace(state, request=request), call)

    def callback_url(self, state: CallState) -> str:
        """Where the tool reports the outcome of a call."""
        return self.event.reporter.callbacks_url + token_of(self.saga.facts, state)

    def open(self, state: CallState, call: Call) -> None:
        """Open an intent: once this entry is committed, the reporter may send it."""
        assert self.may_open, state.step
        assert state.open is None, state
        assert state.request is not None, state.step
        reporter = self.event.reporter
        attempt = Attempt(
            number=state.attempts + 1,
            incarnation=reporter.incarnation,
            send_by=reporter.send_until,
            quiet_at=reporter.send_until + call.timeout + call.late_window,
            known_before=state.effect,
        )
        self.put(
            replace(
                state,
                status=CallStatus.RUNNING,
                effect=Effect.NONE if state.direction.subject else Effect.UNKNOWN,
                attempts=attempt.number,
                open=attempt,
                due_at=None,
                finished_at=None,
                concluded_seq=None,
            )
        )

    def is_due(self, state: CallState) -> bool:
        """Whether the next attempt of a call may start now."""
        return state.due_at is None or state.due_at <= self.at

    def resume(self, state: CallState, call: Call) -> None:
        """Open the next attempt of a call that has none out, now or when it is due."""
        if not self.is_due(state):
            self.wake_at(state.due_at)
        elif self.may_open:
            self.open(state, call)
        else:
            self.owed = True

    @property
    def is_untouched(self) -> bool:
        """Nothing was concluded so far."""
        return self.saga.calls is self.before.calls and self.saga.now == self.before.now

    @property
    def changes_nothing(self) -> bool:
        """An entry would say what the one before said.

        Who woke a saga has claimed it: if it is not to be the owner, an entry has to say so.
        """
        now = self._rest(self.saga.now)
        same = self.saga.calls is self.before.calls and now == self.before.now
        is_claimed = isinstance(self.event.fact, SagaWoken)
        return same and not (is_claimed and now.owner != self.event.reporter.incarnation)

    def entry(self) -> Entry:
        """Close the turn: settle who owns the saga and when it is due, and list what changed."""
        self.weigh(ENTRY_WEIGHT_BYTES)
        now = self._rest(self.saga.now)
        self.saga = replace(self.saga, now=now)
        return Entry(
            seq=self.seq,
            id=self.event.entry_id,
            at=self.at,
            fact=self.event.fact,
            now=now,
            calls=tuple(
                _without_known(call, self.before.calls.get(name))
                for name, call in self.saga.calls.items()
                if call is not self.before.calls.get(name)
            ),
            reception=self.reception,
        )

    def _rest(self, now: Conclusion) -> Conclusion:
        """Who owns the saga after this entry, and its earliest timer."""
        if now.status.is_at_rest:
            self._wake_at = None
            if now.status.is_final or not self.saga.has_open_calls:
                return replace(now, owner=None, due_at=None)
        reporter = self.event.reporter
        taken = isinstance(self.event.fact, SagaWoken)
        if not taken and now.owner not in {None, reporter.incarnation}:
            # Another's: it will see the entry, open what is owed, and run the timers.
            return replace(now, due_at=self._wake_at)
        # Only the reporter's own intents count: what a lost owner left open runs a timer instead.
        sending = bool(self.saga.open_calls(reporter.incarnation))
        soon = self._wake_at is not None and self._wake_at <= self.at + PARKED_AFTER
        if sending or (soon and self.may_open):
            return replace(now, owner=reporter.incarnation, due_at=self._wake_at)
        due_at = self.at if self.owed or self.saga.has_open_calls else self._wake_at
        assert due_at is not None, "a saga that is not at rest must have a reason to move"
        return replace(now, owner=None, due_at=due_at)


def _without_known(call: CallState, before: CallState | None) -> CallState:
    """The call as the entry stores it: without the large parts that are as they were."""
    if before is None or before.generation != call.generation:
        return call
    return replace(
        call,
        request=None if call.request == before.request else call.request,
        output=None if call.output == before.output else call.output,
        accepted=None if call.accepted == before.accepted else call.accepted,
    )


def with_known(call: CallState, before: CallState | None) -> CallState:
    """The call as the fold knows it: the large parts that the entry left out, from before."""
    if before is None or before.generation != call.generation:
        return call
    return replace(
        call,
        request=call.request or before.request,
        output=call.output or before.output,
        accepted=call.accepted or before.accepted,
    )


def _size(request: Request) -> int:
    if isinstance(request, HttpRequest):
        return len((request.body or "").encode()) + len(request.url)
    return len(request.arguments.encode())

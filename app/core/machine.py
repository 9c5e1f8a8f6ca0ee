"""The machine: what an event means for a saga, and what follows from it.

``decide(definition, saga, event)`` concludes an entry; ``apply(saga, entry)`` folds it. Attempt
results, wake-ups, lost replicas and people's decisions are all events; the journal stores the
entries. Nothing else changes a saga. Both functions are pure: time, ids, randomness and whether
the reporter may send calls come in with the event.

**One turn.** An event is first *concluded* (what does it say about the world?), by the row of the
table below for (status, fact): ``evidence`` reads what attempts and tools report, ``verbs`` what
people say; ``actions`` and ``backward`` say what that means for a step. Then the saga is *advanced*
(what is now to be done?): ``forward`` opens the intents of the actions whose turn it is, or waits;
``backward`` settles what is unknown and opens the next compensation. Result of call *i* and intent
of call *i + 1* are so one entry, and one commit.

**Who may act.** Only the owner opens intents. Any replica may report evidence: while another one
owns the saga, the entry concludes and opens nothing, and its owner, who sees it, opens what is
owed. A saga that waits for longer than a second is parked, with a due time and no owner; whoever
wakes it becomes its owner. A replica that may not open at all leaves a saga that is owed something
parked and due at once.

**Going back.** The first action that gives up, the deadline, or a cancel decides the rollback, in
the very entry that concludes it, and that entry opens no action; there is no state in between.
Calls that are out are followed to their end; what only waits is not waited for.

**The point of no return.** While it is out, or its effect unknown, nothing is decided: what is
wanted is pending. It is followed, and settled if need be (``settling``). Once it is done the saga
only goes forward.

**Going on.** A step that gives up after the pivot, a compensation that gives up, an effect that
nobody can tell: then the saga is stuck, and a person answers (``verbs``). A stuck or paused saga
begins nothing, and follows what is out to its end.

**Late news** is evidence (``evidence``): believed, where it says something new.

The table has a row for every status and fact. A row moves the saga (a function), is ignored with a
stated reason, or is refused: a verb that the status does not allow, or an event that cannot occur.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from app.core import actions, backward, evidence, forward, verbs, verifying
from app.core.definition import Definition
from app.core.entries import Entry, Ignored
from app.core.errors import IllegalEvent
from app.core.events import (
    AttemptObserved,
    CallbackReceived,
    CancelRequested,
    Event,
    Fact,
    PauseRequested,
    ResolveRequested,
    ResumeRequested,
    RetryRequested,
    SagaRequested,
    SagaWoken,
    SkipRequested,
    TerminateRequested,
    UndoRequested,
)
from app.core.identity import Direction
from app.core.saga import (
    Cause,
    Code,
    Conclusion,
    Facts,
    Failure,
    Problem,
    Question,
    Saga,
    SagaStatus,
    Wish,
)
from app.core.turn import Turn, with_known

LOSSES_MAX = 3
"""A saga whose owners were lost more often than this in a row, without progress, is stuck."""


def decide(definition: Definition, saga: Saga | None, event: Event) -> Entry | Ignored:
    """Conclude what an event means for a saga, and what is to be done now.

    Args:
        definition: the version that the saga pins.
        saga: as folded from its journal; None before its first entry.
        event: what is reported.

    Returns:
        The entry to append, or why the event changes nothing.

    Raises:
        VerbRefused: the saga's status does not allow the verb.
        IllegalEvent: the pair cannot occur: a bug of ours.
    """
    fact = event.fact
    if saga is None:
        if not isinstance(fact, SagaRequested):
            raise IllegalEvent(state="absent", fact=type(fact).__name__)
        return _start(definition, event, fact)
    row = TABLE[saga.status, type(fact)]
    if isinstance(row, Ignored):
        return row
    turn = Turn(definition, saga, event)
    ignored = row(turn)
    if ignored is not None:
        turn.reception = ignored.reception
        if not turn.may_open:
            return ignored
    # An owner that hears nothing new may still owe the saga what others' evidence has decided.
    _advance(turn)
    if turn.changes_nothing:
        return ignored or Ignored(reason="early: nothing is due", reception=turn.reception)
    return turn.entry()


def apply(saga: Saga | None, entry: Entry) -> Saga:
    """Fold one entry; reads nothing but its arguments.

    Args:
        saga: the fold of the entries before; None before the first.
        entry: the next one, with ``seq`` one higher.
    """
    facts = _facts(entry) if saga is None else saga.facts
    seq = 0 if saga is None else saga.seq
    assert entry.seq == seq + 1, (entry.seq, seq)
    calls = {} if saga is None else dict(saga.calls)
    for call in entry.calls:
        name = (call.step, call.direction)
        calls[name] = with_known(call, calls.get(name))
    return Saga(
        facts=facts,
        seq=entry.seq,
        entry_id=entry.id,
        updated_at=entry.at,
        now=entry.now,
        calls=calls,
    )


def _start(definition: Definition, event: Event, fact: SagaRequested) -> Entry:
    if fact.deadline is None:
        # The entry says which deadline holds: folding it reads no definition.
        event = replace(event, fact=replace(fact, deadline=definition.deadline))
    now = Conclusion(
        status=SagaStatus.PENDING,
        owner=None,
        due_at=None,
        failure=None,
        stuck=None,
        output=None,
        attention=False,
        finished_at=None,
        weight_bytes=0,
        forward_only=fact.forward_only,
    )
    facts = _facts(event)
    unborn = Saga(facts=facts, seq=0, entry_id=event.entry_id, updated_at=event.at, now=now)
    turn = Turn(definition, unborn, event)
    _advance(turn)
    return turn.entry()


def _facts(told: Event | Entry) -> Facts:
    fact = told.fact
    assert isinstance(fact, SagaRequested), fact
    return Facts(
        id=fact.id,
        tenant=fact.tenant,
        definition=fact.definition,
        input=fact.input,
        vars=fact.vars,
        key_seed=fact.key_seed,
        business_key=fact.business_key,
        labels=fact.labels,
        deadline_at=None if fact.deadline is None else told.at + fact.deadline,
        created_at=told.at,
    )


def _advance(turn: Turn) -> None:
    """Do what is due now, in the direction in which the saga goes."""
    if turn.is_terminating and not turn.saga.status.is_final:
        verbs.end(turn)
        return
    if turn.saga.status in {SagaStatus.PENDING, SagaStatus.RUNNING}:
        _check_deadline(turn)
    if turn.saga.status in {SagaStatus.PENDING, SagaStatus.RUNNING}:
        forward.advance(turn)
    # Not "else": what went forward a moment ago may just have decided to go back.
    if turn.saga.status is SagaStatus.COMPENSATING:
        backward.advance(turn)


def _check_deadline(turn: Turn) -> None:
    deadline_at = turn.saga.facts.deadline_at
    decided = turn.saga.now.forward_only or turn.saga.now.pending is not None
    if deadline_at is None or decided:
        return
    if turn.at < deadline_at:
        turn.wake_at(deadline_at)
        return
    problem = Problem(code=Code.DEADLINE, message=f"not done by {deadline_at.isoformat()}")
    failure = Failure(cause=Cause.DEADLINE, step=None, problem=problem)
    verbs.want(turn, failure, Wish.DEADLINE)


def _wake(turn: Turn) -> Ignored | None:
    """An engine took the saga up: attempts of other incarnations are lost."""
    event = turn.event
    fact = event.fact
    assert isinstance(fact, SagaWoken), fact
    for name in tuple(turn.saga.calls):
        state = turn.saga.calls[name]  # the loss of one may have ended others
        if state.open is None or state.open.incarnation == event.reporter.incarnation:
            continue
        match state.direction:
            case Direction.ACTION:
                actions.lose(turn, turn.definition.step(state.step), state)
            case Direction.COMPENSATION:
                backward.lose(turn, state)
            case Direction.VERIFY | Direction.COMPENSATION_VERIFY:
                verifying.lose(turn, state)
    if fact.losses > LOSSES_MAX and not turn.saga.status.is_at_rest:
        message = f"{fact.losses} replicas in a row were lost while they ran this saga"
        problem = Problem(code=Code.OWNER_LOST, message=message)
        turn.get_stuck(Question.HOW_TO_GO_ON, step=None, problem=problem)
    return None


def _illegal(turn: Turn) -> Ignored | None:
    """Our own code may never report this."""
    raise IllegalEvent(state=turn.saga.status.value, fact=type(turn.event.fact).__name__)


type Row = Callable[[Turn], Ignored | None] | Ignored

_OVER = Ignored(reason="late: the saga is over, and nothing is due")
_PAUSED = Ignored(reason="duplicate: the saga is paused already")

_REPORTS: Mapping[type[Fact], Row] = {
    SagaRequested: _illegal,
    AttemptObserved: evidence.observe,
    CallbackReceived: evidence.hear,
    SagaWoken: _wake,
}
_VERBS_REFUSED: Mapping[type[Fact], Row] = dict.fromkeys(verbs.NAMES, verbs.refuse)
_MOVING: Mapping[type[Fact], Row] = {
    **_REPORTS,
    **_VERBS_REFUSED,
    CancelRequested: verbs.cancel,
    TerminateRequested: verbs.terminate,
    PauseRequested: verbs.pause,
}
_OVER_ROWS: Mapping[type[Fact], Row] = {**_REPORTS, **_VERBS_REFUSED, SagaWoken: _OVER}

_ROWS: Mapping[SagaStatus, Mapping[type[Fact], Row]] = {
    # Nothing has been sent, so nothing can be heard.
    SagaStatus.PENDING: {**_MOVING, AttemptObserved: _illegal},
    SagaStatus.RUNNING: _MOVING,
    SagaStatus.COMPENSATING: _MOVING,
    SagaStatus.PAUSED: {
        **_MOVING,
        PauseRequested: _PAUSED,
        ResumeRequested: verbs.resume,
    },
    SagaStatus.STUCK: {
        **_MOVING,
        PauseRequested: verbs.refuse,
        RetryRequested: verbs.retry,
        ResolveRequested: verbs.resolve,
        SkipRequested: verbs.skip,
    },
    SagaStatus.COMPLETED: _OVER_ROWS,
    SagaStatus.COMPENSATED: {**_OVER_ROWS, UndoRequested: verbs.undo},
    SagaStatus.PARTIALLY_COMPENSATED: {**_OVER_ROWS, UndoRequested: verbs.undo},
    SagaStatus.TERMINATED: {**_OVER_ROWS, UndoRequested: verbs.undo},
}

TABLE: Mapping[tuple[SagaStatus, type[Fact]], Row] = {
    (status, fact): row for status, rows in _ROWS.items() for fact, row in rows.items()
}
"""What a saga of that status does with that fact; there is a row for every pair."""

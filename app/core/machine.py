"""The machine: what an event means for a saga, and what follows from it.

``decide(definition, saga, event)`` concludes an entry; ``apply(saga, entry)`` folds it. Attempt
results, wake-ups, lost replicas and people's decisions are all events; the journal stores the
entries. Nothing else changes a saga. Both functions are pure: time, ids, randomness and whether
the reporter may send calls come in with the event.

**One turn.** An event is first *concluded* (what does it say about the world?), by the row of the
table below for (status, fact). Then the saga is *advanced* (what is now to be done?): ``forward``
opens the next action's intent, or waits; ``backward`` settles what is unknown and opens the next
compensation. Result of call *i* and intent of call *i + 1* are so one entry, and one commit.

**Who may act.** Only the owner opens intents. Any replica may report evidence: while another one
owns the saga, the entry concludes and opens nothing, and its owner, who sees it, opens what is
owed. A saga that waits for longer than a second is parked, with a due time and no owner; whoever
wakes it becomes its owner. A replica that may not open at all leaves a saga that is owed something
parked and due at once.

**Going back.** The first action that gives up, the deadline, or a cancel decides the rollback, in
the very entry that concludes it; there is no state in between. Calls that are out are followed to
their end.

**Late news.** An answer to an attempt that is no longer open is evidence. A late success of an
action is adopted while the saga goes forward; while it goes back, the effect becomes done and is
undone, with a new generation if it was undone before; after ``compensated`` it is recorded and
alerts. Any other late answer says nothing new.

The table has a row for every status and fact. A row moves the saga (a function), is ignored with a
stated reason, or is refused: a verb that the status does not allow, or an event that cannot occur.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from app.core import attempts, backward, forward
from app.core.definition import Definition, Step
from app.core.entries import Entry, Ignored
from app.core.errors import IllegalEvent, VerbRefused
from app.core.events import (
    AttemptObserved,
    CancelRequested,
    Event,
    Fact,
    RetryRequested,
    SagaRequested,
    SagaWoken,
)
from app.core.identity import Direction
from app.core.observation import Answered
from app.core.saga import (
    CallState,
    CallStatus,
    Cause,
    Code,
    Conclusion,
    Effect,
    Facts,
    Failure,
    Output,
    Problem,
    Question,
    Saga,
    SagaStatus,
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
    if ignored is not None and not turn.may_open:
        return ignored
    # An owner that hears nothing new may still owe the saga what others' evidence has decided.
    _advance(turn)
    if turn.changes_nothing:
        return ignored or Ignored(reason="early: nothing is due, and the owner is the owner")
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


def possible_verbs(saga: Saga) -> tuple[str, ...]:
    """The verbs that the saga's status allows now."""
    match saga.status:
        case SagaStatus.PENDING | SagaStatus.RUNNING | SagaStatus.COMPENSATING:
            return ("cancel",)
        case SagaStatus.STUCK:
            return ("retry", "cancel")
        case SagaStatus.COMPLETED | SagaStatus.COMPENSATED:
            return ()


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
    if turn.saga.status in {SagaStatus.PENDING, SagaStatus.RUNNING}:
        deadline_at = turn.saga.facts.deadline_at
        if deadline_at is not None and turn.at >= deadline_at:
            problem = Problem(code=Code.DEADLINE, message=f"not done by {deadline_at.isoformat()}")
            forward.roll_back(turn, Failure(cause=Cause.DEADLINE, step=None, problem=problem))
        else:
            turn.wake_at(deadline_at)
            forward.advance(turn)
    # Not "else": what went forward a moment ago may just have decided to go back.
    if turn.saga.status is SagaStatus.COMPENSATING:
        backward.advance(turn)


def _observe(turn: Turn) -> Ignored | None:
    """An attempt's answer: of the one that is out, or of one that was given up."""
    fact = turn.event.fact
    assert isinstance(fact, AttemptObserved), fact
    state = turn.saga.call(fact.step, fact.direction)
    if state is None or fact.attempt > state.attempts:
        return _illegal(turn)
    step = turn.definition.step(fact.step)
    if state.open is None or state.open.number != fact.attempt:
        return _observe_late(turn, state, fact)
    if fact.direction is Direction.ACTION:
        forward.observe(turn, step, state, fact)
    else:
        backward.observe(turn, step, state, fact)
    return None


def _observe_late(turn: Turn, state: CallState, fact: AttemptObserved) -> Ignored | None:
    """Evidence from an attempt that others have given up: only a success says something new."""
    answer = fact.observation
    if not (isinstance(answer, Answered) and 200 <= answer.status < 300 and answer.readable):
        return Ignored(reason="late: the attempt was given up, and its answer proves nothing")
    if fact.attempt < state.first_attempt:
        return Ignored(reason="late: the attempt was of an earlier generation")
    step = turn.definition.step(fact.step)
    if state.status is CallStatus.SUCCEEDED and not _came_back(step, state, fact):
        return Ignored(reason="duplicate: the call has succeeded already")
    if fact.direction is Direction.COMPENSATION:
        action = turn.saga.call(fact.step, Direction.ACTION)
        assert action is not None, fact.step
        backward.undone(turn, state, action)
        _lift(turn, question=Question.HOW_TO_UNDO, state=state)
        return None
    output = Output(value=answer.body)
    turn.weigh(answer.body_bytes)
    # This attempt is in doubt no more.
    doubts = tuple(doubt for doubt in state.doubts if doubt.attempt != fact.attempt)
    state = replace(state, doubts=doubts)
    forward.succeed(turn, step, state, output=output)
    _lift(turn, question=Question.DID_IT_TAKE_EFFECT, state=state)
    if turn.before.status.is_final:
        turn.alert()
    return None


def _came_back(step: Step, state: CallState, fact: AttemptObserved) -> bool:
    """Whether a second success may be a second effect: what was undone may be there again.

    A tool that honours keys has answered it from memory.
    """
    undone = state.effect is Effect.NONE
    return fact.direction is Direction.ACTION and undone and not step.action.idempotent


def _lift(turn: Turn, *, question: Question, state: CallState) -> None:
    """A stuck saga goes on once evidence answers its question."""
    stuck = turn.saga.now.stuck
    if stuck is not None and stuck.step == state.step and stuck.question is question:
        turn.become(stuck.resumes)


def _wake(turn: Turn) -> Ignored | None:
    """An engine took the saga up: attempts of other incarnations are lost."""
    event = turn.event
    fact = event.fact
    assert isinstance(fact, SagaWoken), fact
    for state in tuple(turn.saga.calls.values()):
        if state.open is None or state.open.incarnation == event.reporter.incarnation:
            continue
        if state.direction is Direction.ACTION:
            forward.lose(turn, turn.definition.step(state.step), state)
        else:
            backward.lose(turn, state)
    if fact.losses > LOSSES_MAX:
        message = f"{fact.losses} replicas in a row were lost while they ran this saga"
        problem = Problem(code=Code.OWNER_LOST, message=message)
        turn.get_stuck(Question.HOW_TO_GO_ON, step=None, problem=problem)
    return None


def _cancel(turn: Turn) -> Ignored | None:
    """Undo, from wherever the saga stands."""
    fact = turn.event.fact
    assert isinstance(fact, CancelRequested), fact
    if turn.is_rolling_back:
        return Ignored(reason="duplicate: the saga is being undone already")
    message = f"cancelled by {fact.actor}: {fact.reason}"
    problem = Problem(code=Code.CANCELLED, message=message[:500])
    forward.roll_back(turn, Failure(cause=Cause.CANCELLED, step=None, problem=problem))
    return None


def _retry(turn: Turn) -> Ignored | None:
    """A person has mended something: fresh attempts for what the saga is stuck at."""
    stuck = turn.saga.now.stuck
    assert stuck is not None, turn.saga.id
    turn.become(stuck.resumes)
    if stuck.step is None:
        return None
    action = turn.saga.call(stuck.step, Direction.ACTION)
    undo = turn.saga.call(stuck.step, Direction.COMPENSATION)
    assert action is not None, stuck.step
    if stuck.resumes is SagaStatus.RUNNING:
        turn.fail(None)
        forward.prove_undo(turn, turn.definition.step(stuck.step))
        return None
    if undo is not None and undo.status is CallStatus.FAILED and undo.effect is not Effect.NONE:
        # The same key again: it may have worked. (Proved to be without effect, it gets a new key,
        # since the tool may have stored its refusal under the old one: see ``backward``.)
        turn.put(attempts.fresh_round(turn, undo))
    if action.effect is Effect.UNKNOWN:
        turn.put(replace(action, settling=False))
    return None


def _refuse_verb(turn: Turn) -> Ignored | None:
    """The status does not allow what was asked."""
    verb = "cancel" if isinstance(turn.event.fact, CancelRequested) else "retry"
    raise VerbRefused(verb=verb, status=turn.saga.status.value, possible=possible_verbs(turn.saga))


def _illegal(turn: Turn) -> Ignored | None:
    """Our own code may never report this."""
    raise IllegalEvent(state=turn.saga.status.value, fact=type(turn.event.fact).__name__)


type Row = Callable[[Turn], Ignored | None] | Ignored

_AT_REST = Ignored(reason="late: the saga is at rest, and nothing is due")

TABLE: Mapping[tuple[SagaStatus, type[Fact]], Row] = {
    (SagaStatus.PENDING, SagaRequested): _illegal,
    (SagaStatus.PENDING, AttemptObserved): _illegal,
    (SagaStatus.PENDING, SagaWoken): _wake,
    (SagaStatus.PENDING, CancelRequested): _cancel,
    (SagaStatus.PENDING, RetryRequested): _refuse_verb,
    (SagaStatus.RUNNING, SagaRequested): _illegal,
    (SagaStatus.RUNNING, AttemptObserved): _observe,
    (SagaStatus.RUNNING, SagaWoken): _wake,
    (SagaStatus.RUNNING, CancelRequested): _cancel,
    (SagaStatus.RUNNING, RetryRequested): _refuse_verb,
    (SagaStatus.COMPENSATING, SagaRequested): _illegal,
    (SagaStatus.COMPENSATING, AttemptObserved): _observe,
    (SagaStatus.COMPENSATING, SagaWoken): _wake,
    (SagaStatus.COMPENSATING, CancelRequested): _cancel,
    (SagaStatus.COMPENSATING, RetryRequested): _refuse_verb,
    (SagaStatus.STUCK, SagaRequested): _illegal,
    (SagaStatus.STUCK, AttemptObserved): _observe,
    (SagaStatus.STUCK, SagaWoken): _AT_REST,
    (SagaStatus.STUCK, CancelRequested): _cancel,
    (SagaStatus.STUCK, RetryRequested): _retry,
    (SagaStatus.COMPLETED, SagaRequested): _illegal,
    (SagaStatus.COMPLETED, AttemptObserved): _observe,
    (SagaStatus.COMPLETED, SagaWoken): _AT_REST,
    (SagaStatus.COMPLETED, CancelRequested): _refuse_verb,
    (SagaStatus.COMPLETED, RetryRequested): _refuse_verb,
    (SagaStatus.COMPENSATED, SagaRequested): _illegal,
    (SagaStatus.COMPENSATED, AttemptObserved): _observe,
    (SagaStatus.COMPENSATED, SagaWoken): _AT_REST,
    (SagaStatus.COMPENSATED, CancelRequested): _refuse_verb,
    (SagaStatus.COMPENSATED, RetryRequested): _refuse_verb,
}
"""What a saga of that status does with that fact."""

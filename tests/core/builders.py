"""Builders of what the core reads, valid by default: a test names only what it cares about.

``Story`` plays one saga: it tells the core what engines, tools and people report, keeps the
journal, and checks at every entry what must hold of all of them (``check_entry``).
"""

import datetime as dt
import functools
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from app.core import attempts
from app.core.definition import Call, Definition, OnUnknown
from app.core.entries import Entry, Ignored
from app.core.events import (
    AttemptObserved,
    CallbackReceived,
    CancelRequested,
    Event,
    Fact,
    PauseRequested,
    Reporter,
    ResolveRequested,
    ResumeRequested,
    RetryRequested,
    SagaRequested,
    SagaWoken,
    SkipRequested,
    TerminateRequested,
)
from app.core.identity import CallKey, Direction, EntryId, Incarnation, SagaId, StepId, TenantId
from app.core.json_value import JsonValue
from app.core.language import parse_definition
from app.core.machine import apply, decide
from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    NotSent,
    NotSentReason,
    Observation,
)
from app.core.requests import HttpRequest
from app.core.residue import is_left, list_residue
from app.core.retry import RetryPolicy
from app.core.saga import (
    Attempt,
    CallbackOutcome,
    CallState,
    CallStatus,
    Conclusion,
    DefinitionRef,
    Effect,
    Output,
    Saga,
    SagaStatus,
    Settling,
    StepStatus,
)
from app.store.encoding import FACT_NAMES, dump_entry, load_entry

T0 = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)

HERE = Incarnation(UUID(int=1))
THERE = Incarnation(UUID(int=2))
ELSEWHERE = Incarnation(UUID(int=3))

ACTION = Direction.ACTION
COMPENSATION = Direction.COMPENSATION

FLIGHT = StepId("flight")
HOTEL = StepId("hotel")

LEASE = dt.timedelta(seconds=6)

ONCE: JsonValue = {"max_attempts": 1}

SEED = bytes(range(16))


def seconds(number: float) -> dt.timedelta:
    """So many seconds."""
    return dt.timedelta(seconds=number)


# ---------------------------------------------------------------------------------- definitions


def a_step(
    step: str = FLIGHT,
    *,
    method: str = "POST",
    idempotent: bool = True,
    undo_by: str = "output",
    action: Mapping[str, JsonValue] | None = None,
    compensation: Mapping[str, JsonValue] | None = None,
) -> dict[str, JsonValue]:
    """A step of a document.

    Args:
        step: its id.
        method: of the action.
        idempotent: the action's tool honours keys.
        undo_by: ``output`` (a DELETE of what the action returned) or ``key`` (a POST).
        action: further fields of the action.
        compensation: further fields of the compensation.
    """
    http: dict[str, JsonValue] = {"method": method, "url": f"https://{step}.test/orders"}
    if method not in {"GET", "HEAD"}:
        http["json"] = {"city": "${{ input.city }}"}
    undo: dict[str, JsonValue] = {
        "method": "DELETE",
        "url": f"https://{step}.test/orders/${{{{ action.output.id }}}}",
    }
    if undo_by == "key":
        undo = {
            "method": "POST",
            "url": f"https://{step}.test/undo",
            "json": {"undo": "${{ action.key }}"},
        }
    return {
        "id": step,
        "action": {"http": http, "idempotent": idempotent, **(action or {})},
        "compensation": {"http": undo, **(compensation or {})},
    }


def a_verify(**fields: JsonValue) -> dict[str, JsonValue]:
    """A question to a tool, whose answer says ``done`` or ``none``; see ``looked``."""
    return {
        "http": {"method": "GET", "url": "https://tool.test/orders?key=${{ action.key }}"},
        "done": "${{ response.status == 200 && response.body.done }}",
        "none": "${{ response.status == 200 && response.body.none }}",
        "output": "${{ response.body.item }}",
        **fields,
    }


CALLS_BACK: dict[str, JsonValue] = {"completion": {"callback": {"within": "20s"}}}


def a_definition(
    *steps: Mapping[str, JsonValue], deadline: str | None = None, output: JsonValue = None
) -> Definition:
    """A definition; of a flight and a hotel, unless other steps are given."""
    document: dict[str, JsonValue] = {
        "amends": 1,
        "name": "book_trip",
        "steps": [dict(step) for step in steps] or [a_step(FLIGHT), a_step(HOTEL)],
    }
    if deadline is not None:
        document["deadline"] = deadline
    if output is not None:
        document["output"] = output
    return _parsed(json.dumps(document))


@functools.cache
def _parsed(document: str) -> Definition:
    return parse_definition(json.loads(document), version=1)


def a_call(direction: Direction = ACTION, **step: JsonValue) -> Call:
    """A call of the default step; ``step`` as for ``a_step``."""
    built = a_definition(a_step(**step)).steps[0]  # type: ignore[arg-type] # a_step checks them
    return built.call(direction)


def a_policy(
    *,
    max_attempts: int = 5,
    initial_delay: float = 1,
    backoff: float = 2,
    max_delay: float = 30,
    max_elapsed: float | None = None,
) -> RetryPolicy:
    """A retry policy; delays in seconds."""
    return RetryPolicy(
        max_attempts=max_attempts,
        initial_delay=seconds(initial_delay),
        backoff=backoff,
        max_delay=seconds(max_delay),
        max_elapsed=None if max_elapsed is None else seconds(max_elapsed),
    )


# ----------------------------------------------------------------------- observations and events


def answered(
    status: int = 200,
    body: JsonValue = None,
    *,
    retry_after: str | None = None,
    readable: bool = True,
    body_bytes: int = 0,
) -> Answered:
    """A tool's answer."""
    return Answered(
        status=status,
        body=body,
        retry_after=retry_after,
        readable=readable,
        body_bytes=body_bytes,
    )


def done(body: JsonValue = None) -> Answered:
    """A success, with an id to undo it by."""
    return answered(201, {"id": "X1"} if body is None else body, body_bytes=11)


def accepted() -> Answered:
    """A tool has taken it on, and will call back."""
    return answered(202, {"job": 1}, body_bytes=9)


def looked(*, done: bool, none: bool | None = None, status: int = 200) -> Answered:
    """What a tool answers to a question whether a call took effect."""
    body: JsonValue = {
        "done": done,
        "none": not done if none is None else none,
        "item": {"id": "X1"},
    }
    return answered(status, body, body_bytes=30)


def refused(status: int = 422) -> Answered:
    """A definite no."""
    return answered(status, {"error": "no"})


def broken_off(reason: BrokenOffReason = BrokenOffReason.TIMED_OUT) -> BrokenOff:
    """Something left, and no answer came."""
    return BrokenOff(reason=reason, message="no answer")


def not_sent(reason: NotSentReason = NotSentReason.UNREACHABLE) -> NotSent:
    """Nothing left."""
    return NotSent(reason=reason, message="nothing left")


def a_reporter(
    incarnation: Incarnation = HERE, *, may_open: bool = True, send_until: dt.datetime = T0 + LEASE
) -> Reporter:
    """A replica with an engine and a lease."""
    return Reporter(
        incarnation=incarnation,
        may_open=may_open,
        send_until=send_until,
        callbacks_url="https://amends.test/v1/callbacks/",
    )


def a_request(
    *,
    deadline: dt.timedelta | None = None,
    input: JsonValue = None,  # noqa: A002 - the field's name
    vars: Mapping[str, JsonValue] | None = None,  # noqa: A002 - the field's name
    business_key: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> SagaRequested:
    """What starts a saga."""
    return SagaRequested(
        id=SagaId(UUID(int=7)),
        tenant=TenantId(1),
        definition=DefinitionRef(name="book_trip", version=1),
        input={"city": "Oslo"} if input is None else input,
        vars=vars or {},
        key_seed=SEED,
        business_key=business_key,
        labels=labels or {},
        deadline=deadline,
    )


def an_event(
    fact: Fact | None = None,
    *,
    at: dt.datetime = T0,
    number: int = 1,
    seed: int = 0,
    reporter: Reporter | None = None,
) -> Event:
    """An event; by default a saga is asked for."""
    return Event(
        at=at,
        entry_id=EntryId(UUID(int=number)),
        seed=seed,
        reporter=a_reporter(send_until=at + LEASE) if reporter is None else reporter,
        fact=a_request() if fact is None else fact,
    )


def a_request_sent() -> HttpRequest:
    """A rendered request."""
    return HttpRequest(method="POST", url="https://flight.test/orders", body="{}")


def an_attempt(number: int = 1, *, incarnation: Incarnation = HERE) -> Attempt:
    """An attempt that is out."""
    return Attempt(
        number=number,
        incarnation=incarnation,
        send_by=T0 + LEASE,
        quiet_at=T0 + seconds(21),
        known_before=Effect.NONE,
    )


def a_call_state(
    step: StepId = FLIGHT,
    direction: Direction = ACTION,
    *,
    status: CallStatus = CallStatus.SUCCEEDED,
    effect: Effect = Effect.DONE,
    output: Output | None = None,
    attempt: Attempt | None = None,
) -> CallState:
    """The state of a call; succeeded by default."""
    return CallState(
        step=step,
        direction=direction,
        status=status,
        effect=effect,
        generation=0,
        key=CallKey(UUID(int=99)),
        request=a_request_sent(),
        attempts=1,
        first_attempt=1,
        tries=1,
        failures=0,
        round_started_at=T0,
        first_sent_at=T0,
        open=attempt,
        due_at=None,
        not_before=None,
        uncertain=False,
        doubts=(),
        settling=Settling.NOT_ASKED,
        output=output,
        accepted=None,
        progress=None,
        heard=None,
        error=None,
        started_at=T0,
        finished_at=T0,
        concluded_seq=1,
    )


def a_conclusion(
    status: SagaStatus = SagaStatus.RUNNING, *, owner: Incarnation | None = HERE
) -> Conclusion:
    """How a saga stands after an entry."""
    return Conclusion(
        status=status,
        owner=owner,
        due_at=None,
        failure=None,
        stuck=None,
        output=None,
        attention=False,
        finished_at=None,
        weight_bytes=0,
    )


def an_entry(
    fact: Fact | None = None,
    *,
    seq: int = 1,
    now: Conclusion | None = None,
    calls: Iterable[CallState] = (),
) -> Entry:
    """An entry; by default the first of a saga."""
    return Entry(
        seq=seq,
        id=EntryId(UUID(int=seq)),
        at=T0,
        fact=a_request() if fact is None else fact,
        now=a_conclusion() if now is None else now,
        calls=tuple(calls),
    )


def a_saga(definition: Definition | None = None, *, may_open: bool = True) -> Saga:
    """A saga that was started just now, with its first intent open."""
    event = an_event(reporter=a_reporter(may_open=may_open))
    entry = decide(definition or a_definition(), None, event)
    assert isinstance(entry, Entry), entry
    return apply(None, entry)


# ------------------------------------------------------------------------------------- stories


class Story:
    """One saga, played.

    Attributes:
        at: the time; only ``later`` and ``until_due`` move it.
        journal: its entries.
        log: what was told and what came of it, a line each.
        met: the rows of the machine's table that it has met.
    """

    def __init__(self, definition: Definition | None = None) -> None:
        self.definition = definition or a_definition()
        self.at = T0
        self.journal: list[Entry] = []
        self.log: list[str] = []
        self.met: set[tuple[SagaStatus, type[Fact]]] = set()
        self._saga: Saga | None = None
        self._requests: dict[CallKey, object] = {}
        self._in_doubt: set[StepId] = set()
        self._told = 0

    @property
    def saga(self) -> Saga:
        """The saga as it is now."""
        assert self._saga is not None, "the story has not begun"
        return self._saga

    @property
    def status(self) -> SagaStatus:
        """Where the saga stands."""
        return self.saga.status

    @property
    def out(self) -> list[CallState]:
        """The calls with an attempt that is out."""
        return [call for call in self.saga.calls.values() if call.open is not None]

    def call(self, step: StepId = FLIGHT, direction: Direction = ACTION) -> CallState:
        """The state of a call that was begun."""
        state = self.saga.call(step, direction)
        assert state is not None, (step, direction)
        return state

    def effect(self, step: StepId = FLIGHT) -> Effect:
        """What of the step exists, as far as the saga knows."""
        return self.saga.step_effect(step)

    # What is told.

    def tell(
        self,
        fact: Fact,
        *,
        by: Incarnation = HERE,
        may_open: bool = True,
        at: dt.datetime | None = None,
        seed: int | None = None,
    ) -> Entry | Ignored:
        """Report a fact; what comes of it is checked, folded and returned."""
        self._told += 1
        at = self.at if at is None else at
        event = an_event(
            fact,
            at=at,
            number=1000 + self._told,
            seed=self._told if seed is None else seed,
            reporter=a_reporter(by, may_open=may_open, send_until=at + LEASE),
        )
        if self._saga is not None:
            self.met.add((self._saga.status, type(fact)))
        told = f"{at:%H:%M:%S.%f} {by.int}{'' if may_open else ' (opens nothing)'}: {fact}"
        self.log.append(told)
        entry = decide(self.definition, self._saga, event)
        assert entry == decide(self.definition, self._saga, event), "the same twice"
        if isinstance(entry, Ignored):
            self.log.append(f"    ignored: {entry.reason}")
            return entry
        before, self._saga = self._saga, apply(self._saga, entry)
        self.journal.append(entry)
        self.log.append(f"    {self._summary()}")
        check_entry(self.definition, before, event, entry, self._saga)
        check_stored_form(before, entry, self._saga)
        self._check_resends(before, entry)
        for call in self._saga.calls.values():
            if call.request is not None:
                assert self._requests.setdefault(call.key, call.request) == call.request, call
        return entry

    def start(
        self,
        *,
        by: Incarnation = HERE,
        may_open: bool = True,
        request: SagaRequested | None = None,
    ) -> "Story":
        """Start the saga."""
        self.tell(request or a_request(), by=by, may_open=may_open)
        return self

    def answer(
        self, observation: Observation, *, by: Incarnation | None = None, may_open: bool = True
    ) -> Entry | Ignored:
        """Answer the one attempt that is out; its sender reports it."""
        (call,) = self.out
        assert call.open is not None, call
        fact = AttemptObserved(
            step=call.step,
            direction=call.direction,
            attempt=call.open.number,
            observation=observation,
        )
        return self.tell(fact, by=by or call.open.incarnation, may_open=may_open)

    def answer_late(
        self,
        observation: Observation,
        *,
        step: StepId = FLIGHT,
        direction: Direction = ACTION,
        attempt: int = 1,
        by: Incarnation = ELSEWHERE,
        may_open: bool = True,
    ) -> Entry | Ignored:
        """Report what an attempt came to, whether it is still out or not."""
        fact = AttemptObserved(
            step=step, direction=direction, attempt=attempt, observation=observation
        )
        return self.tell(fact, by=by, may_open=may_open)

    def wake(
        self, *, by: Incarnation = HERE, losses: int = 0, may_open: bool = True
    ) -> Entry | Ignored:
        """An engine takes the saga up."""
        return self.tell(SagaWoken(losses=losses), by=by, may_open=may_open)

    def cancel(self, *, by: Incarnation = HERE, may_open: bool = True) -> Entry | Ignored:
        """A person wants it undone."""
        return self.tell(
            CancelRequested(actor="ann", reason="not needed"), by=by, may_open=may_open
        )

    def retry(self, *, by: Incarnation = HERE, may_open: bool = True) -> Entry | Ignored:
        """A person has mended something."""
        return self.tell(RetryRequested(actor="ann", reason="mended"), by=by, may_open=may_open)

    def terminate(self, *, by: Incarnation = HERE, may_open: bool = True) -> Entry | Ignored:
        """A person wants it to end as it is."""
        verb = TerminateRequested(actor="ann", reason="enough")
        return self.tell(verb, by=by, may_open=may_open)

    def pause(self, *, by: Incarnation = HERE, may_open: bool = True) -> Entry | Ignored:
        """A person wants no new call."""
        return self.tell(PauseRequested(actor="ann", reason="wait"), by=by, may_open=may_open)

    def resume(self, *, by: Incarnation = HERE, may_open: bool = True) -> Entry | Ignored:
        """A person lets it go on."""
        return self.tell(ResumeRequested(actor="ann", reason="go"), by=by, may_open=may_open)

    def skip(
        self, step: StepId = FLIGHT, *, by: Incarnation = HERE, may_open: bool = True
    ) -> Entry | Ignored:
        """A person renounces the undo of a step."""
        verb = SkipRequested(actor="ann", reason="let it be", step=step)
        return self.tell(verb, by=by, may_open=may_open)

    def resolve(
        self,
        effect: Effect,
        *,
        step: StepId = FLIGHT,
        output: JsonValue = None,
        by: Incarnation = HERE,
        may_open: bool = True,
    ) -> Entry | Ignored:
        """A person says what became of a step."""
        verb = ResolveRequested(
            actor="ann", reason="I asked", step=step, effect=effect, output=output
        )
        return self.tell(verb, by=by, may_open=may_open)

    def hear(
        self,
        outcome: CallbackOutcome,
        *,
        step: StepId = FLIGHT,
        direction: Direction = ACTION,
        generation: int = 0,
        output: JsonValue = None,
        effect: Effect | None = None,
        progress: JsonValue = None,
        by: Incarnation = ELSEWHERE,
        may_open: bool = False,
    ) -> Entry | Ignored:
        """A tool reports by webhook, at a replica that only serves the API."""
        fact = CallbackReceived(
            step=step,
            direction=direction,
            generation=generation,
            outcome=outcome,
            output=output,
            effect=effect,
            progress=progress,
            error="the bank says no" if outcome is CallbackOutcome.FAILED else None,
            body_bytes=20,
            digest=f"{outcome} {output} {effect} {progress}",
        )
        return self.tell(fact, by=by, may_open=may_open)

    def later(self, number: float) -> "Story":
        """So many seconds pass."""
        self.at += seconds(number)
        return self

    def until_due(self, *, by: Incarnation | None = None) -> Entry | Ignored:
        """Time passes until the saga is due; its owner, or whoever claims it, wakes it."""
        now = self.saga.now
        assert now.due_at is not None, now
        self.at = max(self.at, now.due_at)
        return self.wake(by=by or now.owner or HERE)

    # Whole passages.

    def book(self, *outputs: JsonValue) -> "Story":
        """The next actions succeed, each with an id; one for each output given, or one."""
        for output in outputs or ({"id": "X1"},):
            self.answer(done(output))
        return self

    def until_out(self) -> "Story":
        """Wait, however often, until an attempt is out or the saga rests."""
        for _ in range(20):
            if self.out or self.saga.status.is_at_rest:
                return self
            self.until_due()
        raise AssertionError(f"nothing goes out: {self.told()}")

    @property
    def transitions(self) -> set[tuple[SagaStatus | None, SagaStatus]]:
        """From which status to which its entries went; from None for the first."""
        statuses = [None, *(entry.now.status for entry in self.journal)]
        return {(a, b) for a, b in itertools.pairwise(statuses) if b is not None}

    def told(self) -> str:
        """The whole story, to be read."""
        return "\n".join(self.log)

    def _check_resends(self, before: Saga | None, entry: Entry) -> None:
        """An action that cannot be asked again is not, once it may have taken effect unseen.

        A 425 is no such doubt: the tool has answered that it is to be asked again.
        """
        seen = entry.fact.observation if isinstance(entry.fact, AttemptObserved) else None
        busy = isinstance(seen, Answered) and seen.status == 425
        for call in entry.calls:
            if call.direction is not ACTION:
                continue
            known = before.call(call.step, ACTION) if before is not None else None
            if call.effect is Effect.NONE and not call.uncertain:
                self._in_doubt.discard(call.step)  # whoever can say has said so
            if not busy and set(call.doubts) - set(known.doubts if known else ()):
                self._in_doubt.add(call.step)
            if call.open is not None and call.step in self._in_doubt:
                template = call_of(self.definition, call)
                assert template.may_be_asked_again or template.on_unknown is OnUnknown.RESEND

    def _summary(self) -> str:
        now = self.saga.now
        calls = "; ".join(
            f"{call.step}/{call.direction.value[:4]} {call.status} {call.effect}"
            f"{f' out:{call.open.number}' if call.open else ''}"
            for call in self.saga.calls.values()
        )
        stuck = f" {now.stuck.question}" if now.stuck else ""
        owner = now.owner.int if now.owner else None
        return f"-> {now.status}{stuck} owner={owner} due={now.due_at} [{calls}]"


def a_story(status: SagaStatus) -> Story:
    """A story that has come to a status, in the usual way."""
    story = Story().start(may_open=status is not SagaStatus.PENDING)
    match status:
        case SagaStatus.PENDING | SagaStatus.RUNNING:
            pass
        case SagaStatus.COMPLETED:
            story.book().book()
        case SagaStatus.COMPENSATING | SagaStatus.STUCK | SagaStatus.COMPENSATED:
            story.book().answer(refused())
            if status is SagaStatus.STUCK:
                story.answer(refused())
            if status is SagaStatus.COMPENSATED:
                story.answer(answered(204))
        case SagaStatus.PAUSED:
            story.book().pause()
        case SagaStatus.PARTIALLY_COMPENSATED:
            story.book().answer(refused())
            story.answer(refused())
            story.skip(FLIGHT)
        case SagaStatus.TERMINATED:
            story.book().answer(broken_off())
            story.terminate()
    assert story.status is status
    return story


# ---------------------------------------------------------------------------------- invariants


def check_stored_form(before: Saga | None, entry: Entry, after: Saga) -> None:
    """What is written to the journal and read back folds to the same saga."""
    read = load_entry(
        seq=entry.seq,
        id=entry.id,
        at=entry.at,
        type=FACT_NAMES[type(entry.fact)],
        data=dump_entry(entry),
    )
    assert (read.seq, read.id, read.at, read.now) == (entry.seq, entry.id, entry.at, entry.now)
    assert read.calls == entry.calls
    assert read.fact == without_body(entry.fact)
    assert apply(before, read) == after


def without_body(fact: Fact) -> Fact:
    """The fact as it is stored: a tool's answer is kept as the call's output, if at all."""
    if isinstance(fact, AttemptObserved) and isinstance(fact.observation, Answered):
        stored = replace(
            fact.observation, body=None, retry_after=fact.observation.retry_after or None
        )
        return replace(fact, observation=stored)
    if isinstance(fact, CallbackReceived):
        return replace(fact, output=None, progress=None)
    if isinstance(fact, ResolveRequested):
        return replace(fact, output=None, output_bytes=0)
    return fact


def is_rolling_back(saga: Saga) -> bool:
    """The rollback decision was made."""
    return saga.now.phase in {
        SagaStatus.COMPENSATING,
        SagaStatus.COMPENSATED,
        SagaStatus.PARTIALLY_COMPENSATED,
    }


def check_entry(
    definition: Definition, before: Saga | None, event: Event, entry: Entry, after: Saga
) -> None:
    """What must hold of every entry of every saga."""
    assert entry.seq == (0 if before is None else before.seq) + 1
    assert entry.id == event.entry_id
    assert entry.at >= event.at
    assert before is None or entry.at >= before.updated_at
    _check_saga(definition, before, after)
    _check_reason_to_move(after)
    for call in after.calls.values():
        known = None if before is None else before.call(call.step, call.direction)
        _check_call(definition, call, known)
        if call.direction.subject is not None and call.status.is_under_way:
            subject = after.call(call.step, call.direction.subject)
            assert subject is not None, call
            assert subject.status is CallStatus.VERIFYING, "a question ends with its subject"
        if call.open is not None and (known is None or known.open != call.open):
            _check_owner(before, event, after, call.open)
            _check_times(definition, event, call)
            is_question = call.direction.subject is not None
            assert is_question or not after.status.is_at_rest, "at a standstill nothing begins"
            if call.direction is ACTION:
                _check_opened_action(definition, before, after, call)
            elif call.direction is COMPENSATION:
                _check_opened_compensation(definition, after, call)


def call_of(definition: Definition, call: CallState) -> Call:
    """The definition of a call."""
    return definition.step(call.step).call(call.direction)


def http_of(call: CallState) -> HttpRequest:
    """The HTTP request of a call."""
    assert isinstance(call.request, HttpRequest), call
    return call.request


def _check_saga(definition: Definition, before: Saga | None, after: Saga) -> None:
    now = after.now
    assert (now.stuck is not None) == (now.status is SagaStatus.STUCK)
    assert (now.pause is not None) == (now.status is SagaStatus.PAUSED)
    assert (now.finished_at is not None) == now.status.is_final
    if before is not None:
        assert now.weight_bytes > before.now.weight_bytes
        assert not before.status.is_final or before.status is after.status
        # The decision to undo is never taken back, but that a person may end it.
        is_ended = now.status is SagaStatus.TERMINATED
        assert is_rolling_back(after) or is_ended or not is_rolling_back(before)
        # Nor is the point of no return.
        assert now.forward_only or not before.now.forward_only
    assert not (now.forward_only and is_rolling_back(after))
    _check_pivot(definition, before, after)
    if is_rolling_back(after):
        assert now.failure is not None
    effects = {step.id: after.step_effect(step.id) for step in definition.steps}
    if now.status.is_final:
        known = [call for call in after.calls.values() if call.direction.subject is None]
        assert all(call.finished_at is not None for call in known)
        assert not after.has_open_calls
    if now.status is SagaStatus.COMPLETED:
        for step in definition.steps:
            skipped = after.step_status(step.id) is StepStatus.SKIPPED
            may_be_none = step.optional or step.read_only or skipped
            assert effects[step.id] is Effect.DONE or may_be_none
    is_new = before is None or before.status is not now.status
    if now.status is SagaStatus.COMPENSATED and is_new:
        assert set(effects.values()) == {Effect.NONE}
    if now.status is SagaStatus.PARTIALLY_COMPENSATED and is_new:
        assert list_residue(definition, after)
    assert len({call.key for call in after.calls.values()}) == len(after.calls)
    open_calls = [call for call in after.calls.values() if call.open is not None]
    undoing = [call for call in open_calls if call.direction is COMPENSATION]
    assert not undoing or len(open_calls) == 1, "one at a time"
    for call, other in itertools.combinations(open_calls, 2):
        assert definition.graph.are_parallel(call.step, other.step)


def _check_pivot(definition: Definition, before: Saga | None, after: Saga) -> None:
    """Nothing is decided while it is unknown, and nothing undone once it is done."""
    pivot = definition.pivot
    state = None if pivot is None else after.call(pivot.id, ACTION)
    if state is None or (before is not None and is_rolling_back(before)):
        return
    if is_rolling_back(after):
        assert state.effect is Effect.NONE
    elif state.effect is Effect.DONE and not after.status.is_final:
        assert after.now.forward_only


def _check_reason_to_move(after: Saga) -> None:
    now = after.now
    if now.status.is_at_rest and not after.has_open_calls:
        assert (now.owner, now.due_at) == (None, None)
    else:
        assert now.owner is not None or now.due_at is not None


def _check_call(definition: Definition, call: CallState, known: CallState | None) -> None:
    policy = call_of(definition, call).retry
    assert call.failures <= policy.max_attempts
    in_doubt = Effect.NONE if call.direction.subject else Effect.UNKNOWN
    assert call.open is None or call.effect is in_doubt
    assert call.open is None or call.status is CallStatus.RUNNING
    assert call.open is None or call.open.number == call.attempts
    waits = call.status in {CallStatus.BACKING_OFF, CallStatus.WAITING}
    assert waits == (call.due_at is not None)
    ended = not call.status.is_under_way
    assert ended == (call.finished_at is not None) == (call.concluded_seq is not None)
    if known is not None:
        assert call.attempts - known.attempts in {0, 1}
        assert call.generation - known.generation in {0, 1}


def _check_owner(before: Saga | None, event: Event, after: Saga, attempt: Attempt) -> None:
    reporter = event.reporter
    assert reporter.may_open
    assert attempt.incarnation == reporter.incarnation
    assert after.now.owner == reporter.incarnation
    owner = None if before is None else before.now.owner
    assert isinstance(event.fact, SagaWoken) or owner in {None, reporter.incarnation}


def _check_times(definition: Definition, event: Event, call: CallState) -> None:
    attempt, template = call.open, call_of(definition, call)
    assert attempt is not None, call
    assert attempt.send_by == event.reporter.send_until
    assert attempt.quiet_at == attempt.send_by + template.timeout + template.late_window
    if call.uncertain and call.direction.subject is None:
        assert event.at <= call.first_sent_at + template.key_lifetime


def _check_opened_action(
    definition: Definition, before: Saga | None, after: Saga, call: CallState
) -> None:
    template = call_of(definition, call)
    if is_rolling_back(after):
        known = None if before is None else before.call(call.step, ACTION)
        assert known is not None, "no forward effect is begun once the rollback is decided"
        assert call.settling is Settling.BY_RESEND
        assert template.may_be_asked_again
        return
    for ancestor in definition.graph.ancestors[call.step]:
        step, state = definition.step(ancestor), after.call(ancestor, ACTION)
        assert state is not None, ancestor
        failed = state.status is CallStatus.FAILED and step.optional
        assert state.status in {CallStatus.SUCCEEDED, CallStatus.SKIPPED} or failed


def _check_opened_compensation(definition: Definition, after: Saga, call: CallState) -> None:
    assert is_rolling_back(after)
    action = after.call(call.step, ACTION)
    assert action is not None, call
    assert action.effect is not Effect.NONE
    if action.effect is Effect.UNKNOWN:
        assert attempts.is_quiet(action, at=after.updated_at)
    if call.attempts > call.first_attempt:
        return  # news about a later step does not stop what has begun
    for later in definition.graph.descendants[call.step]:
        step, state = definition.step(later), after.call(later, ACTION)
        if state is not None and state.effect is not Effect.NONE and not step.read_only:
            assert is_left(step, state, after.call(later, COMPENSATION)), later

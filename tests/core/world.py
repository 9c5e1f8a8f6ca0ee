"""A world that goes wrong at random: tools, network, replicas, clock and people around one saga.

The tools' effects are counted. Answers get lost, senders die, requests arrive late, answers come
twice; callbacks come before the answer, late, again, never, or say what is not so; a verify lags
behind, or says nonsense. ``Story`` checks every entry (``builders.check_entry``); the world
compares what the saga says with what is there (``World.check``).
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

from app.core.definition import Definition, Step
from app.core.entries import Ignored
from app.core.errors import VerbRefused
from app.core.events import (
    AttemptObserved,
    CallbackReceived,
    CancelRequested,
    Fact,
    PauseRequested,
    ResolveRequested,
    ResumeRequested,
    RetryRequested,
    SagaWoken,
    SkipRequested,
    TerminateRequested,
    UndoRequested,
)
from app.core.identity import CallKey, Direction, Incarnation, SagaId, StepId
from app.core.json_value import JsonValue
from app.core.observation import Answered, NotSentReason, Observation
from app.core.plan import plan_rollback
from app.core.residue import list_residue
from app.core.saga import CallbackOutcome, CallState, CallStatus, Effect, Question, SagaStatus
from tests.core.builders import (
    ACTION,
    CALLS_BACK,
    COMPENSATION,
    ELSEWHERE,
    HERE,
    ONCE,
    THERE,
    Story,
    a_definition,
    a_request,
    a_step,
    a_verify,
    answered,
    broken_off,
    call_of,
    done,
    http_of,
    not_sent,
    refused,
    seconds,
)

MOVES = 40
"""Moves of a walk while things go wrong."""

REST = 500
"""Moves within which a saga must end once nothing goes wrong any more."""

JUMPS = (0.1, 0.9, 3, 8, 12, 25, 400, 90_000)
"""Seconds that may pass at once; the last is longer than tools remember keys."""

SLACK = seconds(60)
"""Tools remember keys a little longer than they promise: a key is sent until its very end."""

LAG = 3
"""Seconds by which a verify may lag behind; such a tool does late what it does so much sooner."""

REPLICAS = (HERE, THERE, ELSEWHERE)

GATEWAYS = (401, 403, 409, 413, 425, 429, 500, 503, 302, 408)
"""Answered without asking the tool."""

type PlainVerb = (
    CancelRequested | TerminateRequested | PauseRequested | ResumeRequested | RetryRequested
)

# ------------------------------------------------------------------------------------- documents

PATIENCE: JsonValue = {"max_attempts": 2, "initial_delay": "2s"}
FORGETS: dict[str, JsonValue] = {"key_lifetime": "20s"}
ASKS_ONCE: dict[str, JsonValue] = {"retry": ONCE}


VERIFY: dict[str, JsonValue] = {"verify": a_verify()}
VERIFY_ONCE: dict[str, JsonValue] = {"verify": a_verify(**ASKS_ONCE)}

KINDS: Mapping[str, dict[str, JsonValue]] = {
    "keyed, undone by output": a_step(),
    "keyed, undone by key": a_step(undo_by="key"),
    "keyed, gives up": a_step(action={"on_unknown": "give_up"}),
    "bare, undone by output": a_step(idempotent=False),
    "bare, undone by key": a_step(idempotent=False, undo_by="key"),
    "put, undone by key": a_step(method="PUT", idempotent=False, undo_by="key"),
    "put, undone by output": a_step(method="PUT", idempotent=False),
    "forgetful, undone by key": a_step(undo_by="key", action=FORGETS, compensation=FORGETS),
    "forgetful, undone by output": a_step(action=FORGETS),
    "forgetful put": a_step(method="PUT", idempotent=False, undo_by="key", action=FORGETS),
    "impatient": a_step(undo_by="key", action=ASKS_ONCE, compensation=ASKS_ONCE),
    "patient": a_step(action={"retry": PATIENCE}, compensation={"retry": PATIENCE}),
    "keyed, verified": a_step() | VERIFY,
    "keyed, asks rather": a_step(action={"on_unknown": "verify"}) | VERIFY,
    "bare, verified": a_step(idempotent=False) | VERIFY,
    "bare, verified once": a_step(idempotent=False, undo_by="key") | VERIFY_ONCE,
    "forgetful, verified": a_step(action=FORGETS, compensation={**FORGETS, **VERIFY}) | VERIFY,
    "keyed, calls back": a_step(action=CALLS_BACK),
    "keyed, calls back both ways": a_step(
        undo_by="key", action=CALLS_BACK, compensation=CALLS_BACK
    ),
    "bare, calls back": a_step(idempotent=False, undo_by="key", action=CALLS_BACK),
    "calls back, verified": a_step(
        idempotent=False, action=CALLS_BACK, compensation={**CALLS_BACK, **VERIFY}
    )
    | VERIFY,
    "impatient, undo verified": a_step(
        undo_by="key", action=ASKS_ONCE, compensation={**ASKS_ONCE, **VERIFY_ONCE}
    ),
}


def a_random_definition(random: Random) -> Definition:
    """One to four steps: in a row or a graph, with or without a point of no return."""
    names = ("flight", "hotel", "car", "train")[: random.randint(1, 4)]
    steps: list[dict[str, JsonValue]] = []
    theme = random.choice(("", "", "calls back", "verified", "keyed", "bare"))
    likely = [kind for name, kind in KINDS.items() if theme in name]
    is_graph = random.random() < 0.6
    pivot = random.randrange(len(names)) if random.random() < 0.35 else None
    for index, name in enumerate(names):
        step = {**random.choice(likely), "id": name}
        if is_graph:
            lowest = 0 if pivot is None or index <= pivot else pivot
            earlier = names[lowest:index]
            needs = [each for each in earlier if random.random() < 0.4]
            if index == pivot:
                needs = list(earlier)
            elif pivot is not None and index > pivot and not needs:
                needs = [names[pivot]]
            step["needs"] = list(needs)
        kind = random.random()
        if kind < 0.08:
            step.pop("compensation")
            step["read_only"] = True
        elif kind < 0.16:
            step.pop("compensation")
            step["irreversible"] = True
        if index == pivot:
            step["pivot"] = True
        elif random.random() < 0.15:
            step["optional"] = True
            default: JsonValue = {"id": "none"}
            step["default"] = default if random.random() < 0.5 else None
        if random.random() < 0.06:
            step["when"] = "${{ input.city == 'Rome' }}"
        steps.append(step)
    return a_definition(*steps)


# ----------------------------------------------------------------------------------------- tools


@dataclass(slots=True)
class Tool:
    """A tool and its undo: how often the effect exists, and the answers it remembers by key."""

    step: Step
    exists: int = 0
    changed_at: dt.datetime | None = None
    has_lied: bool = False
    memory: dict[CallKey, tuple[dt.datetime, Answered]] = field(default_factory=dict)

    @property
    def lag(self) -> dt.timedelta:
        """How far its verify may be behind."""
        return seconds(LAG if self.step.action.verify is not None else 0)

    def remembered(self, call: CallState, *, at: dt.datetime) -> Answered | None:
        """The answer that it gave under this key."""
        until, answer = self.memory.get(call.key, (None, None))
        return answer if until is not None and at <= until else None

    def remember(self, call: CallState, answer: Answered, *, until: dt.datetime) -> None:
        """Keep an answer, if it keeps any."""
        if self.step.action.idempotent or call.direction is COMPENSATION:
            self.memory[call.key] = (until, answer)

    def act(self, call: CallState, *, at: dt.datetime) -> Answered:
        """Do what is asked."""
        before = self.exists
        if call.direction is ACTION:
            is_put = self.step.action.method == "PUT"
            self.exists = 1 if is_put else self.exists + 1
            answer = done(self.item)
        else:
            self.exists = max(0, self.exists - 1)
            gone = http_of(call).method == "DELETE" and not before
            answer = answered(404 if gone else 204)
        if self.exists != before:
            self.changed_at = at
        return answer

    @property
    def item(self) -> JsonValue:
        """What it answers with."""
        return {"id": f"{self.step.id}1"}

    def look(self, direction: Direction, *, at: dt.datetime, random: Random) -> Answered:
        """Answer a question; for a while after a change perhaps as if it had not happened."""
        is_fresh = self.changed_at is not None and at < self.changed_at + self.lag
        is_there = self.exists > 0
        if is_fresh and random.random() < 0.5:
            is_there = not is_there
        is_done = is_there if direction is Direction.VERIFY else not is_there
        if is_fresh and direction is Direction.COMPENSATION_VERIFY:
            is_done = False
        if is_fresh and direction is Direction.VERIFY and self.exists == 0:
            is_done = False
        body: dict[str, JsonValue] = {"done": is_done, "none": not is_done, "item": self.item}
        if random.random() < 0.05:
            del body["item"]
        return answered(200, body, body_bytes=30)


@dataclass(slots=True, kw_only=True)
class Flight:
    """An attempt as the world knows it, whatever the saga thinks of it.

    Attributes:
        call: as it was when the attempt was opened.
        until: it may still arrive until then; None while its sender lives and waits.
        answer: what the tool said, once it arrived.
        is_over: it can have no further effect, and its sender has nothing more to say.
    """

    call: CallState
    number: int
    sender: Incarnation
    until: dt.datetime | None = None
    answer: Answered | None = None
    is_over: bool = False


@dataclass(slots=True, kw_only=True)
class Job:
    """What a tool has taken on, by which attempt; it is done by ``until``, or never."""

    call: CallState
    number: int
    until: dt.datetime
    is_over: bool = False
    told: CallbackReceived | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a tool has to tell by webhook; ``corrects`` if it told what is not so before."""

    fact: CallbackReceived
    corrects: bool = False


# ----------------------------------------------------------------------------------------- world


class World:
    """Everything around one saga."""

    def __init__(self, random: Random, definition: Definition) -> None:
        self.random = random
        self.story = Story(definition)
        self.definition = definition
        self.tools = {step.id: Tool(step) for step in definition.steps}
        self.flights: list[Flight] = []
        self.jobs: list[Job] = []
        self.reports: list[Report] = []
        self.losses = 0
        self.lies = random.random() < 0.2
        self.was_undone = False

    def chance(self, likelihood: float) -> bool:
        """Whether something happens that happens so often."""
        return self.random.random() < likelihood

    # Telling the saga.

    def tell(self, fact: Fact, *, by: Incarnation | None = None, may_open: bool = True) -> None:
        """Report a fact, note what it opened, and compare saga and world."""
        story = self.story
        if self.jobs:
            self._keep_at_work()
        at = story.at - seconds(self.random.choice((0, 0, 0, 0.3)))
        try:
            told = story.tell(fact, by=by or HERE, may_open=may_open, at=at)
        except VerbRefused:
            return
        if isinstance(told, Ignored):
            return
        if isinstance(fact, AttemptObserved | RetryRequested):
            self.losses = 0
        for call in told.calls:
            known = {(f.call.step, f.call.direction, f.number) for f in self.flights}
            if call.open and (call.step, call.direction, call.open.number) not in known:
                whole = story.call(call.step, call.direction)
                flight = Flight(call=whole, number=call.open.number, sender=call.open.incarnation)
                self.flights.append(flight)
        self.check()

    def through_any(self, fact: Fact) -> None:
        """Tell through whatever replica; it may serve the API only."""
        self.tell(fact, by=self.random.choice(REPLICAS), may_open=self.chance(0.7))

    def report(
        self,
        flight: Flight,
        observation: Observation,
        *,
        by: Incarnation | None = None,
        may_open: bool = True,
    ) -> None:
        """Tell what an attempt came to."""
        fact = AttemptObserved(
            step=flight.call.step,
            direction=flight.call.direction,
            attempt=flight.number,
            observation=observation,
        )
        self.tell(fact, by=by or flight.sender, may_open=may_open)

    # What must be so.

    def check(self) -> None:
        """What the saga says of the world is so, once nothing is under way."""
        saga = self.story.saga
        plan_rollback(self.definition, saga)
        residue = {left.step for left in list_residue(self.definition, saga)}
        for step, tool in self.tools.items():
            if tool.step.read_only:
                continue
            assert tool.exists <= 1 or tool.has_lied, f"{step} exists twice"
            if self.is_under_way(step):
                continue
            effect = saga.step_effect(step)
            if effect is Effect.NONE:
                assert tool.exists == 0, f"{step} exists, and the saga says that it does not"
            if saga.status.is_final and saga.status is not SagaStatus.COMPLETED and tool.exists:
                assert step in residue, f"{step} is left behind, and not listed"
            if saga.status is SagaStatus.COMPENSATED and tool.exists and not self.was_undone:
                assert saga.now.attention, f"{step} is left behind, and nobody should look"
            if saga.status is SagaStatus.COMPLETED and not tool.has_lied and tool.exists == 0:
                assert effect is not Effect.DONE, f"{step} does not exist"

    def is_under_way(self, step: StepId) -> bool:
        """Something may yet come of a step's calls, or a lie about them is not corrected yet."""
        return (
            any(
                flight.call.step == step
                and flight.call.direction.subject is None
                and not self.is_quiet(flight)
                for flight in self.flights
            )
            or any(job.call.step == step for job in self.pending_jobs)
            or any(report.corrects and report.fact.step == step for report in self.reports)
        )

    def is_quiet(self, flight: Flight) -> bool:
        """Nothing more can come of it."""
        return flight.is_over or (flight.until is not None and self.story.at > flight.until)

    # What is out.

    @property
    def waiting(self) -> list[Flight]:
        """Attempts that are out, their senders alive."""
        return [f for f in self.flights if f.until is None and not f.is_over]

    @property
    def stray(self) -> list[Flight]:
        """Attempts that nobody waits for: their senders are lost, or gave up waiting."""
        return [f for f in self.flights if f.until is not None]

    @property
    def pending_jobs(self) -> list[Job]:
        """What tools have taken on, and may yet do."""
        self._keep_at_work()
        return [job for job in self.jobs if not job.is_over and job.until >= self.story.at]

    def _keep_at_work(self) -> None:
        """A tool that somebody waits for may act until a little after nobody does any more."""
        for job in self.jobs:
            call = self.story.saga.call(job.call.step, job.call.direction)
            assert call is not None, job
            is_same = call.attempts == job.number
            if not job.is_over and is_same and call.status is CallStatus.WAITING:
                until = self.story.at + seconds(8) - self.tools[call.step].lag
                job.until = max(job.until, until)

    def arrive(self, flight: Flight, *, refuses: bool = False) -> Answered:
        """The request reaches the tool."""
        if flight.answer is None:
            flight.answer = self._receive(flight, refuses=refuses)
        return flight.answer

    def _receive(self, flight: Flight, *, refuses: bool) -> Answered:
        call, at = flight.call, self.story.at
        tool, template = self.tools[call.step], call_of(self.definition, call)
        if call.direction.subject is not None:
            return tool.look(call.direction, at=at, random=self.random)
        latest = at + seconds(9) - tool.lag
        until = min(latest, flight.until) if flight.until is not None else latest
        answer = tool.remembered(call, at=at)
        if answer is not None:
            self._remind(call, until=until)
            return answer
        if refuses:
            answer = refused()
        elif template.callback is not None:
            self.jobs.append(Job(call=call, number=flight.number, until=until))
            answer = answered(202, {"job": 1}, body_bytes=9)
        else:
            answer = tool.act(call, at=at)
        tool.remember(call, answer, until=at + template.key_lifetime + SLACK)
        return answer

    def _remind(self, call: CallState, *, until: dt.datetime) -> None:
        """Asked again, a tool goes on with what it has forgotten, and tells again what it told."""
        job = next((job for job in reversed(self.jobs) if job.call.key == call.key), None)
        if job is not None and job.told is not None:
            self.reports.append(Report(fact=job.told))
        elif job is not None and not job.is_over:
            job.until = max(job.until, until)

    # What may happen to what is out.

    def answer(self) -> None:
        """The tool answers, and the answer arrives."""
        flight = self.random.choice(self.waiting)
        answer = self.arrive(flight, refuses=self.chance(0.15))
        flight.is_over = True
        if flight.call.direction.subject is not None and self.chance(0.2):
            strange: tuple[JsonValue, ...] = ({"done": True, "none": True}, {"done": 7}, None)
            answer = answered(200, self.random.choice(strange))
        self.report(flight, answer)

    def lose_answer(self) -> None:
        """The tool acts, and its answer is lost."""
        flight = self.random.choice(self.waiting)
        answer = self.arrive(flight, refuses=self.chance(0.1))
        flight.is_over = True
        unreadable = replace(answer, readable=False, body="<html>")
        self.report(flight, unreadable if self.chance(0.2) else broken_off())

    def hang(self) -> None:
        """The exchange times out; the request may arrive for a while yet."""
        flight = self.random.choice(self.waiting)
        window = call_of(self.definition, flight.call).late_window
        # The reporter's clock may be behind.
        lag = self.tools[flight.call.step].lag
        flight.until = self.story.at + window - seconds(1) - lag
        self.report(flight, broken_off())

    def turn_away(self) -> None:
        """A gateway answers without asking the tool, or nothing was sent at all."""
        flight = self.random.choice(self.waiting)
        tool = self.tools[flight.call.step]
        if tool.step.action.idempotent and self.chance(0.1):
            # Still working on it: it may take effect for a while yet.
            flight.until = self.story.at + seconds(9) - tool.lag
            self.report(flight, answered(425))
            return
        flight.is_over = True
        if self.chance(0.4):
            reason = self.random.choices(list(NotSentReason), (5, 4, 1))[0]
            self.report(flight, not_sent(reason))
            return
        retry_after = self.random.choice((None, None, "3", "20", "300", "nonsense"))
        self.report(flight, answered(self.random.choice(GATEWAYS), retry_after=retry_after))

    def lose_owner(self) -> None:
        """The owner dies, or is cut off; another takes its saga over, sooner or later."""
        owner = self.story.saga.now.owner
        if owner is None:
            return
        for flight in self.waiting:
            assert flight.call.open is not None
            if flight.sender == owner:
                # Clocks may differ.
                lag = self.tools[flight.call.step].lag
                flight.until = flight.call.open.quiet_at - seconds(1) - lag
                if self.chance(0.5):
                    self.arrive(flight)
        self.story.later(self.random.choice((0, 7, 8, 30)))
        self.losses += 1
        heir = self.random.choice([replica for replica in REPLICAS if replica != owner])
        self.tell(SagaWoken(losses=self.losses), by=heir, may_open=self.chance(0.8))

    def stray_arrives(self) -> None:
        """A request that nobody waits for reaches the tool after all."""
        strays = [f for f in self.stray if f.answer is None and not self.is_quiet(f)]
        if strays:
            self.arrive(self.random.choice(strays))

    def stray_is_reported(self) -> None:
        """A lost sender comes back and says what became of its attempt, perhaps twice."""
        strays = self.stray
        if not strays:
            return
        flight = self.random.choice(strays)
        if flight.answer is None and self.story.at <= (flight.until or self.story.at):
            flight.is_over = True
        observation = flight.answer or self.random.choice((broken_off(), not_sent()))
        if flight.answer is not None and self.chance(0.1):
            observation = replace(flight.answer, readable=False, body="<html>")
        self.report(flight, observation, by=self.random.choice(REPLICAS), may_open=self.chance(0.7))

    # What tools do and tell by themselves.

    def work(self) -> None:
        """A tool does what it has taken on, or finds that it cannot."""
        jobs = self.pending_jobs
        if jobs:
            self._do(self.random.choice(jobs), fails=self.chance(0.25))

    def _do(self, job: Job, *, fails: bool) -> None:
        job.is_over = True
        tool = self.tools[job.call.step]
        if not fails:
            tool.act(job.call, at=self.story.at)
        said: Effect | None = self.random.choice((None, None, Effect.NONE)) if fails else None
        if not fails and self.chance(0.05):
            # It broke down halfway, and says what it knows.
            fails, said = True, self.random.choice((Effect.DONE, Effect.UNKNOWN))
            if job.call.direction is COMPENSATION:
                said = Effect.UNKNOWN
        if self.lies and self.chance(0.5):
            tool.has_lied = True
            self._has_to_tell(job, fails=not fails, effect=None)
            self._has_to_tell(job, fails=fails, effect=said, corrects=True)
        else:
            self._has_to_tell(job, fails=fails, effect=said)
            if self.chance(0.15):
                self.reports.pop()  # nobody hears of it

    def _has_to_tell(
        self, job: Job, *, fails: bool, effect: Effect | None, corrects: bool = False
    ) -> None:
        outcome = CallbackOutcome.FAILED if fails else CallbackOutcome.SUCCEEDED
        output = None if fails else self.tools[job.call.step].item
        fact = job.told = self._callback(job.call, outcome, output=output, effect=effect)
        self.reports.append(Report(fact=fact, corrects=corrects))

    def _callback(
        self,
        call: CallState,
        outcome: CallbackOutcome,
        *,
        output: JsonValue = None,
        effect: Effect | None = None,
    ) -> CallbackReceived:
        return CallbackReceived(
            step=call.step,
            direction=call.direction,
            generation=call.generation,
            outcome=outcome,
            output=output,
            error="no" if outcome is CallbackOutcome.FAILED else None,
            effect=effect,
            body_bytes=20,
            digest=f"{outcome} {output} {effect}",
        )

    def call_back(self) -> None:
        """A tool tells how a call ended; it may tell it again."""
        if not self.reports:
            return
        report = self.random.choice(self.reports)
        if report.corrects or self.chance(0.6):
            self.reports.remove(report)
        self.through_any(report.fact)

    def progress(self) -> None:
        """A tool tells that it is at work."""
        jobs = self.pending_jobs
        if jobs:
            call = self.random.choice(jobs).call
            self.through_any(self._callback(call, CallbackOutcome.IN_PROGRESS))

    # What people and time do.

    def verb(self, kind: type[PlainVerb]) -> None:
        """A person says something, through any replica."""
        self.through_any(kind(actor="ann", reason="because"))

    def cancel(self) -> None:
        """A person cancels."""
        self.verb(CancelRequested)

    def retry(self) -> None:
        """A person retries."""
        self.verb(RetryRequested)

    def pause(self) -> None:
        """A person pauses."""
        self.verb(PauseRequested)

    def resume(self) -> None:
        """A person resumes."""
        self.verb(ResumeRequested)

    def terminate(self) -> None:
        """A person ends it."""
        self.verb(TerminateRequested)

    def resolve(self) -> None:
        """A person looks what became of the step that the saga is stuck at, and says so."""
        stuck = self.story.saga.now.stuck
        if stuck is None or stuck.step is None or self.is_under_way(stuck.step):
            return
        tool = self.tools[stuck.step]
        effect = Effect.DONE if tool.exists and not tool.step.read_only else Effect.NONE
        output = tool.item if effect is Effect.DONE else None
        self.through_any(
            ResolveRequested(
                actor="ann", reason="I asked", step=stuck.step, effect=effect, output=output
            )
        )

    def skip(self) -> None:
        """A person lets be what the saga is stuck at."""
        stuck = self.story.saga.now.stuck
        step = self.random.choice(list(self.tools)) if stuck is None else stuck.step
        if step is not None:
            self.through_any(SkipRequested(actor="ann", reason="let it be", step=step))

    def undo(self) -> None:
        """A person has undone what was found after the end."""
        self.was_undone = True
        for step in self.tools:
            self.through_any(
                UndoRequested(actor="ann", reason="late", step=step, saga=SagaId(UUID(int=8)))
            )

    def pass_time(self) -> None:
        """Time passes, but no exchange outlasts its time-out."""
        self._let_it_become(self.story.at + seconds(self.random.choice(JUMPS)))

    def _let_it_become(self, moment: dt.datetime) -> bool:
        sent_by = [flight.call.open.send_by for flight in self.waiting if flight.call.open]
        possible = all(moment <= each + seconds(5) for each in sent_by)
        if possible:
            self.story.at = max(self.story.at, moment)
        return possible

    def wake_when_due(self) -> None:
        """The saga is due: its owner, or whoever claims it, wakes it."""
        now = self.story.saga.now
        if now.due_at is not None and self._let_it_become(now.due_at):
            self.tell(SagaWoken(), by=now.owner or self.random.choice(REPLICAS))

    def wake_early(self) -> None:
        """The owner looks again, or a stale claim is followed; the waker may be draining."""
        waker = self.story.saga.now.owner or self.random.choice(REPLICAS)
        self.tell(SagaWoken(), by=waker, may_open=self.chance(0.7))

    # Whole walks.

    def begin(self) -> None:
        """Somebody asks for the saga."""
        deadline = self.random.choice((None, None, seconds(15), seconds(60)))
        self.tell(a_request(deadline=deadline), may_open=self.chance(0.8))

    def go_wrong(self) -> None:
        """Anything may happen, for a while; each walk has a temper of its own."""
        out = (self.answer, self.lose_answer, self.hang, self.turn_away, self.lose_owner)
        always = (
            self.wake_when_due,
            self.pass_time,
            self.stray_arrives,
            self.stray_is_reported,
            self.wake_early,
            self.work,
            self.call_back,
            self.progress,
        )
        people = (self.retry, self.resume, self.resolve, self.skip)
        rare = (self.cancel, self.pause, self.terminate, self.undo)
        temper: dict[Callable[[], None], float] = {
            move: self.random.choice((1, 2, 8)) for move in (*out, *always)
        }
        temper |= {move: self.random.choice((0.3, 1, 3)) for move in people}
        temper |= {move: self.random.choice((0, 0, 0.3, 1, 3)) for move in rare}
        temper[self.answer] = temper[self.work] = 8
        for _ in range(MOVES):
            moves = (*out, *always, *people, *rare) if self.waiting else (*always, *people, *rare)
            self.random.choices(moves, [temper[move] for move in moves])[0]()

    def go_well(self) -> None:
        """Tools answer, owners live, clocks go, people help: the saga must end."""
        for _ in range(REST):
            if self.story.status.is_final and not self.reports:
                return
            self._go_well()
        raise AssertionError("the saga does not end")

    def _go_well(self) -> None:
        now = self.story.saga.now
        if self.reports:
            self.through_any(self.reports.pop(0).fact)
        elif self.waiting:
            flight = self.waiting[0]
            flight.is_over = True
            self.report(flight, self.arrive(flight))
        elif self.pending_jobs:
            self._do(self.pending_jobs[0], fails=False)
        elif now.status is SagaStatus.PAUSED:
            self.resume()
        elif now.status is SagaStatus.STUCK:
            self._help()
        elif now.due_at is not None:
            self.wake_when_due()
        else:
            self.tell(SagaWoken(), by=now.owner)

    def _help(self) -> None:
        """A person answers what the saga asks, once nothing is under way."""
        stuck = self.story.saga.now.stuck
        assert stuck is not None
        self.story.later(30)
        if stuck.step is None or self.chance(0.5):
            self.retry()
            return
        tool = self.tools[stuck.step]
        if stuck.question is Question.HOW_TO_GO_ON and self.chance(0.5):
            tool.exists = 1  # by hand
        elif stuck.question is Question.HOW_TO_UNDO and self.chance(0.5):
            self.skip()
            return
        self.resolve()


def a_walk(random: Random) -> World:
    """A saga in a world that goes wrong, and then well."""
    world = World(random, a_random_definition(random))
    try:
        world.begin()
        world.go_wrong()
        world.go_well()
    except Exception as error:
        error.add_note(world.story.told())
        raise
    return world

"""Sagas in a world that goes wrong at random: what must hold of every entry, and at the end.

A ``World`` plays the tools, with effects that are counted, the network, the replicas, the clock
and the people. Answers get lost, senders die, requests arrive late, answers come twice. ``Story``
checks every entry (``builders.check_entry``); the world compares what the saga says with what is
there:

* never says *none* of an effect that exists once nothing of it is under way any more;
* no effect exists twice;
* once faults stop, every saga comes to rest.
"""

import contextlib
import datetime as dt
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from app.core.definition import Definition
from app.core.entries import Ignored
from app.core.errors import IllegalEvent, VerbRefused
from app.core.events import (
    AttemptObserved,
    CancelRequested,
    Fact,
    RetryRequested,
    SagaWoken,
)
from app.core.identity import CallKey, Incarnation, StepId
from app.core.json_value import JsonValue
from app.core.machine import TABLE
from app.core.observation import Answered, NotSentReason, Observation
from app.core.saga import CallState, Effect, SagaStatus
from tests.core.builders import (
    ACTION,
    COMPENSATION,
    ELSEWHERE,
    HERE,
    ONCE,
    THERE,
    Story,
    a_definition,
    a_request,
    a_step,
    a_story,
    answered,
    broken_off,
    call_of,
    done,
    not_sent,
    refused,
    seconds,
)

MOVES = 40
"""Moves of a walk while things go wrong."""

REST = 300
"""Moves within which a saga must come to rest once nothing goes wrong any more."""

JUMPS = (0.1, 0.9, 3, 8, 12, 25, 400, 90_000)
"""Seconds that may pass at once; the last is longer than tools remember keys."""

SLACK = seconds(60)
"""Tools remember keys a little longer than they promise: a key is sent until its very end."""

REPLICAS = (HERE, THERE, ELSEWHERE)

PATIENCE: JsonValue = {"max_attempts": 2, "initial_delay": "2s"}

FORGETS: dict[str, JsonValue] = {"key_lifetime": "20s"}

KINDS = {
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
    "impatient": a_step(undo_by="key", action={"retry": ONCE}, compensation={"retry": ONCE}),
    "patient": a_step(action={"retry": PATIENCE}, compensation={"retry": PATIENCE}),
}

GATEWAYS = (401, 403, 409, 413, 425, 429, 500, 503, 302, 408)
"""Answered without asking the tool."""


@dataclass(slots=True)
class Tool:
    """A tool and its undo: how often the effect exists, and the answers it remembers by key."""

    keyed: bool
    is_put: bool
    exists: int = 0
    memory: dict[CallKey, tuple[dt.datetime, Answered]] = field(default_factory=dict)

    def receive(
        self, call: CallState, *, refuses: bool, at: dt.datetime, remembers: dt.timedelta
    ) -> Answered:
        """Do what is asked, or answer from memory."""
        if call.key in self.memory:
            until, answer = self.memory[call.key]
            if at <= until:
                return answer
        answer = refused() if refuses else self._do(call)
        if self.keyed or call.direction is COMPENSATION:
            self.memory[call.key] = (at + remembers, answer)
        return answer

    def _do(self, call: CallState) -> Answered:
        if call.direction is ACTION:
            self.exists = 1 if self.is_put else self.exists + 1
            return done({"id": f"{call.step}1"})
        assert call.request is not None
        is_there, self.exists = self.exists > 0, max(0, self.exists - 1)
        return answered(404 if call.request.method == "DELETE" and not is_there else 204)


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


class World:
    """Everything around one saga."""

    def __init__(self, random: Random, definition: Definition) -> None:
        self.random = random
        self.story = Story(definition)
        self.tools = {
            step.id: Tool(keyed=step.action.idempotent, is_put=step.action.request.method == "PUT")
            for step in definition.steps
        }
        self.flights: list[Flight] = []
        self.losses = 0

    # Telling the saga.

    def tell(self, fact: Fact, *, by: Incarnation | None = None, may_open: bool = True) -> None:
        """Report a fact, note what it opened, and compare saga and world."""
        story = self.story
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

    def check(self) -> None:
        """What the saga says of the world is so, once nothing is under way."""
        for step, tool in self.tools.items():
            assert tool.exists <= 1, f"{step} exists twice"
            under_way = [f for f in self.flights if f.call.step == step and not self.is_quiet(f)]
            if not under_way and self.story.saga.step_effect(step) is Effect.NONE:
                assert tool.exists == 0, f"{step} exists, and the saga says that it does not"
        if self.story.status is SagaStatus.COMPLETED:
            assert all(tool.exists == 1 for tool in self.tools.values())

    def is_quiet(self, flight: Flight) -> bool:
        """Nothing more can come of it."""
        return flight.is_over or (flight.until is not None and self.story.at > flight.until)

    # What may happen.

    @property
    def waiting(self) -> list[Flight]:
        """Attempts that are out, their senders alive."""
        return [f for f in self.flights if f.until is None and not f.is_over]

    @property
    def stray(self) -> list[Flight]:
        """Attempts that nobody waits for: their senders are lost, or gave up waiting."""
        return [f for f in self.flights if f.until is not None]

    def arrive(self, flight: Flight, *, refuses: bool = False) -> Answered:
        """The request reaches the tool."""
        if flight.answer is None:
            lifetime = call_of(self.story.definition, flight.call).key_lifetime
            flight.answer = self.tools[flight.call.step].receive(
                flight.call, refuses=refuses, at=self.story.at, remembers=lifetime + SLACK
            )
        return flight.answer

    def answer(self) -> None:
        """The tool answers, and the answer arrives."""
        flight = self.random.choice(self.waiting)
        answer = self.arrive(flight, refuses=self.random.random() < 0.15)
        flight.is_over = True
        self.report(flight, answer)

    def lose_answer(self) -> None:
        """The tool acts, and its answer is lost."""
        flight = self.random.choice(self.waiting)
        self.arrive(flight, refuses=self.random.random() < 0.1)
        flight.is_over = True
        self.report(flight, broken_off())

    def hang(self) -> None:
        """The exchange times out; the request may arrive for a while yet."""
        flight = self.random.choice(self.waiting)
        window = call_of(self.story.definition, flight.call).late_window
        flight.until = self.story.at + window - seconds(1)  # The reporter's clock may be behind.
        self.report(flight, broken_off())

    def turn_away(self) -> None:
        """A gateway answers without asking the tool, or nothing was sent at all."""
        flight = self.random.choice(self.waiting)
        if self.tools[flight.call.step].keyed and self.random.random() < 0.1:
            # Still working on it: it may take effect for a while yet.
            flight.until = self.story.at + seconds(9)
            self.report(flight, answered(425))
            return
        flight.is_over = True
        if self.random.random() < 0.4:
            weights = (5, 4, 1)
            reason = self.random.choices(list(NotSentReason), weights)[0]
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
                flight.until = flight.call.open.quiet_at - seconds(1)  # Clocks may differ.
                if self.random.random() < 0.5:
                    self.arrive(flight)
        self.story.later(self.random.choice((0, 7, 8, 30)))
        self.losses += 1
        heir = self.random.choice([replica for replica in REPLICAS if replica != owner])
        may_open = self.random.random() < 0.8
        self.tell(SagaWoken(losses=self.losses), by=heir, may_open=may_open)

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
        self.report(
            flight,
            observation,
            by=self.random.choice(REPLICAS),
            may_open=self.random.random() < 0.7,
        )

    def cancel(self) -> None:
        """A person cancels, through any replica."""
        fact = CancelRequested(actor="ann", reason="not needed")
        self.tell(fact, by=self.random.choice(REPLICAS), may_open=self.random.random() < 0.7)

    def retry(self) -> None:
        """A person retries, through any replica."""
        fact = RetryRequested(actor="ann", reason="mended")
        self.tell(fact, by=self.random.choice(REPLICAS), may_open=self.random.random() < 0.7)

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
        self.tell(SagaWoken(), by=waker, may_open=self.random.random() < 0.7)

    # Whole walks.

    def begin(self) -> None:
        """Somebody asks for the saga."""
        deadline = self.random.choice((None, None, seconds(15), seconds(60)))
        may_open = self.random.random() < 0.8
        self.tell(a_request(deadline=deadline), may_open=may_open)

    def go_wrong(self) -> None:
        """Anything may happen, for a while; each walk has a temper of its own."""
        out = (self.answer, self.lose_answer, self.hang, self.turn_away, self.lose_owner)
        always = (
            self.wake_when_due,
            self.pass_time,
            self.stray_arrives,
            self.stray_is_reported,
            self.wake_early,
            self.cancel,
            self.retry,
        )
        temper = {move: self.random.choice((1, 2, 8)) for move in (*out, *always)}
        temper[self.answer] = 8
        temper[self.cancel] = self.random.choice((0, 0, 1))
        for _ in range(MOVES):
            moves = (*out, *always) if self.waiting else always
            self.random.choices(moves, [temper[move] for move in moves])[0]()

    def go_well(self) -> None:
        """Tools answer, owners live, clocks go: the saga must come to rest."""
        for _ in range(REST):
            now = self.story.saga.now
            if now.status.is_at_rest:
                return
            if self.waiting:
                flight = self.waiting[0]
                flight.is_over = True
                self.report(flight, self.arrive(flight))
            elif now.due_at is not None:
                self.wake_when_due()
            else:
                self.tell(SagaWoken(), by=now.owner)
        raise AssertionError("the saga comes to no rest")


def a_walk(random: Random) -> World:
    """A saga of one to three steps in a world that goes wrong, and then well."""
    names = ("flight", "hotel", "car")[: random.randint(1, 3)]
    steps = [{**random.choice(list(KINDS.values())), "id": name} for name in names]
    world = World(random, a_definition(*steps))
    try:
        world.begin()
        world.go_wrong()
        world.go_well()
    except Exception as error:
        error.add_note(world.story.told())
        raise
    return world


@given(random=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_goes_wrong_the_saga_is_honest_and_comes_to_rest(random: Random) -> None:
    """Every entry holds what must hold, nothing happens twice, and faults that stop let it end."""
    world = a_walk(random)

    assert world.story.status.is_at_rest


@pytest.mark.parametrize("seed", range(0, 800, 100))
def test_seeded_walks(seed: int) -> None:
    """The same, over walks that are the same in every run."""
    for each in range(seed, seed + 100):
        assert a_walk(Random(each)).story.status.is_at_rest, each


PENDING, RUNNING, COMPENSATING = SagaStatus.PENDING, SagaStatus.RUNNING, SagaStatus.COMPENSATING
STUCK, COMPLETED, COMPENSATED = SagaStatus.STUCK, SagaStatus.COMPLETED, SagaStatus.COMPENSATED

TRANSITIONS: dict[SagaStatus | None, set[SagaStatus]] = {
    None: {PENDING, RUNNING, COMPENSATED},
    PENDING: {PENDING, RUNNING, STUCK, COMPENSATED},
    RUNNING: {RUNNING, COMPENSATING, STUCK, COMPLETED, COMPENSATED},
    COMPENSATING: {COMPENSATING, STUCK, COMPENSATED},
    STUCK: {STUCK, RUNNING, COMPENSATING, COMPENSATED, COMPLETED},
    COMPLETED: set(),
    COMPENSATED: {COMPENSATED},
}
"""From which status to which an entry may lead. (A rollback with nothing to undo is one entry.)"""


def rare_stories() -> Iterator[Story]:
    """Ways that a walk seldom takes."""
    unrenderable: dict[str, JsonValue] = {"method": "GET", "url": "https://a.test/${{ input.x }}"}
    yield Story(a_definition(a_step(action={"http": unrenderable}))).start()

    pending = Story().start(may_open=False)
    pending.later(1).wake(may_open=False)
    pending.wake(losses=4)
    pending.retry()
    yield pending

    cancelled = Story().start(may_open=False)
    cancelled.cancel()
    yield cancelled

    given_up = Story().start(may_open=False)
    given_up.wake(losses=4)
    given_up.cancel()
    yield given_up

    unfit = Story().start()
    unfit.answer(answered(201, {}))
    unfit.retry()
    yield unfit

    adopted = Story(a_definition(a_step())).start()
    adopted.wake(by=THERE, losses=4)
    adopted.answer_late(done())
    adopted.retry()
    yield adopted

    late = Story(a_definition(a_step(idempotent=False, undo_by="key"))).start()
    late.wake(by=THERE, losses=1)
    late.until_due()
    late.answer(answered(204))
    late.answer_late(done())
    yield late


def an_observation() -> AttemptObserved:
    """Of an attempt that is not awaited."""
    return AttemptObserved(
        step=StepId("flight"), direction=ACTION, attempt=9, observation=broken_off()
    )


def test_the_run_exercises_every_row_and_every_transition() -> None:
    """Every declared row is met, every declared transition is made, and no other."""
    stories = [a_walk(Random(seed)).story for seed in range(1000, 1150)] + list(rare_stories())
    illegal: tuple[Fact, ...] = (a_request(), an_observation())
    for status, fact in itertools.product(SagaStatus, illegal):
        story = a_story(status)
        with contextlib.suppress(IllegalEvent):
            story.tell(fact)
        stories.append(story)

    met = {row for story in stories for row in story.met}
    made: dict[SagaStatus | None, set[SagaStatus]] = {status: set() for status in TRANSITIONS}
    for story in stories:
        for before, after in story.transitions:
            made[before].add(after)

    assert TABLE.keys() - met == set()
    assert made == TRANSITIONS

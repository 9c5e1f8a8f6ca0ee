"""Sagas in a world that goes wrong at random: what must hold of every entry, and at the end.

``world`` plays everything around a saga, and compares what the saga says with what is there:

* never says *none* of an effect that exists once nothing of it is under way any more;
* no effect exists twice;
* what is left behind is listed, and somebody is to look;
* once faults stop, and people answer what they are asked, every saga ends.
"""

import contextlib
import itertools
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from app.core.errors import IllegalEvent, VerbRefused
from app.core.json_value import JsonValue
from app.core.machine import TABLE
from app.core.saga import SagaStatus
from tests.core.builders import (
    THERE,
    Story,
    a_definition,
    a_step,
    a_story,
    answered,
    done,
    refused,
)
from tests.core.test_machine_table import FACT
from tests.core.world import a_walk


@given(random=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_goes_wrong_the_saga_is_honest_and_ends(random: Random) -> None:
    """Every entry holds what must hold, nothing happens twice, and faults that stop let it end."""
    world = a_walk(random)

    assert world.story.status.is_final


@pytest.mark.parametrize("seed", range(0, 800, 100))
def test_seeded_walks(seed: int) -> None:
    """The same, over walks that are the same in every run."""
    for each in range(seed, seed + 100):
        assert a_walk(Random(each)).story.status.is_final, each


PENDING, RUNNING, COMPENSATING = SagaStatus.PENDING, SagaStatus.RUNNING, SagaStatus.COMPENSATING
PAUSED, STUCK, COMPLETED = SagaStatus.PAUSED, SagaStatus.STUCK, SagaStatus.COMPLETED
COMPENSATED, PARTIALLY = SagaStatus.COMPENSATED, SagaStatus.PARTIALLY_COMPENSATED
TERMINATED = SagaStatus.TERMINATED

TRANSITIONS: dict[SagaStatus | None, set[SagaStatus]] = {
    None: {PENDING, RUNNING, COMPLETED, COMPENSATED},
    PENDING: {PENDING, RUNNING, PAUSED, STUCK, COMPLETED, COMPENSATED, TERMINATED},
    RUNNING: {
        *(RUNNING, COMPENSATING, PAUSED, STUCK),
        *(COMPLETED, COMPENSATED, PARTIALLY, TERMINATED),
    },
    COMPENSATING: {COMPENSATING, PAUSED, STUCK, COMPENSATED, PARTIALLY, TERMINATED},
    PAUSED: {
        *(PENDING, RUNNING, COMPENSATING, PAUSED, STUCK),
        *(COMPLETED, COMPENSATED, PARTIALLY, TERMINATED),
    },
    STUCK: {
        *(RUNNING, COMPENSATING, STUCK),
        *(COMPLETED, COMPENSATED, PARTIALLY, TERMINATED),
    },
    COMPLETED: {COMPLETED},
    COMPENSATED: {COMPENSATED},
    PARTIALLY: {PARTIALLY},
    TERMINATED: {TERMINATED},
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

    skipped = Story(a_definition(a_step() | {"when": "${{ input.city == 'Rome' }}"}))
    skipped.start(may_open=False).wake()
    yield skipped

    untouched = Story().start(may_open=False)
    untouched.pause()
    untouched.resume(may_open=False)
    yield untouched

    helpless = a_story(COMPENSATING)
    helpless.pause()
    helpless.answer(refused())
    helpless.resume()
    yield helpless

    lasting = {name: part for name, part in a_step().items() if name != "compensation"}
    kept = Story(a_definition(lasting | {"irreversible": True}, a_step("hotel"))).start().book()
    kept.pause()
    kept.answer(refused())
    kept.resume()
    yield kept

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


def test_the_run_exercises_every_row_and_every_transition() -> None:
    """Every declared row is met, every declared transition is made, and no other."""
    stories = [a_walk(Random(seed)).story for seed in range(1000, 1400)] + list(rare_stories())
    for status, fact in itertools.product(SagaStatus, FACT.values()):
        story = a_story(status)
        with contextlib.suppress(IllegalEvent, VerbRefused):
            story.tell(fact)
        stories.append(story)

    met = {row for story in stories for row in story.met}
    made: dict[SagaStatus | None, set[SagaStatus]] = {status: set() for status in TRANSITIONS}
    for story in stories:
        for before, after in story.transitions:
            made[before].add(after)

    assert TABLE.keys() - met == set()
    assert made == TRANSITIONS

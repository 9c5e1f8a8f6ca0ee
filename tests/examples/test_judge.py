"""The judge: silent about sound ledgers, and sure to speak about each broken one."""

import dataclasses
from collections.abc import Callable

import pytest

from examples.world import Ledger, judge
from tests.examples.story import COMPENSATED, COMPLETED, STEPS, Story, rules


def test_nothing_is_nothing() -> None:
    """An empty ledger is sound if nothing was expected to complete."""
    assert judge(Ledger(), {}) == []
    assert judge(Ledger(), COMPENSATED) == []


@pytest.mark.parametrize(
    "write",
    [
        lambda story: story.act(*STEPS),
        lambda story: story.act("flight").replay("flight").act("hotel"),
        lambda story: story.refuse("flight").act(*STEPS),
    ],
    ids=["plain", "resent", "refused first"],
)
def test_a_sound_completion(write: Callable[[Story], Story]) -> None:
    """A completed saga with one live effect per step is sound, however often steps were sent."""
    story = write(Story())

    assert rules(story, COMPLETED) == []


@pytest.mark.parametrize(
    "write",
    [
        lambda story: story.act(*STEPS).undo(*reversed(STEPS)),
        lambda story: story.refuse("flight"),
        lambda story: story.act("flight", "hotel").refuse("charge").undo("hotel", "flight"),
        lambda story: story.act("flight", "hotel").undo("hotel", "hotel", "flight"),
        lambda story: story.act("flight").undo("charge", "flight"),
        lambda story: (
            story.act("flight").undo("flight").act("flight", key="f-1").undo("flight", key="u-1")
        ),
    ],
    ids=["whole", "nothing done", "partial", "undo resent", "undo of nothing", "next generation"],
)
def test_a_sound_compensation(write: Callable[[Story], Story]) -> None:
    """A compensated saga with nothing left, undone in reverse, is sound."""
    story = write(Story())

    assert rules(story, COMPENSATED) == []


@pytest.mark.parametrize(
    ("write", "broken"),
    [
        (lambda story: story.act("hotel").refuse("flight"), ["effect_missing"]),
        (
            lambda story: story.act("hotel").undo("hotel").act("hotel", key="hotel-1"),
            ["undo_in_completed"],
        ),
        (lambda story: story.act("hotel").undo("flight"), ["undo_in_completed"]),
        (lambda story: story.act("hotel").undo("hotel"), ["effect_missing", "undo_in_completed"]),
        (
            lambda story: story.act("hotel").act("hotel", key="other"),
            ["two_live_effects"],
        ),
        (
            lambda story: story.act("hotel", "hotel"),
            ["key_with_two_effects", "two_live_effects"],
        ),
    ],
    ids=["step without effect", "undone", "undo asked for", "all undone", "twice", "one key"],
)
def test_a_broken_completion(write: Callable[[Story], Story], broken: list[str]) -> None:
    """A completed saga with an effect too few or too many, or any undo, is found out."""
    story = write(Story())

    assert rules(story, COMPLETED) == broken


def test_a_completion_that_never_happened() -> None:
    """A saga said to be completed that the world never heard of is found out."""
    assert rules(Story(), COMPLETED) == ["effect_missing"]


def test_an_optional_step_may_have_no_effect() -> None:
    """A step named as optional may have been refused in a completed saga."""
    story = Story().act("hotel").refuse("flight")

    assert rules(story, COMPLETED, optional_steps=frozenset({"flight"})) == []


@pytest.mark.parametrize(
    ("write", "broken"),
    [
        (lambda story: story.act("flight"), ["effect_left"]),
        (lambda story: story.act(*STEPS).undo("charge", "flight"), ["effect_left"]),
        (
            lambda story: story.act(*STEPS).undo("charge", "flight", "hotel"),
            ["undo_out_of_order"],
        ),
        (lambda story: story.act(*STEPS).undo(*STEPS), ["undo_out_of_order"] * 2),
        (
            lambda story: story.act("flight").undo("flight").undo("flight", key="again"),
            ["undone_twice"],
        ),
        (
            lambda story: story.undo("charge").act("charge"),
            ["effect_outlived_undo", "effect_left"],
        ),
        (lambda story: story.act("flight").undo("flight", key="flight"), ["key_shared"]),
    ],
    ids=["left", "one left", "swapped", "forward", "two keys", "late effect", "shared key"],
)
def test_a_broken_compensation(write: Callable[[Story], Story], broken: list[str]) -> None:
    """A compensated saga with anything left, out of order or undone twice is found out."""
    story = write(Story())

    found = [rule for rule in rules(story, COMPENSATED) if rule != "key_with_other_bytes"]
    assert found == broken


def test_other_bytes_under_a_key() -> None:
    """A key that carried two bodies is found out, whatever became of the second request."""
    story = Story().act("flight", body="a")
    story.request("flight", "action", key="flight", outcome="refused", body="b")

    assert rules(story, COMPLETED) == ["key_with_other_bytes"]


def test_a_key_for_two_steps() -> None:
    """A key that served two steps is found out."""
    story = Story().act("flight", key="one").act("hotel", key="one")

    assert {"key_with_other_bytes", "key_shared", "key_with_two_effects"} <= set(rules(story))


def test_steps_side_by_side_may_be_undone_in_either_order() -> None:
    """Where both steps were asked for before either had its effect, no order is expected."""
    for first, second in (("a", "b"), ("b", "a")):
        story = Story()
        rows = [
            story.request(step, "action", key=step, outcome="applied", resource=step)
            for step in ("a", "b")
        ]
        for row in rows:
            story.happen(row, str(row.step))
        story.undo(first, second)

        assert rules(story, COMPENSATED) == []


def test_a_late_effect_may_be_undone_last() -> None:
    """An effect that came only after an earlier one was undone breaks no order."""
    story = Story().act("flight")
    charge = story.request("charge", "action", key="charge", outcome="applied", resource="CH")
    story.undo("charge", "flight").happen(charge, "CH").undo("charge", key="undo-charge-1")

    assert rules(story, COMPENSATED) == []


def test_sagas_are_judged_apart() -> None:
    """What is wrong in one saga is not held against another."""
    story = Story().act("flight")
    other = tuple(dataclasses.replace(row, saga="s2", key="k2") for row in story.requests)
    ledger = Ledger(requests=(*story.ledger.requests, *other), effects=story.ledger.effects)

    found = judge(ledger, {"s1": "completed", "s2": "completed"})

    assert [(violation.saga, violation.rule) for violation in found] == [("s2", "effect_missing")]


def test_questions_are_not_judged() -> None:
    """A verify under the key of its action is no second use of the key, and is no action."""
    story = Story()
    story.request("flight", "verify", key="flight", outcome="none", method="GET")
    story.act("flight")
    story.request("hotel", "verify", key="hotel", outcome="none", method="GET")

    assert rules(story, COMPLETED) == []


def test_what_names_no_saga_is_judged_by_its_keys() -> None:
    """Requests without a saga may have as many effects as they like, but not under one key."""
    story = Story().act("flight", key="k1").act("flight", key="k2").act("flight", key="k2")
    ledger = Ledger(
        requests=tuple(dataclasses.replace(row, saga=None, step=None) for row in story.requests),
        effects=tuple(dataclasses.replace(row, saga=None, step=None) for row in story.effects),
    )

    assert [violation.rule for violation in judge(ledger, {})] == ["key_with_two_effects"]


def test_a_message_names_saga_step_and_key() -> None:
    """A violation reads well alone, for a person with a failed sweep on the screen."""
    (violation,) = judge(Story().act("flight").ledger, COMPENSATED)

    assert str(violation) == (
        "effect_left: saga 's1', step 'flight', key 'flight': compensated, but flight-0 is live"
    )

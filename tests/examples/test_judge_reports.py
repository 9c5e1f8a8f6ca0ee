"""The judge on what was reported later, and on what may be left."""

from collections.abc import Callable

import pytest

from examples.world import Expectation
from examples.world.records import Saying
from tests.examples.story import COMPENSATED, COMPLETED, STEPS, Story, rules


@pytest.mark.parametrize(
    "write",
    [
        lambda story: story.report("charge", "succeeded", 200),
        lambda story: story.report("charge", "succeeded", 200).report("charge", "succeeded", 200),
        lambda story: story.report("charge", "in_progress", 200).report("charge", "succeeded", 202),
        lambda story: story.report("charge", "succeeded", 200).report("charge", "failed", 409),
        lambda story: story.report("charge", "succeeded", None).report("charge", "failed", 409),
        lambda story: story.report("charge", "succeeded", 503).report("charge", "succeeded", 200),
        lambda story: story.report("charge", "succeeded", 429).report("charge", "succeeded", 200),
        lambda story: story.report("charge", "succeeded", 404, sent_to="forged"),
        lambda story: story.report("charge", "succeeded", None, sent_to="dead"),
        lambda story: story.report("charge", "succeeded", 422, is_changed=True),
    ],
    ids=[
        "once",
        "twice",
        "in progress",
        "contradiction refused",
        "contradiction of the unknown",
        "resent",
        "put off",
        "forged",
        "dead",
        "changed",
    ],
)
def test_sound_reports(write: Callable[[Story], Story]) -> None:
    """An effect that was reported counts once, however often, and nonsense may be refused."""
    story = write(Story().act(*STEPS))

    assert rules(story, COMPLETED) == []


@pytest.mark.parametrize(
    ("write", "broken"),
    [
        (lambda story: story.report("charge", "succeeded", 404), ["callback_refused"]),
        (lambda story: story.report("charge", "in_progress", 400), ["callback_refused"]),
        (
            lambda story: story.report("charge", "succeeded", 200).report(
                "charge", "succeeded", 409
            ),
            ["callback_refused"],
        ),
        (
            lambda story: story.report("charge", "failed", 202).report("charge", "succeeded", 200),
            ["callback_contradicted"],
        ),
        (
            lambda story: story.report("charge", "succeeded", 200, sent_to="forged"),
            ["callback_forged"],
        ),
    ],
    ids=["refused", "progress refused", "repeat refused", "contradiction taken", "forgery taken"],
)
def test_broken_reports(write: Callable[[Story], Story], broken: list[str]) -> None:
    """A caller that refuses the truth, or takes what is false, is found out."""
    story = write(Story().act(*STEPS))

    assert rules(story, COMPLETED) == broken


def test_each_step_has_reports_of_its_own() -> None:
    """What was reported of one step does not contradict what was reported of another."""
    story = Story().act("flight", "hotel")
    story.report("flight", "succeeded", 200).report("hotel", "failed", 200)

    assert rules(story, COMPLETED) == []


def test_a_late_success_asks_for_another_undo() -> None:
    """A step may be undone under another key if it was reported as done in between."""
    undone = Story().act("charge").undo("charge")
    reported = undone.report("charge", "succeeded", 202).undo("charge", key="undo-charge-1")

    assert rules(reported, COMPENSATED) == []


@pytest.mark.parametrize(("outcome", "status"), [("succeeded", 404), ("failed", 200)])
def test_nothing_else_asks_for_another_undo(outcome: Saying, status: int) -> None:
    """A success that was not taken, or a failure, is no reason to undo again."""
    story = Story().act("charge").undo("charge").report("charge", outcome, status)
    story.undo("charge", key="undo-charge-1")

    assert "undone_twice" in rules(story, COMPENSATED)


def test_an_effect_that_is_reported_late_is_left() -> None:
    """What came about after the undo, and was reported, is residue until it is undone again."""
    story = Story()
    row = story.request("charge", "action", key="charge", outcome="accepted")
    story.undo("charge").happen(row, "CH1").report("charge", "succeeded", 202)

    assert rules(story, COMPENSATED) == ["effect_outlived_undo", "effect_left"]

    story.undo("charge", key="undo-charge-1")
    assert rules(story, COMPENSATED) == []


def test_residue_is_allowed_where_it_is_declared() -> None:
    """A mail that was sent may be left in a partially compensated saga, and nothing else."""
    story = Story().act("flight", "mail")
    partially: dict[str, Expectation] = {"s1": "partially_compensated"}
    declared = frozenset({"mail"})

    assert rules(story, partially, residue_steps=declared) == ["effect_left"]
    story.undo("flight")
    assert rules(story, partially, residue_steps=declared) == []
    assert rules(story, partially) == ["effect_left"]
    assert rules(story, COMPENSATED, residue_steps=declared) == ["effect_left"]

"""Cases in which only a person can go on: what they can do, and what the saga says of itself."""

import itertools

import pytest

from app.core.entries import Entry
from app.core.events import SkipRequested
from app.core.json_value import JsonValue
from app.core.residue import list_residue
from app.core.saga import CallStatus, Effect, SagaStatus, StepStatus
from tests.core.builders import (
    ACTION,
    COMPENSATION,
    FLIGHT,
    HOTEL,
    THERE,
    Story,
    a_definition,
    a_step,
    answered,
    done,
    refused,
)

UNDONE = answered(204)
CAR = "car"

ENDS = ("undone", "gone", "by hand", "skipped", "terminated")
"""How the undo of a step may end."""


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


def without_undo(step: str, why: str) -> dict[str, JsonValue]:
    """A step that cannot be undone, or need not be: ``irreversible`` or ``read_only``."""
    built = a_step(step)
    del built["compensation"]
    return built | {why: True}


def left(story: Story) -> dict[str, str]:
    """What the saga says that it has left: steps, and why."""
    return {each.step: each.why.value for each in list_residue(story.definition, story.saga)}


def two_done(**compensation: JsonValue) -> Story:
    """Two steps done, a third refused: the second's undo is out."""
    steps = (a_step(name, compensation=compensation) for name in (FLIGHT, HOTEL, CAR))
    story = Story(a_definition(*steps)).start().book().book()
    story.answer(refused(402))
    return story


def exhausted() -> Story:
    """The second step's undo has answered 500 as often as it may: the saga is stuck."""
    story = two_done(retry={"max_attempts": 2})
    for _ in range(2):
        story.until_out()
        story.answer(answered(500))
    assert story.status is SagaStatus.STUCK
    return story


def carried_on(story: Story) -> list[tuple[str, str]]:
    """Let everything that goes out succeed; returns what that was."""
    sent = []
    while story.out:
        sent += out(story)
        story.answer(UNDONE)
    return sent


class TestUndoThatFails:
    """An undo that failed for good, and what a person can make of it."""

    def test_durable_engines_b33_retried(self) -> None:
        """A person who has mended the tool lets the undo be tried again, and the rest follows."""
        story = exhausted()

        story.retry()

        assert carried_on(story) == [(HOTEL, COMPENSATION), (FLIGHT, COMPENSATION)]
        assert (story.status, left(story)) == (SagaStatus.COMPENSATED, {})

    def test_durable_engines_b33_done_by_hand(self) -> None:
        """A person who has undone it by hand says so, and it is not sent again."""
        story = exhausted()

        story.resolve(Effect.NONE, step=HOTEL)

        assert carried_on(story) == [(FLIGHT, COMPENSATION)]
        assert (story.status, left(story)) == (SagaStatus.COMPENSATED, {})

    def test_durable_engines_b33_renounced(self) -> None:
        """A person who renounces it lets the rest be undone, and what stays is told."""
        story = exhausted()

        story.skip(HOTEL)

        assert carried_on(story) == [(FLIGHT, COMPENSATION)]
        assert story.status is SagaStatus.PARTIALLY_COMPENSATED
        assert left(story) == {HOTEL: "skipped"}

    def test_saga_coordinators_b22_what_is_skipped_is_never_called_again(self) -> None:
        """A skipped undo is marked as that, with who and why, and no wake-up sends it."""
        story = exhausted()

        entry = story.skip(HOTEL)
        sent = carried_on(story)
        for _ in range(5):
            story.later(1000).wake(by=THERE)
            sent += carried_on(story)

        assert isinstance(entry, Entry)
        fact = entry.fact
        assert isinstance(fact, SkipRequested)
        assert (fact.actor, fact.reason, fact.step) == ("ann", "let it be", HOTEL)
        assert story.call(HOTEL, COMPENSATION).status is CallStatus.SKIPPED
        assert story.call(HOTEL, COMPENSATION).attempts == 2
        assert sent == [(FLIGHT, COMPENSATION)]

    @pytest.mark.parametrize("irreversible", [True, False])
    @pytest.mark.parametrize("ends", list(itertools.product(ENDS, repeat=2)))
    def test_durable_engines_b35_compensated_means_that_nothing_is_left(
        self, ends: tuple[str, str], *, irreversible: bool
    ) -> None:
        """However each undo ends, compensated is said exactly if no effect remains."""
        steps = (
            without_undo("mail", "irreversible" if irreversible else "read_only"),
            a_step(FLIGHT),
            a_step(HOTEL),
            a_step(CAR),
        )
        story = Story(a_definition(*steps)).start().book().book().book()
        story.answer(refused())

        for step, end in zip((HOTEL, FLIGHT), ends, strict=True):
            if story.status.is_final:
                break
            match end:
                case "undone" | "gone":
                    story.answer(answered(204 if end == "undone" else 404))
                case "by hand":
                    story.answer(refused())
                    story.resolve(Effect.NONE, step=step)
                case "skipped":
                    story.answer(refused())
                    story.skip(step)
                case _:
                    story.answer(refused())
                    story.terminate()

        remains = irreversible or "skipped" in ends or "terminated" in ends
        assert story.status.is_final
        assert (story.status is SagaStatus.COMPENSATED) is not remains
        assert bool(left(story)) is remains
        assert (story.status is SagaStatus.TERMINATED) is ("terminated" in ends)

    def test_saga_coordinators_b29_what_cannot_be_undone_is_passed_by_and_told(self) -> None:
        """An irreversible step in the middle does not stop the undo of those before it."""
        steps = (a_step(FLIGHT), without_undo("mail", "irreversible"), a_step(HOTEL), a_step(CAR))
        story = Story(a_definition(*steps)).start().book().book().book()

        story.answer(refused())

        assert carried_on(story) == [(HOTEL, COMPENSATION), (FLIGHT, COMPENSATION)]
        assert story.status is SagaStatus.PARTIALLY_COMPENSATED
        assert left(story) == {"mail": "irreversible"}


class TestCancelled:
    """A cancel at the points at which nothing seems to happen."""

    @pytest.mark.parametrize("with_call_out", [True, False])
    def test_durable_engines_b30_cancel_while_paused(self, *, with_call_out: bool) -> None:
        """A cancel lifts the pause: everything that may exist is undone."""
        story = Story().start().book()
        story.pause()
        if not with_call_out:
            story.answer(answered(429))

        story.cancel(by=THERE)
        for _ in range(10):
            story.until_out()
            if story.out:
                story.answer(done({"id": "H1"}) if out(story)[0][1] == "action" else UNDONE)

        assert story.status is SagaStatus.COMPENSATED
        assert {story.effect(FLIGHT), story.effect(HOTEL)} == {Effect.NONE}

    def test_durable_engines_b30_cancel_while_its_undo_is_paused(self) -> None:
        """A pause during the rollback is lifted too: what is left is undone."""
        story = two_done()
        story.pause()
        story.answer(UNDONE)

        story.cancel(by=THERE)

        assert carried_on(story) == [(FLIGHT, COMPENSATION)]
        assert story.status is SagaStatus.COMPENSATED

    @pytest.mark.parametrize("refusal", [400, 402, 403, 404, 422, 451])
    def test_durable_engines_b29_a_definite_refusal_is_not_undone(self, refusal: int) -> None:
        """A tool that refuses at once has done nothing: its step is not undone, the others are."""
        story = Story().start().book()

        story.answer(answered(refusal))

        assert carried_on(story) == [(FLIGHT, COMPENSATION)]
        assert story.saga.call(HOTEL, COMPENSATION) is None
        assert story.saga.step_status(HOTEL) is StepStatus.FAILED

    @pytest.mark.parametrize("point", ["pending", "in call", "undoing", "stuck", "paused"])
    def test_agents_b28_a_termination_lists_what_is_live(self, point: str) -> None:
        """Wherever a saga is ended as it is, nothing more is sent, and what exists is told."""
        story = Story().start(may_open=point != "pending")
        if point != "pending":
            story.book({"id": "F1"})
        if point in {"undoing", "stuck"}:
            story.answer(refused())
        if point == "stuck":
            story.answer(refused())
        if point == "paused":
            story.pause()

        story.terminate(by=THERE)
        if story.out:
            story.answer(refused())
        story.later(1000).wake()

        assert (story.status, story.out) == (SagaStatus.TERMINATED, [])
        assert left(story) == ({} if point == "pending" else {FLIGHT: "terminated"})
        assert story.saga.call(HOTEL, COMPENSATION) is None
        assert story.saga.call(FLIGHT, ACTION) is None or story.effect() is Effect.DONE

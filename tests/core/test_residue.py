"""What is left behind, and the plan of a rollback."""

import pytest

from app.core.json_value import JsonValue
from app.core.plan import How, RollbackPlan, plan_rollback
from app.core.residue import Residue, Why, list_residue
from app.core.saga import Effect, SagaStatus
from tests.core.builders import (
    FLIGHT,
    HOTEL,
    ONCE,
    Story,
    a_definition,
    a_step,
    a_story,
    answered,
    broken_off,
    done,
    refused,
)

UNDONE = answered(204)


def residue(story: Story) -> list[Residue]:
    """What a story's saga has left."""
    return list_residue(story.definition, story.saga)


def plan(story: Story) -> RollbackPlan:
    """What undoing it now would do."""
    return plan_rollback(story.definition, story.saga)


def hows(story: Story) -> list[tuple[str, How]]:
    """The plan in short."""
    return [(undo.step, undo.how) for undo in plan(story).undos]


def an_irreversible(**action: JsonValue) -> dict[str, JsonValue]:
    """A flight that cannot be undone."""
    step = a_step(FLIGHT, action=action)
    del step["compensation"]
    return step | {"irreversible": True}


class TestResidue:
    """Only of sagas that are over, and only what they should not have left."""

    @pytest.mark.parametrize("status", [status for status in SagaStatus if not status.is_final])
    def test_a_saga_that_goes_on_has_none(self, status: SagaStatus) -> None:
        """What is live may still be undone."""
        assert residue(a_story(status)) == []

    @pytest.mark.parametrize("status", [SagaStatus.COMPLETED, SagaStatus.COMPENSATED])
    def test_neither_has_one_that_did_what_it_should(self, status: SagaStatus) -> None:
        """Everything is there, or nothing is."""
        assert residue(a_story(status)) == []

    @pytest.mark.parametrize(
        ("status", "why"),
        [
            (SagaStatus.PARTIALLY_COMPENSATED, Why.SKIPPED),
            (SagaStatus.TERMINATED, Why.TERMINATED),
        ],
    )
    def test_why_it_is_left(self, status: SagaStatus, why: Why) -> None:
        """Each says which step, what is known of its effect, and why."""
        assert Residue(step=FLIGHT, effect=Effect.DONE, why=why) in residue(a_story(status))

    def test_an_undo_in_doubt_makes_the_effect_doubtful(self) -> None:
        """It may be gone, or not."""
        story = Story(a_definition(a_step(compensation={"retry": ONCE}), a_step(HOTEL)))
        story.start().book()
        story.answer(refused())
        story.answer(broken_off())
        story.terminate()

        assert residue(story) == [Residue(step=FLIGHT, effect=Effect.UNKNOWN, why=Why.TERMINATED)]


class TestPlan:
    """What would be undone now, in which order, and what could not be."""

    def test_nothing_has_happened_nothing_is_undone(self) -> None:
        """Of a pending saga."""
        assert plan(a_story(SagaStatus.PENDING)) == RollbackPlan(refused=None, undos=())

    def test_the_order_is_that_of_the_rollback(self) -> None:
        """The last one first, also while it is out."""
        story = Story(a_definition(a_step(FLIGHT), a_step(HOTEL))).start().book()

        assert hows(story) == [(HOTEL, How.SETTLE_FIRST), (FLIGHT, How.COMPENSATE)]

    def test_what_nobody_can_settle_and_needs_its_output_is_blocked(self) -> None:
        """The saga would get stuck at it, and the plan says why."""
        story = Story(a_definition(a_step(idempotent=False), a_step(HOTEL))).start()

        (undo,) = plan(story).undos
        assert undo.how is How.BLOCKED
        assert undo.reason

    def test_what_nobody_can_settle_is_undone_by_its_key(self) -> None:
        """If its undo needs nothing else."""
        story = Story(a_definition(a_step(idempotent=False, undo_by="key"))).start()

        assert hows(story) == [(FLIGHT, How.COMPENSATE)]

    def test_the_irreversible_is_left(self) -> None:
        """It says so."""
        story = Story(a_definition(an_irreversible(), a_step(HOTEL))).start().book()

        assert (FLIGHT, How.LEAVE) in hows(story)

    def test_a_failed_undo_blocks(self) -> None:
        """A person has to help."""
        assert hows(a_story(SagaStatus.STUCK)) == [(FLIGHT, How.BLOCKED)]

    def test_a_renounced_undo_is_left(self) -> None:
        """Also after the end, when nothing can be undone any more."""
        told = plan(a_story(SagaStatus.PARTIALLY_COMPENSATED))

        assert told.refused == "the saga is partially_compensated"
        assert [undo.how for undo in told.undos] == [How.LEAVE]

    def test_past_the_pivot_it_is_refused(self) -> None:
        """The point of no return was passed."""
        story = Story(a_definition(a_step(FLIGHT) | {"pivot": True}, a_step(HOTEL))).start()
        story.answer(done())

        assert plan(story).refused == "the point of no return was passed"

    def test_the_plan_is_what_happens(self) -> None:
        """Undone then and there, the steps come in that order."""
        names = ("flight", "hotel", "car")
        steps = [a_step(name) | {"needs": []} for name in names]
        story = Story(a_definition(*steps)).start()
        for name in ("hotel", "flight", "car"):
            story.answer_late(done(), step=story.definition.step(name).id)  # type: ignore[arg-type]
        planned = [undo.step for undo in plan(story).undos]

        assert story.status is SagaStatus.COMPLETED
        assert planned == ["car", "flight", "hotel"]

"""Cases of steps that run side by side: who is followed, what is undone, and in which order."""

import pytest

from app.core.errors import InvalidDefinition
from app.core.events import AttemptObserved
from app.core.identity import StepId
from app.core.json_value import JsonValue
from app.core.observation import Observation
from app.core.saga import Effect, SagaStatus
from tests.core.builders import (
    ACTION,
    COMPENSATION,
    ONCE,
    Story,
    a_definition,
    a_step,
    answered,
    broken_off,
    done,
    refused,
)

UNDONE = answered(204)
LATER = "https://a.test/${{ steps.b.output.id }}"


def beside(step: str, *needs: str, **more: JsonValue) -> dict[str, JsonValue]:
    """A step that waits for these alone."""
    return a_step(step, **more) | {"needs": list(needs)}  # type: ignore[arg-type] # a_step checks


def out(story: Story) -> set[tuple[str, str]]:
    """What is out: steps and directions."""
    return {(call.step, call.direction.value) for call in story.out}


def answer(story: Story, step: str, observation: Observation) -> None:
    """Answer the action of one of the steps that are out."""
    call = story.call(StepId(step))
    assert call.open is not None, step
    fact = AttemptObserved(
        step=call.step, direction=ACTION, attempt=call.open.number, observation=observation
    )
    story.tell(fact)


def undos(story: Story, *answers: Observation) -> list[str]:
    """Let what is left be undone, with these answers first; returns whose undos were sent."""
    sent, answered_so_far = [], iter(answers)
    while not story.status.is_final:
        story.until_out()
        (call,) = story.out
        if call.direction is COMPENSATION:
            sent.append(str(call.step))
            story.answer(next(answered_so_far, UNDONE))
        else:
            story.answer(done({"id": "X2"}))
    return sent


@pytest.mark.parametrize(
    ("late", "undone"),
    [(done({"id": "A1"}), ["a"]), (broken_off(), ["a"]), (answered(500), ["a"]), (refused(), [])],
)
def test_saga_coordinators_b16_a_sibling_that_ends_later_is_undone(
    late: Observation, undone: list[str]
) -> None:
    """B fails while A is out: nothing is undone before A has ended, and then A is, if it may be."""
    story = Story(a_definition(beside("a", action={"retry": ONCE}), beside("b"))).start()
    answer(story, "b", refused())
    while_a_is_out = out(story)

    story.later(1)
    answer(story, "a", late)

    assert while_a_is_out == {("a", "action")}
    assert undos(story) == undone
    assert story.status is SagaStatus.COMPENSATED


@pytest.mark.parametrize("last", ["b", "c"])
def test_saga_coordinators_b17_a_diamond_is_undone_against_its_arrows(last: str) -> None:
    """An undo that fails three times holds back those it stands upon, at one and the same time."""
    steps = [beside("a"), beside("b", "a"), beside("c", "a"), beside("d", "b", "c")]
    story = Story(a_definition(*steps, beside("e", "d"))).start()
    story.book()
    first = "c" if last == "b" else "b"
    answer(story, first, done())
    answer(story, last, done())
    story.book()
    began = story.at

    story.answer(refused())

    assert story.at == began
    assert undos(story, answered(500), broken_off(), answered(409)) == [
        *["d"] * 4,
        last,
        first,
        "a",
    ]
    assert story.status is SagaStatus.COMPENSATED


def test_saga_coordinators_b17_a_doubt_does_not_jump_the_queue() -> None:
    """A step in doubt counts as the last to have ended, and is undone after what needs it."""
    once: JsonValue = {"retry": ONCE, "on_unknown": "give_up"}
    doubtful = beside("a", idempotent=False, undo_by="key", action=once)
    steps = [doubtful | {"optional": True}, beside("b", "a"), beside("c", "b")]
    story = Story(a_definition(*steps)).start()
    story.answer(broken_off())
    story.book()

    story.later(20).answer(refused())

    assert undos(story) == ["b", "a"]


@pytest.mark.parametrize(("third", "undone"), [(refused(), ["b", "a"]), (done(), ["c", "b", "a"])])
def test_agents_b22_of_three_at_once_those_that_happened_are_undone(
    third: Observation, undone: list[str]
) -> None:
    """Cancelled after two of three: these two are undone, and the third if it happens after all."""
    story = Story(a_definition(*(beside(name) for name in ("a", "b", "c")))).start()
    answer(story, "a", done())
    answer(story, "b", done())

    story.cancel()
    while_c_is_out = out(story)
    answer(story, "c", third)

    assert while_c_is_out == {("c", "action")}
    assert undos(story) == undone
    assert {story.effect(StepId(name)) for name in ("a", "b", "c")} == {Effect.NONE}


def test_agents_g4_undos_are_never_sent_at_once() -> None:
    """Of five steps that were done side by side one undo is out at a time."""
    names = ("a", "b", "c", "d", "e")
    story = Story(a_definition(*(beside(name) for name in names))).start()
    for name in names[:-1]:
        answer(story, name, done())
    answer(story, "e", refused())

    sent = []
    while story.out:
        sent.append([call.step for call in story.out])
        story.answer(UNDONE)

    assert sent == [["d"], ["c"], ["b"], ["a"]]


WRONG_GRAPHS = {
    "a cycle": ([beside("a", "c"), beside("b", "a"), beside("c", "b")], "steps[0].needs[0]"),
    "itself": ([beside("a", "a")], "steps[0].needs[0]"),
    "unknown": ([beside("a"), beside("b", "z")], "steps[1].needs[0]"),
    "twice": ([beside("a"), beside("a")], "steps[1].id"),
    "needed twice": ([beside("a"), beside("b", "a", "a")], "steps[1].needs[1]"),
    "a later output": (
        [beside("a", action={"http": {"method": "POST", "url": LATER}}), beside("b")],
        "steps[0].action.http.url",
    ),
}


@pytest.mark.parametrize("name", WRONG_GRAPHS)
def test_saga_coordinators_b36_a_wrong_graph_is_refused(name: str) -> None:
    """What could never run, or never end, is refused when it is published, at the very field."""
    steps, path = WRONG_GRAPHS[name]

    with pytest.raises(InvalidDefinition) as refused_with:
        a_definition(*steps)

    assert path in {fault.path for fault in refused_with.value.faults}


@pytest.mark.parametrize("flags", [{}, {"read_only": False}, {"irreversible": False}])
def test_saga_coordinators_b29_a_step_without_an_undo_is_refused(flags: dict[str, bool]) -> None:
    """A step says how it is undone, or expressly that it is not: that is asked before it runs."""
    step = {name: value for name, value in beside("b").items() if name != "compensation"}

    with pytest.raises(InvalidDefinition) as refused_with:
        a_definition(beside("a"), {**step, **flags})

    assert ["steps[1].compensation"] == [fault.path for fault in refused_with.value.faults]

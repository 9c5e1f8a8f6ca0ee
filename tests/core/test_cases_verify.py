"""Cases in which a tool can be asked what became of a call: when, how often, and what counts."""

import pytest

from app.core.identity import Direction
from app.core.json_value import JsonValue
from app.core.observation import Answered
from app.core.saga import Effect, Question, SagaStatus
from tests.core.builders import (
    ACTION,
    COMPENSATION,
    FLIGHT,
    HOTEL,
    ONCE,
    THERE,
    Story,
    a_definition,
    a_step,
    a_verify,
    answered,
    broken_off,
    http_of,
    looked,
    refused,
)

VERIFY = Direction.VERIFY
UNDONE = answered(204)


def out(story: Story) -> list[tuple[str, str]]:
    """What is out: steps and directions."""
    return [(call.step, call.direction.value) for call in story.out]


def a_mail(**verify: JsonValue) -> dict[str, JsonValue]:
    """A step of a tool that knows no keys, and that can be asked."""
    return a_step(idempotent=False) | {"verify": a_verify(**verify)}


def found(*ids: str) -> Answered:
    """What a list of a tool shows."""
    return answered(200, {"items": [{"id": each} for each in ids]}, body_bytes=30)


BY_COUNT: dict[str, JsonValue] = {
    "done": "${{ size(response.body.items) == 1 }}",
    "none": "${{ size(response.body.items) == 0 }}",
    "output": "${{ response.body.items[0] }}",
}


@pytest.mark.parametrize("shown_after", [0, 1, 3, 8])
def test_agents_b14_a_list_that_is_late(shown_after: float) -> None:
    """A mail whose answer is lost, and that the list shows only later, is not sent again."""
    story = Story(a_definition(a_mail(**BY_COUNT), a_step(HOTEL))).start()
    story.answer(broken_off())
    lost_at = story.at
    sent = []

    while out(story) != [(HOTEL, ACTION)]:
        story.until_out()
        sent += out(story)
        if out(story) != [(HOTEL, ACTION)]:
            shown = (story.at - lost_at).total_seconds() >= shown_after
            story.answer(found("M1") if shown else found())

    assert (FLIGHT, ACTION) not in sent
    assert (story.effect(), story.call().attempts) == (Effect.DONE, 1)


def test_agents_b14_a_list_that_stays_empty() -> None:
    """Once it can no longer come, the mail that is not there is sent again, by the same key."""
    story = Story(a_definition(a_mail(**BY_COUNT))).start()
    key = story.call().key
    story.answer(broken_off())
    asked_at = []

    while out(story) != [(FLIGHT, ACTION)]:
        story.until_out()
        if out(story) == [(FLIGHT, VERIFY)]:
            asked_at.append(story.at)
            story.answer(found())

    assert (asked_at[-1] - asked_at[0]).total_seconds() >= 10
    assert (story.call().attempts, story.call().key) == (2, key)


def test_agents_b15_several_are_found() -> None:
    """Where the tool shows two charges a person is asked, and neither is undone by itself."""
    story = Story(a_definition(a_mail(**BY_COUNT), a_step(HOTEL))).start()
    story.answer(broken_off())
    sent = []

    while not story.status.is_at_rest:
        story.until_out()
        sent += out(story)
        if story.out:
            story.answer(found("C1", "C2"))

    assert {(FLIGHT, VERIFY.value)} == set(sent)
    assert story.effect() is Effect.UNKNOWN
    assert story.saga.now.stuck is not None
    assert story.saga.now.stuck.question is Question.DID_IT_TAKE_EFFECT


def test_agents_b16_what_was_found_is_undone_by_its_id() -> None:
    """A resource that was made, and answered with 500, is undone by the id that the look showed."""
    story = Story(a_definition(a_mail(**BY_COUNT), a_step(HOTEL))).start()
    story.answer(answered(500))
    story.answer(found("R7"))

    story.answer(refused())
    story.until_out()

    assert out(story) == [(FLIGHT, COMPENSATION)]
    assert http_of(story.call(FLIGHT, COMPENSATION)).url.endswith("/R7")


@pytest.mark.parametrize(("happened", "undos"), [(True, ["hotel", "flight"]), (False, ["flight"])])
def test_agents_b29b_the_look_decides_of_the_failing_step(
    *, happened: bool, undos: list[str]
) -> None:
    """The step that fails in doubt is undone exactly if the tool says that it took effect."""
    hotel = a_step(HOTEL, idempotent=False, action={"on_unknown": "give_up"})
    story = Story(a_definition(a_step(), hotel | {"verify": a_verify()})).start().book()
    story.answer(broken_off())
    undone = []

    while not story.status.is_final:
        story.until_out()
        if out(story) == [(HOTEL, VERIFY)]:
            story.answer(looked(done=happened))
        else:
            undone += out(story)
            story.answer(UNDONE)

    assert undone == [(step, COMPENSATION) for step in undos]
    assert story.status is SagaStatus.COMPENSATED


@pytest.mark.parametrize("happened", [True, False])
def test_durable_engines_b06_an_heir_looks_first(*, happened: bool) -> None:
    """Killed between the tool's 200 and our commit: the heir looks, and sends only what is not."""
    story = Story(a_definition(a_mail(retry=ONCE), a_step(HOTEL))).start()

    story.later(8).wake(by=THERE, losses=1)
    first = out(story)
    while out(story) in ([], [(FLIGHT, VERIFY)]):
        if story.out:
            story.answer(looked(done=happened))
        else:
            story.until_due(by=THERE)

    assert first == [(FLIGHT, VERIFY)]
    assert out(story) == [(HOTEL if happened else FLIGHT, ACTION)]

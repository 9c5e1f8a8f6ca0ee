"""Every word that the service says is explained where people look for it."""

import typing
from collections.abc import Mapping, Sequence
from enum import StrEnum

import pytest

from app.core.definition import Means, OnUnknown
from app.core.entries import Reception
from app.core.plan import How
from app.core.residue import Why
from app.core.saga import (
    CallbackOutcome,
    CallStatus,
    Cause,
    Code,
    Effect,
    Question,
    SagaStatus,
    StepStatus,
    Wish,
)
from app.core.verbs import NAMES, possible_verbs
from app.schemas.callbacks import CallbackRequest
from app.schemas.event_view import EVENT_TYPES
from app.schemas.sagas import WaitsFor
from tests.core.builders import a_definition, a_story
from tests.docs.pages import ORDER, blocks_of, first_words, rows, section, text_of, words

STATES = "states-and-verbs"
LIVE = [status for status in SagaStatus if not status.is_final]
MOVING = [status for status in LIVE if not status.is_at_rest]


def values(kind: type[StrEnum]) -> set[str]:
    """The words of an enumeration."""
    return {each.value for each in kind}


@pytest.mark.parametrize(
    ("page", "heading", "expected"),
    [
        (STATES, "States of a saga", values(SagaStatus)),
        (STATES, "Verbs", set(NAMES.values())),
        (STATES, "Residue", values(Why)),
        (STATES, "While it runs", values(How)),
        (STATES, "Events", set(EVENT_TYPES.values())),
        ("compensations", "What a stuck saga asks", values(Question)),
        ("answers", "What a tool's answer means", values(Effect)),
        ("answers", "Codes", values(Code)),
        ("answers", "`responses`: when a tool speaks otherwise", values(Means)),
        ("answers", "Unknown effects", values(OnUnknown)),
    ],
)
def test_a_table_lists_every_word(page: str, heading: str, expected: set[str]) -> None:
    """The first cells are the words that there are, and no others."""
    # What the diagram leaves out is a table of its own, of the same words.
    assert expected == first_words(page, heading)


def test_step_statuses_and_waits() -> None:
    """Both stand under one heading."""
    expected = values(StepStatus) | set(typing.get_args(WaitsFor.__value__))

    assert expected == first_words(STATES, "States of a step")


def test_the_status_of_an_undo_has_words_that_are_explained() -> None:
    """It is told by those of a step."""
    assert values(CallStatus) <= first_words(STATES, "States of a step")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (STATES, values(Cause)),
        (STATES, values(Wish)),
        ("callbacks", values(CallbackOutcome) | values(Reception)),
        ("callbacks", set(CallbackRequest.model_fields)),
    ],
)
def test_a_page_explains_words(page: str, expected: set[str]) -> None:
    """They stand somewhere on it."""
    assert expected <= words(text_of(page))


def test_the_fields_of_a_report_have_rows() -> None:
    """Each is told with what it goes with."""
    told = first_words("callbacks", "What the tool does")

    assert set(CallbackRequest.model_fields) <= told


WHEN: Mapping[str, Sequence[SagaStatus]] = {
    "until it is final; not after the pivot": LIVE,
    "`pending`, `running`, `compensating`": MOVING,
    "`paused`": [SagaStatus.PAUSED],
    "until it is final": LIVE,
    "`stuck`": [SagaStatus.STUCK],
    "`stuck` at a step; any step that is not under way": [SagaStatus.STUCK],
    "`stuck` at that step, going back": [SagaStatus.STUCK],
    # What is found late is found in unusual stories.
    "final, and its effect was found late, or left by `terminate`": [SagaStatus.TERMINATED],
}
"""The third column of the table of verbs, and in which of the usual stories that is so."""


def test_when_a_verb_is_taken() -> None:
    """The table says what the machine does."""
    told = {cells[0].strip("`"): cells[2] for cells in rows(section(STATES, "Verbs"))}

    for verb, when in told.items():
        taken = [
            status
            for status in SagaStatus
            if verb in possible_verbs(a_definition(), a_story(status).saga)
        ]
        assert taken == WHEN[when], verb


def test_pages_lead_from_one_to_the_next() -> None:
    """The last line of each names the page that follows."""
    for page, following in zip(ORDER, [*ORDER[1:], "operations"], strict=True):
        last = text_of(page).rstrip().rpartition("\n---\n")[2]
        assert f"]({following}.md)" in last, page


def test_no_page_repeats_another() -> None:
    """No paragraph and no example stands twice."""
    seen: dict[str, str] = {}
    for page in ORDER:
        parts = [part.strip() for part in text_of(page).split("\n\n")]
        told = [part for part in parts if len(part) > 120 and not part.startswith("```sh")]
        told += [block.text for block in blocks_of(page) if block.language in {"yaml", "python"}]
        for part in dict.fromkeys(told):
            assert part not in seen or seen[part] == page, part
            seen[part] = page

"""The tables of what an answer means say what the code does, for every status."""

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from app.core.definition import Call
from app.core.identity import Direction
from app.core.observation import (
    Answered,
    BrokenOff,
    BrokenOffReason,
    NotSent,
    NotSentReason,
    Observation,
)
from app.core.outcome import (
    Acknowledged,
    AlreadyGone,
    Refused,
    Succeeded,
    TryAgain,
    Unclear,
    Verdict,
    classify_action,
    classify_compensation,
)
from app.schemas import load_definition
from tests.docs.frames import with_steps
from tests.docs.pages import rows, section

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is seen of an attempt, and what is known before."""

    seen: Observation
    call: Call
    uncertain: bool = False

    @property
    def status(self) -> int:
        """Of the answer; 0 if none came."""
        return self.seen.status if isinstance(self.seen, Answered) else 0

    @property
    def is_refusal(self) -> bool:
        """A 4xx that is told in no row of its own."""
        return 400 <= self.status < 500 and self.status not in {408, 425, 429}

    @property
    def is_deletion(self) -> bool:
        """The method is ``DELETE``."""
        return self.call.method == "DELETE"


def call_of(method: str, *, idempotent: bool, calls_back: bool) -> Call:
    """A call of a definition."""
    action: dict[str, Any] = {
        "http": {"method": method, "url": "https://tool.example/"},
        "idempotent": idempotent,
    }
    if calls_back:
        action["completion"] = {"callback": {"within": "1h"}}
    step = {"id": "example", "irreversible": True, "action": action}
    return load_definition(with_steps(step)).steps[0].call(Direction.ACTION)


CALLS = [
    call_of(method, idempotent=idempotent, calls_back=calls_back)
    for method in ("POST", "DELETE")
    for idempotent in (False, True)
    for calls_back in (False, True)
]


def cases() -> Iterator[Case]:
    """Every status, with and without what changes its meaning; and what is no answer."""
    for call, uncertain in itertools.product(CALLS, (False, True)):
        for status in range(200, 600):
            for retry_after in (None, "7", "nonsense"):
                seen = Answered(status=status, retry_after=retry_after)
                yield Case(seen=seen, call=call, uncertain=uncertain)
            seen = Answered(status=status, readable=False)
            yield Case(seen=seen, call=call, uncertain=uncertain)
        lost = BrokenOff(reason=BrokenOffReason.TIMED_OUT, message="")
        away = NotSent(reason=NotSentReason.UNREACHABLE, message="")
        yield Case(seen=lost, call=call, uncertain=uncertain)
        yield Case(seen=away, call=call, uncertain=uncertain)


def waits(case: Case) -> bool:
    """Whether the tool says when."""
    return isinstance(case.seen, Answered) and case.seen.retry_after == "7"


type Rule = tuple[Callable[[Case], bool], Callable[[Verdict], bool]]


def refused(verdict: Verdict) -> bool:
    """A refusal, by which nothing exists."""
    return isinstance(verdict, Refused) and verdict.proves_none


def again(*, counts: bool) -> Callable[[Verdict], bool]:
    """Tried again; whether that counts as a failed attempt."""
    return lambda verdict: isinstance(verdict, TryAgain) and verdict.counts is counts


def a(*kinds: type) -> Callable[[Verdict], bool]:
    """One of some kinds."""
    return lambda verdict: isinstance(verdict, kinds)


ACTION: dict[str, Rule] = {
    "refused connection, DNS or TLS failure before the first byte": (
        lambda case: isinstance(case.seen, NotSent),
        again(counts=True),
    ),
    "2xx, where the call has `completion`": (
        lambda case: 200 <= case.status < 300 and case.call.callback is not None,
        a(Acknowledged),
    ),
    "2xx": (
        lambda case: (
            200 <= case.status < 300 and isinstance(case.seen, Answered) and case.seen.readable
        ),
        a(Succeeded),
    ),
    "425": (
        lambda case: case.status == 425,
        lambda verdict: again(counts=False)(verdict) and verdict.still_working,  # type: ignore[union-attr] # it is one
    ),
    "429, and any 4xx but 408 and 425 with a valid `Retry-After`": (
        lambda case: case.status == 429 or (case.is_refusal and waits(case)),
        again(counts=False),
    ),
    "any other 4xx, no attempt is uncertain": (
        lambda case: case.is_refusal and not case.uncertain,
        refused,
    ),
    "404 or 410 to a `DELETE`, after an uncertain attempt": (
        lambda case: case.status in {404, 410} and case.is_deletion,
        a(Succeeded),
    ),
    "401, 403, 404, 409, 413 after an uncertain attempt": (
        lambda case: case.status in {401, 403, 404, 409, 413},
        again(counts=True),
    ),
    "any other 4xx after an uncertain attempt, `idempotent: true`": (
        lambda case: case.is_refusal and case.call.idempotent,
        refused,
    ),
    "any other 4xx after an uncertain attempt, else": (
        lambda case: case.is_refusal,
        a(Unclear),
    ),
    "3xx, 408, 5xx; a time-out or reset after the first byte; a 2xx whose body is too large or "
    "cannot be read": (lambda case: True, a(Unclear)),
}
"""The rows of the table, the more special ones first: of what they tell, and what comes of it."""

LOST = "nothing: the replica that sent it was lost"

UNDO: dict[str, Rule] = {
    "410; 404 to a `DELETE`": (
        lambda case: case.status == 410 or (case.status == 404 and case.is_deletion),
        a(AlreadyGone),
    ),
    "401, 403, 409, 423": (
        lambda case: case.status in {401, 403, 409, 423} and not waits(case),
        again(counts=True),
    ),
    "404 to any other method": (
        lambda case: case.status == 404 and not waits(case),
        refused,
    ),
    "another 4xx": (
        lambda case: case.is_refusal and not waits(case),
        refused,
    ),
}


def test_the_table_of_answers_has_these_rows() -> None:
    """Each is checked below, but that of a lost replica."""
    told = [cells[0] for cells in rows(section("answers", "The table"))]

    assert sorted(told) == sorted([*ACTION, LOST])


def test_the_table_of_answers_is_true() -> None:
    """Every status means what the first row says that fits it."""
    for case in cases():
        verdict = classify_action(case.call, case.seen, uncertain=case.uncertain, now=NOW)
        row, (_, is_so) = next((row, rule) for row, rule in ACTION.items() if rule[0](case))
        assert is_so(verdict), (row, case, verdict)


@pytest.mark.parametrize("row", UNDO)
def test_the_table_of_undos_has_its_rows(row: str) -> None:
    """Each that is checked below is told."""
    told = [cells[0] for cells in rows(section("compensations", "Answers to an undo"))]

    assert row in told
    assert len(told) == len(UNDO) + 1


def test_the_table_of_undos_is_true() -> None:
    """What it tells is so, and all else is as for an action that nothing is uncertain of."""
    for case in cases():
        verdict = classify_compensation(case.call, case.seen, now=NOW)
        rule = next((rule for rule in UNDO.values() if rule[0](case)), None)
        if rule is not None:
            assert rule[1](verdict), (case, verdict)
            continue
        same = classify_action(case.call, case.seen, uncertain=False, now=NOW)
        assert type(verdict) is type(same), (case, verdict)

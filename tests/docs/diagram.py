"""The state diagram of a saga, made by running the machine and noting what leads where.

``scripts/state-diagram`` writes it into the page. What is explored is what
``tests.core.test_machine_properties`` explores, and checks to be all that there is.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from random import Random

from app.core.saga import SagaStatus
from app.core.verbs import NAMES
from tests.core.builders import Story
from tests.core.test_machine_properties import TRANSITIONS, rare_stories
from tests.core.world import a_walk
from tests.docs.pages import DOCS

PAGE = DOCS / "states-and-verbs.md"
BEGIN, END = (f"<!-- made by scripts/state-diagram: {word} -->" for word in ("begin", "end"))
WALKS = range(1000, 1400)

STANDING_FOR_MANY = (SagaStatus.RUNNING, SagaStatus.COMPENSATING)
"""What one entry may pass through on its way to where nothing more is to be done."""

GIVES_UP = "a step gives up, deadline"
EVIDENCE = "late news"

Edge = tuple[SagaStatus, SagaStatus]


def explored() -> Iterator[Story]:
    """Sagas in a world that goes wrong at random, and some that such walks seldom meet."""
    for seed in WALKS:
        yield a_walk(Random(seed)).story
    yield from rare_stories()


def causes() -> Mapping[Edge, set[str]]:
    """What led from one status to another: verbs, or, as an empty text, anything else."""
    found: defaultdict[Edge, set[str]] = defaultdict(set)
    for story in explored():
        for before, after in itertools.pairwise(story.journal):
            edge = before.now.status, after.now.status
            found[edge].add(NAMES.get(type(after.fact), ""))
    return found


def drawn() -> list[Edge]:
    """The transitions that are drawn: not those that pass through another one in one entry."""
    return [
        (before, after)
        for before, afters in TRANSITIONS.items()
        if before is not None
        for after in sorted(afters, key=list(SagaStatus).index)
        if after is not before and not _is_shortcut(before, after)
    ]


def _is_shortcut(before: SagaStatus, after: SagaStatus) -> bool:
    rests = after.is_at_rest and after not in {SagaStatus.PAUSED, SagaStatus.TERMINATED}
    # Going forward a saga gets stuck for reasons of its own.
    passed = STANDING_FOR_MANY[: 1 if after is SagaStatus.STUCK else None]
    return rests and any(
        between not in {before, after}
        and between in TRANSITIONS[before]
        and after in TRANSITIONS[between]
        for between in passed
    )


def labelled() -> Iterator[tuple[Edge, str]]:
    """Each transition that is drawn, with what people and tools have to do with it."""
    found = causes()
    for before, after in drawn():
        # What passes through `after` in one entry was led there, too.
        passes = after in STANDING_FOR_MANY
        beyond = {far for far in TRANSITIONS[after] if passes and _is_shortcut(before, far)}
        led = set().union(*(found[before, each] for each in (after, *beyond)))
        verbs = [name for name in NAMES.values() if name in led and _asks_for(name, before, after)]
        if verbs and "" in led and after is not SagaStatus.TERMINATED:
            verbs.append(EVIDENCE if before is SagaStatus.STUCK else GIVES_UP)
        yield (before, after), ", ".join(verbs)


def _asks_for(verb: str, before: SagaStatus, after: SagaStatus) -> bool:
    """Whether a verb asks for just that, and does not only happen to be the event."""
    match verb:
        case "cancel":
            return after is SagaStatus.COMPENSATING
        case "skip":
            return after is SagaStatus.COMPENSATING and before is SagaStatus.STUCK
        case "pause":
            return after is SagaStatus.PAUSED
        case "terminate":
            return after is SagaStatus.TERMINATED
        case _:
            return True


def diagram() -> str:
    """The part of the page, with its markers."""
    lines = ["stateDiagram-v2", "    [*] --> pending"]
    for (before, after), label in labelled():
        lines.append(f"    {before} --> {after}{f': {label}' if label else ''}")
    lines += [f"    {status} --> [*]" for status in SagaStatus if status.is_final]
    body = "\n".join(lines)
    return f"{BEGIN}\n```mermaid\n{body}\n```\n\n{in_one_entry()}\n{END}"


def in_one_entry() -> str:
    """What the diagram leaves out, in words."""
    shortcuts = defaultdict(list)
    for before, afters in TRANSITIONS.items():
        for after in sorted(afters, key=list(SagaStatus).index):
            if before is not None and after is not before and _is_shortcut(before, after):
                shortcuts[before].append(f"`{after}`")
    rows = [f"| `{before}` | {', '.join(afters)} |" for before, afters in shortcuts.items()]
    return "\n".join(
        [
            "Arrows without words are the saga's own: an answer, a callback, a time that has come.",
            "One event may lead through several states at once, as where there is nothing to undo:",
            "",
            "| from | at once to |",
            "| --- | --- |",
            *rows,
        ]
    )


def main() -> None:
    """Write the diagram into its page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + diagram() + after, encoding="utf-8")


if __name__ == "__main__":
    main()

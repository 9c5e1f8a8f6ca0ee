"""The order of steps: each after what it needs, and circles found where there are any."""

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from app.core.graph import Graph, find_cycles
from app.core.identity import StepId

type Needs = Mapping[StepId, tuple[StepId, ...]]


def needs_of(**needs: str) -> Needs:
    """What each step needs, as words: ``b="a"``, ``d="b c"``."""
    return {StepId(step): tuple(map(StepId, said.split())) for step, said in needs.items()}


NAMES = [StepId(name) for name in "abcdefgh"]


@st.composite
def any_needs(draw: st.DrawFn) -> Needs:
    """Steps in any order, of which each may need any others."""
    steps = draw(st.permutations(NAMES[: draw(st.integers(1, len(NAMES)))]))
    return {
        step: tuple(draw(st.lists(st.sampled_from(steps), unique=True, max_size=3)))
        for step in steps
    }


@st.composite
def sound_needs(draw: st.DrawFn) -> Needs:
    """The same, but nobody waits for one that comes later in some order that is not the file's."""
    hidden = draw(st.permutations(NAMES[: draw(st.integers(1, len(NAMES)))]))
    needs = {
        step: tuple(draw(st.lists(st.sampled_from(hidden[:index]), unique=True, max_size=3)))
        if index
        else ()
        for index, step in enumerate(hidden)
    }
    return {step: needs[step] for step in draw(st.permutations(hidden))}


def test_a_plain_list_is_a_sequence() -> None:
    """Steps that each need the one before are in the order of the file."""
    graph = Graph.of(needs_of(a="", b="a", c="b"))

    assert graph.order == ("a", "b", "c")
    assert graph.ancestors == {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    assert graph.descendants == {"a": {"b", "c"}, "b": {"c"}, "c": set()}


def test_of_steps_that_may_come_next_the_first_in_the_file_does() -> None:
    """A step with nothing to wait for keeps its place in the file."""
    assert Graph.of(needs_of(d="a", c="", b="", a="")).order == ("c", "b", "a", "d")
    assert Graph.of(needs_of(c="a", b="", a="", d="")).order == ("b", "a", "c", "d")


def test_steps_of_which_neither_waits_for_the_other_are_parallel() -> None:
    """Two branches of a diamond are parallel, its ends are not."""
    graph = Graph.of(needs_of(a="", b="a", c="a", d="b c"))

    assert graph.are_parallel(StepId("b"), StepId("c"))
    assert graph.are_parallel(StepId("c"), StepId("b"))
    assert not graph.are_parallel(StepId("a"), StepId("d"))
    assert not graph.are_parallel(StepId("d"), StepId("a"))


def test_a_circle_has_no_order() -> None:
    """The caller looks for circles first."""
    with pytest.raises(ValueError, match="cycle"):
        Graph.of(needs_of(a="b", b="a"))


@pytest.mark.parametrize(
    ("needs", "cycles"),
    [
        (needs_of(a="", b="a"), []),
        (needs_of(a="a"), ["aa"]),
        (needs_of(b="a", a="a"), ["aa"]),
        (needs_of(a="b", b="a"), ["aba"]),
        (needs_of(a="c", b="a", c="b"), ["acba"]),
        (needs_of(a="b", b="a", c="d", d="c"), ["aba", "cdc"]),
        (needs_of(a="b c", b="a", c="a"), ["aba", "aca"]),
        (needs_of(a="b", b="c", c="b"), ["bcb"]),
        (needs_of(a="", b="a", c="a", d="b c"), []),
    ],
)
def test_circles_are_found(needs: Needs, cycles: list[str]) -> None:
    """Each circle is told once, from the step that is met first."""
    assert ["".join(cycle) for cycle in find_cycles(needs)] == cycles


def test_a_long_sequence_overflows_no_stack() -> None:
    """The search goes as deep as the steps do."""
    names = [StepId(f"s{number}") for number in range(5000)]
    needs = {step: (needed,) for step, needed in itertools.pairwise(names)}

    assert list(find_cycles({**needs, names[-1]: (names[0],)})) == [[*names, names[0]]]
    assert list(find_cycles({**needs, names[-1]: ()})) == []


@given(any_needs())
def test_what_is_called_a_circle_is_one(needs: Needs) -> None:
    """Each step of it needs the next, and only its first comes twice."""
    for cycle in find_cycles(needs):
        assert all(needed in needs[step] for step, needed in itertools.pairwise(cycle))
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1


@given(any_needs())
def test_there_is_an_order_where_no_circle_is_found(needs: Needs) -> None:
    """A circle is found exactly where no order is."""
    if next(find_cycles(needs), None) is None:
        Graph.of(needs)
    else:
        with pytest.raises(ValueError, match="cycle"):
            Graph.of(needs)


@given(any_needs())
def test_without_the_circles_that_are_found_there_are_none(needs: Needs) -> None:
    """An author who takes the last need of each circle away is done."""
    closing = {(cycle[-2], cycle[-1]) for cycle in find_cycles(needs)}
    mended = {
        step: tuple(each for each in needed if (step, each) not in closing)
        for step, needed in needs.items()
    }

    assert set(Graph.of(mended).order) == set(needs)


@given(sound_needs())
def test_every_step_comes_after_what_it_needs(needs: Needs) -> None:
    """All steps are there, once, and none before one that it needs."""
    graph = Graph.of(needs)

    assert sorted(graph.order) == sorted(needs)
    for step, needed in needs.items():
        assert all(graph.order.index(each) < graph.order.index(step) for each in needed)


@given(sound_needs())
def test_ancestors_are_all_that_a_step_waits_for(needs: Needs) -> None:
    """They are those it needs and theirs; descendants are the same, seen from the other end."""
    graph = Graph.of(needs)

    for step, needed in needs.items():
        assert graph.ancestors[step] == set(needed).union(*(graph.ancestors[n] for n in needed))
        assert graph.descendants[step] == {s for s in needs if step in graph.ancestors[s]}
        assert not graph.ancestors[step] & graph.descendants[step]
        for other in needs:
            related = {step} | graph.ancestors[step] | graph.descendants[step]
            assert graph.are_parallel(step, other) == (other not in related or other == step)

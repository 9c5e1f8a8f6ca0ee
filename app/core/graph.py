"""The order of a definition's steps: which wait for which, as their ``needs`` say."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from app.core.identity import StepId


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps and what they wait for, without cycles.

    Attributes:
        order: all steps, each after those that it needs; otherwise as in the file.
        ancestors: for each step, all that are done before it begins.
        descendants: for each step, all that begin only once it is done.
    """

    order: tuple[StepId, ...]
    ancestors: Mapping[StepId, frozenset[StepId]]
    descendants: Mapping[StepId, frozenset[StepId]]

    @classmethod
    def of(cls, needs: Mapping[StepId, Sequence[StepId]]) -> "Graph":
        """The graph of steps, in the order of the file, and of what each needs.

        Raises:
            ValueError: they wait for one another in a circle; see ``find_cycles``.
        """
        order = _sorted(needs)
        ancestors: dict[StepId, frozenset[StepId]] = {}
        for step in order:
            direct = frozenset(needs[step])
            ancestors[step] = direct.union(*(ancestors[each] for each in direct))
        descendants = {
            step: frozenset(each for each in order if step in ancestors[each]) for step in order
        }
        return cls(order, ancestors, descendants)

    def are_parallel(self, step: StepId, other: StepId) -> bool:
        """Whether neither of two steps waits for the other."""
        return other not in self.ancestors[step] and step not in self.ancestors[other]


def find_cycles(needs: Mapping[StepId, Iterable[StepId]]) -> Iterator[list[StepId]]:
    """Circles of steps that wait for one another, the first again at the end; none if none do.

    Each step needs the next. Of circles that share steps not every one is found, but without one of
    the needs of each that is, there are none. The search is depth first, and linear: a step met
    again while it is still being followed closes a circle.

    Args:
        needs: for each step, those that it waits for; all of them are steps.
    """
    finished: set[StepId] = set()
    for start in needs:
        if start in finished:
            continue
        trail, ahead = {start: 0}, [iter(needs[start])]
        while ahead:
            step = next(ahead[-1], None)
            if step is None:
                ahead.pop()
                finished.add(trail.popitem()[0])
            elif step in trail:
                yield [*list(trail)[trail[step] :], step]
            elif step not in finished:
                trail[step] = len(trail)
                ahead.append(iter(needs[step]))


def _sorted(needs: Mapping[StepId, Sequence[StepId]]) -> tuple[StepId, ...]:
    """Like ``TopologicalSorter``, but of the steps that may come next always the file's first."""
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    place = {step: index for index, step in enumerate(needs)}
    ready: list[StepId] = []
    order: list[StepId] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()], key=lambda step: place[step])
        step, *ready = ready
        order.append(step)
        sorter.done(step)
    return tuple(order)

"""The order of a document's steps: their ids, what each ``needs``, and the point of no return.

It is read before the steps themselves, for what a step may refer to depends on all of them.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.faults import Faults, did_you_mean, listed, shown
from app.core.graph import Graph, find_cycles
from app.core.identity import StepId
from app.core.language.fields import Field
from app.core.language.shapes import Fields

_NAMED_MAX = 20  # A longer circle is not read to its end.
_STAND_IN = "\0"  # Ends what stands for an id; a sound document holds none.


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which steps there are, and which wait for which.

    Attributes:
        ids: one for each step, in the order of the file. Where a step has no id, or that of another
            one, a stand-in that no document can name.
        needs: for each of them, those that it waits for.
        graph: None where something is wrong with the needs, so that it cannot be told.
    """

    ids: tuple[StepId, ...]
    needs: Mapping[StepId, tuple[StepId, ...]]
    graph: Graph | None

    @property
    def named(self) -> list[StepId]:
        """The steps that a document can name, in the order of the file."""
        return [step for step in self.ids if not step.endswith(_STAND_IN)]

    def before(self, step: StepId) -> frozenset[StepId]:
        """The steps that are done before one begins; all others, where it cannot be told."""
        if self.graph is None:
            return frozenset(self.ids) - {step}
        return self.graph.ancestors[step]

    def comes_after(self, step: StepId, other: StepId) -> bool:
        """Whether a step begins only once another one is done, as far as it can be told."""
        return self.graph is not None and step in self.graph.descendants[other]


def read_order(steps: Sequence[Fields | None], faults: Faults) -> Order:
    """Read the order of the steps.

    Args:
        steps: in the order of the file; None for what is no step.
        faults: of the document.
    """
    ids = _find_ids(steps)
    places = {step: index for index, step in enumerate(ids)}
    needs: dict[StepId, tuple[StepId, ...]] = {}
    is_sound = True
    for step, before, fields in zip(ids, [None, *ids], steps, strict=False):
        if fields is None or not fields.find("needs").is_given:
            needs[step] = () if before is None else (before,)
            continue
        needs[step] = _read_needs(step, fields, places)
        is_sound = is_sound and list(needs[step]) == fields.find("needs").value
    has_cycles = _tell_cycles(steps, places, needs, faults)
    order = Order(
        ids=ids, needs=needs, graph=Graph.of(needs) if is_sound and not has_cycles else None
    )
    _check_pivot(steps, order)
    return order


def _find_ids(steps: Sequence[Fields | None]) -> tuple[StepId, ...]:
    """The ids as they are given, valid or not: so that what refers to one is not wrong, too."""
    ids: dict[StepId, None] = {}
    for index, fields in enumerate(steps):
        given = None if fields is None else fields.find("id").value
        if not isinstance(given, str) or given in ids:
            given = f"steps[{index}]{_STAND_IN}"
        ids[StepId(given)] = None
    return tuple(ids)


def _read_needs(step: StepId, fields: Fields, places: Mapping[StepId, int]) -> tuple[StepId, ...]:
    """The steps that one says it needs, without those that are wrong."""
    needs: dict[StepId, None] = {}
    others = [each for each in places if each != step and not each.endswith(_STAND_IN)]
    accepted = f"the id of another step: {listed(others)}"
    for item in fields.items("needs"):
        needed = item.value
        if item.faults.is_full:
            item.faults.count()
        elif not isinstance(needed, str):
            item.fault(f"{shown(needed)} is not text", accepted=accepted)
        elif needed == step:
            item.fault(f"the step {step!r} cannot wait for itself", accepted=accepted)
        elif needed not in places:
            message = f"no step has the id {shown(needed)}{did_you_mean(needed, others)}"
            item.fault(message, accepted=accepted)
        elif needed in needs:
            item.fault(f"{needed!r} is here twice", accepted="each step once")
        else:
            needs[StepId(needed)] = None
    return tuple(needs)


def _tell_cycles(
    steps: Sequence[Fields | None],
    places: Mapping[StepId, int],
    needs: Mapping[StepId, Sequence[StepId]],
    faults: Faults,
) -> bool:
    """Note each circle where a step of it needs one that comes later in the file."""
    has_cycles = False
    for cycle in find_cycles(needs):
        has_cycles = True
        if faults.is_full:
            faults.count()
            break
        circle = cycle[:-1]
        pairs = zip(circle, cycle[1:], strict=True)
        at = next(i for i, (step, needed) in enumerate(pairs) if places[step] < places[needed])
        step, needed, *rest = [*circle[at:], *circle[:at], circle[at]]
        fields = steps[places[step]]
        assert fields is not None, "what is no step needs only the one before it"
        item = _find_item(fields.find("needs"), needed)
        way = " which needs ".join(_named([needed, *rest]))
        item.fault(
            f"steps wait for one another: {_shown(step)} needs {way}",
            accepted="needs that lead back to no step",
        )
    return has_cycles


def _find_item(at: Field, needed: StepId) -> Field:
    assert isinstance(at.value, list), "a step that needs a later one says so"
    return at.child(at.value.index(needed), needed)


def _named(steps: Sequence[StepId]) -> list[str]:
    few = [_shown(step) for step in itertools.islice(steps, _NAMED_MAX)]
    return few if len(few) == len(steps) else [*few[:-1], "...", _shown(steps[-1])]


def _shown(step: StepId) -> str:
    return step.removesuffix(_STAND_IN) if step.endswith(_STAND_IN) else repr(step)


def _check_pivot(steps: Sequence[Fields | None], order: Order) -> None:
    """At most one step is the pivot, and all others lie before or after it."""
    pivots = [
        (step, fields.find("pivot"))
        for step, fields in zip(order.ids, steps, strict=True)
        if fields is not None and fields.find("pivot").value is True
    ]
    for _, at in pivots[1:]:
        at.fault(f"{pivots[0][0]!r} is the pivot already", accepted="one pivot, or none")
    for pivot, at in pivots[:1]:
        _check_sides(pivot, at, order)


def _check_sides(pivot: StepId, at: Field, order: Order) -> None:
    if order.graph is None:
        return
    beside = [step for step in order.ids if step != pivot and order.graph.are_parallel(step, pivot)]
    if beside:
        message = f"neither before nor after the pivot {pivot!r} lie: {listed(map(_shown, beside))}"
        accepted = "'needs' that put every other step before the pivot or after it"
        at.fault(message, accepted=accepted)

"""What an expression may refer to, by the place where it stands.

Each place has its roots, and the steps that have surely run by then: those that lie before it in
the graph, and where a call is undone or asked about, its own step too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from app.core.faults import listed
from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.language.order import Order

STEP_MEMBERS = ("output", "effect")

ROOT_MEMBERS: Mapping[str, Sequence[str]] = {
    "saga": ("id", "business_key"),
    "action": ("output", "accepted", "effect", "key", "request"),
    "compensation": ("key", "request"),
    "failure": ("cause", "step", "code", "message", "http_status"),
    "callback": ("url",),
    "response": ("status", "body"),
}
"""What each root holds, where that is fixed; see ``rendering``."""

STATE_ROOTS = frozenset({"input", "steps", "saga", "vars"})
"""Of ``when``, ``default``, and the output of the saga."""

ACTION_ROOTS = STATE_ROOTS | {"key", "secrets"}

UNDO_ROOTS = ACTION_ROOTS | {"action", "failure"}
"""Of a compensation, and of the verify of an action."""

ANSWER_ROOTS = frozenset({"response"})
"""Of ``responses``: what an answer means depends on nothing else."""

_ONLY: Mapping[str, str] = {
    "key": "only a call that is sent has one",
    "action": "only a compensation and a verify see it",
    "failure": "only a compensation and a verify see it",
    "compensation": "only the verify of a compensation sees it",
    "response": "only what judges an answer sees it: 'responses', and 'done', 'none' and 'output' "
    "of a verify",
    "callback": "only a call with 'completion: {callback: {within: ...}}' has it",
    "secrets": "only a request that is sent may hold them",
    **dict.fromkeys(STATE_ROOTS, "a rule for answers sees the answer alone"),
}
ALL_ROOTS = frozenset(_ONLY)
"""Of all places together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an expression stands.

    Attributes:
        roots: what it may begin with.
        order: of the steps.
        visible: the steps that it may refer to.
        here: the step that it belongs to; None for the output of the saga.
        is_acknowledged: whether the action of that step has ``accepted``.
        input_schema: as in the document.
    """

    roots: frozenset[str]
    order: Order
    visible: frozenset[StepId]
    here: StepId | None
    is_acknowledged: bool
    input_schema: JsonValue

    def seeing(self, *roots: str) -> "Place":
        """The same place with further roots."""
        return replace(self, roots=self.roots | set(roots))

    @property
    def of_its_answer(self) -> "Place":
        """The same place for what judges the answer: that holds no secrets."""
        return replace(self, roots=(self.roots - {"secrets"}) | ANSWER_ROOTS)

    @property
    def of_answers(self) -> "Place":
        """The same place for a rule that sees an answer and nothing else."""
        return replace(self, roots=ANSWER_ROOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The places of a document."""

    order: Order
    input_schema: JsonValue

    @property
    def output(self) -> Place:
        """The output of the saga."""
        return self._place(STATE_ROOTS, visible=frozenset(self.order.ids), here=None)

    def before(self, step: StepId) -> Place:
        """What is rendered instead of a step: its ``when`` and its ``default``."""
        return self._place(STATE_ROOTS, visible=self.order.before(step), here=step)

    def call(self, step: StepId, direction: Direction, *, is_acknowledged: bool) -> Place:
        """One of a step's calls.

        Args:
            step: the step.
            direction: the call.
            is_acknowledged: whether the outcome of the step's action comes by callback.
        """
        before = self.order.before(step)
        match direction:
            case Direction.ACTION:
                roots, visible = ACTION_ROOTS, before
            case Direction.COMPENSATION | Direction.VERIFY:
                roots, visible = UNDO_ROOTS, before | {step}
            case Direction.COMPENSATION_VERIFY:
                roots, visible = UNDO_ROOTS | {"compensation"}, before | {step}
            case _:
                assert_never(direction)
        place = self._place(roots, visible=visible, here=step)
        return replace(place, is_acknowledged=is_acknowledged)

    def _place(
        self, roots: frozenset[str], *, visible: frozenset[StepId], here: StepId | None
    ) -> Place:
        return Place(
            roots=roots,
            order=self.order,
            visible=visible,
            here=here,
            is_acknowledged=False,
            input_schema=self.input_schema,
        )


def why_not(root: str, place: Place) -> tuple[str, str]:
    """Why a root that other places have is not known here, and what is."""
    accepted = f"an expression over {listed(sorted(place.roots))}"
    return f"there is no {root!r} here: {_ONLY[root]}", accepted

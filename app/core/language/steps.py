"""A step: from its fields to a ``Step``, or to all its faults."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.definition import Call, Step, Verify
from app.core.identity import Direction, StepId
from app.core.language.calls import ACTION, COMPENSATION, read_action, read_call
from app.core.language.kinds import AnyTemplate, Condition, Flag, Text
from app.core.language.limits import Limits
from app.core.language.places import Place, Places
from app.core.language.references import compile_condition, compile_field
from app.core.language.shapes import (
    Excluding,
    Fields,
    ListOf,
    Member,
    Needing,
    OneNeeded,
    Rule,
    Shape,
)
from app.core.language.verify import VERIFY, read_verify

STEPS_MAX = 500

_ID = Text(
    syntax=re.compile(r"[a-z][a-z0-9_]{0,63}"),
    accepted="at most 64 lower-case letters, digits and underscores, a letter first",
)
_OF_A_CALL = "belongs to a call: it stands within 'action' or 'compensation'"
_RULES: tuple[Rule, ...] = (
    OneNeeded(
        names=("compensation", "read_only", "irreversible"),
        at="compensation",
        message="'compensation' is missing",
        accepted="a call that undoes the action; or 'read_only: true' if there is nothing to undo, "
        "or 'irreversible: true' if it cannot be undone",
    ),
    Excluding(
        name="read_only",
        values=(True,),
        others=("irreversible", "compensation"),
        message="'read_only' and '{other}' exclude each other: there is nothing to undo",
        accepted="one of: compensation, read_only, irreversible",
    ),
    Excluding(
        name="irreversible",
        values=(True,),
        others=("compensation",),
        message="'irreversible' and 'compensation' exclude each other: it cannot be undone",
        accepted="one of: compensation, read_only, irreversible",
    ),
    Excluding(
        name="pivot",
        values=(True,),
        others=("optional",),
        message="'pivot' and 'optional' exclude each other: whether the saga can go back must not "
        "be left open",
        accepted="one of: pivot, optional",
    ),
    Needing(
        name="default",
        other="optional",
        message="'default' is for a step that the saga can go on without",
        accepted="'optional: true' on the step",
    ),
)

STEP = Shape(
    name="step",
    says="An action, the call that undoes it, and when it is its turn.",
    members={
        "id": Member(kind=_ID, says="Its name, unique in the definition.", is_required=True),
        "needs": Member(
            kind=ListOf(
                item=_ID, least=0, most=STEPS_MAX, accepted="a list of ids of steps; [] for none"
            ),
            says="The steps that it waits for. Left out: the one before it in the file. []: none.",
        ),
        "when": Member(
            kind=Condition(),
            says="The step is skipped where this is false; its output is then null. It may refer "
            "to input, vars, saga, and the steps before it.",
        ),
        "action": Member(
            kind=ACTION,
            says="What the step does.",
            is_required=True,
            accepted="a call, as {http: {method: ..., url: ...}}",
        ),
        "verify": Member(
            kind=VERIFY, says="Asked when it is unknown whether the action took effect."
        ),
        "compensation": Member(
            kind=COMPENSATION,
            says="What undoes the action. Required, unless the step is read_only or irreversible.",
        ),
        "read_only": Member(
            kind=Flag(), says="The action changes nothing: there is nothing to undo.", default=False
        ),
        "irreversible": Member(
            kind=Flag(),
            says="The action cannot be undone: after a rollback it is reported as residue.",
            default=False,
        ),
        "pivot": Member(
            kind=Flag(),
            says="The point of no return: once it is done, the saga only goes forward. Every other "
            "step lies before it or after it.",
            default=False,
        ),
        "optional": Member(
            kind=Flag(), says="If the step gives up, the saga goes on without it.", default=False
        ),
        "default": Member(
            kind=AnyTemplate(),
            says="The output of an optional step that gave up. Left out: null.",
        ),
    },
    refused=dict.fromkeys(
        (
            *("http", "python", "idempotent", "on_unknown", "completion", "responses"),
            *("timeout", "retry", "key_lifetime", "late_window"),
        ),
        _OF_A_CALL,
    ),
    rules=_RULES,
)

STEPS = ListOf(item=STEP, least=1, most=STEPS_MAX, accepted=f"a list of 1 to {STEPS_MAX} steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every step is read with.

    Attributes:
        limits: of calls that do not set their own.
        places: what expressions may refer to.
    """

    limits: Mapping[Direction, Limits]
    places: Places


def read_steps(steps: Sequence[Fields | None], around: Surroundings) -> tuple[Step, ...]:
    """Read the steps, without those that none could be made of.

    Args:
        steps: of shape ``STEP``, in the order of the file; None for what is none.
        around: what they are read with.
    """
    order = around.places.order
    read = [
        _read_step(step, fields, around)
        for step, fields in zip(order.ids, steps, strict=True)
        if fields is not None
    ]
    return tuple(step for step in read if step is not None)


def _read_step(step: StepId, fields: Fields, around: Surroundings) -> Step | None:
    _check_id(step, fields, around)
    before = around.places.before(step)
    when = compile_condition(fields.find("when"), before)
    action = _read_action(step, fields, around)
    compensation = _read_compensation(step, fields, around)
    read_only, irreversible = fields.flag("read_only"), fields.flag("irreversible")
    pivot, optional = fields.flag("pivot"), fields.flag("optional")
    default = fields.find("default")
    otherwise = compile_field(default, before) if default.is_given else None
    if action is None:
        return None
    return Step(
        id=step,
        action=action,
        compensation=compensation,
        needs=around.places.order.needs[step],
        when=when,
        read_only=read_only,
        irreversible=irreversible,
        pivot=pivot,
        optional=optional,
        default=otherwise,
    )


def _read_action(step: StepId, fields: Fields, around: Surroundings) -> Call | None:
    verify = _read_verify(fields, _place(step, fields, Direction.VERIFY, around), around)
    action = fields.object("action")
    if action is None:
        return None
    return read_action(
        action,
        limits=around.limits[Direction.ACTION],
        place=_place(step, fields, Direction.ACTION, around),
        verify=verify,
        step=fields,
    )


def _read_compensation(step: StepId, fields: Fields, around: Surroundings) -> Call | None:
    compensation = fields.object("compensation")
    if compensation is None:
        return None
    asking = _place(step, fields, Direction.COMPENSATION_VERIFY, around)
    return read_call(
        compensation,
        limits=around.limits[Direction.COMPENSATION],
        place=_place(step, fields, Direction.COMPENSATION, around),
        verify=_read_verify(compensation, asking, around),
    )


def _read_verify(fields: Fields, place: Place, around: Surroundings) -> Verify | None:
    """The ``verify`` among the fields of a step, or of a compensation."""
    verify = fields.object("verify")
    if verify is None:
        return None
    return read_verify(verify, limits=around.limits[Direction.ACTION], place=place)


def _place(step: StepId, fields: Fields, direction: Direction, around: Surroundings) -> Place:
    action = fields.find("action").members
    return around.places.call(step, direction, is_acknowledged="completion" in action)


def _check_id(step: StepId, fields: Fields, around: Surroundings) -> None:
    at = fields.find("id")
    given = fields.text("id")
    if given and given != step:
        first = around.places.order.ids.index(StepId(given))
        message = f"{given!r} is the id of steps[{first}] already"
        at.fault(message, accepted="an id that no other step has")

"""What an object may hold: its fields, which of them go together, and reading it by that.

A shape is a fact, like the kinds of its fields: documents are read by it (``read_fields``), and it
is told to editors (``schema``). So the two cannot differ.
"""

import dataclasses
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from app.core.faults import child_path, did_you_mean, listed, shown
from app.core.json_value import JsonValue
from app.core.language.fields import Field
from app.core.language.kinds import (
    Choice,
    Duration,
    Expression,
    Flag,
    Number,
    Simple,
    Text,
    Whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list of objects, or of words.

    Attributes:
        item: what each of them is.
        least: so many of them at least.
        most: and at most.
        accepted: as in ``Fault``.
    """

    item: "Shape | Text"
    least: int
    most: int
    accepted: str

    def read(self, at: Field) -> list[Field]:
        """The items, not more than ``most``; none if it is no list."""
        if not isinstance(at.value, list):
            if at.is_given:
                at.fault(f"{shown(at.value)} is not a list", accepted=self.accepted)
            return []
        if not self.least <= len(at.value) <= self.most:
            at.fault(f"the list has {len(at.value)} items", accepted=self.accepted)
        return at.items[: self.most]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A field of an object.

    Attributes:
        kind: what it holds.
        says: what it means, for people who write one.
        is_required: whether it must be given.
        accepted: where it is missing, what would be right; None for what the kind accepts.
        default: what holds where it is not given, as one would write it; for people.
    """

    kind: "Simple | Expression | ListOf | Shape"
    says: str
    is_required: bool = False
    accepted: str | None = None
    default: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OneNeeded:
    """At least one of these must be given; where they are flags, be true.

    Attributes:
        names: of the fields.
        at: where it is a fault: one of them, or None for the object.
        message: of the fault.
        accepted: of the fault.
        or_refused: names that are refused anyway: where one of them is given, that is told already.
    """

    names: tuple[str, ...]
    at: str | None
    message: str
    accepted: str
    or_refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluding:
    """Where one field is given, others may not be; a flag that is false is as good as not given.

    Attributes:
        name: of that field.
        values: only where it holds one of these; None for whatever it holds.
        others: each is a fault.
        message: of the fault; ``{name}``, ``{value}`` and ``{other}`` are filled in.
        accepted: of the fault.
    """

    name: str
    values: tuple[JsonValue, ...] | None
    others: tuple[str, ...]
    message: str
    accepted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Needing:
    """Where one field is given, another must be.

    Attributes:
        name: of the one; it is the fault.
        other: of the other, a flag.
        message: of the fault.
        accepted: of the fault.
    """

    name: str
    other: str
    message: str
    accepted: str


type Rule = OneNeeded | Excluding | Needing


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """An object of named fields.

    Attributes:
        name: what editors call it.
        says: what it is, for people who write one.
        members: its fields, by name.
        refused: names that would be asked for, each with why it is not accepted.
        rules: which of its fields go together.
    """

    name: str
    says: str
    members: Mapping[str, Member]
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    @property
    def accepted(self) -> str:
        """As in ``Fault``."""
        return f"the fields {listed(self.members)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """An object whose fields are known by name."""

    at: Field
    shape: Shape
    known: Mapping[str, Field]

    def find(self, name: str) -> Field:
        """The field of that name, given or not."""
        assert name in self.shape.members, (self.shape.name, name)
        known = self.known.get(name)
        if known is not None:
            return known
        path = child_path(self.at.path, name)
        return Field(value=None, path=path, faults=self.at.faults, is_given=False)

    def kind[Kind](self, name: str, kind: type[Kind]) -> Kind:
        """What the shape says of that field; the caller knows which sort of kind it is."""
        found = self.shape.members[name].kind
        assert isinstance(found, kind), (self.shape.name, name, kind)
        return found

    def text(self, name: str) -> str:
        """Text; none is empty."""
        return self.kind(name, Text).read(self.find(name), fallback="")

    def choice(self, name: str) -> str:
        """A word; none is empty."""
        return self.kind(name, Choice).read(self.find(name), fallback="")

    def flag(self, name: str) -> bool:
        """Whether it says ``true``."""
        return self.kind(name, Flag).read(self.find(name))

    def whole[Fallback: int | None](self, name: str, *, fallback: Fallback) -> int | Fallback:
        """A whole number."""
        return self.kind(name, Whole).read(self.find(name), fallback=fallback)

    def number(self, name: str, *, fallback: float) -> float:
        """A number."""
        return self.kind(name, Number).read(self.find(name), fallback=fallback)

    def duration[Fallback: dt.timedelta | None](
        self, name: str, *, fallback: Fallback
    ) -> dt.timedelta | Fallback:
        """A duration."""
        return self.kind(name, Duration).read(self.find(name), fallback=fallback)

    def items(self, name: str) -> list[Field]:
        """The items of a list."""
        return self.kind(name, ListOf).read(self.find(name))

    def objects(self, name: str) -> list["Fields | None"]:
        """The items of a list of objects, in its order; None for each that is no object."""
        item = self.kind(name, ListOf).item
        assert isinstance(item, Shape), (self.shape.name, name)
        return [read_fields(each, item) for each in self.items(name)]

    def object(self, name: str) -> "Fields | None":
        """An object within this one; None if it is not given, or no object."""
        return read_fields(self.find(name), self.kind(name, Shape))


def read_fields(at: Field, shape: Shape) -> Fields | None:
    """Read an object; None if it is not given, or no object."""
    if not isinstance(at.value, dict):
        if at.is_given:
            at.fault(
                f"{shown(at.value)} is not an object", accepted=f"an object with {shape.accepted}"
            )
        return None
    given = at.members
    for name, field in given.items():
        if name not in shape.members:
            _refuse(name, field, shape)
    known = {name: given[name] for name in shape.members if name in given}
    fields = Fields(at=at, shape=shape, known=known)
    for name, member in shape.members.items():
        if member.is_required and name not in known:
            accepted = member.kind.accepted if member.accepted is None else member.accepted
            fields.find(name).fault(f"{name!r} is missing", accepted=accepted)
    for rule in shape.rules:
        _check(rule, fields)
    return fields


def _refuse(name: str, at: Field, shape: Shape) -> None:
    if name in shape.refused:
        at.fault(f"{name!r} {shape.refused[name]}", accepted=shape.accepted)
    elif at.faults.is_full:
        at.faults.count()
    else:
        message = f"{shown(name)} is no field here{did_you_mean(name, shape.members)}"
        at.fault(message, accepted=shape.accepted)


def _check(rule: Rule, fields: Fields) -> None:
    match rule:
        case OneNeeded():
            given = fields.at.members
            if not any(_is_said(fields, name) for name in rule.names) and given.keys().isdisjoint(
                rule.or_refused
            ):
                at = fields.at if rule.at is None else fields.find(rule.at)
                at.fault(rule.message, accepted=rule.accepted)
        case Excluding():
            first = fields.find(rule.name)
            # By type, too: in Python, 1 is True.
            is_meant = rule.values is None or any(
                type(first.value) is type(value) and first.value == value for value in rule.values
            )
            if not first.is_given or not is_meant:
                return
            for name in rule.others:
                if _is_said(fields, name):
                    message = rule.message.format(name=rule.name, value=first.value, other=name)
                    fields.find(name).fault(message, accepted=rule.accepted)
        case Needing():
            if fields.find(rule.name).is_given and not _is_said(fields, rule.other):
                fields.find(rule.name).fault(rule.message, accepted=rule.accepted)


def _is_said(fields: Fields, name: str) -> bool:
    """Whether a field is given; a flag that is false is not, a faulty one is."""
    at = fields.find(name)
    is_flag = isinstance(fields.shape.members[name].kind, Flag)
    return at.is_given and not (is_flag and at.value is False)

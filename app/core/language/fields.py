"""One field of a document: its type, its limits, and what to say where it is wrong.

Every reader returns a value in any case. A field that is not given reads as ``fallback``; so does a
faulty one, after it was noted, so that reading goes on and finds the other faults. The caller drops
the result if there are any.
"""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.faults import Faults, child_path, did_you_mean, listed, shown
from app.core.json_value import JsonValue
from app.core.language.durations import DURATION_MAX, EXAMPLES, format_duration, parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A value, where it stands, and where its faults go.

    Attributes:
        value: None also where it is not given.
        path: as in ``Fault``.
        faults: of the whole document.
        is_given: whether the document has this field.
    """

    value: JsonValue
    path: str
    faults: Faults
    is_given: bool = True

    def fault(self, message: str, *, accepted: str) -> None:
        """Note a fault of this field."""
        self.faults.add(self.path, message, accepted=accepted)

    def child(self, name: str | int, value: JsonValue) -> "Field":
        """What stands within this field."""
        return Field(value=value, path=child_path(self.path, name), faults=self.faults)

    def text(
        self,
        *,
        fallback: str,
        syntax: re.Pattern[str] | None = None,
        accepted: str = "text, in quotes if need be",
    ) -> str:
        """Text, of a given syntax if there is one; then ``accepted`` says which."""
        value = self.value
        if not isinstance(value, str):
            if self.is_given:
                self.fault(f"{shown(value)} is not text", accepted=accepted)
            return fallback
        if syntax is not None and syntax.fullmatch(value) is None:
            self.fault(f"{shown(value)} is not accepted here", accepted=accepted)
            return fallback
        return value

    def choice(self, options: Sequence[str], *, fallback: str) -> str:
        """One of ``options``."""
        value = self.value
        if isinstance(value, str) and value in options:
            return value
        if self.is_given:
            hint = did_you_mean(value, options) if isinstance(value, str) else ""
            message = f"{shown(value)} is not accepted here{hint}"
            self.fault(message, accepted=f"one of: {listed(options)}")
        return fallback

    def flag(self, *, fallback: bool) -> bool:
        """``true`` or ``false``."""
        if isinstance(self.value, bool):
            return self.value
        if self.is_given:
            message = f"{shown(self.value)} is neither true nor false"
            self.fault(message, accepted="true or false")
        return fallback

    def whole(self, *, least: int, most: int, fallback: int) -> int:
        """A whole number within limits."""
        value = self.value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        if self.is_given:
            accepted = f"a whole number from {least} to {most}"
            self.fault(f"{shown(value)} is not {accepted}", accepted=accepted)
        return fallback

    def number(self, *, least: float, fallback: float) -> float:
        """A number; finite, as all numbers of a sound document are."""
        value = self.value
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= least:
            return float(value)
        if self.is_given:
            accepted = f"a number of at least {least:g}"
            self.fault(f"{shown(value)} is not {accepted}", accepted=accepted)
        return fallback

    def duration[Fallback: dt.timedelta | None](
        self,
        *,
        fallback: Fallback,
        most: dt.timedelta = DURATION_MAX,
        may_be_zero: bool = True,
    ) -> dt.timedelta | Fallback:
        """A duration within limits."""
        if not self.is_given:
            return fallback
        value = self.value
        read = parse_duration(value) if isinstance(value, str) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            wrong = "is a number without a unit"
        elif read is None:
            wrong = "is not a duration"
        elif read > most:
            wrong = "is too long"
        elif not read and not may_be_zero:
            wrong = "is too short"
        else:
            return read
        limits = f"{'' if may_be_zero else 'more than 0s and '}at most {format_duration(most)}"
        self.fault(f"{shown(value)} {wrong}", accepted=f"a duration like {EXAMPLES}; {limits}")
        return fallback

    def items(self, *, most: int, accepted: str) -> list["Field"]:
        """The items of a list that is not empty; none if it is no such list."""
        if not isinstance(self.value, list):
            if self.is_given:
                self.fault(f"{shown(self.value)} is not a list", accepted=accepted)
            return []
        if not 0 < len(self.value) <= most:
            self.fault(f"the list has {len(self.value)} items", accepted=accepted)
        return [self.child(index, value) for index, value in enumerate(self.value[:most])]

    def members(self, *, accepted: str) -> dict[str, "Field"] | None:
        """The fields of an object; None if it is none."""
        if isinstance(self.value, dict):
            return {name: self.child(name, value) for name, value in self.value.items()}
        if self.is_given:
            self.fault(f"{shown(self.value)} is not an object", accepted=accepted)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """An object whose fields are known by name."""

    at: Field
    known: Mapping[str, Field]

    def find(self, name: str) -> Field:
        """The field of that name, given or not."""
        known = self.known.get(name)
        if known is not None:
            return known
        path = child_path(self.at.path, name)
        return Field(value=None, path=path, faults=self.at.faults, is_given=False)

    def require(self, name: str, *, accepted: str) -> Field:
        """The same; it is a fault if it is not given."""
        field = self.find(name)
        if not field.is_given:
            field.fault(f"{name!r} is missing", accepted=accepted)
        return field


def read_fields(
    at: Field, accepted: Sequence[str], *, refused: Mapping[str, str] | None = None
) -> Fields | None:
    """Read an object that may have ``accepted`` fields and no other; None if it is no object.

    Args:
        at: where the object should be.
        accepted: the names of its fields.
        refused: names that would be asked for, each with why it is not accepted.
    """
    names = f"the fields {listed(accepted)}"
    members = at.members(accepted=f"an object with {names}")
    if members is None:
        return None
    for name, member in members.items():
        if name in accepted:
            continue
        if refused is not None and name in refused:
            member.fault(f"{name!r} {refused[name]}", accepted=names)
        elif member.faults.is_full:
            member.faults.count()
        else:
            message = f"{shown(name)} is no field here{did_you_mean(name, accepted)}"
            member.fault(message, accepted=names)
    return Fields(at=at, known={name: members[name] for name in accepted if name in members})

"""What a field may hold: its type and limits, and what to say where a document is wrong.

A kind is a fact with two uses: ``read`` checks a value by it, and ``schema`` tells it to editors.
Whatever is wrong, ``read`` returns a value. A field that is not given reads as ``fallback``; so
does a faulty one, after it was noted, so that reading goes on and finds the other faults. The
caller drops the result if there are any.
"""

import datetime as dt
import re
from dataclasses import dataclass

from app.core.faults import did_you_mean, listed, shown
from app.core.language.durations import DURATION_MAX, EXAMPLES, format_duration, parse_duration
from app.core.language.fields import Field

TEXT_ACCEPTED = "text, in quotes if need be"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text; of a given syntax if there is one, and then ``accepted`` says which."""

    syntax: re.Pattern[str] | None = None
    accepted: str = TEXT_ACCEPTED

    def read(self, at: Field, *, fallback: str) -> str:
        """The text."""
        value = at.value
        if not isinstance(value, str):
            if at.is_given:
                at.fault(f"{shown(value)} is not text", accepted=self.accepted)
            return fallback
        if self.syntax is not None and self.syntax.fullmatch(value) is None:
            at.fault(f"{shown(value)} is not accepted here", accepted=self.accepted)
            return fallback
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several words."""

    options: tuple[str, ...]

    @property
    def accepted(self) -> str:
        """As in ``Fault``."""
        return f"one of: {listed(self.options)}"

    def read(self, at: Field, *, fallback: str) -> str:
        """The word."""
        value = at.value
        if isinstance(value, str) and value in self.options:
            return value
        if at.is_given:
            hint = did_you_mean(value, self.options) if isinstance(value, str) else ""
            at.fault(f"{shown(value)} is not accepted here{hint}", accepted=self.accepted)
        return fallback


@dataclass(frozen=True, slots=True)
class Flag:
    """``true`` or ``false``; the latter is the same as to leave it out."""

    accepted = "true or false"

    def read(self, at: Field) -> bool:
        """Whether it says ``true``."""
        if isinstance(at.value, bool):
            return at.value
        if at.is_given:
            at.fault(f"{shown(at.value)} is neither true nor false", accepted=self.accepted)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number."""

    least: int
    most: int

    @property
    def accepted(self) -> str:
        """As in ``Fault``."""
        return f"a whole number from {self.least} to {self.most}"

    def read[Fallback: int | None](self, at: Field, *, fallback: Fallback) -> int | Fallback:
        """The number."""
        value = at.value
        if type(value) is int and self.least <= value <= self.most:  # a bool is an int, too
            return value
        if at.is_given:
            at.fault(f"{shown(value)} is not {self.accepted}", accepted=self.accepted)
        return fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number; finite, as all numbers of a sound document are."""

    least: float

    @property
    def accepted(self) -> str:
        """As in ``Fault``."""
        return f"a number of at least {self.least:g}"

    def read(self, at: Field, *, fallback: float) -> float:
        """The number."""
        value = at.value
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= self.least:
            return float(value)
        if at.is_given:
            at.fault(f"{shown(value)} is not {self.accepted}", accepted=self.accepted)
        return fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A duration; see ``durations``."""

    most: dt.timedelta = DURATION_MAX
    may_be_zero: bool = True

    @property
    def accepted(self) -> str:
        """As in ``Fault``."""
        limits = f"{'' if self.may_be_zero else 'more than 0s and '}at most "
        return f"a duration like {EXAMPLES}; {limits}{format_duration(self.most)}"

    def read[Fallback: dt.timedelta | None](
        self, at: Field, *, fallback: Fallback
    ) -> dt.timedelta | Fallback:
        """The duration."""
        if not at.is_given:
            return fallback
        value = at.value
        read = parse_duration(value) if isinstance(value, str) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            wrong = "is a number without a unit"
        elif read is None:
            wrong = "is not a duration"
        elif read > self.most:
            wrong = "is too long"
        elif not read and not self.may_be_zero:
            wrong = "is too short"
        else:
            return read
        at.fault(f"{shown(value)} {wrong}", accepted=self.accepted)
        return fallback


@dataclass(frozen=True, slots=True)
class Version:
    """The version of this language."""

    number: int

    @property
    def accepted(self) -> str:
        """As in ``Fault``."""
        return f"{self.number}, the version of this language"

    def read(self, at: Field) -> None:
        """Only check it: there is no other."""
        if at.is_given and not (type(at.value) is int and at.value == self.number):
            message = f"{shown(at.value)} is no version of the language that this release knows"
            at.fault(message, accepted=self.accepted)


@dataclass(frozen=True, slots=True)
class InputSchema:
    """A JSON Schema; whether it is a valid one, the core cannot say."""

    accepted = "a JSON Schema (2020-12)"

    def read(self, at: Field) -> None:
        """Only check that it could be one."""
        if at.is_given and not isinstance(at.value, dict | bool):
            at.fault(f"{shown(at.value)} is no JSON Schema", accepted=self.accepted)


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """Text with expressions in it, sent as the very characters that its author sees."""

    accepted = TEXT_ACCEPTED


@dataclass(frozen=True, slots=True)
class AnyTemplate:
    """Any JSON, with expressions in its strings."""

    accepted = "any JSON"


@dataclass(frozen=True, slots=True)
class Condition:
    """One expression that is true or false."""

    accepted = 'one expression alone, as "${{ input.paid == true }}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """An object of names that its author chooses, each with a template.

    Attributes:
        value: what each of them is.
        noun: what a name is the name of.
        names: the syntax of a name.
        names_accepted: which that is, as in ``Fault``.
        most: so many of them.
        accepted: where it is no object.
    """

    value: TextTemplate | AnyTemplate
    noun: str
    names: re.Pattern[str]
    names_accepted: str
    most: int
    accepted: str

    def read(self, at: Field) -> dict[str, Field]:
        """The templates, not compiled yet, by name; none if it is no object."""
        if at.is_given and not isinstance(at.value, dict):
            at.fault(f"{shown(at.value)} is not an object", accepted=self.accepted)
        members = at.members
        if len(members) > self.most:
            message = f"there are {len(members)} {self.noun}s"
            at.fault(message, accepted=f"at most {self.most} {self.noun}s")
        for name, member in members.items():
            if self.names.fullmatch(name) is None:
                message = f"{shown(name)} is not a {self.noun} name"
                member.fault(message, accepted=self.names_accepted)
        return members


type Simple = Text | Choice | Flag | Whole | Number | Duration | Version | InputSchema
"""Kinds that a value is checked by on its own."""

type Expression = TextTemplate | AnyTemplate | Condition | Templates
"""Kinds that hold expressions; what those may refer to depends on their place (``references``)."""

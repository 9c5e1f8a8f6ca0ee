"""Reading JSON objects strictly: typed fields, and every complaint at once, each with its path."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from examples.world.records import JsonValue

FOREVER_SECONDS: Final = 86_400.0
"""The longest time that can be asked for, a day: more is a slip, and `asyncio` dislikes 1e300."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """Something wrong in a document: where, and what would be accepted."""

    path: str
    message: str


@dataclass(slots=True, kw_only=True)
class Fields:
    """One JSON object under reading.

    Each method takes a field by name and returns its value or the default; what is not as it
    should be is added to ``complaints``. ``finish`` complains about fields nobody asked for.
    """

    value: JsonValue
    path: str
    complaints: list[Complaint]
    _asked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Complain if it is no object; it is then read as an empty one."""
        if not isinstance(self.value, dict):
            self._complain(None, "expected an object")

    @property
    def _object(self) -> dict[str, JsonValue]:
        return self.value if isinstance(self.value, dict) else {}

    def _complain(self, name: str | None, message: str) -> None:
        path = self.path if name is None else f"{self.path}.{name}"
        self.complaints.append(Complaint(path=path, message=message))

    def has(self, name: str) -> bool:
        """Tell whether the field is there."""
        self._asked.add(name)
        return name in self._object

    def raw(self, name: str) -> JsonValue:
        """Return the field as it is, or null."""
        self._asked.add(name)
        return self._object.get(name)

    def inner(self, name: str) -> "Fields":
        """Return the object in the field, empty if the field is not there."""
        value = self.raw(name) if self.has(name) else {}
        return Fields(value=value, path=f"{self.path}.{name}", complaints=self.complaints)

    def text(self, name: str, *, among: Collection[str] = ()) -> str | None:
        """Return a string, one of ``among`` if that names any."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, str) and value and (not among or value in among):
            return value
        wanted = f"one of {', '.join(sorted(among))}" if among else "a string that is not empty"
        self._complain(name, f"expected {wanted}, not {value!r}")
        return None

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        if not self.has(name):
            return default
        value = self.raw(name)
        if isinstance(value, bool):
            return value
        self._complain(name, f"expected true or false, not {value!r}")
        return default

    def whole(self, name: str, *, least: int = 0, most: int = 2**53) -> int | None:
        """Return an integer from ``least`` to ``most``."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self._complain(name, f"expected a whole number from {least} to {most}, not {value!r}")
        return None

    def number(self, name: str, *, most: float) -> float | None:
        """Return a number from 0 to ``most``."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
            return float(value)
        self._complain(name, f"expected a number from 0 to {most:g}, not {value!r}")
        return None

    def seconds(self, name: str) -> float:
        """Return a number of seconds, 0 if the field is not there."""
        return self.number(name, most=FOREVER_SECONDS) or 0.0

    def finish(self) -> None:
        """Complain about every field that nobody asked for."""
        for name in self._object:
            if name not in self._asked:
                known = ", ".join(sorted(self._asked))
                self._complain(name, f"unknown field; known are {known}")

    def refuse(self, message: str) -> None:
        """Complain about the object as a whole."""
        self._complain(None, message)

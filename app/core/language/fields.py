"""One field of a document: its value, where it stands, and where its faults go."""

from dataclasses import dataclass

from app.core.faults import Faults, child_path
from app.core.json_value import JsonValue


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

    @property
    def items(self) -> list["Field"]:
        """The items of a list; none if it is no list."""
        value = self.value if isinstance(self.value, list) else []
        return [self.child(index, each) for index, each in enumerate(value)]

    @property
    def members(self) -> dict[str, "Field"]:
        """The fields of an object; none if it is no object."""
        value = self.value if isinstance(self.value, dict) else {}
        return {name: self.child(name, each) for name, each in value.items()}

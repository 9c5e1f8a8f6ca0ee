"""Definitions as they go over the wire."""

import datetime as dt
from collections.abc import Iterable
from typing import Self

from pydantic import Field

from app.core.errors import Fault
from app.schemas.shapes import (
    PAGE_ITEMS,
    PAGE_ITEMS_MAX,
    TEXT_CHARACTERS_MAX,
    AnyJson,
    QueryShape,
    Shape,
)


class FaultResponse(Shape):
    """One thing that is wrong, or that an author may want to know."""

    path: str = Field(description="Of the field, as `steps[0].action.http.url`; empty: the whole.")
    message: str
    accepted: str = Field(description="What would be right.")

    @classmethod
    def of(cls, faults: Iterable[Fault]) -> list[Self]:
        """Faults of the core, in their order."""
        return [
            cls(path=fault.path, message=fault.message, accepted=fault.accepted) for fault in faults
        ]


class PublishResponse(Shape):
    """What publishing came to."""

    name: str
    version: int
    created: bool = Field(description="False: the latest version has this very content.")
    warnings: list[FaultResponse]


class ValidateResponse(Shape):
    """A valid definition; there may still be something to know."""

    warnings: list[FaultResponse]


class VersionResponse(Shape):
    """One version of a definition."""

    version: int
    created_at: dt.datetime


class DefinitionResponse(Shape):
    """One version of a definition, and which others there are."""

    name: str
    version: int
    description: str
    document: AnyJson = Field(description="As it was published.")
    created_at: dt.datetime
    versions: list[int] = Field(description="All there are, newest first.")


class DefinitionSummary(Shape):
    """A definition in a list: its latest version."""

    name: str
    version: int
    description: str
    created_at: dt.datetime


class DefinitionPage(Shape):
    """Definitions by name."""

    items: list[DefinitionSummary]
    next_cursor: str | None = Field(description="For the next page; null on the last one.")


class VersionList(Shape):
    """The versions of a definition, newest first."""

    name: str
    items: list[VersionResponse]


class DefinitionQuery(QueryShape):
    """Which part of the list of definitions to show."""

    limit: int = Field(default=PAGE_ITEMS, ge=1, le=PAGE_ITEMS_MAX)
    cursor: str | None = Field(
        default=None, max_length=TEXT_CHARACTERS_MAX, description="`next_cursor` of a page before."
    )

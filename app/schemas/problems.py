"""Problem details (RFC 9457): every answer that is not a success, for people and programs."""

from typing import Literal

from pydantic import Field

from app.schemas.definitions import FaultResponse
from app.schemas.shapes import Shape

MEDIA_TYPE = "application/problem+json"


class Problem(Shape):
    """What went wrong. Members that say nothing are left out."""

    type: str = Field(
        description="A URN that names the kind of problem for ever.",
        examples=["urn:amends:problem:saga_not_found"],
    )
    title: str = Field(description="The kind in words.")
    status: int = Field(description="The HTTP status, once more.")
    detail: str = Field(description="This very case, and what to do. May change.")
    code: str = Field(description="The kind in a word that programs may rely on.")
    effect: Literal["none", "unknown"] = Field(
        description="Whether what was asked may have happened."
    )
    instance: str | None = Field(default=None, description="Names this very case, also in our log.")
    errors: list[FaultResponse] | None = Field(
        default=None, description="Every fault of the request, each with its path."
    )
    saga: str | None = Field(default=None, description="The id of the saga in question.")
    saga_status: str | None = Field(default=None, description="Where that saga stands.")
    possible_verbs: list[str] | None = Field(
        default=None, description="What it can be told instead."
    )
    retry_after_seconds: int | None = Field(
        default=None, description="When to ask again; also the header Retry-After."
    )

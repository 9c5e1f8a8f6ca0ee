"""What routes are given: the service's context, who asks, and the headers that several read."""

from typing import Annotated

from fastapi import Depends, Header, Path, Request

from app.api.headers import WAIT_SECONDS_MAX
from app.operations import Context


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _actor(request: Request) -> str:
    actor: str = request.state.actor
    return actor


ServiceContext = Annotated[Context, Depends(_context)]

Actor = Annotated[str, Depends(_actor)]
"""Who asks, as audits call them; see ``auth``."""

SagaPath = Annotated[str, Path(description="Of the saga.", json_schema_extra={"format": "uuid"})]
DefinitionPath = Annotated[str, Path(description="Of the definition.")]

Prefer = Annotated[
    list[str] | None,
    Header(
        alias="Prefer",
        description=(
            "`wait=20` holds the answer until the saga is at rest, for at most so many seconds "
            f"({WAIT_SECONDS_MAX} at the most; RFC 7240)."
        ),
        examples=["wait=20"],
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x20-\x7e]*$",
        description=(
            "Names this request for ever: sent again with the same body, it starts nothing and "
            "answers with the same saga. Printable ASCII; a UUID will do."
        ),
    ),
]
IfNoneMatch = Annotated[
    list[str] | None,
    Header(alias="If-None-Match", description="The ETag of what is known already: 304 if so."),
]

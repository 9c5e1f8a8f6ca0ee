"""What a route finds around its request: the service's context, who asks, and path parameters.

None of it goes through FastAPI's dependencies: they cost more than the rest of a route together, at
every request.
"""

from typing import Annotated

from fastapi import Path, Request

from app.operations import Context

SagaPath = Annotated[str, Path(description="Of the saga.", json_schema_extra={"format": "uuid"})]
StepPath = Annotated[str, Path(description="Id of the step.")]
DefinitionPath = Annotated[str, Path(description="Of the definition.")]
VersionPath = Annotated[
    str, Path(description="From 1.", json_schema_extra={"pattern": "^[1-9][0-9]*$"})
]


def context_of(request: Request) -> Context:
    """As whom, and on what, operations run."""
    context: Context = request.app.state.context
    return context


def actor_of(request: Request) -> str:
    """Who asks, as audits call them; see ``auth``."""
    actor: str = request.state.actor
    return actor

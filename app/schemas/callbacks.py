"""What tools report by webhook."""

from pydantic import Field

from app.core.entries import Reception
from app.core.saga import CallbackOutcome, Effect
from app.schemas.shapes import AnyJson, RequestShape, Shape


class CallbackRequest(RequestShape):
    """How a call that was acknowledged has gone on."""

    outcome: CallbackOutcome = Field(strict=False)
    output: AnyJson = Field(default=None, description="Of a success: what the call returned.")
    error: AnyJson = Field(default=None, description="Of a failure: what went wrong.")
    effect: Effect | None = Field(
        default=None,
        strict=False,
        description="Of a failure: what exists all the same. Without it: nothing.",
    )
    progress: AnyJson = Field(default=None, description="Of work that goes on; shown in the saga.")


class CallbackResponse(Shape):
    """What became of a report."""

    reception: Reception

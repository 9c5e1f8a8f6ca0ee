"""Callbacks: where tools report how a call that they had acknowledged has gone on."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from app.api.bodies import read_body
from app.api.documentation import describe_body, problem_responses
from app.api.replies import reply
from app.api.surroundings import context_of
from app.core.entries import Reception
from app.operations import Report, authorize_callback, receive_callback as receive
from app.schemas.callbacks import CallbackRequest, CallbackResponse

router = APIRouter(prefix="/v1/callbacks", tags=["callbacks"])


@router.post(
    "/{token}",
    operation_id="receive_callback",
    summary="Report the outcome of a call",
    response_model=CallbackResponse,
    responses={
        200: {"description": "It is stored; or it was, when the same was reported before."},
        202: {"model": CallbackResponse, "description": "It comes late, and is kept as evidence."},
        **problem_responses(400, 404, 409, 413, 415, 422),
    },
    openapi_extra=describe_body(CallbackRequest),
)
async def receive_callback(
    request: Request, token: Annotated[str, Path(description="From `Amends-Callback-Url`.")]
) -> Response:
    """The token alone authorizes it: no key is asked for. The same may be sent again at any time.

    A report that contradicts an earlier one is answered with 409, and kept as evidence all the
    same: it need not be sent again.
    """
    context = context_of(request)
    address = authorize_callback(context, token)  # a stranger's body is not parsed
    body = await read_body(request, CallbackRequest)
    report = Report(
        outcome=body.outcome,
        output=body.output,
        error=body.error,
        effect=body.effect,
        progress=body.progress,
    )
    reception = await receive(context, address, report)
    status = 202 if reception is Reception.LATE else 200
    return reply(CallbackResponse(reception=reception), status=status)

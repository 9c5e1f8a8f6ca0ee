"""What a saga can be told, and what undoing it would do.

Every verb wants a reason, is kept in the journal with who asked, and answers 202 with the saga. One
that asks for what is so already changes nothing. One that the saga does not allow now is refused
with 409, which says what it does allow.
"""

from typing import Any

from fastapi import APIRouter, Request, Response

from app.api.bodies import read_body
from app.api.documentation import SAGA_HEADERS, describe_body, problem_responses
from app.api.identifiers import saga_id_of, step_id_of
from app.api.replies import reply, reply_saga
from app.api.surroundings import SagaPath, StepPath, actor_of, context_of
from app.core.events import (
    CancelRequested,
    PauseRequested,
    ResolveRequested,
    ResumeRequested,
    RetryRequested,
    SagaVerb,
    SkipRequested,
    TerminateRequested,
)
from app.core.saga import Effect
from app.operations import get_rollback_plan as plan, tell_saga, undo_step
from app.schemas.sagas import SagaResponse
from app.schemas.verbs import ResolveRequest, RollbackPlanResponse, VerbRequest

router = APIRouter(prefix="/v1/sagas", tags=["verbs"])


def _verb(description: str, shape: type[VerbRequest | ResolveRequest] = VerbRequest) -> Any:  # noqa: ANN401 - FastAPI's
    """What all verbs have in common, as keyword arguments of a route."""
    return {
        "status_code": 202,
        "response_model": SagaResponse,
        "responses": {
            202: {"description": description, "headers": SAGA_HEADERS},
            **problem_responses(400, 404, 409, 413, 415, 422),
        },
        "openapi_extra": describe_body(shape),
    }


async def _reason(request: Request) -> dict[str, str]:
    """Who asks, and why."""
    reason = (await read_body(request, VerbRequest)).reason
    return {"actor": actor_of(request), "reason": reason}


async def _tell(request: Request, saga_id: str, verb: SagaVerb) -> Response:
    detail = await tell_saga(context_of(request), saga_id_of(saga_id), verb)
    return reply_saga(detail, status=202)


@router.post(
    "/{saga_id}/cancel",
    operation_id="cancel_saga",
    summary="Undo a saga",
    **_verb("It will be undone, or is already."),
)
async def cancel_saga(request: Request, saga_id: SagaPath) -> Response:
    """No further step is begun; what may have happened is undone, in reverse. Lifts a pause.

    While the outcome of the point of no return is open, the wish waits for it: `pending`.
    """
    return await _tell(request, saga_id, CancelRequested(**await _reason(request)))


@router.post(
    "/{saga_id}/terminate",
    operation_id="terminate_saga",
    summary="End a saga as it is, without undo",
    **_verb("It ends once the calls that are out have."),
)
async def terminate_saga(request: Request, saga_id: SagaPath) -> Response:
    """No new call is made, in either direction; what is live is listed as residue."""
    return await _tell(request, saga_id, TerminateRequested(**await _reason(request)))


@router.post(
    "/{saga_id}/pause",
    operation_id="pause_saga",
    summary="Make no new call",
    **_verb("It begins nothing more; calls that are out are followed to their end."),
)
async def pause_saga(request: Request, saga_id: SagaPath) -> Response:
    """A deadline that passes meanwhile takes effect on resume."""
    return await _tell(request, saga_id, PauseRequested(**await _reason(request)))


@router.post(
    "/{saga_id}/resume",
    operation_id="resume_saga",
    summary="Let a paused saga go on",
    **_verb("It goes on."),
)
async def resume_saga(request: Request, saga_id: SagaPath) -> Response:
    """Where it was paused, in the direction in which it went."""
    return await _tell(request, saga_id, ResumeRequested(**await _reason(request)))


@router.post(
    "/{saga_id}/retry",
    operation_id="retry_saga",
    summary="Let a stuck saga go on",
    **_verb("It goes on, with fresh attempts."),
)
async def retry_saga(request: Request, saga_id: SagaPath) -> Response:
    """For when a person has mended what it was stuck at."""
    return await _tell(request, saga_id, RetryRequested(**await _reason(request)))


@router.post(
    "/{saga_id}/steps/{step_id}/resolve",
    operation_id="resolve_step",
    summary="Say what became of a step",
    **_verb("It is believed, and the saga goes on.", ResolveRequest),
)
async def resolve_step(request: Request, saga_id: SagaPath, step_id: StepPath) -> Response:
    """For when nobody else can tell whether the step took effect; a person's word counts."""
    body = await read_body(request, ResolveRequest)
    verb = ResolveRequested(
        actor=actor_of(request),
        reason=body.reason,
        step=step_id_of(step_id),
        effect=Effect(body.effect),
        output=body.output,
        output_bytes=len(await request.body()),  # it has been read: this costs nothing
        evidence=body.evidence,
    )
    return await _tell(request, saga_id, verb)


@router.post(
    "/{saga_id}/steps/{step_id}/skip",
    operation_id="skip_compensation",
    summary="Renounce the undo of a step",
    **_verb("The step's effect stays, as residue, and the saga goes on."),
)
async def skip_compensation(request: Request, saga_id: SagaPath, step_id: StepPath) -> Response:
    """For the step whose compensation the saga is stuck at."""
    verb = SkipRequested(step=step_id_of(step_id), **await _reason(request))
    return await _tell(request, saga_id, verb)


@router.post(
    "/{saga_id}/steps/{step_id}/undo",
    operation_id="undo_step",
    summary="Undo an effect that was found after the end",
    **_verb("A saga of its own undoes it; the last event names that one."),
)
async def undo_late_effect(request: Request, saga_id: SagaPath, step_id: StepPath) -> Response:
    """For a saga that is over, and of which something was left against its purpose."""
    asked = await _reason(request)
    known_id, step = saga_id_of(saga_id), step_id_of(step_id)
    detail = await undo_step(context_of(request), known_id, step, **asked)
    return reply_saga(detail, status=202)


@router.get(
    "/{saga_id}/rollback-plan",
    operation_id="get_rollback_plan",
    summary="What would undoing a saga do?",
    response_description="What would be undone now, in which order, and what could not.",
    response_model=RollbackPlanResponse,
    responses=problem_responses(404),
)
async def get_rollback_plan(request: Request, saga_id: SagaPath) -> Response:
    """Nothing is changed. Calls that are out may still change what there is to undo."""
    found = await plan(context_of(request), saga_id_of(saga_id))
    return reply(RollbackPlanResponse.of(found))

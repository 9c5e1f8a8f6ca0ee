"""Sagas: start, list and get them."""

from fastapi import APIRouter, Request, Response

from app.api.bodies import read_body
from app.api.connection import answer_nobody, while_connected
from app.api.documentation import (
    IDEMPOTENCY_KEY,
    IF_NONE_MATCH,
    PREFER,
    SAGA_HEADERS,
    describe_body,
    describe_headers,
    describe_query,
    problem_responses,
)
from app.api.headers import etag_of, idempotency_key, is_known, wait_seconds
from app.api.identifiers import saga_id_of
from app.api.pages import read_saga_cursor, saga_cursor
from app.api.queries import read_query
from app.api.replies import reply, reply_saga
from app.api.surroundings import SagaPath, context_of
from app.core.errors import StoreUnavailable
from app.operations import (
    Context,
    Detail,
    StartRequest,
    find_sagas,
    get_rested_saga,
    get_saga as fetch_saga,
    start_saga as start,
)
from app.schemas.saga_view import needs_attention, show_failure, show_reference
from app.schemas.sagas import (
    SagaPage,
    SagaQuery,
    SagaResponse,
    SagaSummary,
    StartSagaRequest,
)
from app.store import Filter, Head, Started

router = APIRouter(prefix="/v1/sagas", tags=["sagas"])


@router.post(
    "",
    operation_id="start_saga",
    summary="Start a saga",
    status_code=202,
    response_model=SagaResponse,
    responses={
        200: {
            "model": SagaResponse,
            "description": "It came to rest in time, or it had been started before.",
            "headers": SAGA_HEADERS,
        },
        202: {"description": "It is stored, and will come to an end.", "headers": SAGA_HEADERS},
        **problem_responses(400, 404, 409, 413, 415, 422),
    },
    openapi_extra={
        **describe_body(StartSagaRequest),
        **describe_headers(IDEMPOTENCY_KEY, PREFER),
    },
)
async def start_saga(request: Request) -> Response:
    """Once this has answered, the saga is stored, and crashes do not stop it.

    With an `Idempotency-Key` it may be sent again as often as one likes: it starts one saga. With
    `Prefer: wait=20` the answer is held until the saga is at rest: final, stuck or paused.
    """
    key = idempotency_key(request)
    body = await read_body(request, StartSagaRequest)
    context = context_of(request)
    started = await start(
        context,
        StartRequest(
            definition=body.definition,
            version=body.version,
            input=body.input,
            business_key=body.business_key,
            labels=body.labels,
            deadline=body.deadline,
            idempotency_key=key,
        ),
    )
    seconds = wait_seconds(request)
    detail = await _rested(request, context, started, seconds=seconds)
    if detail is None:
        return answer_nobody()
    headers = {"Location": f"/v1/sagas/{detail.saga.id}"}
    if started.is_replay:
        headers["Idempotent-Replayed"] = "true"
    has_come_to_rest = seconds is not None and detail.saga.status.is_at_rest
    status = 200 if started.is_replay or has_come_to_rest else 202
    return reply_saga(detail, status=status, waited=seconds, headers=headers)


@router.get(
    "",
    operation_id="list_sagas",
    summary="List sagas",
    response_description="A page of sagas.",
    response_model=SagaPage,
    responses=problem_responses(422),
    openapi_extra=describe_query(SagaQuery),
)
async def list_sagas(request: Request) -> Response:
    """Newest first. Every filter that is given must fit."""
    query = read_query(request, SagaQuery)
    chosen = Filter(
        status=query.status,
        definition=query.definition,
        business_key=query.business_key,
        labels=query.labels,
        created_after=query.created_after,
        attention=query.attention,
        before=None if query.cursor is None else read_saga_cursor(query.cursor),
    )
    heads = await find_sagas(context_of(request), chosen, limit=query.limit + 1)
    shown = heads[: query.limit]
    is_last = len(heads) == len(shown)
    cursor = None if is_last else saga_cursor(shown[-1].created_at, shown[-1].id)
    return reply(SagaPage(items=[_summarize(head) for head in shown], next_cursor=cursor))


@router.get(
    "/{saga_id}",
    operation_id="get_saga",
    summary="Get a saga",
    response_model=SagaResponse,
    responses={
        200: {"description": "The saga as it is now.", "headers": SAGA_HEADERS},
        304: {"description": "The client knows this revision."},
        **problem_responses(404),
    },
    openapi_extra=describe_headers(PREFER, IF_NONE_MATCH),
)
async def get_saga(request: Request, saga_id: SagaPath) -> Response:
    """The saga with all its steps, in the order of its definition.

    With `Prefer: wait=20` the answer is held until the saga is at rest: final, stuck or paused.
    """
    seconds = wait_seconds(request)
    context, known_id = context_of(request), saga_id_of(saga_id)
    if seconds is None:
        detail = await fetch_saga(context, known_id)
    else:
        waiting = get_rested_saga(context, known_id, wait_seconds=seconds)
        rested = await while_connected(request, waiting)
        if rested is None:
            return answer_nobody()
        detail = rested
    if is_known(etag_of(detail.saga.seq), request):
        return Response(status_code=304, headers={"ETag": etag_of(detail.saga.seq)})
    return reply_saga(detail, waited=seconds)


async def _rested(
    request: Request, context: Context, started: Started, *, seconds: int | None
) -> Detail | None:
    """The saga that was started, once it is at rest if the client waits for that.

    None if the client has gone. A database that goes away now is no reason to answer that the saga
    may not exist: it does.
    """
    reference = started.saga.facts.definition
    definition = await context.definitions.fetch(context.tenant.id, reference)
    detail = Detail(saga=started.saga, definition=definition)
    if seconds is None:
        return detail
    waiting = get_rested_saga(context, detail.saga.id, wait_seconds=seconds)
    try:
        return await while_connected(request, waiting)
    except StoreUnavailable:
        return detail


def _summarize(head: Head) -> SagaSummary:
    return SagaSummary(
        id=str(head.id),
        definition=show_reference(head.definition),
        status=head.status,
        revision=head.seq,
        business_key=head.business_key,
        labels=dict(head.labels),
        failure=show_failure(head.failure),
        attention=needs_attention(head.status, is_alerting=head.attention),
        created_at=head.created_at,
        updated_at=head.updated_at,
        finished_at=head.finished_at,
    )

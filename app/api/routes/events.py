"""The journal of a saga: page by page, or as a stream that goes on until the saga is over."""

from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from app.api.documentation import (
    LAST_EVENT_ID,
    STREAM_RESPONSES,
    describe_headers,
    describe_query,
    merged,
    problem_responses,
)
from app.api.headers import EVENT_STREAM, last_event_id, prefers_stream
from app.api.identifiers import saga_id_of
from app.api.queries import read_query
from app.api.replies import reply
from app.api.surroundings import SagaPath, context_of
from app.core.identity import SagaId
from app.operations import Context, get_saga, list_events, stream_events
from app.schemas.event_view import show_event
from app.schemas.events import EventPage, EventQuery

router = APIRouter(prefix="/v1/sagas", tags=["sagas"])

HEARTBEAT = b": still here\n\n"
"""A comment, which clients skip: it shows them, and the proxies in between, that we are there."""

_VARIES = {"Vary": "Accept"}

_STREAM_HEADERS = {
    "Cache-Control": "no-store",
    **_VARIES,
    "X-Accel-Buffering": "no",  # nginx would collect what is to be seen at once
}


@router.get(
    "/{saga_id}/events",
    operation_id="list_saga_events",
    summary="Read or stream the journal of a saga",
    response_model=EventPage,
    responses={**STREAM_RESPONSES, **problem_responses(404, 422)},
    openapi_extra=merged(describe_query(EventQuery), describe_headers(LAST_EVENT_ID)),
)
async def list_saga_events(request: Request, saga_id: SagaPath) -> Response:
    """What happened, in order, and what followed from it.

    With `Accept: text/event-stream` entries are sent as they are appended, until the saga is over;
    the `seq` is the event's id, so that a client that reconnects misses nothing. If nothing is left
    to stream the answer is 204, which tells such a client to stop.
    """
    query = read_query(request, EventQuery)
    context, known_id = context_of(request), saga_id_of(saga_id)
    last_seen = last_event_id(request)
    if prefers_stream(request):
        after = query.after if last_seen is None else last_seen
        return await _stream(context, known_id, after=after)
    entries = await list_events(context, known_id, after=query.after, limit=query.limit + 1)
    shown = entries[: query.limit]
    is_last = len(entries) == len(shown)
    items = [show_event(entry) for entry in shown]
    page = EventPage(items=items, next=None if is_last else shown[-1].seq)
    return reply(page, headers=_VARIES)


async def _stream(context: Context, saga_id: SagaId, *, after: int) -> Response:
    saga = (await get_saga(context, saga_id)).saga
    if saga.status.is_final and saga.seq <= after:
        return Response(status_code=204)
    return StreamingResponse(
        _events(context, saga_id, after=after), media_type=EVENT_STREAM, headers=_STREAM_HEADERS
    )


async def _events(context: Context, saga_id: SagaId, *, after: int) -> AsyncIterator[bytes]:
    """Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    async for entry in stream_events(context, saga_id, after=after):
        if entry is None:
            yield HEARTBEAT
            continue
        event = show_event(entry)
        head = f"id: {event.seq}\nevent: {event.type}\ndata: ".encode()
        yield head + to_json(event) + b"\n\n"

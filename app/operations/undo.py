"""Undoing an effect that was found after the end: by a saga of its own, linked to the first."""

from uuid import UUID

from app.core.definition import Step
from app.core.errors import Fault, InvalidRequest, NotFound, VerbRefused
from app.core.events import UndoRequested
from app.core.expressions import ExpressionFailed
from app.core.identity import Direction, StepId, derive_saga_id
from app.core.json_value import JsonValue
from app.core.saga import Saga
from app.core.undoing import undo_document
from app.core.verbs import may_undo, possible_verbs
from app.operations.context import Context
from app.operations.sagas import Detail, StartRequest, get_saga, start_saga, tell_saga
from app.store import list_progress


async def undo_step(
    context: Context, saga_id: UUID, step_id: str, *, actor: str, reason: str
) -> Detail:
    """Start a saga that undoes what a step did after all; asking again starts no other.

    Returns:
        The saga that was over; its journal names the one that undoes.

    Raises:
        NotFound: there is no such saga or step.
        VerbRefused: nothing of that step is known to be left, or it cannot be undone.
        InvalidRequest: its compensation cannot be rendered.
        StoreUnavailable: the database does not answer.
    """
    detail = await get_saga(context, saga_id)
    saga, definition = detail.saga, detail.definition
    step = next((each for each in definition.steps if each.id == step_id), None)
    if step is None:
        raise NotFound(kind="step", name=step_id)
    key = _key(saga, step)
    if not may_undo(definition, saga, step):
        if await _is_undone(context, key):
            return detail
        possible = possible_verbs(definition, saga)
        raise VerbRefused(verb="undo", status=saga.status.value, possible=possible)
    request = StartRequest(
        definition=_document(detail, step),
        labels={"amends.undoes": str(saga.id), "amends.step": step_id},
        idempotency_key=key,
        # There is nothing to undo of an undo: one that fails asks a person.
        forward_only=True,
    )
    started = await start_saga(context, request)
    verb = UndoRequested(actor=actor, reason=reason, step=step.id, saga=started.saga.id)
    try:
        return await tell_saga(context, saga_id, verb)
    except VerbRefused:
        # Somebody else asked at the same time, and was quicker: it is one saga.
        return await get_saga(context, saga_id)


def _key(saga: Saga, step: Step) -> str:
    """Names this undo for ever. No client can name its own request so: that would be no header."""
    undone = saga.call(StepId(step.id), Direction.COMPENSATION)
    generation = 0 if undone is None else undone.generation + 1
    return f"\nundo:{saga.id}:{step.id}:{generation}"


async def _is_undone(context: Context, key: str) -> bool:
    undoing = derive_saga_id(tenant_secret=context.tenant.secret, idempotency_key=key)
    async with context.database.read() as tx:
        return bool(await list_progress(tx, [undoing]))


def _document(detail: Detail, step: Step) -> dict[str, JsonValue]:
    try:
        document = undo_document(detail.definition, detail.saga, step)
    except ExpressionFailed as error:
        message = f"the compensation cannot be rendered: {error}"
        accepted = "a step whose compensation needs only what is known"
        fault = Fault(path="step", message=message, accepted=accepted)
        raise InvalidRequest([fault]) from error
    assert isinstance(document, dict), document
    return document

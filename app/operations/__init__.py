"""One user-visible verb, one function; every front door calls these and nothing below them."""

from app.operations.callbacks import Report, authorize_callback, receive_callback
from app.operations.context import Context
from app.operations.definitions import (
    PublishedDefinition,
    StoredDefinition,
    find_definitions,
    get_definition,
    publish_definition,
    validate_definition,
)
from app.operations.sagas import (
    Detail,
    StartRequest,
    find_sagas,
    get_rested_saga,
    get_rollback_plan,
    get_saga,
    list_events,
    start_saga,
    stream_events,
    tell_saga,
)
from app.operations.undo import undo_step

__all__ = [
    "Context",
    "Detail",
    "PublishedDefinition",
    "Report",
    "StartRequest",
    "StoredDefinition",
    "authorize_callback",
    "find_definitions",
    "find_sagas",
    "get_definition",
    "get_rested_saga",
    "get_rollback_plan",
    "get_saga",
    "list_events",
    "publish_definition",
    "receive_callback",
    "start_saga",
    "stream_events",
    "tell_saga",
    "undo_step",
    "validate_definition",
]

"""One user-visible verb, one function; every front door calls these and nothing below them."""

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
    cancel_saga,
    find_sagas,
    get_rested_saga,
    get_saga,
    list_events,
    retry_saga,
    start_saga,
    stream_events,
)

__all__ = [
    "Context",
    "Detail",
    "PublishedDefinition",
    "StartRequest",
    "StoredDefinition",
    "cancel_saga",
    "find_definitions",
    "find_sagas",
    "get_definition",
    "get_rested_saga",
    "get_saga",
    "list_events",
    "publish_definition",
    "retry_saga",
    "start_saga",
    "stream_events",
    "validate_definition",
]

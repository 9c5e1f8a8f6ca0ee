"""What every operation needs: the store, and as whom."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.json_value import JsonValue
from app.store import Database, Definitions, Journal, Tenant, Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The service as an operation sees it.

    Attributes:
        tenant: whose sagas and definitions are meant.
        database: the pool of the front doors; the engine has its own.
        variables: ``vars`` of the sagas that are started; each keeps a copy.
        answer_seconds_max: how long a write may wait for the database before the caller is told
            that it is unavailable.
    """

    tenant: Tenant
    database: Database
    journal: Journal
    definitions: Definitions
    watch: Watch
    variables: Mapping[str, JsonValue]
    answer_seconds_max: float = 5.0

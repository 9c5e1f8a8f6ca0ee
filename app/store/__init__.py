"""What is remembered: the tables, the shared writer, the journal, claims and leases."""

from app.store.claims import (
    Claim,
    claim_due,
    claim_orphans,
    list_owned,
    list_without_reason,
    set_aside,
)
from app.store.database import Database, ReadTx, WriteTx
from app.store.definitions import (
    Definitions,
    Listed,
    Published,
    Version,
    fetch_version,
    find_latest,
    list_definitions,
    list_versions,
    publish,
    publish_inline,
)
from app.store.encoding import FACT_NAMES
from app.store.journal import ClaimLost, Journal, Started, fetch_saga, list_entries
from app.store.replicas import Replica
from app.store.sagas import Filter, Head, list_progress, list_sagas
from app.store.schema import check, migrate
from app.store.survey import Survey, make_survey
from app.store.tally import Tally
from app.store.tenants import DEFAULT_TENANT, Tenant, ensure_tenant
from app.store.watch import Watch
from app.store.writer import Writer

__all__ = [
    "DEFAULT_TENANT",
    "FACT_NAMES",
    "Claim",
    "ClaimLost",
    "Database",
    "Definitions",
    "Filter",
    "Head",
    "Journal",
    "Listed",
    "Published",
    "ReadTx",
    "Replica",
    "Started",
    "Survey",
    "Tally",
    "Tenant",
    "Version",
    "Watch",
    "WriteTx",
    "Writer",
    "check",
    "claim_due",
    "claim_orphans",
    "ensure_tenant",
    "fetch_saga",
    "fetch_version",
    "find_latest",
    "list_definitions",
    "list_entries",
    "list_owned",
    "list_progress",
    "list_sagas",
    "list_versions",
    "list_without_reason",
    "make_survey",
    "migrate",
    "publish",
    "publish_inline",
    "set_aside",
]

"""Published definitions: immutable, versioned, cached for ever once read."""

import asyncio
import datetime as dt
import hashlib
from dataclasses import dataclass

import orjson

from app.core.definition import Definition
from app.core.errors import NotFound
from app.core.identity import TenantId
from app.core.json_value import JsonValue
from app.core.language import canonical_bytes, parse_definition
from app.core.saga import DefinitionRef
from app.store.database import Database, ReadTx, WriteTx

_LATEST = """
SELECT version, digest FROM definitions
WHERE tenant_id = $1 AND name = $2 AND version > 0 ORDER BY version DESC LIMIT 1
"""

_INSERT = """
INSERT INTO definitions (tenant_id, name, version, digest, document, created_at)
VALUES ($1, $2, $3, $4, $5::json, amends_now()) ON CONFLICT DO NOTHING RETURNING version
"""

_DIGEST = """
SELECT digest FROM definitions WHERE tenant_id = $1 AND name = $2 AND version = $3
"""

_INLINE_VERSIONS = 2**31 - 1

_FETCH = """
SELECT document, created_at FROM definitions
WHERE tenant_id = $1 AND name = $2 AND version = $3
"""

_VERSIONS = """
SELECT version, created_at FROM definitions
WHERE tenant_id = $1 AND name = $2 AND version > 0 ORDER BY version DESC LIMIT 1000
"""

_LIST = """
SELECT DISTINCT ON (name) name, version, created_at, document ->> 'description' AS description
FROM definitions WHERE tenant_id = $1 AND name > $2 AND version > 0
ORDER BY name, version DESC LIMIT $3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A version, and whether publishing made it."""

    reference: DefinitionRef
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A definition in a list: its latest version."""

    name: str
    version: int
    description: str
    created_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a definition, by number and time."""

    version: int
    created_at: dt.datetime


class Definitions:
    """Compiled definitions by (tenant, name, version); a version never changes."""

    def __init__(self, database: Database, *, kept_max: int = 1000) -> None:
        self._database = database
        self._kept_max = kept_max
        self._reading = asyncio.Lock()
        self._kept: dict[tuple[TenantId, DefinitionRef], Definition] = {}

    async def fetch(self, tenant: TenantId, reference: DefinitionRef) -> Definition:
        """The compiled definition.

        Raises:
            NotFound: there is no such version.
        """
        kept = self._kept.get((tenant, reference))
        if kept is not None:
            return kept
        async with self._reading:
            # Whoever waited here finds what the first one has read.
            return self._kept.get((tenant, reference)) or await self._read(tenant, reference)

    async def _read(self, tenant: TenantId, reference: DefinitionRef) -> Definition:
        async with self._database.read() as tx:
            document, _ = await fetch_version(tx, tenant, reference)
        definition = parse_definition(document, version=reference.version)
        if len(self._kept) >= self._kept_max:
            self._kept.pop(next(iter(self._kept)))
        self._kept[tenant, reference] = definition
        return definition


async def publish(tx: WriteTx, tenant: TenantId, definition: Definition) -> Published:
    """Store a definition as the next version, unless the latest has the same content."""
    digest = hashlib.sha256(canonical_bytes(definition.document)).digest()
    document = orjson.dumps(definition.document).decode()
    while True:
        latest = await tx.fetch_row(_LATEST, tenant, definition.name)
        if latest is not None and latest["digest"] == digest:
            reference = DefinitionRef(name=definition.name, version=latest["version"])
            return Published(reference=reference, is_new=False)
        version = 1 if latest is None else latest["version"] + 1
        made = await tx.fetch_value(_INSERT, tenant, definition.name, version, digest, document)
        if made is not None:
            reference = DefinitionRef(name=definition.name, version=version)
            return Published(reference=reference, is_new=True)


async def publish_inline(tx: WriteTx, tenant: TenantId, definition: Definition) -> DefinitionRef:
    """Store a definition that is no version of its name: only those who know it can use it.

    Its version is negative and follows from its content, so that the same content is stored once,
    and found without a search.
    """
    digest = hashlib.sha256(canonical_bytes(definition.document)).digest()
    document = orjson.dumps(definition.document).decode()
    version = -1 - int.from_bytes(digest[:4]) % _INLINE_VERSIONS
    while True:
        await tx.execute(_INSERT, tenant, definition.name, version, digest, document)
        stored = await tx.fetch_value(_DIGEST, tenant, definition.name, version)
        if stored == digest:
            return DefinitionRef(name=definition.name, version=version)
        version = -1 - (-version) % _INLINE_VERSIONS  # another document has this number: the next


async def find_latest(tx: ReadTx, tenant: TenantId, name: str) -> DefinitionRef | None:
    """The latest version of a definition, or None if there is none of that name."""
    row = await tx.fetch_row(_LATEST, tenant, name)
    return None if row is None else DefinitionRef(name=name, version=row["version"])


async def fetch_version(
    tx: ReadTx, tenant: TenantId, reference: DefinitionRef
) -> tuple[JsonValue, dt.datetime]:
    """The document of a version, and when it was published.

    Raises:
        NotFound: there is no such version.
    """
    row = await tx.fetch_row(_FETCH, tenant, reference.name, reference.version)
    if row is None:
        raise NotFound(kind="definition", name=f"{reference.name} version {reference.version}")
    return orjson.loads(row["document"]), row["created_at"]


async def list_versions(tx: ReadTx, tenant: TenantId, name: str) -> list[Version]:
    """All versions of a definition, newest first, at most 1,000."""
    rows = await tx.fetch(_VERSIONS, tenant, name)
    return [Version(version=row["version"], created_at=row["created_at"]) for row in rows]


async def list_definitions(tx: ReadTx, tenant: TenantId, *, after: str, limit: int) -> list[Listed]:
    """The latest version of each definition, by name, from the one after ``after`` on."""
    rows = await tx.fetch(_LIST, tenant, after, limit)
    return [
        Listed(
            name=row["name"],
            version=row["version"],
            description=row["description"] or "",
            created_at=row["created_at"],
        )
        for row in rows
    ]

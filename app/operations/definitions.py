"""Verbs on definitions: publish, validate, get, list."""

import asyncio
import datetime as dt
from dataclasses import dataclass

from app.core.definition import Definition
from app.core.errors import Fault, InvalidDefinition, NotFound
from app.core.json_value import JsonValue
from app.core.language import warnings
from app.core.saga import DefinitionRef
from app.operations.context import Context
from app.schemas.documents import check_sound, load_definition
from app.store import (
    Listed,
    Published,
    Version,
    fetch_version,
    find_latest,
    list_definitions,
    list_versions,
    publish,
    publish_inline as store_inline,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDefinition:
    """A published version, and what its author may want to know."""

    published: Published
    warnings: tuple[Fault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDefinition:
    """One version with its document, and all versions there are."""

    reference: DefinitionRef
    document: JsonValue
    created_at: dt.datetime
    versions: tuple[Version, ...]


async def publish_definition(
    context: Context, document: JsonValue, *, name: str | None = None
) -> PublishedDefinition:
    """Store a definition as the next version; the same content makes nothing.

    Args:
        context: as whom.
        document: the definition.
        name: the name that the caller expects in it; None for any.

    Raises:
        InvalidDefinition: with every fault.
    """
    definition = await asyncio.to_thread(load_definition, document)
    if name is not None and definition.name != name:
        message = f"the document defines {definition.name!r}, and was sent to {name!r}"
        raise InvalidDefinition([Fault(path="name", message=message, accepted=repr(name))])
    async with context.database.write() as tx:
        published = await publish(tx, context.tenant.id, definition)
    return PublishedDefinition(published=published, warnings=tuple(warnings(definition)))


async def publish_inline(context: Context, document: JsonValue) -> DefinitionRef:
    """Store a definition that came with the request that starts a saga; it is no version.

    Raises:
        InvalidDefinition: with every fault.
    """
    definition = await asyncio.to_thread(_load_inline, document)
    async with context.database.write() as tx:
        return await store_inline(tx, context.tenant.id, definition)


def _load_inline(document: JsonValue) -> Definition:
    """A document that was read as part of a request, and so by another reader."""
    check_sound(document)
    return load_definition(document)


async def validate_definition(document: JsonValue) -> tuple[Fault, ...]:
    """The warnings of a valid definition; nothing is stored.

    Raises:
        InvalidDefinition: with every fault.
    """
    return tuple(warnings(await asyncio.to_thread(load_definition, document)))


async def get_definition(
    context: Context, name: str, *, version: int | None = None
) -> StoredDefinition:
    """A version of a definition; the latest if none is named.

    Raises:
        NotFound: there is no such definition or version.
    """
    async with context.database.read() as tx:
        latest = await find_latest(tx, context.tenant.id, name)
        if latest is None:
            raise NotFound(kind="definition", name=name)
        wanted = latest if version is None else DefinitionRef(name=name, version=version)
        document, created_at = await fetch_version(tx, context.tenant.id, wanted)
        versions = await list_versions(tx, context.tenant.id, name)
    return StoredDefinition(
        reference=wanted, document=document, created_at=created_at, versions=tuple(versions)
    )


async def find_definitions(context: Context, *, after: str = "", limit: int) -> list[Listed]:
    """The latest version of each definition, by name, from the one after ``after`` on."""
    async with context.database.read() as tx:
        return await list_definitions(tx, context.tenant.id, after=after, limit=limit)

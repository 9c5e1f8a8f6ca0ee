"""Definitions: publish, validate, list, get."""

from typing import Any

from fastapi import APIRouter, Request, Response

from app.api.bodies import read_document_body
from app.api.documentation import describe_document, describe_query, problem_responses
from app.api.identifiers import definition_name_of, version_of
from app.api.pages import name_cursor, read_name_cursor
from app.api.queries import read_query
from app.api.replies import reply
from app.api.surroundings import DefinitionPath, VersionPath, context_of
from app.operations import (
    StoredDefinition,
    find_definitions,
    get_definition as fetch_definition,
    publish_definition as publish,
    validate_definition as check_definition,
)
from app.schemas.definitions import (
    DefinitionPage,
    DefinitionQuery,
    DefinitionResponse,
    DefinitionSummary,
    FaultResponse,
    PublishResponse,
    ValidateResponse,
    VersionList,
    VersionResponse,
)
from app.schemas.documents import read_document

router = APIRouter(prefix="/v1/definitions", tags=["definitions"])


@router.put(
    "/{name}",
    operation_id="publish_definition",
    summary="Publish a definition",
    status_code=201,
    response_model=PublishResponse,
    responses={
        200: {"model": PublishResponse, "description": "Unchanged: it is the latest version."},
        201: {"description": "A new version."},
        **problem_responses(413, 415, 422),
    },
    openapi_extra=describe_document(),
)
async def publish_definition(request: Request, name: DefinitionPath) -> Response:
    """Other content makes the next version; the same content makes nothing.

    All faults are told at once, each with its path and what would be accepted. The name in the path
    must be the document's.
    """
    raw, content_type = await read_document_body(request)
    document = read_document(raw, content_type=content_type)
    result = await publish(context_of(request), document, name=name)
    published = result.published
    body = PublishResponse(
        name=published.reference.name,
        version=published.reference.version,
        created=published.is_new,
        warnings=FaultResponse.of(result.warnings),
    )
    location = f"/v1/definitions/{body.name}/versions/{body.version}"
    return reply(body, status=201 if body.created else 200, headers={"Location": location})


@router.post(
    "/validate",
    operation_id="validate_definition",
    summary="Check a definition without publishing it",
    response_description="It is valid.",
    response_model=ValidateResponse,
    responses=problem_responses(413, 415, 422),
    openapi_extra=describe_document(),
)
async def validate_definition(request: Request) -> Response:
    """Answers with the warnings of a valid definition, or with the problem publishing would be."""
    raw, content_type = await read_document_body(request)
    document = read_document(raw, content_type=content_type)
    found = await check_definition(document)
    return reply(ValidateResponse(warnings=FaultResponse.of(found)))


@router.get(
    "",
    operation_id="list_definitions",
    summary="List definitions",
    response_description="A page of definitions.",
    response_model=DefinitionPage,
    responses=problem_responses(422),
    openapi_extra=describe_query(DefinitionQuery),
)
async def list_definitions(request: Request) -> Response:
    """The latest version of each, by name."""
    query = read_query(request, DefinitionQuery)
    after = "" if query.cursor is None else read_name_cursor(query.cursor)
    listed = await find_definitions(context_of(request), after=after, limit=query.limit + 1)
    shown = listed[: query.limit]
    items = [
        DefinitionSummary(
            name=each.name,
            version=each.version,
            description=each.description,
            created_at=each.created_at,
        )
        for each in shown
    ]
    is_last = len(listed) == len(shown)
    return reply(
        DefinitionPage(items=items, next_cursor=None if is_last else name_cursor(shown[-1].name))
    )


@router.get(
    "/{name}",
    operation_id="get_definition",
    summary="Get the latest version of a definition",
    response_description="The definition.",
    response_model=DefinitionResponse,
    responses=problem_responses(404),
)
async def get_definition(request: Request, name: DefinitionPath) -> Response:
    """The latest version, with its document as it was published."""
    return reply(_show(await fetch_definition(context_of(request), definition_name_of(name))))


@router.get(
    "/{name}/versions",
    operation_id="list_definition_versions",
    summary="List the versions of a definition",
    response_description="Its versions.",
    response_model=VersionList,
    responses=problem_responses(404),
)
async def list_definition_versions(request: Request, name: DefinitionPath) -> Response:
    """All versions, newest first; at most 1,000."""
    stored = await fetch_definition(context_of(request), definition_name_of(name))
    items = [
        VersionResponse(version=each.version, created_at=each.created_at)
        for each in stored.versions
    ]
    return reply(VersionList(name=stored.reference.name, items=items))


@router.get(
    "/{name}/versions/{version}",
    operation_id="get_definition_version",
    summary="Get a version of a definition",
    response_description="The definition.",
    response_model=DefinitionResponse,
    responses=problem_responses(404),
)
async def get_definition_version(
    request: Request, name: DefinitionPath, version: VersionPath
) -> Response:
    """This very version; it never changes."""
    known_name = definition_name_of(name)
    number = version_of(known_name, version)
    return reply(_show(await fetch_definition(context_of(request), known_name, version=number)))


def _show(stored: StoredDefinition) -> DefinitionResponse:
    document: Any = stored.document
    return DefinitionResponse(
        name=stored.reference.name,
        version=stored.reference.version,
        description=document.get("description", ""),
        document=document,
        created_at=stored.created_at,
        versions=[each.version for each in stored.versions],
    )

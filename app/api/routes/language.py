"""The language of definitions as JSON Schema, for editors and models that write them."""

import hashlib

import orjson
from fastapi import APIRouter, Request, Response

from app.api.documentation import IF_NONE_MATCH, SCHEMA_RESPONSES, describe_headers
from app.api.headers import SCHEMA_MEDIA_TYPE, is_known
from app.core.language import language_schema

router = APIRouter(tags=["definitions"])

_SCHEMA = orjson.dumps(language_schema())
_ETAG = f'"{hashlib.sha256(_SCHEMA).hexdigest()[:32]}"'
_HEADERS = {"ETag": _ETAG, "Cache-Control": "public, max-age=3600"}


@router.get(
    "/v1/definition-schema",
    operation_id="get_definition_schema",
    summary="What a definition may say",
    response_class=Response,
    responses=SCHEMA_RESPONSES,
    openapi_extra=describe_headers(IF_NONE_MATCH),
)
async def get_definition_schema(request: Request) -> Response:
    """JSON Schema (2020-12) of a definition; no key is asked for.

    It says less than publishing checks: whether ids, references and durations fit together, no
    schema can say. In an editor: `# yaml-language-server: $schema=<this URL>`.
    """
    if is_known(_ETAG, request):
        return Response(status_code=304, headers=_HEADERS)
    return Response(_SCHEMA, media_type=SCHEMA_MEDIA_TYPE, headers=_HEADERS)

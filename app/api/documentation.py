"""The OpenAPI document: what the routes say of themselves, and what FastAPI cannot know.

Bodies and query parameters are read by ``bodies`` and ``queries``, not by FastAPI, so a route
describes them here; problems have a media type of their own; a middleware asks for the key.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.auth import is_open
from app.api.headers import (
    IDEMPOTENCY_KEY as KEY_PATTERN,
    SCHEMA_MEDIA_TYPE,
    SEQ,
    WAIT_SECONDS_MAX,
)
from app.schemas.callbacks import CallbackRequest
from app.schemas.definitions import DefinitionQuery
from app.schemas.events import EventQuery
from app.schemas.examples import (
    CALLBACK,
    DEFINITION,
    DEFINITION_YAML,
    PLAN,
    PROBLEM,
    RESOLVE,
    SAGA,
    START,
    VERB,
)
from app.schemas.problems import MEDIA_TYPE, Problem
from app.schemas.sagas import SagaQuery, SagaResponse, StartSagaRequest
from app.schemas.shapes import LABEL_NAME
from app.schemas.verbs import ResolveRequest, RollbackPlanResponse, VerbRequest

type Json = dict[str, Any]

DESCRIPTION = """\
Runs what an agent does to the outside world as sagas: every action is stored together with the
action that undoes it. Steps run forward and survive crashes; when one cannot succeed, what may have
happened is undone, in reverse.

`GET /v1/sagas/{id}` says where a saga stands, what it waits for, and in `verbs` what it can be told
now. A saga that is `stuck` asks a person the question in `stuck`.

Errors are problem details (RFC 9457): rely on `code`, show `detail` to people, and look at `effect`
to know whether what was asked may have happened. Times are RFC 3339, UTC.
"""

_REFERENCE = "#/components/schemas/{model}"
_SECURITY_SCHEME = "ApiKey"

_EXAMPLES: Mapping[type[BaseModel], Json] = {
    Problem: PROBLEM,
    SagaResponse: SAGA,
    StartSagaRequest: START,
    VerbRequest: VERB,
    ResolveRequest: RESOLVE,
    CallbackRequest: CALLBACK,
    RollbackPlanResponse: PLAN,
}

_PROBLEMS: Mapping[int, str] = {
    400: "The body is not JSON (`malformed_json`).",
    401: "No key, or not one of the service's (`unauthorized`).",
    403: "The request names another machine than this, and there are no keys (`foreign_host`).",
    404: (
        "There is no such thing (`saga_not_found`, `step_not_found`, `definition_not_found`, "
        "`callback_not_found`)."
    ),
    409: (
        "It cannot be so now: a live saga has the business key (`business_key_taken`; `saga` names "
        "it), the saga's state forbids it (`verb_refused`; see `possible_verbs`), or it was "
        "reported otherwise before (`callback_contradicts`)."
    ),
    413: "The body is larger than 1 MiB (`payload_too_large`).",
    415: "The body is announced as something else (`unsupported_media_type`).",
    422: (
        "The request is wrong; `errors` lists every fault (`invalid_request`, "
        "`invalid_definition`), or its `Idempotency-Key` was used with another body "
        "(`idempotency_key_reused`)."
    ),
    500: "A fault of ours (`internal_error`).",
    503: "Not now; ask again after `Retry-After` (`store_unavailable`, `fenced`, `row_refused`).",
}
_ALWAYS = (401, 403, 500, 503)

SAGA_HEADERS: Json = {
    "ETag": {"description": "The revision.", "schema": {"type": "string"}},
    "Location": {"description": "Of a saga that was started.", "schema": {"type": "string"}},
    "Preference-Applied": {
        "description": "How long the answer was held at most, as `wait=20`.",
        "schema": {"type": "string"},
    },
    "Idempotent-Replayed": {
        "description": "`true`: the saga had been started before, by this very request.",
        "schema": {"type": "string", "enum": ["true"]},
    },
}

PREFER = (
    "Prefer",
    (
        "`wait=20` holds the answer until the saga is at rest (final, stuck or paused), for so "
        f"many seconds at the most; {WAIT_SECONDS_MAX} is the longest (RFC 7240)."
    ),
    {"type": "string", "examples": ["wait=20"]},
)
IDEMPOTENCY_KEY = (
    "Idempotency-Key",
    (
        "Names this request for ever: sent again with the same body, it starts nothing and "
        "answers with the same saga. Printable ASCII; a UUID will do."
    ),
    {"type": "string", "pattern": f"^{KEY_PATTERN}$", "minLength": 1, "maxLength": 255},
)
IF_NONE_MATCH = (
    "If-None-Match",
    "The ETag of what is known already: 304 if nothing has changed.",
    {"type": "string"},
)
LAST_EVENT_ID = (
    "Last-Event-ID",
    "Of a stream: the last `seq` that was seen; it goes on after it.",
    {"type": "string", "pattern": f"^{SEQ}$"},
)

SCHEMA_RESPONSES: dict[int | str, Json] = {
    200: {
        "description": "The schema.",
        "content": {SCHEMA_MEDIA_TYPE: {"schema": {"type": "object"}}},
        "headers": {"ETag": {"description": "Of this release.", "schema": {"type": "string"}}},
    },
    304: {"description": "The client has this schema."},
}

STREAM_RESPONSES: dict[int | str, Json] = {
    200: {
        "description": "A page of the journal, or a stream of it.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "string",
                    "description": "Events: `id` is the seq, `data` an EventResponse as JSON.",
                },
                "example": 'id: 1\nevent: saga_requested\ndata: {"seq": 1, ...}\n\n',
            }
        },
    },
    204: {"description": "Nothing is left to stream: the saga is over, and all was seen."},
}


def problem_responses(*statuses: int) -> dict[int | str, Json]:
    """The problems that a route may answer with, beside those that any may."""
    content = {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model=Problem.__name__)}}}
    return {
        status: {"description": _PROBLEMS[status], "content": content}
        for status in sorted({*statuses, *_ALWAYS})
    }


def describe_body(shape: type[BaseModel]) -> Json:
    """A JSON body of this shape."""
    schema = {"$ref": _REFERENCE.format(model=shape.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe_document() -> Json:
    """A definition, in either notation."""
    schema = {"type": "object", "description": "A definition; see the documentation."}
    content = {
        "application/json": {"schema": schema, "example": DEFINITION},
        "application/yaml": {"schema": schema, "example": DEFINITION_YAML},
    }
    return {"requestBody": {"required": True, "content": content}}


def describe_query(shape: type[BaseModel]) -> Json:
    """Query parameters of this shape."""
    properties = shape.model_json_schema(ref_template=_REFERENCE)["properties"]
    return {"parameters": [_parameter(name, schema) for name, schema in properties.items()]}


def describe_headers(*headers: tuple[str, str, Json]) -> Json:
    """Header fields that may be sent: name, description and schema of each."""
    return {
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": False,
                "description": description,
                "schema": schema,
            }
            for name, description, schema in headers
        ]
    }


def merged(*described: Json) -> Json:
    """The parameters of several descriptions, one after the other."""
    return {"parameters": [each for part in described for each in part["parameters"]]}


def complete(app: FastAPI, *, needs_key: bool) -> None:
    """Make the app's OpenAPI document whole; it is made once, when it is first asked for."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            _drop_unused(document)
            _add_components(document)
            _add_security(document, needs_key=needs_key)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend it


def _parameter(name: str, schema: Json) -> Json:
    """One query parameter, without the null that stands for its absence."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        schema = {**{k: v for k, v in schema.items() if k != "anyOf"}, **choices[0]}
    description = schema.pop("description", None)
    if schema.get("default", ...) is None:
        del schema["default"]
    parameter: Json = {"name": name, "in": "query", "required": False, "schema": schema}
    if description is not None:
        parameter["description"] = description
    if schema.get("type") == "object":
        # Each of its fields is a parameter of its own, whose name begins as this one's.
        prefix = name.removesuffix("*").replace(".", r"\.")
        pattern = f"^{prefix}{LABEL_NAME.removeprefix('^')}"
        parameter |= {
            "style": "form",
            "explode": True,
            "schema": {"type": "object", "patternProperties": {pattern: {"type": "string"}}},
            "example": {name.replace("*", "env"): "prod"},
        }
    return parameter


def _drop_unused(document: Json) -> None:
    """What FastAPI adds for its own kind of 422, which is not how faults are told here."""
    for operations in document["paths"].values():
        for operation in operations.values():
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _add_components(document: Json) -> None:
    shapes: list[type[BaseModel]] = [
        StartSagaRequest,
        VerbRequest,
        ResolveRequest,
        CallbackRequest,
        Problem,
    ]
    queries: list[type[BaseModel]] = [SagaQuery, DefinitionQuery, EventQuery]
    _, found = models_json_schema(
        [(shape, "validation") for shape in (*shapes, *queries)], ref_template=_REFERENCE
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    left_out = {query.__name__ for query in queries}
    for name, schema in found.get("$defs", {}).items():
        if name not in left_out:
            schemas.setdefault(name, schema)
    for shape, example in _EXAMPLES.items():
        # Not by the shape itself: FastAPI would leave out the nulls.
        schemas[shape.__name__]["examples"] = [example]


def _add_security(document: Json, *, needs_key: bool) -> None:
    document["components"]["securitySchemes"] = {
        _SECURITY_SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "description": "One of the service's keys (`AMENDS_API_KEYS`).",
        }
    }
    key: Json = {_SECURITY_SCHEME: []}
    for path, operations in document["paths"].items():
        never = {401, 403} if is_open(path) else {403} if needs_key else {401}
        for operation in operations.values():
            for status in never:
                operation["responses"].pop(str(status), None)
            if not is_open(path):
                operation["security"] = [key] if needs_key else [key, {}]

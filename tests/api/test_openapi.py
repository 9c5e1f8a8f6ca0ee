"""The OpenAPI document: valid, whole, and true."""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import orjson
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from app.core.saga import SagaStatus
from app.schemas.callbacks import CallbackRequest
from app.schemas.examples import CALLBACK, PLAN, PROBLEM, RESOLVE, SAGA, START, VERB
from app.schemas.problems import Problem
from app.schemas.sagas import SagaResponse, StartSagaRequest
from app.schemas.verbs import ResolveRequest, RollbackPlanResponse, VerbRequest
from tests.api.conftest import app_without_store
from tests.api.driver import Driver

type Json = dict[str, Any]

VERB_STATUSES = {202, 400, 404, 409, 413, 415, 422}

OPERATIONS = {
    "get_liveness": ("GET", "/health/live", {200}),
    "get_readiness": ("GET", "/health/ready", {200, 503}),
    "publish_definition": ("PUT", "/v1/definitions/{name}", {200, 201, 413, 415, 422}),
    "validate_definition": ("POST", "/v1/definitions/validate", {200, 413, 415, 422}),
    "list_definitions": ("GET", "/v1/definitions", {200, 422}),
    "get_definition": ("GET", "/v1/definitions/{name}", {200, 404}),
    "list_definition_versions": ("GET", "/v1/definitions/{name}/versions", {200, 404}),
    "get_definition_version": ("GET", "/v1/definitions/{name}/versions/{version}", {200, 404}),
    "start_saga": ("POST", "/v1/sagas", {200, 202, 400, 404, 409, 413, 415, 422}),
    "list_sagas": ("GET", "/v1/sagas", {200, 422}),
    "get_saga": ("GET", "/v1/sagas/{saga_id}", {200, 304, 404}),
    "cancel_saga": ("POST", "/v1/sagas/{saga_id}/cancel", VERB_STATUSES),
    "terminate_saga": ("POST", "/v1/sagas/{saga_id}/terminate", VERB_STATUSES),
    "pause_saga": ("POST", "/v1/sagas/{saga_id}/pause", VERB_STATUSES),
    "resume_saga": ("POST", "/v1/sagas/{saga_id}/resume", VERB_STATUSES),
    "retry_saga": ("POST", "/v1/sagas/{saga_id}/retry", VERB_STATUSES),
    "resolve_step": ("POST", "/v1/sagas/{saga_id}/steps/{step_id}/resolve", VERB_STATUSES),
    "skip_compensation": ("POST", "/v1/sagas/{saga_id}/steps/{step_id}/skip", VERB_STATUSES),
    "undo_step": ("POST", "/v1/sagas/{saga_id}/steps/{step_id}/undo", VERB_STATUSES),
    "get_rollback_plan": ("GET", "/v1/sagas/{saga_id}/rollback-plan", {200, 404}),
    "list_saga_events": ("GET", "/v1/sagas/{saga_id}/events", {200, 204, 404, 422}),
    "receive_callback": (
        "POST",
        "/v1/callbacks/{token}",
        {200, 202, 400, 404, 409, 413, 415, 422, 500, 503},
    ),
    "get_definition_schema": ("GET", "/v1/definition-schema", {200, 304}),
}
"""What there is; those that need a key may also answer 401, 500 and 503."""

EXAMPLES: list[tuple[type[BaseModel], Json]] = [
    (StartSagaRequest, START),
    (VerbRequest, VERB),
    (ResolveRequest, RESOLVE),
    (CallbackRequest, CALLBACK),
    (SagaResponse, SAGA),
    (RollbackPlanResponse, PLAN),
    (Problem, PROBLEM),
]

OPEN_OPERATIONS = {"get_liveness", "get_readiness", "get_definition_schema", "receive_callback"}

PARAMETERS = {
    "start_saga": {"Idempotency-Key", "Prefer"},
    "get_saga": {"saga_id", "Prefer", "If-None-Match"},
    "list_saga_events": {"saga_id", "after", "limit", "Last-Event-ID"},
    "list_definitions": {"limit", "cursor"},
    "list_sagas": {
        "status",
        "definition",
        "business_key",
        "label.*",
        "created_after",
        "attention",
        "limit",
        "cursor",
    },
}


@pytest.fixture(scope="module")
def document() -> Json:
    """The document of an application with keys."""
    found: Json = app_without_store("key").openapi()
    return found


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Method, path and operation of all there are."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def references(value: object) -> Iterator[str]:
    """All references within a value."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "$ref":
                yield each
            else:
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_the_operations_are_the_reviewed_ones(document: Json) -> None:
    """Operation ids, methods, paths and statuses are those above, no more and no fewer."""
    found = {
        operation["operationId"]: (
            method,
            path,
            {int(status) for status in operation["responses"]},
        )
        for method, path, operation in operations(document)
    }
    expected = {
        name: (method, path, statuses if name in OPEN_OPERATIONS else statuses | {401, 500, 503})
        for name, (method, path, statuses) in OPERATIONS.items()
    }

    assert found == expected


def test_without_keys_it_is_the_host_that_matters(document: Json) -> None:
    """Where there are no keys none can be wrong, but a request may be meant for another machine."""
    open_document: Json = app_without_store().openapi()
    keyed = {op["operationId"]: set(op["responses"]) for _, _, op in operations(document)}
    unkeyed = {op["operationId"]: set(op["responses"]) for _, _, op in operations(open_document)}

    assert unkeyed == {
        name: statuses if name in OPEN_OPERATIONS else statuses - {"401"} | {"403"}
        for name, statuses in keyed.items()
    }


def test_parameters_are_described(document: Json) -> None:
    """What a route reads of path, query and headers is in the document."""
    found = {
        operation["operationId"]: {each["name"] for each in operation.get("parameters", ())}
        for _, _, operation in operations(document)
    }

    assert {name: found[name] for name in PARAMETERS} == PARAMETERS
    assert all(
        set(re.findall(r"{(\w+)}", path)) <= found[operation["operationId"]]
        for _, path, operation in operations(document)
    )


def test_every_operation_explains_itself(document: Json) -> None:
    """An operation has a tag, a summary, a description, and described answers."""
    for _, _, operation in operations(document):
        assert operation["tags"]
        assert operation["summary"]
        assert operation["description"].endswith(".")
        for status, response in operation["responses"].items():
            assert response["description"], (operation["operationId"], status)


def test_problems_have_their_media_type(document: Json) -> None:
    """Whatever is no success is a problem, but for health and 304."""
    for _, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) < 400 or path.startswith("/health/"):
                continue
            assert response["content"] == {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            }


def test_the_key_is_asked_for(document: Json) -> None:
    """Every operation but the open ones needs the key; where there is none it may be left out."""
    open_document: Json = app_without_store().openapi()
    for _, _, operation in operations(document):
        is_open = operation["operationId"] in OPEN_OPERATIONS
        assert operation.get("security") == (None if is_open else [{"ApiKey": []}])
    for _, _, operation in operations(open_document):
        is_open = operation["operationId"] in OPEN_OPERATIONS
        assert operation.get("security") == (None if is_open else [{"ApiKey": []}, {}])

    assert document["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"


def test_every_reference_leads_somewhere(document: Json) -> None:
    """Nothing is named that is not there, and nothing is there that is not named."""
    named = set(references(document))
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

    assert named == schemas


def test_every_schema_is_valid(document: Json) -> None:
    """The schemas are JSON Schema 2020-12, as OpenAPI 3.1 has it."""
    assert document["openapi"].startswith("3.1.")
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("operation", ["publish_definition", "validate_definition"])
def test_definitions_may_come_in_both_notations(document: Json, operation: str) -> None:
    """Publishing and validating describe JSON and YAML, with an example of each."""
    method, path, _ = OPERATIONS[operation]
    body = document["paths"][path][method.lower()]["requestBody"]

    assert set(body["content"]) == {"application/json", "application/yaml"}
    assert all(content["example"] for content in body["content"].values())


def test_the_stream_is_described(document: Json) -> None:
    """The timeline is there as JSON and as a stream."""
    responses = document["paths"]["/v1/sagas/{saga_id}/events"]["get"]["responses"]

    assert set(responses["200"]["content"]) == {"application/json", "text/event-stream"}


@pytest.mark.parametrize(("shape", "example"), EXAMPLES)
def test_the_examples_are_valid(document: Json, shape: type[BaseModel], example: Json) -> None:
    """An example in the document is what the code takes, or gives, and fits its schema."""
    schema = {**document, "$ref": f"#/components/schemas/{shape.__name__}"}

    assert document["components"]["schemas"][shape.__name__]["examples"] == [example]
    assert Draft202012Validator(schema).is_valid(example)
    # In JSON, where enumerations are texts.
    read = shape.model_validate_json(orjson.dumps(example))
    assert read.model_dump(mode="json", exclude_unset=True).keys() == example.keys()


async def test_the_example_of_a_saga_is_like_one(
    client: httpx2.AsyncClient, driver: Driver
) -> None:
    """A saga that went the way of the example has its members, at every depth."""
    started = await driver.start(business_key="order-4711")
    await driver.compensate(started)
    saga = (await client.get(f"/v1/sagas/{started}")).json()

    def members(value: object) -> object:
        if isinstance(value, dict):
            return {name: members(each) for name, each in value.items()}
        return [members(each) for each in value] if isinstance(value, list) else None

    for own_data in ("input", "labels"):
        saga[own_data] = SAGA[own_data]
    assert members(saga) == members(SAGA)


async def test_what_is_sent_is_what_is_described(
    document: Json, client: httpx2.AsyncClient, driver: Driver
) -> None:
    """Sagas, lists, timelines and problems fit their schemas in every state."""
    statuses = [status for status in SagaStatus if status is not SagaStatus.PENDING]
    sagas: list[object] = [await driver.bring(status) for status in statuses]
    pending = await client.post("/v1/sagas", json={"definition": "book_trip"})
    sagas.append(pending.json()["id"])

    def check(name: str, value: object) -> None:
        schema = {**document, "$ref": f"#/components/schemas/{name}"}
        Draft202012Validator(schema).validate(value)

    for saga in sagas:
        check("SagaResponse", (await client.get(f"/v1/sagas/{saga}")).json())
        plan = await client.get(f"/v1/sagas/{saga}/rollback-plan")
        check("RollbackPlanResponse", plan.json())
        check("EventPage", (await client.get(f"/v1/sagas/{saga}/events")).json())
    check("SagaPage", (await client.get("/v1/sagas")).json())
    check("DefinitionPage", (await client.get("/v1/definitions")).json())
    check("DefinitionResponse", (await client.get("/v1/definitions/book_trip")).json())
    check("VersionList", (await client.get("/v1/definitions/book_trip/versions")).json())
    check("Problem", (await client.get("/v1/sagas/nope")).json())
    check("Problem", (await client.get("/v1/sagas?limit=0")).json())

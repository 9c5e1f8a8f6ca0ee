"""The OpenAPI document: valid, whole, and true."""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator

from app.schemas.examples import SAGA, START, VERB
from app.schemas.problems import Problem
from app.schemas.sagas import SagaResponse, StartSagaRequest, VerbRequest
from tests.api.conftest import app_without_store
from tests.api.driver import Driver

type Json = dict[str, Any]

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
    "cancel_saga": ("POST", "/v1/sagas/{saga_id}/cancel", {202, 400, 404, 409, 413, 415, 422}),
    "retry_saga": ("POST", "/v1/sagas/{saga_id}/retry", {202, 400, 404, 409, 413, 415, 422}),
    "list_saga_events": ("GET", "/v1/sagas/{saga_id}/events", {200, 204, 404, 422}),
}
"""What there is; every route but health may also answer 401, 500 and 503."""

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
        name: (method, path, statuses if "/health/" in path else statuses | {401, 500, 503})
        for name, (method, path, statuses) in OPERATIONS.items()
    }

    assert found == expected


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
    """Every operation but health needs the key; without any configured it may be left out."""
    open_document: Json = app_without_store().openapi()
    for _, path, operation in operations(document):
        is_open = path.startswith("/health/")
        assert operation.get("security") == (None if is_open else [{"ApiKey": []}])
    for _, path, operation in operations(open_document):
        is_open = path.startswith("/health/")
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


def test_the_examples_are_valid(document: Json) -> None:
    """An example in the document is what the code takes, or gives."""
    schemas = document["components"]["schemas"]

    assert schemas["StartSagaRequest"]["examples"] == [START]
    assert schemas["VerbRequest"]["examples"] == [VERB]
    assert schemas["SagaResponse"]["examples"] == [SAGA]
    assert StartSagaRequest.model_validate(START).business_key == START["business_key"]
    assert VerbRequest.model_validate(VERB).reason == VERB["reason"]
    assert SagaResponse.model_validate(SAGA).model_dump(mode="json") == SAGA
    for example in schemas["Problem"]["examples"]:
        assert Problem.model_validate(example).model_dump(exclude_none=True) == example


async def test_what_is_sent_is_what_is_described(
    document: Json, client: httpx2.AsyncClient, driver: Driver
) -> None:
    """Sagas, lists, timelines and problems fit their schemas in every state."""
    stuck, done, undone = [await driver.start() for _ in range(3)]
    await driver.strand(stuck)
    await driver.complete(done)
    await driver.compensate(undone)
    running = await driver.start()

    def check(name: str, value: object) -> None:
        schema = {**document, "$ref": f"#/components/schemas/{name}"}
        Draft202012Validator(schema).validate(value)

    for saga in (stuck, done, undone, running):
        check("SagaResponse", (await client.get(f"/v1/sagas/{saga}")).json())
        check("EventPage", (await client.get(f"/v1/sagas/{saga}/events")).json())
    check("SagaPage", (await client.get("/v1/sagas")).json())
    check("DefinitionPage", (await client.get("/v1/definitions")).json())
    check("DefinitionResponse", (await client.get("/v1/definitions/book_trip")).json())
    check("VersionList", (await client.get("/v1/definitions/book_trip/versions")).json())
    check("Problem", (await client.get("/v1/sagas/nope")).json())
    check("Problem", (await client.get("/v1/sagas?limit=0")).json())

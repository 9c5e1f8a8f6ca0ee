"""`/v1/definitions`: publish, validate, list, get."""

from typing import Any

import httpx2
import orjson
import pytest

from app.api.pages import name_cursor
from app.operations import Context, publish_definition
from app.schemas.examples import DEFINITION, DEFINITION_YAML
from tests.api.builders import a_document, a_step

type Client = httpx2.AsyncClient

YAML = {"Content-Type": "application/yaml"}


async def test_publishing_makes_a_version(client: Client) -> None:
    """A new definition is 201, with its version, where it is, and its warnings."""
    steps = [a_step("charge", idempotent=False)]
    response = await client.put("/v1/definitions/pay", json=a_document("pay", steps=steps))
    body = response.json()

    assert response.status_code == 201
    assert response.headers["location"] == "/v1/definitions/pay/versions/1"
    assert (body["name"], body["version"], body["created"]) == ("pay", 1, True)
    assert [warning["path"] for warning in body["warnings"]] == ["steps[0].compensation"]


async def test_the_same_content_makes_nothing(client: Client) -> None:
    """The same content, in either notation, is 200 with the version there is."""
    first = await client.put("/v1/definitions/book_trip", json=DEFINITION)
    again = await client.put("/v1/definitions/book_trip", content=DEFINITION_YAML, headers=YAML)

    assert (first.status_code, first.json()["version"]) == (201, 2)
    assert (again.status_code, again.json()["version"]) == (200, 2)
    assert again.json()["created"] is False


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/v1/definitions/pay"), ("POST", "/v1/definitions/validate")]
)
async def test_all_faults_are_told(bare: Client, method: str, path: str) -> None:
    """Publishing and validating refuse alike: 422, every fault with its path."""
    document = a_document("pay", steps=[{"id": "A"}], nmae=3)
    response = await bare.request(method, path, json=document)
    problem = response.json()

    assert response.status_code == 422
    assert problem["code"] == "invalid_definition"
    assert problem["effect"] == "none"
    assert {"nmae", "steps[0].id", "steps[0].action", "steps[0].compensation"} <= {
        fault["path"] for fault in problem["errors"]
    }
    assert all(fault["message"] and fault["accepted"] for fault in problem["errors"])


@pytest.mark.parametrize("name", ["other", "%00", "x" * 300])
async def test_the_name_in_the_path_must_be_the_documents(bare: Client, name: str) -> None:
    """A definition cannot be published under another name than its own."""
    response = await bare.put(f"/v1/definitions/{name}", json=a_document("pay"))

    assert response.status_code == 422
    assert "name" in [fault["path"] for fault in response.json()["errors"]]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/yaml; charset=utf-8"},
        {"Content-Type": "text/yaml"},
        {"Content-Type": "application/x-yaml"},
        {"Content-Type": "application/x-www-form-urlencoded"},  # curl --data-binary
        {},
    ],
)
async def test_yaml_is_read(bare: Client, headers: dict[str, str]) -> None:
    """YAML may be announced in any of its names, or not at all."""
    response = await bare.post(
        "/v1/definitions/validate", content=DEFINITION_YAML.encode(), headers=headers
    )

    assert response.status_code == 200
    assert response.json() == {"warnings": []}


@pytest.mark.parametrize("content_type", ["text/html", "multipart/form-data", "application/xml"])
async def test_another_notation_is_refused(bare: Client, content_type: str) -> None:
    """A body that is announced as something else is 415."""
    response = await bare.post(
        "/v1/definitions/validate",
        content=DEFINITION_YAML.encode(),
        headers={"Content-Type": content_type},
    )

    assert response.status_code == 415
    assert response.json()["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b"a: [", b"3", b'{"a": 1, "a": 2}', b"[" * 3000]
)
@pytest.mark.parametrize("content_type", ["application/json", "application/yaml", ""])
async def test_what_cannot_be_read_is_refused(bare: Client, raw: bytes, content_type: str) -> None:
    """A body that is no document is 422 with a fault."""
    response = await bare.post(
        "/v1/definitions/validate", content=raw, headers={"Content-Type": content_type}
    )

    assert response.status_code == 422
    assert response.json()["errors"]


async def test_validating_stores_nothing(client: Client) -> None:
    """A definition that is only validated is not there."""
    response = await client.post("/v1/definitions/validate", json=a_document("pay"))

    assert response.status_code == 200
    assert (await client.get("/v1/definitions/pay")).status_code == 404


async def test_the_latest_version_is_shown(client: Client, context: Context) -> None:
    """A definition is shown with its document as published, and the versions there are."""
    newer: Any = a_document(description="Newer.", deadline="2h")
    await publish_definition(context, newer)
    latest = (await client.get("/v1/definitions/book_trip")).json()
    first = (await client.get("/v1/definitions/book_trip/versions/1")).json()

    assert (latest["version"], latest["description"]) == (2, "Newer.")
    assert latest["document"] == newer
    assert latest["versions"] == [2, 1]
    assert (first["version"], first["description"]) == (1, "")
    assert first["document"] == a_document()


async def test_versions_are_listed(client: Client, context: Context) -> None:
    """The versions of a definition are listed, newest first."""
    await publish_definition(context, a_document(description="Newer."))
    response = (await client.get("/v1/definitions/book_trip/versions")).json()

    assert response["name"] == "book_trip"
    assert [item["version"] for item in response["items"]] == [2, 1]
    assert all(item["created_at"] for item in response["items"])


@pytest.mark.parametrize(
    "path",
    [
        "nope",
        "%00",
        "x" * 3000,
        "nope/versions",
        "nope/versions/1",
        "book_trip/versions/9",
        "book_trip/versions/0",
        "book_trip/versions/-1",
        "book_trip/versions/one",
        "book_trip/versions/\u0661",
        "book_trip/versions/99999999999999999999",
        "book_trip/versions/2147483648",
        "book_trip/versions/%00",
    ],
)
async def test_what_is_not_there_is_not_found(client: Client, path: str) -> None:
    """An unknown name or version, and what can be none, is 404."""
    response = await client.get(f"/v1/definitions/{path}")

    assert response.status_code == 404
    assert response.json()["code"] == "definition_not_found"
    assert len(response.content) < 1000


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_definitions_are_listed_by_name(client: Client, context: Context, limit: int) -> None:
    """All pages together list each definition once, by name, with its latest version."""
    await publish_definition(context, a_document(description="Newer."))
    for name in ("zebra", "ant"):
        await publish_definition(context, a_document(name))
    found, cursor = [], ""
    while True:
        page = (await client.get(f"/v1/definitions?limit={limit}{cursor}")).json()
        found += [(item["name"], item["version"]) for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"

    assert found == [("ant", 1), ("book_trip", 2), ("zebra", 1)]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("cursor=nope", "cursor"),
        (f"cursor={name_cursor('a' + chr(0))}", "cursor"),
        ("cursor=bv8", "cursor"),
        ("name=x", "name"),
    ],
)
async def test_a_query_that_is_wrong_is_refused(bare: Client, query: str, path: str) -> None:
    """What the query may not hold is 422 with the name of the parameter."""
    response = await bare.get(f"/v1/definitions?{query}")

    assert response.status_code == 422
    assert [fault["path"] for fault in response.json()["errors"]] == [path]


def test_the_documented_notations_say_the_same() -> None:
    """The example in YAML is the example in JSON."""
    from app.schemas.documents import read_document

    as_yaml = read_document(DEFINITION_YAML.encode(), content_type="application/yaml")

    assert as_yaml == DEFINITION
    assert read_document(orjson.dumps(DEFINITION), content_type="application/json") == DEFINITION

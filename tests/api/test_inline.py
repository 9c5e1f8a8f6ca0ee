"""`POST /v1/sagas` with a whole document instead of the name of a definition."""

from typing import Any

import httpx2
import pytest

from app.operations import Context, publish_definition
from tests.api.builders import a_document, a_step
from tests.api.driver import Driver

type Client = httpx2.AsyncClient


async def start(client: Client, definition: Any, **more: Any) -> httpx2.Response:
    """Start a saga of a document."""
    headers = more.pop("headers", None)
    body = {"definition": definition, **more}
    return await client.post("/v1/sagas", json=body, headers=headers)


async def test_a_document_starts_a_saga(client: Client, driver: Driver) -> None:
    """A saga of a document runs as any other; its definition has a name and no version."""
    document = a_document("once", steps=[a_step("flight")])
    response = await start(client, document)
    saga = response.json()
    opened = await driver.take_up(saga["id"])

    assert response.status_code == 202
    assert saga["definition"] == {"name": "once", "version": None}
    assert [step["id"] for step in saga["steps"]] == ["flight"]
    assert opened.has_open_calls


async def test_it_has_no_version_wherever_it_is_shown(client: Client) -> None:
    """Lists and timelines do not tell the number under which the document is stored."""
    saga = (await start(client, a_document("once"))).json()
    (item,) = (await client.get("/v1/sagas?definition=once")).json()["items"]
    (event,) = (await client.get(f"/v1/sagas/{saga['id']}/events")).json()["items"]

    assert item["definition"] == {"name": "once", "version": None}
    assert event["summary"].startswith("once (a document of its own) was asked for; ")


async def test_it_is_no_definition(client: Client) -> None:
    """A document that came with a request is not listed, has no versions, and names nothing."""
    await start(client, a_document("once"))
    listed = (await client.get("/v1/definitions")).json()["items"]
    by_name = await start(client, "once")

    assert [item["name"] for item in listed] == ["book_trip"]
    for path in ("once", "once/versions", "once/versions/1"):
        assert (await client.get(f"/v1/definitions/{path}")).status_code == 404
    assert by_name.status_code == 404
    assert by_name.json()["code"] == "definition_not_found"


async def test_a_published_name_is_not_touched(client: Client) -> None:
    """A document of a published name makes no version of it, and publishing makes the next."""
    document = a_document("book_trip", description="Mine alone.")
    await start(client, document)
    versions = (await client.get("/v1/definitions/book_trip")).json()["versions"]
    by_name = (await start(client, "book_trip")).json()
    published = (await client.put("/v1/definitions/book_trip", json=document)).json()

    assert versions == [1]
    assert by_name["definition"]["version"] == 1
    assert (published["version"], published["created"]) == (2, True)


async def test_the_same_document_is_stored_once(client: Client, context: Context) -> None:
    """Equal documents, in whatever order of their fields, share one row; others have their own."""
    document = a_document("once")
    for each in (document, dict(reversed(document.items())), a_document("once", description="x")):
        assert (await start(client, each)).status_code == 202
    async with context.database.read() as tx:
        rows = await tx.fetch("SELECT version FROM definitions WHERE name = 'once'")

    assert len({row["version"] for row in rows}) == len(rows) == 2
    assert all(row["version"] < 0 for row in rows)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"amends": 1},
        a_document("pay", steps=[{"id": "A"}], nmae=3),
        a_document("Not a name"),
        a_document("pay", input={"type": "strnig"}),
        a_document("pay", steps=[a_step("a"), a_step("a")]),
        a_document("pay", output="${{ steps.nope.output }}"),
        {"name": "a\0b"},
        a_document("pay", description="a\0b"),
    ],
)
async def test_faults_are_those_of_publishing(client: Client, document: dict[str, Any]) -> None:
    """A document that is wrong is told all its faults, as when it is published."""
    validated = await client.post("/v1/definitions/validate", json=document)
    response = await start(client, document)

    assert validated.status_code == response.status_code == 422
    assert response.json()["code"] == "invalid_definition"
    assert response.json()["errors"] == validated.json()["errors"]


async def test_a_document_has_no_version_to_name(bare: Client) -> None:
    """A version beside a document is refused: it would mean nothing."""
    response = await start(bare, a_document(), version=1)
    (fault,) = response.json()["errors"]

    assert response.status_code == 422
    assert fault["path"] == "version"


@pytest.mark.parametrize("definition", [3, 1.5, True, None, [], ["book_trip"]])
async def test_what_is_neither_is_told_once(bare: Client, definition: object) -> None:
    """What is neither a name nor a document is one fault, which says what would be accepted."""
    response = await start(bare, definition)
    (fault,) = response.json()["errors"]

    assert response.status_code == 422
    assert fault["path"] == "definition"
    assert fault["message"].endswith("it is neither a name nor a document")
    assert fault["accepted"] == "the name of a published definition as text, or a whole document"


async def test_an_input_must_fit_its_schema(client: Client) -> None:
    """The document's own schema says what the input may be."""
    schema: Any = {"type": "object", "required": ["city"]}
    response = await start(client, a_document("stay", input=schema), input={})

    assert response.status_code == 422
    assert [fault["path"] for fault in response.json()["errors"]] == ["input.city"]


async def test_an_idempotency_key_covers_the_document(client: Client) -> None:
    """The same key and document are one saga; another document with that key is refused."""
    headers = {"Idempotency-Key": "k"}
    document = a_document("once")
    first = await start(client, document, headers=headers)
    again = await start(client, dict(reversed(document.items())), headers=headers)
    other = await start(client, a_document("once", description="x"), headers=headers)
    named = await start(client, "book_trip", headers=headers)

    assert first.status_code == 202
    assert again.status_code == 200
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json()
    for refused in (other, named):
        assert refused.status_code == 422
        assert refused.json()["code"] == "idempotency_key_reused"
        assert refused.json()["saga"] == first.json()["id"]


async def test_a_business_key_is_of_the_name(client: Client) -> None:
    """A live saga's business key is taken for its name, however its definition came."""
    inline = await start(client, a_document("book_trip", description="x"), business_key="o-1")
    by_name = await start(client, "book_trip", business_key="o-1")
    other = await start(client, a_document("other"), business_key="o-1")
    again = await start(client, a_document("other", description="x"), business_key="o-1")

    assert (inline.status_code, other.status_code) == (202, 202)
    for refused, taken_by in ((by_name, inline), (again, other)):
        assert refused.status_code == 409
        assert refused.json()["code"] == "business_key_taken"
        assert refused.json()["saga"] == taken_by.json()["id"]


async def test_a_document_of_almost_the_limit_is_taken(client: Client, context: Context) -> None:
    """A large document is taken, and its saga can be read."""
    document = a_document("large", description="x" * 5000)
    await publish_definition(context, document)
    saga = (await start(client, document)).json()

    assert (await client.get(f"/v1/sagas/{saga['id']}")).json()["definition"]["version"] is None

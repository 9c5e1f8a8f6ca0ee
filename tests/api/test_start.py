"""`POST /v1/sagas`."""

from typing import Any
from uuid import UUID

import httpx2
import orjson
import pytest

from app.operations import Context, publish_definition
from tests.api.builders import a_document
from tests.api.driver import Driver

type Client = httpx2.AsyncClient


async def start(client: Client, headers: dict[str, str] | None = None, **body: Any) -> Any:
    """Start a saga of `book_trip` and return the response."""
    document = {"definition": "book_trip", **body}
    return await client.post("/v1/sagas", json=document, headers=headers)


async def test_a_started_saga_is_accepted_and_shown(client: Client) -> None:
    """The answer is 202 with the whole saga, where it is, and its revision."""
    response = await start(client, input={"city": "Rome"}, labels={"env": "prod"})
    saga = response.json()

    assert response.status_code == 202
    assert response.headers["location"] == f"/v1/sagas/{saga['id']}"
    assert response.headers["etag"] == '"1"'
    assert "preference-applied" not in response.headers
    assert UUID(saga["id"]).version == 7
    assert saga["status"] == "pending"
    assert saga["definition"] == {"name": "book_trip", "version": 1}
    assert saga["input"] == {"city": "Rome"}
    assert saga["labels"] == {"env": "prod"}
    assert saga["waiting_for"][0]["what"] == "engine"


async def test_steps_that_have_not_begun_are_shown(client: Client) -> None:
    """A step that has not begun is pending, without effect, and in its place."""
    saga = (await start(client)).json()

    assert [step["id"] for step in saga["steps"]] == ["flight", "hotel"]
    assert saga["steps"][0] == {
        "id": "flight",
        "status": "pending",
        "effect": "none",
        "attempts": 0,
        "output": None,
        "error": None,
        "idempotency_key": None,
        "progress": None,
        "compensation": None,
        "started_at": None,
        "finished_at": None,
        "compensated_at": None,
    }


async def test_the_shape_is_the_documented_one(client: Client) -> None:
    """The members of a saga are those of the design, in its order."""
    saga = (await start(client)).json()

    assert list(saga) == [
        "id",
        "definition",
        "status",
        "revision",
        "business_key",
        "labels",
        "input",
        "output",
        "failure",
        "steps",
        "residue",
        "waiting_for",
        "stuck",
        "paused",
        "pending",
        "terminated",
        "verbs",
        "attention",
        "created_at",
        "updated_at",
        "finished_at",
    ]


async def test_the_same_key_and_body_start_one_saga(client: Client) -> None:
    """A repeated request answers 200 with the same saga, and says so."""
    headers = {"Idempotency-Key": "order 4711"}
    first = await start(client, headers, input={"n": 1, "m": 2})
    again = await start(client, headers, input={"m": 2, "n": 1})

    assert first.status_code == 202
    assert "idempotent-replayed" not in first.headers
    assert again.status_code == 200
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json()


async def test_the_same_key_with_another_body_is_refused(client: Client) -> None:
    """Another body with the same key is 422 and names the saga that the key started."""
    headers = {"Idempotency-Key": "k"}
    first = await start(client, headers, input=1)
    again = await start(client, headers, input=2)

    assert again.status_code == 422
    assert again.json()["code"] == "idempotency_key_reused"
    assert again.json()["saga"] == first.json()["id"]


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\xe9", "tab\tin it"])
async def test_a_key_that_cannot_be_one_is_refused(bare: Client, key: str) -> None:
    """A key must be 1 to 255 characters of printable ASCII."""
    response = await bare.post(
        "/v1/sagas",
        json={"definition": "book_trip"},
        headers=[(b"Idempotency-Key", key.encode("latin-1"))],
    )

    assert response.status_code == 422
    assert response.json()["errors"][0]["path"] == "Idempotency-Key"


async def test_a_business_key_is_taken_while_its_saga_lives(client: Client) -> None:
    """A second saga with a live one's business key is 409, and the live one is named."""
    first = await start(client, business_key="order-4711")
    second = await start(client, business_key="order-4711")
    await client.post(f"/v1/sagas/{first.json()['id']}/cancel", json={"reason": "over"})
    third = await start(client, business_key="order-4711")

    assert second.status_code == 409
    assert second.json()["code"] == "business_key_taken"
    assert second.json()["saga"] == first.json()["id"]
    assert third.status_code == 202


async def test_the_idempotency_key_is_looked_at_before_the_business_key(client: Client) -> None:
    """A repeated request meets its own saga, not the conflict with it."""
    headers = {"Idempotency-Key": "k"}
    await start(client, headers, business_key="order-4711")
    again = await start(client, headers, business_key="order-4711")

    assert again.status_code == 200


async def test_a_version_can_be_named(client: Client, context: Context) -> None:
    """The latest version is taken unless another is named."""
    await publish_definition(context, a_document(description="newer"))

    latest = (await start(client)).json()
    first = (await start(client, version=1)).json()

    assert latest["definition"]["version"] == 2
    assert first["definition"]["version"] == 1


@pytest.mark.parametrize("body", [{"definition": "nope"}, {"version": 9}, {"definition": "Nö pe"}])
async def test_what_is_not_published_is_not_found(client: Client, body: dict[str, Any]) -> None:
    """An unknown name or version of a definition is 404."""
    response = await start(client, **body)

    assert response.status_code == 404
    assert response.json()["code"] == "definition_not_found"


async def test_an_input_must_fit_the_schema(client: Client, context: Context) -> None:
    """Every fault of an input is told with its path."""
    schema: Any = {
        "type": "object",
        "required": ["city"],
        "properties": {"nights": {"type": "integer"}},
    }
    await publish_definition(context, a_document("stay", input=schema))

    response = await start(client, definition="stay", input={"nights": "two"})
    problem = response.json()

    assert response.status_code == 422
    assert problem["code"] == "invalid_request"
    assert {fault["path"] for fault in problem["errors"]} == {"input.city", "input.nights"}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "definition"),
        ({"definition": 3}, "definition"),
        ({"definition": None}, "definition"),
        ({"definition": [{"amends": 1}]}, "definition"),
        ({"definition": True}, "definition"),
        ({"definition": ""}, "definition"),
        ({"definition": "a\0b"}, "definition"),
        ({"definition": "x" * 101}, "definition"),
        ({"definition": "a", "version": "1"}, "version"),
        ({"definition": "a", "version": 0}, "version"),
        ({"definition": "a", "version": 2**31}, "version"),
        ({"definition": "a", "version": True}, "version"),
        ({"definition": {}, "version": 1}, "version"),
        ({"definition": "a", "business_key": ""}, "business_key"),
        ({"definition": "a", "business_key": "x" * 256}, "business_key"),
        ({"definition": "a", "business_key": "bell\a"}, "business_key"),
        ({"definition": "a", "labels": {"a b": "x"}}, 'labels["a b"]'),
        ({"definition": "a", "labels": {"a": "x\0"}}, "labels.a"),
        ({"definition": "a", "labels": {"a": "x" * 256}}, "labels.a"),
        ({"definition": "a", "labels": {"a": None}}, "labels.a"),
        ({"definition": "a", "labels": {f"l{n}": "" for n in range(21)}}, "labels"),
        ({"definition": "a", "labels": None}, "labels"),
        ({"definition": "a", "deadline": "30"}, "deadline"),
        ({"definition": "a", "deadline": 30}, "deadline"),
        ({"definition": "a", "deadline": "0s"}, "deadline"),
        ({"definition": "a", "deadline": "366d"}, "deadline"),
        ({"definition": "a", "inputs": {}}, "inputs"),
        ([], ""),
    ],
)
async def test_a_body_that_is_wrong_is_refused_with_its_path(
    bare: Client, body: object, path: str
) -> None:
    """What a body may not hold is 422 with the path of the field."""
    response = await bare.post("/v1/sagas", json=body)

    assert response.status_code == 422
    assert response.json()["code"] == "invalid_request"
    assert [fault["path"] for fault in response.json()["errors"]] == [path]


async def test_all_faults_are_told_at_once(bare: Client) -> None:
    """A typing mistake is told with what was meant, beside every other fault."""
    response = await bare.post("/v1/sagas", json={"versoin": 3, "deadline": "soon"})
    faults = {fault["path"]: fault for fault in response.json()["errors"]}

    assert set(faults) == {"definition", "deadline", "versoin"}
    assert "did you mean 'version'?" in faults["versoin"]["message"]
    assert "labels" in faults["versoin"]["accepted"]
    assert "250ms" in faults["deadline"]["accepted"]


@pytest.mark.parametrize(
    "value",
    [
        {"a": "NUL \0 within", "\0": 1},
        "<script>alert(1)</script>",
        {"": {"$ref": "${{ input.x }}", "emoji": "👩‍👩‍👧", "rtl": "\u202e"}},
        [0, -0.5, 1e300, 2**63 - 1, -(2**63)],
        [],
        "",
        False,
        None,
    ],
)
async def test_any_json_is_stored_as_it_came(client: Client, value: Any) -> None:
    """Whatever JSON can say comes back unchanged, whatever it would do elsewhere."""
    saga = (await start(client, input=value)).json()
    read = await client.get(f"/v1/sagas/{saga['id']}")

    assert saga["input"] == value
    assert read.json()["input"] == value
    assert read.headers["content-type"] == "application/json"
    assert read.headers["x-content-type-options"] == "nosniff"


async def test_an_input_of_almost_the_limit_is_stored(client: Client) -> None:
    """An input of nearly 1 MiB is taken."""
    text = "x" * (1024 * 1024 - 200)
    response = await start(client, input=text)

    assert response.status_code == 202
    assert response.json()["input"] == text


async def test_a_deadline_is_taken(client: Client, driver: Driver) -> None:
    """A deadline in the request is the saga's own."""
    saga = (await start(client, deadline="90m")).json()
    journal = await driver.context.journal.load([UUID(saga["id"])])  # type: ignore[list-item]  # NewType
    facts = next(iter(journal.values())).facts

    assert facts.deadline_at is not None
    assert (facts.deadline_at - facts.created_at).total_seconds() == 90 * 60


async def test_a_json_suffix_is_json(client: Client) -> None:
    """A media type that ends in +json is read as JSON."""
    response = await client.post(
        "/v1/sagas",
        content=orjson.dumps({"definition": "book_trip"}),
        headers={"Content-Type": "application/vnd.mine+json; charset=utf-8"},
    )

    assert response.status_code == 202

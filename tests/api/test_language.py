"""`GET /v1/definition-schema`: the language for editors."""

import httpx2
import pytest
from jsonschema import Draft202012Validator

from app.core.language import language_schema
from app.schemas.examples import DEFINITION
from tests.api.builders import a_document
from tests.api.conftest import app_without_store, client_of

type Client = httpx2.AsyncClient

PATH = "/v1/definition-schema"


async def test_the_schema_is_served(bare: Client) -> None:
    """It is the language's, in the media type of schemas, and may be kept for a while."""
    response = await bare.get(PATH)

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/schema+json"
    assert response.headers["cache-control"] == "public, max-age=3600"
    assert response.json() == language_schema()


async def test_the_schema_takes_what_the_service_takes(bare: Client) -> None:
    """Definitions that may be published are valid by it, and a misspelt one is not."""
    validator = Draft202012Validator((await bare.get(PATH)).json())

    assert validator.is_valid(DEFINITION)
    assert validator.is_valid(a_document())
    assert not validator.is_valid(a_document(nmae="x"))


@pytest.mark.parametrize("weak", ["", "W/"])
async def test_a_known_schema_is_not_sent_again(bare: Client, weak: str) -> None:
    """If-None-Match with its ETag answers 304 without a body."""
    etag = (await bare.get(PATH)).headers["etag"]
    response = await bare.get(PATH, headers={"If-None-Match": f"{weak}{etag}"})

    assert response.status_code == 304
    assert response.headers["etag"] == etag
    assert response.content == b""


async def test_an_editor_needs_no_key() -> None:
    """An editor can send no key, on whatever host the service is."""
    async with client_of(app_without_store("secret")) as client:
        response = await client.get(PATH, headers={"Host": "amends.example.com"})

    assert response.status_code == 200


async def test_a_definition_may_have_any_name(client: Client) -> None:
    """The schema's path lies apart from those of definitions, so that it takes no name away."""
    for name in ("schema", "validate"):
        published = await client.put(f"/v1/definitions/{name}", json=a_document(name))
        read = await client.get(f"/v1/definitions/{name}")

        assert (published.status_code, read.status_code) == (201, 200)

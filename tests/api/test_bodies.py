"""What a body may not be: too large, too deep, not JSON, or JSON that readers disagree on."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import orjson
import pytest

from app.api.bodies import read_json
from app.api.limits import BODY_BYTES_MAX, DROP_BYTES_MAX, measure

type Client = httpx2.AsyncClient

JSON = {"Content-Type": "application/json"}

ROUTES = [
    ("POST", "/v1/sagas"),
    ("POST", "/v1/sagas/x/cancel"),
    ("POST", "/v1/sagas/x/steps/y/resolve"),
    ("PUT", "/v1/definitions/x"),
    ("POST", "/v1/definitions/validate"),
]
JSON_ROUTES = ROUTES[:3]


def nested(depth: int) -> bytes:
    """A body whose input makes it so deep."""
    inner = depth - 1
    return b'{"definition": "book_trip", "input": ' + b"[" * inner + b"]" * inner + b"}"


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_body_that_is_too_large_is_refused(bare: Client, method: str, path: str) -> None:
    """A body of more than 1 MiB is 413, by its announced length."""
    response = await bare.request(method, path, content=b"x" * (BODY_BYTES_MAX + 1), headers=JSON)

    assert response.status_code == 413
    assert response.json()["code"] == "payload_too_large"
    assert response.json()["effect"] == "none"


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_body_in_chunks_is_counted(bare: Client, method: str, path: str) -> None:
    """A body without a length is 413 once it is too large; the rest is dropped, up to a point."""
    taken = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(200):
            taken += 1
            yield b"x" * (BODY_BYTES_MAX)

    response = await bare.request(method, path, content=flood(), headers=JSON)

    assert response.status_code == 413
    assert taken == DROP_BYTES_MAX // BODY_BYTES_MAX + 1


async def test_fifty_megabytes_are_refused(bare: Client) -> None:
    """A huge body is refused without being read."""
    response = await bare.post("/v1/sagas", content=b"x" * 50_000_000, headers=JSON)

    assert response.status_code == 413


async def test_a_body_in_chunks_is_read(client: Client) -> None:
    """A body may come in pieces, cut anywhere."""

    async def pieces() -> AsyncIterator[bytes]:
        for byte in orjson.dumps({"definition": "book_trip", "input": "ü"}):
            yield bytes([byte])

    response = await client.post("/v1/sagas", content=pieces(), headers=JSON)

    assert response.status_code == 202
    assert response.json()["input"] == "ü"


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"nope",
        b'{"definition": "a"} {}',
        b'{"definition": "a", "input": NaN}',
        b'{"definition": "a", "input": Infinity}',
        b'{"definition": "a", "input": 1e999}',
        b'{"definition": "a", "input": "\\ud800"}',
        b'{"definition": "a", "input": "\\udc00\\ud800"}',
        b'{"definition": "a", "input": "\xed\xa0\x80"}',
        b'{"definition": "a", "input": "\xff"}',
        b'{"definition": "a", "input": "\n"}',
        b'{"definition": "a", "definition": "b"}',
        b'{"definition": "a", "input": {"x": 1, "x": 1}}',
        b'{"definition": "a", "input": [{"x": {}, "\\u0078" : 2}]}',
        b'\xef\xbb\xbf{"definition": "a"}',
        b"\x00",
        b"[" * 100_000,
        orjson.dumps({"definition": "a"}).decode().encode("utf-16"),
    ],
)
@pytest.mark.parametrize(("method", "path"), JSON_ROUTES)
async def test_what_is_no_json_is_refused(bare: Client, method: str, path: str, raw: bytes) -> None:
    """A body that is no JSON, or that readers disagree on, is 400 and says why."""
    response = await bare.request(method, path, content=raw, headers=JSON)

    assert response.status_code == 400
    assert response.json()["code"] == "malformed_json"
    assert response.json()["detail"].startswith("the body cannot be read as JSON: ")


async def test_a_name_that_comes_twice_is_named(bare: Client) -> None:
    """The refusal of a repeated name says which it is."""
    response = await bare.post("/v1/sagas", content=b'{"a": {"b": 1, "b": 2}}', headers=JSON)

    assert "'b' comes twice" in response.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "content_type"),
    [
        (*route, content_type)
        for route in JSON_ROUTES
        for content_type in (
            "",
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/yaml",
            "application/jsonp",
            "text/json+x",
        )
    ],
)
async def test_a_body_must_be_announced_as_json(
    bare: Client, method: str, path: str, content_type: str
) -> None:
    """What a page of another site could send unasked is 415, whatever it holds."""
    response = await bare.request(
        method, path, content=b'{"reason": "x"}', headers={"Content-Type": content_type}
    )

    assert response.status_code == 415
    assert response.json()["code"] == "unsupported_media_type"


async def test_sixty_four_levels_are_taken(client: Client) -> None:
    """A body may be 64 levels deep."""
    response = await client.post("/v1/sagas", content=nested(64), headers=JSON)

    assert response.status_code == 202


@pytest.mark.parametrize("depth", [65, 500])
async def test_more_levels_are_refused(bare: Client, depth: int) -> None:
    """A deeper body is 422."""
    response = await bare.post("/v1/sagas", content=nested(depth), headers=JSON)

    assert response.status_code == 422
    assert response.json()["errors"][0]["accepted"] == "at most 64 levels"


@pytest.mark.parametrize("number", [str(2**63), str(-(2**63) - 1), str(2**64), "9" * 300])
async def test_numbers_that_would_lose_digits_are_refused(bare: Client, number: str) -> None:
    """A whole number of more than 64 bits is 422 and not rounded."""
    raw = f'{{"definition": "book_trip", "input": [{number}]}}'.encode()
    response = await bare.post("/v1/sagas", content=raw, headers=JSON)

    assert response.status_code == 422
    assert "would lose digits" in response.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    "document",
    [
        {"url": "http://x", "quoted": '\\":', "a:b": {"a:b": 1}},
        {"digits": "1" * 40, "float": 0.1234567890123456789, "big": 1e25},
        [{"a": 1}, {"a": 1}, {"a": {"a": 1}}],
        2**63 - 1,
        -(2**63),
    ],
)
def test_what_only_looks_suspicious_is_read(document: Any) -> None:
    """The second, slower look lets pass what is right."""
    assert read_json(orjson.dumps(document)) == document


@pytest.mark.parametrize(
    ("document", "names", "depth"),
    [
        (None, 0, 0),
        ("{[", 0, 0),
        ([], 0, 1),
        ({}, 0, 1),
        ({"a": {"b": [1, {"c": 2}]}, "d": 1}, 4, 4),
        ([[], [[]]], 0, 3),
    ],
)
def test_documents_are_measured(document: Any, names: int, depth: int) -> None:
    """Names and levels are counted."""
    assert measure(document) == (names, depth)

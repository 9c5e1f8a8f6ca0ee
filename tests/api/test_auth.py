"""Who may ask, tried on every route that there is."""

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
from fastapi.routing import iter_route_contexts

from tests.api.asgi import exchange
from tests.api.conftest import app_without_store, client_of

KEY = "a-key-of-thirty-two-characters--"
OTHER = "another-key-of-thirty-two-chars-"


def every_route() -> Iterator[tuple[str, str]]:
    """Method and path of every route of the application, its documentation too."""
    for route in iter_route_contexts(app_without_store().routes):
        assert route.path is not None
        assert route.methods is not None
        path = route.path.replace("{", "").replace("}", "")
        yield from ((method, path) for method in sorted(route.methods))


OPEN = {
    ("GET", "/health/live"),
    ("GET", "/health/ready"),
    ("GET", "/v1/definition-schema"),
    ("POST", "/v1/callbacks/token"),
}
CLOSED = [route for route in every_route() if route not in OPEN]


def test_the_routes_are_those_of_the_design() -> None:
    """The list that the other tests go through is whole."""
    assert set(every_route()) == OPEN | {
        ("GET", "/docs"),
        ("HEAD", "/docs"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("HEAD", "/openapi.json"),
        ("GET", "/v1/definitions"),
        ("PUT", "/v1/definitions/name"),
        ("GET", "/v1/definitions/name"),
        ("GET", "/v1/definitions/name/versions"),
        ("GET", "/v1/definitions/name/versions/version"),
        ("POST", "/v1/definitions/validate"),
        ("POST", "/v1/sagas"),
        ("GET", "/v1/sagas"),
        ("GET", "/v1/sagas/saga_id"),
        ("GET", "/v1/sagas/saga_id/events"),
        ("GET", "/v1/sagas/saga_id/rollback-plan"),
        ("POST", "/v1/sagas/saga_id/cancel"),
        ("POST", "/v1/sagas/saga_id/pause"),
        ("POST", "/v1/sagas/saga_id/resume"),
        ("POST", "/v1/sagas/saga_id/retry"),
        ("POST", "/v1/sagas/saga_id/terminate"),
        ("POST", "/v1/sagas/saga_id/steps/step_id/resolve"),
        ("POST", "/v1/sagas/saga_id/steps/step_id/skip"),
        ("POST", "/v1/sagas/saga_id/steps/step_id/undo"),
    }


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY}x",
        f"Bearer {KEY},{OTHER}",
        f"Basic {KEY}",
        KEY,
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        *CLOSED,
        ("GET", "/nowhere"),
        ("GET", "/health"),
        ("POST", "/v1/callbacks"),
        ("POST", "/v1/callbacksx/token"),
        ("GET", "/v1/definition-schema/"),
        ("GET", "/v1/definition-schemas"),
        ("GET", "//health/live"),
    ],
)
async def test_a_stranger_is_told_nothing(
    method: str, path: str, authorization: str | None
) -> None:
    """Without a key of ours every path is 401, whether there is anything or not."""
    headers = {} if authorization is None else {"Authorization": authorization}
    async with client_of(app_without_store(KEY, OTHER)) as client:
        response = await client.request(method, path, headers=headers, content=b"{")

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["content-type"] == "application/problem+json"
    if method != "HEAD":
        assert response.json()["code"] == "unauthorized"


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/v1/definition-schema"])
async def test_what_tells_nothing_is_open(path: str) -> None:
    """Whoever watches the service needs no key, nor does an editor that checks a definition."""
    async with client_of(app_without_store(KEY)) as client:
        response = await client.get(path)

    assert response.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/callbacks/../sagas",
        "/v1/callbacks/%2e%2e/sagas",
        "/v1/callbacks//v1/sagas",
        "/v1/callbacks/x/../../sagas",
        "/health/../v1/sagas",
        "/v1/callbacks/..%2fsagas",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_open_path_leads_nowhere_else(method: str, path: str) -> None:
    """What begins like an open path opens no other: a path is taken as it is written."""
    async with exchange(app_without_store(KEY), method, path) as held:
        await held.is_over.wait()

    assert held.status in {404, 405}


@pytest.mark.parametrize("authorization", [f"Bearer {KEY}", f"bearer   {OTHER} ", f"BEARER {KEY}"])
async def test_each_key_opens(authorization: str) -> None:
    """Each configured key is good, whatever the case of the scheme."""
    async with client_of(app_without_store(KEY, OTHER)) as client:
        response = await client.get("/openapi.json", headers={"Authorization": authorization})

    assert response.status_code == 200


async def test_without_keys_everything_is_open(bare: httpx2.AsyncClient) -> None:
    """Where no key is configured, none is asked for."""
    assert (await bare.get("/openapi.json")).status_code == 200
    assert (await bare.get("/docs")).status_code == 200
    assert (await bare.get("/v1/sagas/nope")).status_code == 404


async def test_a_strangers_body_is_not_read() -> None:
    """A request without a key is refused before any of its body is taken."""
    taken = []

    async def body() -> AsyncIterator[bytes]:
        taken.append(1)
        yield b"{}"

    async with client_of(app_without_store(KEY)) as client:
        response = await client.post("/v1/sagas", content=body())

    assert response.status_code == 401
    assert taken == []

"""`GET /v1/sagas`: filters and pages."""

from typing import Any

import httpx2
import pytest

from app.api.pages import name_cursor
from app.core.saga import SagaStatus
from app.operations import Context, StartRequest, publish_definition, start_saga
from tests.api.builders import a_document
from tests.api.driver import Driver

type Client = httpx2.AsyncClient


async def start(context: Context, **facts: Any) -> str:
    """Start a saga of `book_trip`."""
    request = StartRequest(**{"definition": "book_trip", **facts})
    return str((await start_saga(context, request)).saga.id)


async def ids(client: Client, query: str = "") -> list[str]:
    """The ids on the one page that there is."""
    response = await client.get(f"/v1/sagas{query}")
    assert response.status_code == 200, response.text
    assert response.json()["next_cursor"] is None
    return [item["id"] for item in response.json()["items"]]


async def pages(client: Client, query: str) -> list[list[str]]:
    """The ids on every page, from the first one on."""
    found, cursor = [], ""
    while True:
        page = (await client.get(f"/v1/sagas?{query}{cursor}")).json()
        found.append([item["id"] for item in page["items"]])
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


async def test_there_may_be_none(client: Client) -> None:
    """Without sagas the page is empty."""
    response = await client.get("/v1/sagas")

    assert response.json() == {"items": [], "next_cursor": None}


async def test_an_item_is_a_saga_without_its_steps(client: Client, context: Context) -> None:
    """A list shows what identifies a saga and where it stands."""
    saga = await start(context, business_key="order-1", labels={"env": "prod"})
    item = (await client.get("/v1/sagas")).json()["items"][0]
    whole = (await client.get(f"/v1/sagas/{saga}")).json()

    assert item["business_key"] == "order-1"
    assert item["labels"] == {"env": "prod"}
    assert item == {name: whole[name] for name in item}


async def test_the_newest_come_first(client: Client, context: Context) -> None:
    """Sagas are listed in the reverse order of their creation."""
    started = [await start(context) for _ in range(3)]

    assert await ids(client) == started[::-1]


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 6])
async def test_pages_neither_repeat_nor_skip(client: Client, context: Context, limit: int) -> None:
    """All pages together list each saga once, also where the times of creation are equal."""
    started = [await start(context) for _ in range(5)]
    async with context.database.write() as tx:
        await tx.execute("UPDATE sagas SET created_at = '2026-01-01T00:00:00.123456Z'")

    found = await pages(client, f"limit={limit}")

    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert [saga for page in found for saga in page] == sorted(started, reverse=True)


async def test_a_page_goes_on_where_the_one_before_ended(client: Client, context: Context) -> None:
    """What is added meanwhile does not move a page."""
    old = [await start(context) for _ in range(2)]
    first = (await client.get("/v1/sagas?limit=1")).json()
    await start(context)
    second = (await client.get(f"/v1/sagas?limit=1&cursor={first['next_cursor']}")).json()

    assert [item["id"] for item in second["items"]] == [old[0]]
    assert second["next_cursor"] is None


async def test_a_status_can_be_chosen(client: Client, context: Context, driver: Driver) -> None:
    """The status filter lists the sagas of that status, live or final."""
    pending = await start(context)
    running = await driver.start()
    completed = await driver.start()
    await driver.complete(completed)

    assert await ids(client, "?status=pending") == [pending]
    assert await ids(client, "?status=running") == [str(running)]
    assert await ids(client, "?status=completed") == [str(completed)]
    assert await ids(client, "?status=stuck") == []


async def test_a_definition_can_be_chosen(client: Client, context: Context) -> None:
    """The definition filter lists the sagas of all its versions."""
    await publish_definition(context, a_document("other"))
    await start(context)
    other = await start(context, definition="other")

    assert await ids(client, "?definition=other") == [other]


async def test_a_business_key_can_be_chosen(client: Client, context: Context) -> None:
    """The business key filter takes whatever was taken at the start, escaped."""
    saga = await start(context, business_key="a+b &c=d/ü")
    await start(context, business_key="other")

    assert await ids(client, "?business_key=a%2Bb+%26c%3Dd%2F%C3%BC") == [saga]


async def test_labels_can_be_chosen(client: Client, context: Context) -> None:
    """Every label that is given must be there, with that very value."""
    both = await start(context, labels={"env": "prod", "team.name": "a b"})
    one = await start(context, labels={"env": "prod"})
    await start(context)

    assert await ids(client, "?label.env=prod") == [one, both]
    assert await ids(client, "?label.env=prod&label.team.name=a+b") == [both]
    assert await ids(client, "?label.env=pro") == []
    assert await ids(client, "?label.env=") == []


async def test_a_time_can_be_chosen(client: Client, context: Context) -> None:
    """Sagas created after a time are listed, whatever zone it is told in."""
    saga = await start(context)

    assert await ids(client, "?created_after=2026-01-01T00:00:00Z") == [saga]
    assert await ids(client, "?created_after=2026-01-01T00:00:00%2B05:30") == [saga]
    assert await ids(client, "?created_after=2026-01-01T00:00:00+05:30") == [saga]
    assert await ids(client, "?created_after=2999-01-01T00:00:00Z") == []
    assert await ids(client, "?created_after=9999-12-31T23:59:59.999999Z") == []


async def test_what_needs_a_person_can_be_chosen(client: Client, driver: Driver) -> None:
    """Stuck sagas are listed among those that ask for attention, and not among the others."""
    stuck = await driver.start()
    await driver.strand(stuck)
    running = await driver.start()
    listed = (await client.get("/v1/sagas?attention=true")).json()["items"]

    assert [item["id"] for item in listed] == [str(stuck)]
    assert listed[0]["attention"] is True
    assert listed[0]["failure"]["code"] == "refused"
    assert await ids(client, "?attention=false") == [str(running)]


@pytest.mark.parametrize("status", SagaStatus)
async def test_every_status_can_be_chosen(
    client: Client, context: Context, driver: Driver, status: SagaStatus
) -> None:
    """Each status there is lists its own sagas, and only stuck ones ask for attention."""
    is_pending = status is SagaStatus.PENDING
    saga = await (start(context) if is_pending else driver.bring(status))
    (item,) = (await client.get(f"/v1/sagas?status={status}")).json()["items"]

    assert item["id"] == str(saga)
    assert item["attention"] is (status is SagaStatus.STUCK)
    assert await ids(client, "?attention=true") == [str(saga)] * (status is SagaStatus.STUCK)
    for other in set(SagaStatus) - {status}:
        assert await ids(client, f"?status={other}") == []


async def test_filters_and_pages_go_together(client: Client, context: Context) -> None:
    """Pages of a filtered list hold what fits alone."""
    chosen = []
    for number in range(6):
        saga = await start(context, labels={"odd": str(number % 2)})
        if number % 2:
            chosen.append(saga)

    assert await pages(client, "limit=2&label.odd=1") == [[chosen[2], chosen[1]], [chosen[0]]]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=ten", "limit"),
        ("limit=", "limit"),
        ("limit=1&limit=2", "limit"),
        ("status=done", "status"),
        ("status=", "status"),
        ("attention=maybe", "attention"),
        ("created_after=2026-01-01", "created_after"),
        ("created_after=1767225600", "created_after"),
        ("created_after=2026-01-01T00:00:00", "created_after"),
        ("created_after=0001-01-01T00:00:00%2B23:00", "created_after"),
        ("business_key=%00", "business_key"),
        ("definition=%00", "definition"),
        ("label.env=%00", "label.env"),
        ("label.=x", 'label[""]'),
        ("label.a%20b=x", 'label["a b"]'),
        ("labels=x", "labels"),
        ("offset=3", "offset"),
        ("cursor=", "cursor"),
        ("cursor=nope", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=" + "A" * 34, "cursor"),
        ("cursor=" + "_" * 34, "cursor"),
        (f"cursor={name_cursor('book_trip')}", "cursor"),
        ("cursor=" + "A" * 300, "cursor"),
    ],
)
async def test_a_query_that_is_wrong_is_refused(bare: Client, query: str, path: str) -> None:
    """What the query may not hold is 422 with the name of the parameter."""
    response = await bare.get(f"/v1/sagas?{query}")

    assert response.status_code == 422
    assert response.json()["code"] == "invalid_request"
    assert [fault["path"] for fault in response.json()["errors"]] == [path]


async def test_an_unknown_parameter_is_told_what_there_is(bare: Client) -> None:
    """An unknown parameter is answered with those that are known."""
    response = await bare.get("/v1/sagas?stauts=stuck")
    fault = response.json()["errors"][0]

    assert "did you mean 'status'?" in fault["message"]
    assert fault["accepted"].split(", ") == [
        "status",
        "definition",
        "business_key",
        "label.*",
        "created_after",
        "attention",
        "limit",
        "cursor",
    ]


async def test_a_cursor_is_of_one_list(client: Client, context: Context) -> None:
    """The cursor of the list of sagas is none of the list of definitions."""
    for _ in range(2):
        await start(context)
    cursor = (await client.get("/v1/sagas?limit=1")).json()["next_cursor"]
    response = await client.get(f"/v1/definitions?cursor={cursor}")

    assert response.status_code == 422

"""`GET /v1/sagas/{id}/events`: the timeline, in pages and as a stream."""

import json
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from app.core.identity import Direction
from app.core.observation import NotSent, NotSentReason
from app.operations import Context, sagas as saga_operations
from app.schemas.event_view import event_type
from app.store import FACT_NAMES
from tests.api.asgi import exchange
from tests.api.driver import TIMED_OUT, Driver
from tests.waiting import wait_until

type Client = httpx2.AsyncClient

STREAM = {"Accept": "text/event-stream"}


async def timeline(client: Client, saga: object) -> list[Any]:
    """All entries of a saga."""
    response = await client.get(f"/v1/sagas/{saga}/events")
    assert response.status_code == 200
    items: list[Any] = response.json()["items"]
    return items


def told(text: str) -> list[tuple[str, str, Any]]:
    """Id, type and data of the events of a stream."""
    events = []
    for block in text.split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
        if fields := {name: value for name, _, value in lines}:
            events.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return events


async def test_the_timeline_tells_the_whole_story(client: Client, driver: Driver) -> None:
    """Each entry says what was reported, what was sent then, and where the saga stood after it."""
    started = await driver.start()
    await driver.compensate(started)
    items = await timeline(client, started)

    assert [item["seq"] for item in items] == [1, 2, 3, 4]
    assert [item["status"] for item in items] == [
        "running",
        "running",
        "compensating",
        "compensated",
    ]
    assert [item["summary"] for item in items] == [
        "book_trip version 1 was asked for; sends flight action, attempt 1",
        "flight action, attempt 1: answered 200; sends hotel action, attempt 1",
        "hotel action, attempt 1: answered 402; sends flight compensation, attempt 1",
        "flight compensation, attempt 1: answered 204; it is compensated",
    ]
    assert items[2]["type"] == "attempt_observed"
    assert (items[2]["step"], items[2]["direction"], items[2]["attempt"]) == ("hotel", "action", 1)
    assert items[2]["detail"]["observation"] == {
        "kind": "answered",
        "reason": None,
        "message": None,
        "http_status": 402,
        "retry_after": None,
    }
    assert [each["step"] for each in items[2]["detail"]["opened"]] == ["flight"]
    assert items[2]["detail"]["failure"]["code"] == "refused"


async def test_observations_are_told_apart(client: Client, driver: Driver) -> None:
    """What was not sent and what broke off are told with their reasons, and the next attempt."""
    started = await driver.start()
    refused = NotSent(reason=NotSentReason.UNREACHABLE, message="connection refused")
    await driver.observe(started, "flight", refused)
    woken = await driver.wake(started)
    while woken.call("flight", Direction.ACTION).open is None:  # type: ignore[arg-type,union-attr]
        woken = await driver.wake(started)
    await driver.observe(started, "flight", TIMED_OUT, attempt=2)
    items = [item for item in await timeline(client, started) if item["attempt"]]
    not_sent, broken_off = items

    assert not_sent["detail"]["observation"]["kind"] == "not_sent"
    assert not_sent["detail"]["observation"]["message"] == "connection refused"
    assert not_sent["detail"]["changes"][0]["effect"] == "none"
    assert not_sent["summary"].startswith("flight action, attempt 1: not sent (unreachable); tries")
    assert broken_off["detail"]["observation"]["kind"] == "broken_off"
    assert broken_off["detail"]["observation"]["reason"] == "timed_out"
    assert broken_off["detail"]["changes"][0]["effect"] == "unknown"
    assert broken_off["detail"]["changes"][0]["retry_at"] is not None


async def test_types_are_the_stored_ones(driver: Driver) -> None:
    """The public name of an event is the one it is stored under."""
    started = await driver.start()
    await driver.strand(started)
    entries = await saga_operations.list_events(driver.context, started, limit=100)

    assert {type(entry.fact): event_type(entry) for entry in entries}.items() <= FACT_NAMES.items()


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
async def test_pages_follow_each_other(client: Client, driver: Driver, limit: int) -> None:
    """Pages together are the journal; the last one has no next."""
    started = await driver.start()
    await driver.compensate(started)
    found, after = [], 0
    while True:
        query = f"limit={limit}&after={after}"
        page = (await client.get(f"/v1/sagas/{started}/events?{query}")).json()
        found += [item["seq"] for item in page["items"]]
        if page["next"] is None:
            break
        assert len(page["items"]) == limit
        after = page["next"]

    assert found == [1, 2, 3, 4]


async def test_after_the_last_there_is_nothing(client: Client, driver: Driver) -> None:
    """A page after the last entry is empty, not a 404."""
    started = await driver.start()
    response = await client.get(f"/v1/sagas/{started}/events?after=7")

    assert response.json() == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("after=-1", "after"),
        ("after=2147483648", "after"),
        ("after=x", "after"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("before=3", "before"),
    ],
)
async def test_a_query_that_is_wrong_is_refused(bare: Client, query: str, path: str) -> None:
    """What the query may not hold is 422 with the name of the parameter."""
    response = await bare.get(f"/v1/sagas/x/events?{query}")

    assert response.status_code == 422
    assert [fault["path"] for fault in response.json()["errors"]] == [path]


async def test_a_stream_of_a_saga_that_is_over_ends(client: Client, driver: Driver) -> None:
    """The stream of a finished saga is its journal, with seq as id, and then it ends."""
    started = await driver.start()
    await driver.compensate(started)
    response = await client.get(f"/v1/sagas/{started}/events", headers=STREAM)
    events = told(response.text)

    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    assert [event[0] for event in events] == ["1", "2", "3", "4"]
    assert events[0][1] == "saga_requested"
    assert [event[2] for event in events] == await timeline(client, started)


@pytest.mark.parametrize(
    ("query", "headers"),
    [("", {"Last-Event-ID": "2"}), ("?after=2", {}), ("?after=1", {"Last-Event-ID": "2"})],
)
async def test_a_stream_goes_on_where_it_was_left(
    client: Client, driver: Driver, query: str, headers: dict[str, str]
) -> None:
    """Last-Event-ID, or else `after`, says what was seen."""
    started = await driver.start()
    await driver.compensate(started)
    response = await client.get(f"/v1/sagas/{started}/events{query}", headers=STREAM | headers)

    assert [event[0] for event in told(response.text)] == ["3", "4"]


async def test_a_client_that_saw_the_end_is_told_to_stop(client: Client, driver: Driver) -> None:
    """A reconnect after the end is answered 204, at which an EventSource stops."""
    started = await driver.start()
    await driver.compensate(started)
    response = await client.get(
        f"/v1/sagas/{started}/events", headers=STREAM | {"Last-Event-ID": "4"}
    )

    assert response.status_code == 204
    assert response.content == b""


@pytest.mark.parametrize("accept", [STREAM, {}])
@pytest.mark.parametrize("seen", ["x", "-1", "", "99999999999"])
async def test_a_last_event_id_must_be_a_seq(
    client: Client, driver: Driver, seen: str, accept: dict[str, str]
) -> None:
    """What no event had as its id is 422, whether a stream is wanted or not."""
    response = await client.get(
        f"/v1/sagas/{await driver.start()}/events", headers=accept | {"Last-Event-ID": seen}
    )

    assert response.status_code == 422
    assert response.json()["errors"][0]["path"] == "Last-Event-ID"


async def test_a_stream_of_no_saga_is_not_found(client: Client) -> None:
    """A stream is refused before it begins."""
    response = await client.get(
        "/v1/sagas/01a231a4-2977-76f0-8378-e1236cc16b53/events", headers=STREAM
    )

    assert response.status_code == 404


async def test_a_stream_shows_entries_as_they_come(app: FastAPI, driver: Driver) -> None:
    """What another replica appends is sent at once, and the stream ends with the saga."""
    started = await driver.start()
    async with exchange(app, "GET", f"/v1/sagas/{started}/events", headers=STREAM) as held:
        await held.wait_for("id: 1\n")
        await driver.answer(started, "flight", body={"id": "F1"})
        await held.wait_for("id: 2\n")
        assert not held.is_over.is_set()
        await driver.answer(started, "hotel", body={"id": "H1"})
        await held.is_over.wait()

    assert [event[0] for event in told(held.text)] == ["1", "2", "3"]
    assert told(held.text)[-1][2]["status"] == "completed"


@pytest.mark.parametrize("verb", ["cancel", "terminate"])
async def test_a_stream_ends_with_a_verb(
    app: FastAPI, client: Client, driver: Driver, verb: str
) -> None:
    """A stream goes on over a pause, and ends with the verb that ends the saga."""
    started = (await client.post("/v1/sagas", json={"definition": "book_trip"})).json()["id"]
    headers = STREAM | {"Last-Event-ID": "1"}
    async with exchange(app, "GET", f"/v1/sagas/{started}/events", headers=headers) as held:
        await client.post(f"/v1/sagas/{started}/pause", json={"reason": "wait"})
        await held.wait_for("id: 2\n")
        assert not held.is_over.is_set()
        await client.post(f"/v1/sagas/{started}/{verb}", json={"reason": "enough"})
        await held.is_over.wait()

    assert [event[:2] for event in told(held.text)] == [
        ("2", "pause_requested"),
        ("3", f"{verb}_requested"),
    ]
    assert told(held.text)[0][2]["detail"]["reason"] == "wait"


async def test_a_silent_stream_shows_that_it_lives(
    app: FastAPI, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing happens, comments are sent."""
    monkeypatch.setattr(saga_operations, "WATCH_SECONDS", 0.01)
    started = await driver.start()
    async with exchange(app, "GET", f"/v1/sagas/{started}/events", headers=STREAM) as held:
        await held.wait_for(": still here\n\n")

    assert len(told(held.text)) == 1


async def test_a_reader_that_leaves_leaves_nothing_behind(
    app: FastAPI, context: Context, driver: Driver
) -> None:
    """Once its reader has gone, a stream ends, and nobody watches the saga any more."""
    started = await driver.start()
    async with exchange(app, "GET", f"/v1/sagas/{started}/events", headers=STREAM) as held:
        await wait_until(lambda: len(context.watch._watchers) == 1)
        held.leave()
        await held.is_over.wait()

    assert context.watch._watchers == {}


async def test_a_stream_ends_when_the_service_stops(
    app: FastAPI, context: Context, driver: Driver
) -> None:
    """A service that stops lets its readers go; they come back to another replica."""
    started = await driver.start()
    async with exchange(app, "GET", f"/v1/sagas/{started}/events", headers=STREAM) as held:
        await wait_until(lambda: len(context.watch._watchers) == 1)
        context.watch.close()
        await held.is_over.wait()

    assert held.status == 200


@pytest.mark.parametrize(
    ("accept", "is_stream"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-stream, application/json", True),
        ("application/json, text/event-stream", False),
        ("application/json;q=0.5, text/event-stream", True),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=nonsense", False),
        ("*/*", False),
        ("", False),
    ],
)
async def test_the_client_says_what_it_likes(
    client: Client, driver: Driver, accept: str, *, is_stream: bool
) -> None:
    """A stream is sent to who likes it better than JSON, or names it first."""
    started = await driver.start()
    await driver.compensate(started)
    response = await client.get(f"/v1/sagas/{started}/events", headers={"Accept": accept})

    assert response.headers["content-type"].startswith("text/event-stream") is is_stream

"""`GET /v1/sagas/{id}`: what is shown of a saga, conditions, and waiting."""

import asyncio
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from app.core.identity import Direction
from app.core.observation import NotSent, NotSentReason
from app.core.saga import SagaStatus
from app.operations import Context, publish_definition
from tests.api.asgi import exchange
from tests.api.builders import a_document, a_step, an_undo_by_key
from tests.api.driver import TIMED_OUT, Driver
from tests.waiting import wait_until

type Client = httpx2.AsyncClient


async def get(client: Client, saga: object) -> Any:
    """Read a saga."""
    response = await client.get(f"/v1/sagas/{saga}")
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_request_that_is_out_leaves_the_effect_open(client: Client, driver: Driver) -> None:
    """A step with an open attempt shows effect unknown, and the saga waits for its answer."""
    saga = await get(client, await driver.start())
    step = saga["steps"][0]

    assert saga["status"] == "running"
    assert (step["status"], step["effect"], step["attempts"]) == ("running", "unknown", 1)
    assert step["idempotency_key"] is not None
    assert step["started_at"] == saga["created_at"]
    assert saga["waiting_for"] == [
        {
            "what": "answer",
            "step": "flight",
            "direction": "action",
            "until": saga["waiting_for"][0]["until"],
        }
    ]


async def test_a_completed_saga_shows_its_outputs(client: Client, driver: Driver) -> None:
    """A completed saga has its steps' outputs, nothing to wait for, and an end."""
    document = a_document("trip", output={"flight": "${{ steps.flight.output.id }}"})
    await publish_definition(driver.context, document)
    started = await driver.start("trip")
    await driver.complete(started)
    saga = await get(client, started)

    assert saga["status"] == "completed"
    assert saga["output"] == {"flight": "flight-1"}
    assert [step["effect"] for step in saga["steps"]] == ["done", "done"]
    assert saga["steps"][1]["output"] == {"id": "hotel-1"}
    assert saga["waiting_for"] == []
    assert saga["residue"] == []
    assert saga["finished_at"] == saga["updated_at"]


async def test_a_compensated_saga_says_why_and_how(client: Client, driver: Driver) -> None:
    """A compensated saga shows its failure, and both directions of what was undone."""
    started = await driver.start()
    await driver.compensate(started)
    saga = await get(client, started)
    flight, hotel = saga["steps"]

    assert saga["status"] == "compensated"
    assert saga["failure"] == {
        "cause": "step_failed",
        "step": "hotel",
        "code": "refused",
        "http_status": 402,
        "message": "the tool answered 402: card declined",
    }
    assert (flight["status"], flight["effect"]) == ("compensated", "none")
    assert flight["output"] == {"id": "F1"}
    assert flight["compensated_at"] == saga["finished_at"]
    assert flight["compensation"] == {
        "status": "succeeded",
        "attempts": 1,
        "error": None,
        "idempotency_key": flight["compensation"]["idempotency_key"],
    }
    assert flight["compensation"]["idempotency_key"] != flight["idempotency_key"]
    assert (hotel["status"], hotel["effect"]) == ("failed", "none")
    assert hotel["error"]["code"] == "refused"
    assert hotel["compensation"] is None


async def test_a_stuck_saga_asks_its_question(client: Client, driver: Driver) -> None:
    """A stuck saga names the step, the question, and the verbs; it waits for a person."""
    started = await driver.start()
    await driver.strand(started)
    saga = await get(client, started)

    assert saga["status"] == "stuck"
    assert saga["stuck"] == {
        "step": "flight",
        "question": "how_to_undo",
        "message": "the tool answered 400: no",
        "verbs": ["retry", "resolve", "skip", "cancel", "terminate"],
    }
    assert saga["verbs"] == saga["stuck"]["verbs"]
    assert saga["waiting_for"] == [
        {"what": "person", "step": "flight", "direction": None, "until": None}
    ]
    assert saga["attention"] is True
    assert saga["steps"][0]["status"] == "compensation_failed"
    assert saga["steps"][0]["effect"] == "done"
    assert saga["finished_at"] is None


async def test_backing_off_is_waited_for(client: Client, driver: Driver) -> None:
    """A step that backs off shows when it is tried again, and what went wrong."""
    started = await driver.start()
    unreachable = NotSent(reason=NotSentReason.UNREACHABLE, message="connection refused")
    await driver.observe(started, "flight", unreachable)
    saga = await get(client, started)
    step = saga["steps"][0]

    assert step["status"] == "backing_off"
    assert step["effect"] == "none"
    assert step["error"] == {
        "code": "unreachable",
        "message": "connection refused",
        "http_status": None,
    }
    assert saga["waiting_for"][0]["what"] == "retry"
    assert saga["waiting_for"][0]["until"] > saga["updated_at"]


async def test_an_undo_without_answer_leaves_the_effect_open(
    client: Client, driver: Driver
) -> None:
    """While it is not known whether an undo worked, neither is whether anything remains."""
    started = await driver.start()
    await driver.answer(started, "flight", body={"id": "F1"})
    await driver.answer(started, "hotel", 402)
    await driver.observe(started, "flight", TIMED_OUT, direction=Direction.COMPENSATION)
    saga = await get(client, started)
    step = saga["steps"][0]

    assert step["status"] == "compensating"
    assert step["effect"] == "unknown"
    assert step["compensation"]["status"] == "backing_off"
    assert step["compensation"]["error"]["code"] == "timed_out"
    assert step["compensated_at"] is None


async def test_silence_is_waited_for_until_it_is_quiet(client: Client, driver: Driver) -> None:
    """An effect that cannot be asked about is undone only once it can no longer come."""
    step = a_step("flight", idempotent=False)
    step["compensation"] = {"http": {"method": "POST", "url": "http://tool.test/undo"}}
    await publish_definition(driver.context, a_document("once", steps=[step]))
    started = await driver.start("once")
    await driver.observe(started, "flight", TIMED_OUT)
    saga = await get(client, started)

    assert saga["status"] == "compensating"
    assert saga["steps"][0]["effect"] == "unknown"
    assert [wait["what"] for wait in saga["waiting_for"]] == ["quiet"]
    assert saga["waiting_for"][0]["until"] > saga["updated_at"]


async def test_a_late_success_after_the_end_is_residue(client: Client, driver: Driver) -> None:
    """A compensated saga whose step succeeds after all lists it, and asks for attention."""
    step = a_step("flight", idempotent=False)
    step["compensation"] = {"http": {"method": "POST", "url": "http://tool.test/undo"}}
    step["action"] |= {"late_window": "0s"}  # type: ignore[operator]  # an object
    await publish_definition(driver.context, a_document("once", steps=[step]))
    started = await driver.start("once")
    await driver.observe(started, "flight", TIMED_OUT)
    moved = await driver.answer(started, "flight", direction=Direction.COMPENSATION)
    assert moved.status.is_final
    await driver.answer(started, "flight", body={"id": "F1"})
    saga = await get(client, started)

    assert saga["status"] == "compensated"
    assert saga["attention"] is True
    assert saga["residue"] == [
        {"step": "flight", "effect": "done", "reason": "late_success", "undo_saga": None}
    ]


@pytest.mark.parametrize(
    "name",
    [
        "nope",
        "01a231a4-2977-76f0-8378-e1236cc16b53",
        "01a231a4297776f08378e1236cc16b53",
        "{01a231a4-2977-76f0-8378-e1236cc16b53}",
        "%00",
        "x" * 5000,
        "%F0%9F%91%BB",
    ],
)
@pytest.mark.parametrize("rest", ["", "/events"])
async def test_what_is_no_saga_is_not_found(client: Client, name: str, rest: str) -> None:
    """An unknown id and what is no id at all are the same 404."""
    response = await client.get(f"/v1/sagas/{name}{rest}")

    assert response.status_code == 404
    assert response.json()["code"] == "saga_not_found"
    assert len(response.content) < 1000


async def test_an_etag_stands_for_the_revision(client: Client, driver: Driver) -> None:
    """The ETag is the revision in quotes and changes with it."""
    started = await driver.start()
    before = await client.get(f"/v1/sagas/{started}")
    await driver.answer(started, "flight", body={"id": "F1"})
    after = await client.get(f"/v1/sagas/{started}")

    assert before.headers["etag"] == f'"{before.json()["revision"]}"' == '"1"'
    assert after.headers["etag"] == '"2"'


@pytest.mark.parametrize("known", ['"1"', 'W/"1"', '"0", "1"', "*"])
async def test_a_known_revision_is_not_sent_again(
    client: Client, driver: Driver, known: str
) -> None:
    """If-None-Match with the present revision answers 304 without a body."""
    started = await driver.start()
    response = await client.get(f"/v1/sagas/{started}", headers={"If-None-Match": known})

    assert response.status_code == 304
    assert response.headers["etag"] == '"1"'
    assert response.content == b""


async def test_another_revision_is_sent(client: Client, driver: Driver) -> None:
    """If-None-Match with another revision answers with the saga."""
    started = await driver.start()
    response = await client.get(f"/v1/sagas/{started}", headers={"If-None-Match": '"7", 1'})

    assert response.status_code == 200


@pytest.mark.parametrize("status", [status for status in SagaStatus if status.is_at_rest])
async def test_a_saga_at_rest_is_not_waited_for(
    client: Client, driver: Driver, status: SagaStatus
) -> None:
    """A saga that is over, stuck or paused is answered at once, and the wait is acknowledged."""
    started = await driver.bring(status)
    response = await client.get(f"/v1/sagas/{started}", headers={"Prefer": "wait=60"})

    assert response.json()["status"] == status
    assert response.headers["preference-applied"] == "wait=60"


async def test_a_question_to_a_tool_is_waited_for(client: Client, driver: Driver) -> None:
    """While a verify is out, its step is verifying, and the saga waits for its answer."""
    step = an_undo_by_key("flight")
    step["action"] |= {"on_unknown": "verify"}  # type: ignore[operator]  # an object
    step["verify"] = {
        "http": {"method": "GET", "url": "http://tool.test/flight?key=${{ action.key }}"},
        "done": "${{ size(response.body) == 1 }}",
        "none": "${{ size(response.body) == 0 }}",
    }
    await publish_definition(driver.context, a_document("asked", steps=[step]))
    started = await driver.start("asked")
    await driver.observe(started, "flight", TIMED_OUT)
    asked = await get(client, started)
    await driver.answer(started, "flight", body=[], direction=Direction.VERIFY)
    quiet = await get(client, started)

    assert asked["steps"][0]["status"] == "verifying"
    assert [(wait["what"], wait["direction"]) for wait in asked["waiting_for"]] == [
        ("answer", "verify")
    ]
    assert [(wait["what"], wait["direction"]) for wait in quiet["waiting_for"]] == [
        ("retry", "verify")
    ]
    assert quiet["waiting_for"][0]["until"] > quiet["updated_at"]


async def test_a_saga_is_waited_for_until_it_rests(
    app: FastAPI, context: Context, driver: Driver
) -> None:
    """A held answer comes when another replica brings the saga to rest."""
    started = await driver.start()
    async with exchange(app, "GET", f"/v1/sagas/{started}", headers={"Prefer": "wait=60"}) as held:
        await wait_until(lambda: len(context.watch._watchers) == 1)
        assert held.sent == []
        await driver.complete(started)
        await held.is_over.wait()

    assert held.status == 200
    assert '"status":"completed"' in held.text


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("wait=0", "wait=0"),
        ('respond-async, Wait="0"; x=1', "wait=0"),
        ("wait=0, wait=50", "wait=0"),
    ],
)
async def test_preferences_are_read_as_their_rfc_has_it(
    client: Client, driver: Driver, prefer: str, applied: str
) -> None:
    """Of several preferences the first wait counts, in any case and in quotes."""
    started = await driver.start()
    response = await client.get(f"/v1/sagas/{started}", headers={"Prefer": prefer})

    assert response.headers["preference-applied"] == applied


@pytest.mark.parametrize("prefer", ["wait", "wait=soon", "wait=-1", "wait=1.5", "wait=\u0663", ""])
async def test_a_preference_that_makes_no_sense_is_ignored(
    client: Client, driver: Driver, prefer: str
) -> None:
    """What cannot be understood is ignored: the answer comes at once."""
    started = await driver.start()
    response = await client.get(
        f"/v1/sagas/{started}", headers=[(b"Prefer", prefer.encode("utf-8"))]
    )

    assert response.status_code == 200
    assert "preference-applied" not in response.headers


async def test_a_long_wait_is_cut(client: Client, driver: Driver) -> None:
    """Nobody waits for more than a minute; the answer says so."""
    started = await driver.start()
    await driver.complete(started)
    response = await client.get(f"/v1/sagas/{started}", headers={"Prefer": "wait=86400"})

    assert response.headers["preference-applied"] == "wait=60"


async def test_a_start_that_waits_is_answered_at_rest(
    app: FastAPI, context: Context, driver: Driver
) -> None:
    """A start with a wait answers 200 once the saga is at rest."""
    app.state.context = driver.context
    async with exchange(
        app,
        "POST",
        "/v1/sagas",
        headers={"Prefer": "wait=60", "Content-Type": "application/json"},
        body=b'{"definition": "book_trip"}',
    ) as held:
        watched = await wait_until(lambda: list(driver.context.watch._watchers))
        await driver.strand(watched[0])
        await held.is_over.wait()

    assert held.status == 200
    assert '"status":"stuck"' in held.text


@pytest.mark.parametrize("verb", ["pause", "terminate"])
async def test_a_person_brings_a_saga_to_rest(
    app: FastAPI, context: Context, client: Client, verb: str
) -> None:
    """A start with a wait answers 200 once the saga is paused, too, or was ended."""
    async with exchange(
        app,
        "POST",
        "/v1/sagas",
        headers={"Prefer": "wait=60", "Content-Type": "application/json"},
        body=b'{"definition": "book_trip"}',
    ) as held:
        watched = await wait_until(lambda: list(context.watch._watchers))
        await client.post(f"/v1/sagas/{watched[0]}/{verb}", json={"reason": "x"})
        await held.is_over.wait()

    assert held.status == 200
    assert f'"status":"{verb}d"' in held.text


async def test_a_start_that_waits_in_vain_is_accepted(client: Client) -> None:
    """A start whose saga is not at rest in time answers 202, as without a wait."""
    response = await client.post(
        "/v1/sagas", json={"definition": "book_trip"}, headers={"Prefer": "wait=0"}
    )

    assert response.status_code == 202
    assert response.headers["preference-applied"] == "wait=0"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_client_that_leaves_leaves_nothing_behind(
    app: FastAPI, context: Context, driver: Driver, method: str
) -> None:
    """Once its client has gone, a held request ends, and nobody watches the saga any more."""
    url = f"/v1/sagas/{await driver.start()}" if method == "GET" else "/v1/sagas"
    tasks_before = len(asyncio.all_tasks())
    async with exchange(
        app,
        method,
        url,
        headers={"Prefer": "wait=60", "Content-Type": "application/json"},
        body=b'{"definition": "book_trip"}',
    ) as held:
        await wait_until(lambda: len(context.watch._watchers) == 1)
        held.leave()
        await held.is_over.wait()

    assert context.watch._watchers == {}
    assert len(asyncio.all_tasks()) == tasks_before


async def test_a_service_that_stops_answers_those_who_wait(
    app: FastAPI, context: Context, driver: Driver
) -> None:
    """When the service stops, a held request is answered with the saga as it is."""
    started = await driver.start()
    async with exchange(app, "GET", f"/v1/sagas/{started}", headers={"Prefer": "wait=60"}) as held:
        await wait_until(lambda: len(context.watch._watchers) == 1)
        context.watch.close()
        await held.is_over.wait()

    assert held.status == 200
    assert '"status":"running"' in held.text

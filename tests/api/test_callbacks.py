"""`POST /v1/callbacks/{token}`: what tools report, in time, again, late, or falsely."""

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx2
import pytest

from app.api import create_api
from app.api.limits import BODY_BYTES_MAX
from app.core.callbacks import make_token, read_token
from app.core.identity import Direction, SagaId, StepId, TenantId, derive_key_seed
from app.core.saga import SagaStatus
from app.operations import Context, publish_definition
from tests.api.builders import a_callback_step, a_document, a_step
from tests.api.conftest import always_ready, client_of
from tests.api.driver import Driver

type Client = httpx2.AsyncClient

SUCCEEDED = {"outcome": "succeeded", "output": {"id": "C1"}}
FAILED = {"outcome": "failed", "error": "card declined"}
IN_PROGRESS = {"outcome": "in_progress", "progress": {"percent": 40}}


@pytest.fixture
async def saga(driver: Driver) -> SagaId:
    """A saga whose first step's tool answers by webhook; its call is out."""
    steps = [a_callback_step("charge"), a_step("ticket")]
    await publish_definition(driver.context, a_document("pay", steps=steps))
    return await driver.start("pay")


async def report(client: Client, token: str, body: Any) -> httpx2.Response:
    """Report as a tool does."""
    return await client.post(f"/v1/callbacks/{token}", json=body)


async def get(client: Client, saga: object) -> Any:
    """Read a saga."""
    return (await client.get(f"/v1/sagas/{saga}")).json()


async def test_a_report_that_is_awaited(client: Client, driver: Driver, saga: SagaId) -> None:
    """A success after the acknowledgement is accepted, and the saga goes on."""
    await driver.answer(saga, "charge", 202, body={"accepted": "C"})
    waiting = await get(client, saga)
    response = await report(client, await driver.token(saga, "charge"), SUCCEEDED)
    shown = await get(client, saga)

    assert waiting["steps"][0]["status"] == "waiting"
    assert [wait["what"] for wait in waiting["waiting_for"]] == ["callback"]
    assert waiting["waiting_for"][0]["step"] == "charge"
    assert waiting["waiting_for"][0]["until"] > waiting["updated_at"]
    assert (response.status_code, response.json()) == (200, {"reception": "accepted"})
    assert (shown["steps"][0]["status"], shown["steps"][0]["output"]) == ("succeeded", {"id": "C1"})


async def test_a_report_before_the_answer(client: Client, driver: Driver, saga: SagaId) -> None:
    """A report that overtakes the tool's own answer is accepted, and decides."""
    response = await report(client, await driver.token(saga, "charge"), SUCCEEDED)
    await driver.answer(saga, "charge", 202)
    shown = await get(client, saga)

    assert (response.status_code, response.json()) == (200, {"reception": "accepted"})
    assert (shown["steps"][0]["status"], shown["steps"][0]["output"]) == ("succeeded", {"id": "C1"})
    assert shown["attention"] is False


async def test_a_report_to_a_replica_without_an_engine(
    client: Client, driver: Driver, saga: SagaId
) -> None:
    """What one replica was told, another acts on: it opens the next step."""
    await driver.answer(saga, "charge", 202)
    await report(client, await driver.token(saga, "charge"), SUCCEEDED)
    told = await driver.load(saga)
    moved = await driver.take_up(saga)
    ticket = moved.call(StepId("ticket"), Direction.ACTION)

    assert not told.has_open_calls
    assert told.now.due_at is not None
    assert ticket is not None
    assert ticket.open is not None


@pytest.mark.parametrize("body", [SUCCEEDED, FAILED])
async def test_the_same_report_again(
    client: Client, driver: Driver, saga: SagaId, body: dict[str, Any]
) -> None:
    """The same report is 200 as often as it comes, also after the end, and changes nothing."""
    token = await driver.token(saga, "charge")
    await report(client, token, body)
    again = await report(client, token, dict(reversed(body.items())))
    if body is SUCCEEDED:
        await driver.take_up(saga)
        await driver.complete(saga, "ticket")
    before = await get(client, saga)
    after_the_end = await report(client, token, body)

    assert before["finished_at"] is not None
    assert (again.status_code, again.json()) == (200, {"reception": "duplicate"})
    assert (after_the_end.status_code, after_the_end.json()) == (200, {"reception": "duplicate"})
    assert await get(client, saga) == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (SUCCEEDED, FAILED),
        (FAILED, SUCCEEDED),
        (SUCCEEDED, {"outcome": "succeeded", "output": {"id": "C2"}}),
        (FAILED, {"outcome": "failed", "error": "another reason"}),
    ],
)
async def test_a_contradiction(
    client: Client, driver: Driver, saga: SagaId, first: Any, second: Any
) -> None:
    """Another report than before is 409, kept as evidence, and alerts; the saga is named."""
    token = await driver.token(saga, "charge")
    await report(client, token, first)
    response = await report(client, token, second)
    shown = await get(client, saga)
    last = (await client.get(f"/v1/sagas/{saga}/events")).json()["items"][-1]

    assert response.status_code == 409
    assert response.json()["code"] == "callback_contradicts"
    assert response.json()["saga"] == str(saga)
    assert shown["attention"] is True
    assert last["type"] == "callback_received"
    assert last["detail"]["callback"]["reception"] == "contradiction"
    assert last["detail"]["callback"]["outcome"] == second["outcome"]
    assert [item["id"] for item in await listed(client, "attention=true")] == [str(saga)]


async def listed(client: Client, query: str) -> Any:
    """The sagas that a query finds."""
    return (await client.get(f"/v1/sagas?{query}")).json()["items"]


async def test_a_success_after_a_failure_is_found_and_undone(
    client: Client, driver: Driver, saga: SagaId
) -> None:
    """A success that contradicts the failure by which a saga ended is residue, to be undone."""
    token = await driver.token(saga, "charge")
    await report(client, token, FAILED)
    over = await get(client, saga)
    await report(client, token, SUCCEEDED)
    shown = await get(client, saga)

    assert over["status"] == "compensated"
    assert over["failure"]["code"] == "callback_failed"
    assert over["failure"]["message"] == "card declined"
    assert shown["residue"] == [
        {"step": "charge", "effect": "done", "reason": "late_success", "undo_saga": None}
    ]
    assert shown["verbs"] == ["undo"]


async def test_a_report_after_the_call_was_given_up(
    client: Client, driver: Driver, saga: SagaId
) -> None:
    """A report of a call that is over for another reason is 202, and taken as evidence."""
    token = await driver.token(saga, "charge")
    await driver.answer(saga, "charge", 402)
    response = await report(client, token, FAILED)
    progress = await report(client, token, IN_PROGRESS)

    assert (response.status_code, response.json()) == (202, {"reception": "late"})
    assert (progress.status_code, progress.json()) == (202, {"reception": "late"})


async def test_a_failure_says_what_exists_all_the_same(
    client: Client, driver: Driver, saga: SagaId
) -> None:
    """A failure with an effect is undone; what it says went wrong may be any JSON."""
    token = await driver.token(saga, "charge")
    failed = {"outcome": "failed", "error": {"code": 51}, "effect": "done"}
    response = await report(client, token, failed)
    shown = await get(client, saga)

    assert response.status_code == 200
    assert shown["steps"][0]["effect"] == "done"
    assert shown["steps"][0]["error"]["code"] == "callback_failed"
    assert shown["steps"][0]["error"]["message"] == '{"code":51}'


async def test_progress_is_shown_and_prolongs(client: Client, driver: Driver, saga: SagaId) -> None:
    """A tool that is at work is given more time, and what it tells is shown."""
    token = await driver.token(saga, "charge")
    await driver.answer(saga, "charge", 202)
    before = await get(client, saga)
    response = await report(client, token, IN_PROGRESS)
    after = await get(client, saga)
    done = await report(client, token, SUCCEEDED)

    assert (response.status_code, response.json()) == (200, {"reception": "accepted"})
    assert before["steps"][0]["progress"] is None
    assert after["steps"][0]["progress"] == {"percent": 40}
    assert after["steps"][0]["status"] == "waiting"
    assert after["waiting_for"][0]["until"] > before["waiting_for"][0]["until"]
    assert done.status_code == 200


async def test_an_undo_may_be_reported_too(client: Client, driver: Driver) -> None:
    """A compensation that is acknowledged is awaited, and its own token tells its outcome."""
    completion: Any = {"completion": {"callback": {"within": "1h"}}}
    steps = [a_callback_step("charge", compensation=completion), a_step("ticket")]
    await publish_definition(driver.context, a_document("both", steps=steps))
    saga = await driver.start("both")
    await report(client, await driver.token(saga, "charge"), SUCCEEDED)
    await driver.take_up(saga)
    await driver.answer(saga, "ticket", 402)
    await driver.answer(saga, "charge", 202, direction=Direction.COMPENSATION)
    waiting = await get(client, saga)
    token = await driver.token(saga, "charge", direction=Direction.COMPENSATION)
    response = await report(client, token, {"outcome": "succeeded"})
    shown = await get(client, saga)

    assert [wait["what"] for wait in waiting["waiting_for"]] == ["callback"]
    assert waiting["waiting_for"][0]["direction"] == "compensation"
    assert response.json() == {"reception": "accepted"}
    assert shown["status"] == "compensated"


async def forgeries(context: Context, driver: Driver, saga: SagaId) -> AsyncIterator[str]:
    """Tokens that we did not make, or that somebody has altered."""
    genuine = await driver.token(saga, "charge")
    address = read_token(genuine)
    assert address is not None
    seed = derive_key_seed(tenant_secret=context.tenant.secret, saga=saga)
    other = await driver.start("pay")
    code = base64.urlsafe_b64decode(genuine + "=" * (-len(genuine) % 4))[-16:]
    altered = [
        replace(address, generation=1),
        replace(address, saga=other),
        replace(address, step=StepId("ticket")),
        replace(address, direction=Direction.COMPENSATION),
    ]
    for each in altered:
        named = make_token(each, key_seed=seed)
        head = base64.urlsafe_b64decode(named + "=" * (-len(named) % 4))[:-16]
        yield base64.urlsafe_b64encode(head + code).decode().rstrip("=")
    yield make_token(replace(address, tenant=TenantId(2)), key_seed=seed)
    yield make_token(address, key_seed=b"another tenant's")
    for length in (0, 1, 16, len(genuine) - 1):
        yield genuine[:length] or "x"
    yield f"{genuine}="
    yield f"{genuine}A"
    yield genuine[:-1] + ("A" if genuine[-1] != "A" else "B")
    yield genuine.swapcase()
    yield "%00"
    yield "x" * 5000
    yield "%F0%9F%91%BB"


async def test_a_token_that_is_not_ours(
    client: Client, context: Context, driver: Driver, saga: SagaId
) -> None:
    """A forged, altered, truncated, or foreign token is 404, and changes nothing."""
    before = await get(client, saga)
    async for token in forgeries(context, driver, saga):
        response = await report(client, token, SUCCEEDED)

        assert response.status_code == 404, token
        assert response.json()["code"] == "callback_not_found"
        assert len(response.content) < 1000
    assert await get(client, saga) == before


async def test_a_stranger_is_not_told_what_is_wrong(client: Client) -> None:
    """Without a token of ours it does not matter what the body says."""
    for body in (b"{", b"", b'{"outcome": "maybe"}'):
        response = await client.post("/v1/callbacks/nope", content=body)

        assert response.status_code == 404


async def test_a_token_of_a_saga_that_is_lost(
    client: Client, context: Context, driver: Driver, saga: SagaId
) -> None:
    """A genuine token of a saga that the database does not hold is 404, too."""
    token = await driver.token(saga, "charge")
    address = read_token(token)
    assert address is not None
    unknown = SagaId(UUID(int=saga.int ^ 1))
    seed = derive_key_seed(tenant_secret=context.tenant.secret, saga=unknown)
    response = await report(
        client, make_token(replace(address, saga=unknown), key_seed=seed), {"outcome": "succeeded"}
    )

    assert response.status_code == 404


async def test_a_token_of_a_generation_that_is_not_known(
    client: Client, context: Context, driver: Driver, saga: SagaId
) -> None:
    """A genuine token of an intent that the database has lost is 202: late, and without effect."""
    address = read_token(await driver.token(saga, "charge"))
    assert address is not None
    seed = derive_key_seed(tenant_secret=context.tenant.secret, saga=saga)
    token = make_token(replace(address, generation=1), key_seed=seed)
    before = await get(client, saga)
    response = await report(client, token, SUCCEEDED)

    assert (response.status_code, response.json()) == (202, {"reception": "late"})
    assert await get(client, saga) == before


async def test_no_key_is_needed_and_none_is_given(
    context: Context, driver: Driver, saga: SagaId
) -> None:
    """The token alone authorizes a report, and nothing but that."""
    api = create_api(context, api_keys=("secret",), readiness=always_ready, version="0")
    token = await driver.token(saga, "charge")
    async with client_of(api) as client:
        client.headers["Host"] = "amends.example.com"
        reported = await report(client, token, SUCCEEDED)
        client.headers["Authorization"] = f"Bearer {token}"
        others = [
            await client.get(f"/v1/sagas/{saga}"),
            await client.get(f"/v1/callbacks/{token}/../../sagas"),
            await client.post(f"/v1/sagas/{saga}/cancel", json={"reason": "x"}),
        ]

    assert reported.status_code == 200
    assert {response.status_code for response in others} <= {401, 404}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "outcome"),
        ({"outcome": "done"}, "outcome"),
        ({"outcome": None}, "outcome"),
        ({"outcome": "failed", "effect": "maybe"}, "effect"),
        ({"outcome": "succeeded", "result": 1}, "result"),
        (None, ""),
        ([], ""),
    ],
)
async def test_a_report_that_is_wrong(
    client: Client, driver: Driver, saga: SagaId, body: Any, path: str
) -> None:
    """What a report may not hold is 422 with the path of the field, and changes nothing."""
    response = await report(client, await driver.token(saga, "charge"), body)

    assert response.status_code == 422
    assert [fault["path"] for fault in response.json()["errors"]] == [path]
    assert (await driver.load(saga)).seq == 1


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b'{"outcome": "succeeded", "outcome": "failed"}', 400),
        (b"x" * (BODY_BYTES_MAX + 1), 413),
    ],
)
async def test_a_report_that_cannot_be_read(
    client: Client,
    driver: Driver,
    saga: SagaId,
    content: bytes,
    status: int,
) -> None:
    """What is no JSON, or too much, is refused as anywhere."""
    response = await client.post(
        f"/v1/callbacks/{await driver.token(saga, 'charge')}",
        content=content,
        headers={"Content-Type": "application/json"},
    )
    unannounced = await client.post(
        f"/v1/callbacks/{await driver.token(saga, 'charge')}", content=b'{"outcome": "succeeded"}'
    )

    assert response.status_code == status
    assert unannounced.status_code == 415


async def test_a_large_output_is_taken(client: Client, driver: Driver, saga: SagaId) -> None:
    """An output of nearly 1 MiB is taken, and weighed."""
    output = {"id": "C1", "more": "x" * (BODY_BYTES_MAX - 200)}
    body = {"outcome": "succeeded", "output": output}
    response = await report(client, await driver.token(saga, "charge"), body)
    loaded = await driver.load(saga)

    assert response.status_code == 200
    assert (await get(client, saga))["steps"][0]["output"] == output
    assert loaded.now.weight_bytes > BODY_BYTES_MAX - 200


async def test_nul_in_a_report_is_kept(client: Client, driver: Driver, saga: SagaId) -> None:
    """Whatever JSON can say is stored safely, in an output and in an error."""
    token = await driver.token(saga, "charge")
    failed = {"outcome": "failed", "error": "a\0b \u202e"}
    response = await report(client, token, failed)

    assert response.status_code == 200
    assert (await driver.load(saga)).status is SagaStatus.COMPENSATED
    assert (await get(client, saga))["failure"]["message"] == "a\0b \u202e"

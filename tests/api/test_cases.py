"""Cases of what clients, tools and people say to the service: twice, late, reworded, at once.

``tests/cases.toml`` lists all cases, and where those are that are not here.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from app.api import create_api
from app.core.callbacks import make_token, read_token
from app.core.errors import StoreUnavailable
from app.core.events import ResumeRequested
from app.core.identity import Direction, SagaId, StepId, TenantId, derive_key_seed
from app.core.observation import Answered, Observation
from app.core.requests import HttpRequest
from app.core.saga import SagaStatus
from app.operations import Context, publish_definition, undo
from app.store import Journal
from tests.api.builders import a_callback_step, a_document, a_step, an_undo_by_key
from tests.api.conftest import always_ready, client_of
from tests.api.driver import TIMED_OUT, Driver
from tests.waiting import wait_until

type Client = httpx2.AsyncClient

REASON = {"reason": "the customer called"}
SUCCEEDED = {"outcome": "succeeded", "output": {"id": "C1"}}
FAILED = {"outcome": "failed", "error": "card declined"}

TICKET = StepId("ticket")


@pytest.fixture
async def second(driver: Driver) -> AsyncIterator[Client]:
    """A client of another replica, which runs an engine, over the same database."""
    api = create_api(driver.context, api_keys=(), readiness=always_ready, version="0")
    async with client_of(api) as client:
        yield client


@pytest.fixture
async def saga(driver: Driver) -> SagaId:
    """A saga whose first step's tool answers by webhook; its call is out."""
    steps = [a_callback_step("charge"), a_step(TICKET)]
    await publish_definition(driver.context, a_document("pay", steps=steps))
    return await driver.start("pay")


async def report(client: Client, token: str, body: Any) -> httpx2.Response:
    """Report as a tool does."""
    return await client.post(f"/v1/callbacks/{token}", json=body)


async def get(client: Client, saga: object) -> Any:
    """Read a saga."""
    return (await client.get(f"/v1/sagas/{saga}")).json()


async def events(client: Client, saga: object) -> Any:
    """Read a saga's journal."""
    return (await client.get(f"/v1/sagas/{saga}/events")).json()["items"]


async def start(client: Client, key: str, **body: Any) -> httpx2.Response:
    """Ask for a saga of `book_trip`."""
    document = {"definition": "book_trip", **body}
    return await client.post("/v1/sagas", json=document, headers={"Idempotency-Key": key})


class TestCallbacks:
    """What tools report."""

    @pytest.mark.parametrize("seen", [Answered(status=202), Answered(status=500), TIMED_OUT])
    @pytest.mark.parametrize("through_engine", [True, False])
    async def test_durable_engines_b19_a_report_before_it_is_awaited(
        self,
        client: Client,
        second: Client,
        driver: Driver,
        saga: SagaId,
        seen: Observation,
        *,
        through_engine: bool,
    ) -> None:
        """A report before the tool's own answer is taken, by whichever replica, and used once."""
        token = await driver.token(saga, "charge")
        heard = await report(second if through_engine else client, token, SUCCEEDED)
        moved = await driver.observe(saga, "charge", seen)
        again = await report(client, token, SUCCEEDED)
        ticket = moved.call(TICKET, Direction.ACTION)
        shown = await get(client, saga)

        assert (heard.json(), again.json()) == (
            {"reception": "accepted"},
            {"reception": "duplicate"},
        )
        assert ticket is not None
        assert (ticket.attempts, ticket.open is not None) == (1, True)
        assert (shown["steps"][0]["output"], shown["attention"]) == ({"id": "C1"}, False)
        types = [event["type"] for event in await events(client, saga)]
        assert types.count("callback_received") == 1

    async def test_durable_engines_b20_each_token_has_its_answer(
        self, client: Client, context: Context, driver: Driver, saga: SagaId
    ) -> None:
        """Forged, foreign, used, contradicted, late: each is told at once, and the saga stays."""
        token = await driver.token(saga, "charge")
        address = read_token(token)
        assert address is not None
        seed = derive_key_seed(tenant_secret=context.tenant.secret, saga=saga)
        foreign = make_token(replace(address, tenant=TenantId(2)), key_seed=seed)
        guessed = make_token(address, key_seed=b"somebody else's")
        cancelled = await driver.start("pay")
        await client.post(f"/v1/sagas/{cancelled}/cancel", json=REASON)
        await driver.answer(cancelled, "charge", 402)
        over = await driver.token(cancelled, "charge")
        await report(client, token, SUCCEEDED)
        before = [await get(client, each) for each in (saga, cancelled)]

        async with asyncio.timeout(10):
            forged = [
                await report(client, each, SUCCEEDED) for each in ("garbage", foreign, guessed)
            ]
            same = await report(client, token, SUCCEEDED)
            late = await report(client, over, FAILED)
            other = await report(client, token, FAILED)
        after = [await get(client, each) for each in (saga, cancelled)]

        assert [404] * 3 == [response.status_code for response in forged]
        assert (200, "duplicate") == (same.status_code, same.json()["reception"])
        assert (202, "late") == (late.status_code, late.json()["reception"])
        assert (409, "callback_contradicts") == (other.status_code, other.json()["code"])
        for one, again in zip(before, after, strict=True):
            assert [one["status"], one["steps"]] == [again["status"], again["steps"]]
        told = [
            (await events(client, each))[-1]["detail"]["callback"] for each in (saga, cancelled)
        ]
        assert [("contradiction", "failed"), ("late", "failed")] == [
            (each["reception"], each["outcome"]) for each in told
        ]

    async def test_saga_coordinators_b39_the_same_report_twenty_times_at_once(
        self, client: Client, second: Client, driver: Driver, saga: SagaId
    ) -> None:
        """Twenty equal reports through two replicas are one; another verdict is 409."""
        token = await driver.token(saga, "charge")
        await driver.answer(saga, "charge", 202)
        responses = await asyncio.gather(
            *(report((client, second)[number % 2], token, SUCCEEDED) for number in range(20))
        )
        verdict = await report(second, token, FAILED)
        ticket = (await driver.load(saga)).call(TICKET, Direction.ACTION)

        assert {200} == {response.status_code for response in responses}
        receptions = [response.json()["reception"] for response in responses]
        assert (1, 19) == (receptions.count("accepted"), receptions.count("duplicate"))
        assert verdict.status_code == 409
        assert ticket is None or ticket.attempts == 1
        types = [event["type"] for event in await events(client, saga)]
        assert types.count("callback_received") == 2

    @pytest.mark.parametrize("fault", ["the database", "our own code"])
    async def test_durable_engines_b27_a_report_that_meets_a_fault_may_be_repeated(
        self,
        app: FastAPI,
        driver: Driver,
        saga: SagaId,
        monkeypatch: pytest.MonkeyPatch,
        *,
        fault: str,
    ) -> None:
        """A report that could not be stored is told as that, and nothing of it is kept."""
        token = await driver.token(saga, "charge")
        await driver.answer(saga, "charge", 202)
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            before = await get(client, saga)
            if fault == "the database":
                await refuse(driver.context, "callback_received")
            else:
                monkeypatch.setattr(Journal, "receive", fail)
            refused = await report(client, token, SUCCEEDED)
            kept = await get(client, saga)
            await refuse_no_more(driver.context)
            monkeypatch.undo()
            again = await report(client, token, SUCCEEDED)

        assert refused.status_code == (503 if fault == "the database" else 500)
        assert refused.headers["content-type"] == "application/problem+json"
        assert before == kept
        assert (200, {"reception": "accepted"}) == (again.status_code, again.json())


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '23514'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON saga_journal FOR EACH ROW
WHEN (NEW.type = '{type}') EXECUTE FUNCTION refuse();
"""


async def refuse(context: Context, kind: str) -> None:
    """Let the database refuse every entry of a fact."""
    async with context.database.write() as tx:
        await tx.execute(REFUSE.format(type=kind))


async def refuse_no_more(context: Context) -> None:
    """Let the database take everything again."""
    async with context.database.write() as tx:
        await tx.execute("DROP TRIGGER IF EXISTS refuse ON saga_journal")


async def fail(*_: object) -> None:
    """A bug."""
    raise RuntimeError("a bug")


class TestStarts:
    """What clients, and the models behind them, ask for."""

    @pytest.mark.parametrize("note", ["monthly rent", "rent ", "Rent", ""])
    async def test_agents_b1_a_reworded_retry_pays_once(self, client: Client, note: str) -> None:
        """A retry whose free text was reworded is refused, and told which saga there is."""
        deed = {"payee": "ann", "amount": 900}
        first = await start(client, "k", input={**deed, "note": "rent"}, business_key="rent-7")
        reworded = await start(client, "k", input={**deed, "note": note}, business_key="rent-7")
        another = await start(client, "l", input={**deed, "note": note}, business_key="rent-7")
        same = await start(client, "k", input={"note": "rent", **deed}, business_key="rent-7")
        saga = first.json()["id"]

        assert [422, 409, 200] == [each.status_code for each in (reworded, another, same)]
        assert {"idempotency_key_reused", "business_key_taken"} == {
            reworded.json()["code"],
            another.json()["code"],
        }
        assert {saga} == {reworded.json()["saga"], another.json()["saga"], same.json()["id"]}
        assert [saga] == [each["id"] for each in (await client.get("/v1/sagas")).json()["items"]]

    async def test_agents_b3_two_sessions_with_keys_of_their_own(
        self, client: Client, second: Client
    ) -> None:
        """Of two processes that do the same deed under other keys one does it, with one key."""
        responses = await asyncio.gather(
            *(
                start((client, second)[number % 2], f"session-{number}", business_key="order 7")
                for number in range(10)
            )
        )
        accepted = [each.json() for each in responses if each.status_code == 202]
        refused = [each.json() for each in responses if each.status_code == 409]

        assert (1, 9) == (len(accepted), len(refused))
        assert {accepted[0]["id"]} == {problem["saga"] for problem in refused}

    async def test_agents_b4_a_key_that_a_model_makes_up_each_time(self, second: Client) -> None:
        """A fresh Idempotency-Key at each attempt does not make a deed twice that has a name."""
        responses = [
            await start(second, f"made-up-{number}", business_key="order 7") for number in range(5)
        ]
        shown = await get(second, responses[0].json()["id"])

        assert [202, *[409] * 4] == [response.status_code for response in responses]
        assert 1 == len((await second.get("/v1/sagas")).json()["items"])
        assert (1, shown["steps"][0]["idempotency_key"]) == (
            shown["steps"][0]["attempts"],
            responses[0].json()["steps"][0]["idempotency_key"],
        )

    async def test_agents_b9_a_saga_keeps_its_version(self, client: Client, driver: Driver) -> None:
        """A saga of version 1 that is resumed after version 2 goes on, and back, as version 1."""
        saga = await driver.start()
        await client.post(f"/v1/sagas/{saga}/pause", json=REASON)
        await driver.answer(saga, "flight", body={"id": "F1"})
        await publish_definition(driver.context, a_document(steps=[a_step("elsewhere")]))
        driver.context.definitions._kept.clear()
        resumed = await driver.tell(saga, ResumeRequested(actor="ann", reason="go on"))
        undoing = await driver.answer(saga, "hotel", 402)

        assert (await get(client, saga))["definition"] == {"name": "book_trip", "version": 1}
        assert {"flight": 1, "hotel": 1} == {
            call.step: call.attempts for call in resumed.calls.values()
        }
        undo_call = undoing.call(StepId("flight"), Direction.COMPENSATION)
        assert undo_call is not None
        assert isinstance(undo_call.request, HttpRequest)
        assert undo_call.request.url == "http://tool.test/flight/F1"

    async def test_agents_b46_a_client_that_lost_the_id(
        self, client: Client, driver: Driver
    ) -> None:
        """Who knows nothing but the business key finds the saga, and can take it over."""
        saga = await driver.start(business_key="order 7")
        await driver.start(business_key="order 8")
        found = (await client.get("/v1/sagas", params={"business_key": "order 7"})).json()["items"]
        told = await client.post(f"/v1/sagas/{found[0]['id']}/cancel", json=REASON)

        assert [str(saga)] == [each["id"] for each in found]
        assert (202, "compensating") == (told.status_code, told.json()["status"])

    async def test_durable_engines_b40_waiting_clients_hold_no_connection(
        self, client: Client, context: Context, driver: Driver
    ) -> None:
        """Two hundred that wait leave four connections free for who works, and are all answered."""
        sagas = [await driver.start() for _ in range(10)]
        prefer = {"Prefer": "wait=30"}
        async with asyncio.TaskGroup() as tasks:
            held = [
                tasks.create_task(client.get(f"/v1/sagas/{sagas[n % 10]}", headers=prefer))
                for n in range(200)
            ]
            await wait_until(
                lambda: sum(len(each) for each in context.watch._watchers.values()) == 200
            )
            async with asyncio.timeout(5):
                for _ in range(5):
                    assert (await client.get("/v1/sagas?limit=1")).status_code == 200
                await asyncio.gather(*(driver.complete(saga) for saga in sagas))
            assert not any(task.done() and task.result().status_code != 200 for task in held)

        assert {(200, "completed")} == {
            (task.result().status_code, task.result().json()["status"]) for task in held
        }


class TestPeople:
    """What a person can tell a saga."""

    @pytest.mark.parametrize(
        ("verb", "ends", "residue"),
        [
            ("cancel", "compensated", []),
            ("terminate", "terminated", ["flight"]),
            ("skip", "partially_compensated", ["flight"]),
        ],
    )
    async def test_durable_engines_b31_three_ways_to_give_up(
        self, client: Client, driver: Driver, verb: str, ends: str, residue: list[str]
    ) -> None:
        """To undo, to stop as it is, and to renounce an undo are three verbs, and each is told."""
        saga = await driver.start()
        await driver.answer(saga, "flight", body={"id": "F1"})
        path = f"/v1/sagas/{saga}/{verb}"
        if verb == "skip":
            await driver.answer(saga, "hotel", 402)
            await driver.answer(saga, "flight", 400, direction=Direction.COMPENSATION)
            path = f"/v1/sagas/{saga}/steps/flight/skip"
        unexplained = await client.post(path, json={})
        told = await client.post(path, json=REASON)
        if verb != "skip":
            await driver.answer(saga, "hotel", 402)
        if verb == "cancel":
            await driver.answer(saga, "flight", 204, direction=Direction.COMPENSATION)
        shown = await get(client, saga)
        requested = [event for event in await events(client, saga) if event["detail"].get("actor")]

        assert [422, 202] == [unexplained.status_code, told.status_code]
        assert ends == shown["status"]
        assert residue == [each["step"] for each in shown["residue"]]
        assert [f"{verb}_requested"] == [event["type"] for event in requested]
        assert REASON["reason"] == requested[0]["detail"]["reason"]

    async def test_saga_coordinators_b28_an_undo_between_two_writes(
        self, client: Client, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An undo whose saga was started, and not yet noted, meets that saga when asked again."""
        step = an_undo_by_key("flight", late_window="0s")
        await publish_definition(driver.context, a_document("late", steps=[step]))
        saga = await driver.start("late")
        await driver.observe(saga, "flight", TIMED_OUT)
        await driver.answer(saga, "flight", 204, direction=Direction.COMPENSATION)
        await driver.answer(saga, "flight", body={"id": "F1"})
        assert (await driver.load(saga)).status is SagaStatus.COMPENSATED

        async def lost(*_: object) -> None:
            raise StoreUnavailable("the process ends here")

        url = f"/v1/sagas/{saga}/steps/flight/undo"
        with monkeypatch.context() as patch:
            patch.setattr(undo, "tell_saga", lost)
            first = await client.post(url, json=REASON)
        between = (await client.get(f"/v1/sagas?label.amends.undoes={saga}")).json()["items"]
        again = await client.post(url, json=REASON)
        after = (await client.get(f"/v1/sagas?label.amends.undoes={saga}")).json()["items"]
        noted = (await events(client, saga))[-1]["detail"]["undo_saga"]

        assert [503, 202] == [first.status_code, again.status_code]
        assert [noted] == [each["id"] for each in between] == [each["id"] for each in after]
        assert again.json()["attention"] is False

"""Dispatch: a call leaves after its intent is committed, one at a time, and what comes is kept."""

import asyncio
import json

import asyncpg
import pytest

from app.connectors import OutgoingCall
from app.core.identity import Direction, StepId
from app.core.json_value import JsonValue
from app.core.observation import Answered, Observation
from app.core.requests import HttpRequest
from app.core.saga import Output, SagaStatus
from tests.core.builders import a_definition, a_step
from tests.engine.replica import SECRETS, Running, all_completed
from tests.store.place import answered, connected, journal_of
from tests.waiting import wait_until


async def test_a_saga_runs_and_leaves_nothing_behind(
    running: Running, look: asyncpg.Connection
) -> None:
    """Both tools are asked once, in order; the saga completes, and takes no memory any more."""
    saga = await running.start()

    (done,) = await running.rest(saga)

    assert done.status is SagaStatus.COMPLETED
    assert ["flight action 1", "hotel action 1"] == running.tools.names()
    await wait_until(lambda: not running.engine._tasks)
    assert 0 == running.engine.held
    assert ({}, {}, 0) == (
        running.journal._lanes,
        running.engine._timers,
        running.engine._dispatcher.in_flight,
    )
    assert 3 == len(await journal_of(look, saga.id))


async def test_a_failed_saga_is_undone_in_reverse(running: Running) -> None:
    """When the second tool refuses, the first step is undone, and nothing else."""
    running.tools.answer("hotel", answered(402))

    (done,) = await running.rest(await running.start())

    assert done.status is SagaStatus.COMPENSATED
    assert ["flight action 1", "hotel action 1", "flight compensation 1"] == running.tools.names()


async def test_a_call_leaves_only_after_its_intent_is_committed(
    running: Running, database_url: str
) -> None:
    """At the moment of every call another connection sees its intent, to the byte."""
    seen: list[str] = []

    async def look_up(call: OutgoingCall) -> Observation:
        async with connected(database_url) as stranger:
            text = await stranger.fetchval(
                "SELECT data FROM saga_journal WHERE saga_id = $1 ORDER BY seq DESC LIMIT 1",
                call.saga_id,
            )
        (intent,) = (each for each in json.loads(text)["calls"] if each.get("open"))
        assert (call.step, call.call) == (intent["step"], intent["direction"])
        assert (str(call.key), call.attempt) == (intent["key"], intent["open"]["number"])
        assert isinstance(call.request, HttpRequest)
        assert call.request.url == intent["request"]["http"]["url"]
        assert (call.request.body or "") == intent["request"]["http"].get("body", {}).get(
            "text", ""
        )
        seen.append(f"{call.step} {call.call}")
        return answered(402) if call.step == "hotel" else answered()

    for step in ("flight", "hotel"):
        running.tools.answer(step, look_up)
    running.tools.answer("flight", look_up, call="compensation")

    (done,) = await running.rest(await running.start())

    assert done.status is SagaStatus.COMPENSATED
    assert ["flight action", "hotel action", "flight compensation"] == seen


async def test_nothing_leaves_while_the_commit_is_held_up(
    running: Running, look: asyncpg.Connection
) -> None:
    """A result whose commit waits for a lock lets no next call leave before it is through."""
    gate = running.tools.hold("flight")
    saga = await running.start()
    await running.tools.arrived(1)

    async with look.transaction():
        await look.execute("SELECT FROM sagas WHERE id = $1 FOR UPDATE", saga.id)
        gate.open()
        # Longer than the lock may be waited for: the result is kept, and tried again.
        await look.execute("SELECT pg_sleep(1.5)")
        assert ["flight action 1"] == running.tools.names()

    (done,) = await running.rest(saga)
    assert done.status is SagaStatus.COMPLETED
    assert ["flight action 1", "hotel action 1"] == running.tools.names()


async def test_no_two_attempts_of_a_call_are_out_at_once(
    running: Running, look: asyncpg.Connection
) -> None:
    """However often a saga is woken while a call is out, there is one attempt of it."""
    gate = running.tools.hold("flight")
    sagas = [await running.start() for _ in range(20)]
    await running.tools.arrived(20)

    for _ in range(5):
        await asyncio.gather(*(running.wake(saga) for saga in sagas))
    for saga in sagas:
        running.engine.offer(await running.fetch(saga))
    gate.open()
    await wait_until(all_completed(look, 20))

    assert [] == running.tools.overlaps
    assert 40 == len(running.tools.calls)


async def test_a_connector_that_raises_has_broken_off(running: Running) -> None:
    """A bug in a connector is an unknown outcome of that attempt, and the saga goes on."""
    running.tools.answer("flight", RuntimeError("a bug"), answered())

    (done,) = await running.rest(await running.start())

    assert done.status is SagaStatus.COMPLETED
    assert ["flight action 1", "flight action 2", "hotel action 1"] == running.tools.names()
    first, second = running.tools.calls[:2]
    assert (first.key, first.request) == (second.key, second.request)


async def test_a_connector_that_always_raises_ends_the_saga_honestly(
    running: Running, look: asyncpg.Connection
) -> None:
    """The last attempt's error says that our own code failed, and nothing is hidden."""
    running.tools.answer("hotel", RuntimeError("a bug"))
    saga = await running.start()
    await running.tools.arrived(3)

    await running.cancel(saga)
    entries = await journal_of(look, saga.id)
    broken = [e for e in entries if "broken_off" in e["data"]]
    assert broken
    assert "internal" == json.loads(broken[0]["data"])["fact"]["observation"]["broken_off"]


async def test_one_tool_that_hangs_holds_up_no_other(
    running: Running, look: asyncpg.Connection
) -> None:
    """A hundred sagas wait for a tool, and a hundred others are done meanwhile."""
    running.tools.hold("flight")
    slow = [await running.start() for _ in range(100)]
    await running.tools.arrived(100)
    running.tools._gates.clear()

    quick = [await running.start() for _ in range(100)]

    assert {SagaStatus.COMPLETED} == {saga.status for saga in await running.rest(*quick)}
    assert {SagaStatus.RUNNING} == {(await running.fetch(saga)).status for saga in slow}
    for saga in slow:
        assert saga.id in running.engine._held
    for task in running.engine._dispatcher._out.values():
        task.cancel()


async def test_five_hundred_at_once(running: Running, look: asyncpg.Connection) -> None:
    """Five hundred sagas started at once all complete, each tool asked once for each."""
    await asyncio.gather(*(running.start() for _ in range(500)))
    await wait_until(all_completed(look, 500), seconds_max=30)

    assert 1000 == len(running.tools.calls)
    assert 1500 == await look.fetchval("SELECT count(*) FROM saga_journal")
    await wait_until(lambda: running.engine.held == 0)
    assert {} == running.journal._lanes


@pytest.mark.parametrize(
    "body",
    [{"id": "a\0b"}, {"id": "x" * 500_000}, {"id": "ü" * 200_000}, None, False, [[]], "\ufffe"],
)
async def test_odd_answers_are_stored(running: Running, body: JsonValue) -> None:
    """Whatever a tool says is stored as it is, and the saga comes to rest."""
    running.tools.answer("flight", Answered(status=200, body=body, body_bytes=100))
    running.tools.answer("hotel", answered(402))

    (done,) = await running.rest(await running.start())

    flight = done.call(StepId("flight"), Direction.ACTION)
    assert flight is not None
    assert Output(value=body) == flight.output


async def test_a_secret_is_sent_and_never_stored(
    running: Running, look: asyncpg.Connection
) -> None:
    """What a definition names as a secret is in the request that leaves, and in no row."""
    step = a_step("flight")
    step["action"]["http"]["headers"] = {"Authorization": "Bearer ${{ secrets.bank_key }}"}  # type: ignore[index,call-overload] # JSON
    await running.publish(a_definition(step))

    (done,) = await running.rest(await running.start(version=2))

    assert done.status is SagaStatus.COMPLETED
    sent = running.tools.sent[0].request
    assert isinstance(sent, HttpRequest)
    assert sent.headers == (("Authorization", f"Bearer {SECRETS['bank_key']}"),)
    rows = await look.fetch("SELECT data::text AS data FROM saga_journal")
    assert all("s3cr3t" not in row["data"] for row in rows)


async def test_a_secret_that_is_missing_is_told_and_tried_again(running: Running) -> None:
    """Nothing leaves without it; the attempts count, and say what is missing."""
    step = a_step("flight", action={"retry": {"max_attempts": 2, "initial_delay": "10ms"}})
    step["action"]["http"]["headers"] = {"Authorization": "${{ secrets.other }}"}  # type: ignore[index,call-overload] # JSON
    await running.publish(a_definition(step))

    (done,) = await running.rest(await running.start(version=2))

    assert done.status is SagaStatus.COMPENSATED
    assert done.now.failure is not None
    assert "'other' is not configured" in done.now.failure.problem.message
    assert [] == running.tools.sent

"""What a tool tells its caller: the order of its reports, where they go, and how often."""

import asyncio
from typing import Any

import pytest

from tests.examples.charging import SUCCEEDED, charge, tell
from tests.examples.client import Client
from tests.examples.listener import Listener
from tests.waiting import wait_until


async def test_a_report_can_come_before_the_answer(world: Client, listener: Listener) -> None:
    """A report that is sent before the answer leaves is there when the answer comes."""
    await tell(world, {"say": "truth", "before": True})

    reply = await charge(world, listener.url)

    assert reply.status == 202
    assert listener.told == [SUCCEEDED]


async def test_a_hold_before_the_answer_holds_the_answer(world: Client, listener: Listener) -> None:
    """While a report that comes first is held, the request has no answer."""
    await tell(world, {"say": "truth", "before": True, "hold": "x"}, "truth")
    async with asyncio.TaskGroup() as tasks:
        reply = tasks.create_task(charge(world, listener.url))
        await world.held("x")
        assert not reply.done()
        await world.release("x")
    await world.callbacks(2)

    assert listener.outcomes == ["succeeded", "succeeded"]


async def test_a_report_can_be_held(world: Client, listener: Listener) -> None:
    """Until a held report is released nothing is told and, unless told to, nothing done."""
    await tell(world, {"say": "truth", "hold": "x"})

    reply = await charge(world, listener.url)
    (held,) = await world.held("x")
    while_held = await world.send("GET", "/charges?key=k1")
    accepted = await world.outcomes()
    await world.release("x")
    await world.callbacks(1)

    assert reply.status == 202
    assert (held["where"], held["name"], held["key"]) == ("callback", "x", "k1")
    assert while_held.json == {"items": [], "pending": 1}
    assert accepted[0] == "accepted"
    assert listener.told == [SUCCEEDED]
    assert (await world.send("GET", "/charges?key=k1")).json == {"items": [SUCCEEDED["output"]]}


async def test_a_tool_can_act_long_before_it_reports(world: Client, listener: Listener) -> None:
    """With `acts: now` the effect comes with the acknowledgement, and the report when it comes."""
    await tell(world, {"say": "truth", "hold": "x"}, acts="now")

    reply = await charge(world, listener.url)
    await world.held("x")
    while_held = await world.effects()
    await world.release("x")
    await world.callbacks(1)

    assert reply.status == 202
    assert while_held == ["CH1"]
    assert await world.outcomes() == ["applied"]
    assert listener.told == [SUCCEEDED]


async def test_a_refund_bars_what_is_only_acknowledged(world: Client, listener: Listener) -> None:
    """A charge that is refunded while its report is held does not come, and is told as failed."""
    await tell(world, {"say": "truth", "hold": "x"})
    await charge(world, listener.url)
    await world.held("x")

    await world.send("POST", "/refunds", {"charge_key": "k1"}, key="k2")
    await world.release("x")
    await world.callbacks(1)

    assert listener.outcomes == ["failed"]
    assert listener.told[0]["error"].startswith("refunded_before: ")
    assert await world.effects() == []


@pytest.mark.parametrize(
    ("reports", "outcomes"),
    [
        (["truth", "truth"], ["succeeded", "succeeded"]),
        (["succeeded", "failed"], ["succeeded", "failed"]),
        (["failed", "succeeded"], ["failed", "succeeded"]),
        (["in_progress"] * 2 + ["truth"], ["in_progress", "in_progress", "succeeded"]),
        ([{"say": "truth", "delay": 0.01}], ["succeeded"]),
    ],
)
async def test_reports_are_told_in_order(
    world: Client, listener: Listener, reports: list[Any], outcomes: list[str]
) -> None:
    """A tool says what its plan lists: twice, the one and then the other, or progress first."""
    await tell(world, *reports)

    await charge(world, listener.url)
    callbacks = await world.callbacks(len(outcomes))

    assert listener.outcomes == outcomes
    assert [(each.report, each.outcome) for each in callbacks] == list(enumerate(outcomes))
    assert await world.effects() == ["CH1"]


async def test_a_tool_may_never_report(world: Client, listener: Listener) -> None:
    """With an empty plan it acts and says nothing."""
    await world.switch({"match": {"step": "charge"}, "times": 1, "do": {"callback": []}})

    await charge(world, listener.url)
    await charge(world, listener.url, key="k2")
    await world.callbacks(1, key="k2")

    async def both() -> bool:
        return sorted(await world.effects()) == ["CH1", "CH2"]

    await wait_until(both, what="both charges")
    assert [each.key for each in await world.callbacks(1)] == ["k2"]


async def test_a_report_can_be_changed(world: Client, listener: Listener) -> None:
    """Fields of a body can be put in place of, and beside, its own."""
    await tell(world, {"say": "failed", "with": {"effect": "unknown", "error": "who knows"}})

    await charge(world, listener.url)
    (callback,) = await world.callbacks(1)

    assert listener.told == [{"outcome": "failed", "error": "who knows", "effect": "unknown"}]
    assert callback.is_changed


async def test_a_report_can_go_astray(world: Client, listener: Listener) -> None:
    """A report goes with a forged token or to a dead URL, once, and then to the right one."""
    listener.answers = [404]
    await tell(world, {"say": "truth", "to": "forged"}, {"say": "truth", "to": "dead"}, "truth")

    await charge(world, listener.url)
    forged, dead, given = await world.callbacks(3)

    assert len(listener.tokens) == 2
    assert listener.tokens[0] != listener.tokens[1] == "token-abc"
    assert len(listener.tokens[0]) == len("token-abc")
    assert [each.sent_to for each in (forged, dead, given)] == ["forged", "dead", "given"]
    assert [each.status for each in (forged, dead, given)] == [404, None, 200]
    assert dead.error is not None
    assert "ClientConnectorError" in dead.error
    assert dead.answered_seq is not None
    assert forged.token_sha256 != given.token_sha256


@pytest.mark.parametrize(
    ("do", "status"),
    [({"drop": "after"}, None), ({"fail": 500, "effect": True}, 500), ({"cut": "body"}, 202)],
)
async def test_a_lost_acknowledgement_stops_no_report(
    world: Client, listener: Listener, do: dict[str, object], status: int | None
) -> None:
    """What was acknowledged is reported, also if nobody heard the acknowledgement."""
    await world.switch({"times": 1, "do": do})

    await asyncio.gather(charge(world, listener.url), return_exceptions=True)
    await world.callbacks(1)
    again = await charge(world, listener.url)

    assert listener.told == [SUCCEEDED]
    assert (again.status, again.is_replayed) == (202, True)
    assert [each.status for each in (await world.ledger()).requests] == [status, 202]


@pytest.mark.parametrize("do", [{"drop": "before"}, {"fail": 503}])
async def test_what_never_came_is_not_reported(
    world: Client, listener: Listener, do: dict[str, object]
) -> None:
    """A request that did not reach the tool is reported only when it is sent again."""
    await world.switch({"times": 1, "do": do})

    await asyncio.gather(charge(world, listener.url), return_exceptions=True)
    again = await charge(world, listener.url)
    await world.callbacks(1)

    assert (again.status, again.is_replayed) == (202, False)
    assert listener.told == [SUCCEEDED]


async def test_a_report_is_sent_until_it_is_taken(world: Client, listener: Listener) -> None:
    """Who hangs up, or answers 5xx or 429, gets the same bytes again."""
    listener.answers = [0, 503, 429, 202]

    await charge(world, listener.url)
    callbacks = await world.callbacks(4)

    assert [each.status for each in callbacks] == [None, 503, 429, 202]
    assert [each.attempt for each in callbacks] == [1, 2, 3, 4]
    assert {each.report for each in callbacks} == {0}
    assert len(set(listener.bodies)) == 1


@pytest.mark.parametrize("status", [404, 409, 422, 302])
async def test_a_definite_answer_ends_a_report(
    world: Client, listener: Listener, status: int
) -> None:
    """What is refused or redirected is not sent again, and the next report is."""
    listener.answers = [status, 200]
    await tell(world, "truth", "failed")

    await charge(world, listener.url)
    callbacks = await world.callbacks(2)

    assert [(each.report, each.status) for each in callbacks] == [(0, status), (1, 200)]


async def test_a_report_is_given_up_in_the_end(world: Client, listener: Listener) -> None:
    """After its attempts a report is given up, and the next one is sent."""
    listener.answers = [500, 500, 200]
    await tell(world, {"say": "truth", "attempts": 2}, "failed")

    await charge(world, listener.url)
    callbacks = await world.callbacks(3)

    assert [(each.report, each.status) for each in callbacks] == [(0, 500), (0, 500), (1, 200)]

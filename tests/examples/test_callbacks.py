"""Tools that report later: what is acknowledged, what is reported, and to whom."""

import hashlib
from typing import Any

import pytest

from examples.world import serving
from examples.world.caller import DEAD_URL, is_loopback
from tests.examples.charging import CHARGE, PENDING, SUCCEEDED, charge, tell
from tests.examples.client import Client, client_of
from tests.examples.listener import Listener

ROME = {"city": "Rome"}


async def test_a_request_is_acknowledged_and_its_outcome_reported(
    world: Client, listener: Listener
) -> None:
    """Who names a URL gets 202 and an id, and later is told the answer that it else would get."""
    reply = await charge(world, listener.url)
    (callback,) = await world.callbacks(1)

    assert (reply.status, reply.json) == (202, PENDING)
    assert listener.told == [SUCCEEDED]
    assert await world.effects() == ["CH1"]
    assert (await world.send("GET", "/charges?key=k1")).json["items"] == [SUCCEEDED["output"]]
    ledger = await world.ledger()
    (request, _) = ledger.requests
    assert (request.outcome, request.status, request.resource) == ("applied", 202, "CH1")
    assert ledger.callbacks == (callback,)
    assert callback.request_seq == request.seq
    assert (callback.key, callback.saga, callback.step) == ("k1", "s1", "charge")
    assert (callback.call, callback.report, callback.attempt) == ("action", 0, 1)
    assert (callback.outcome, callback.sent_to, callback.status) == ("succeeded", "given", 200)
    assert callback.token_sha256 == hashlib.sha256(b"token-abc").hexdigest()
    assert callback.body_text.encode() == listener.bodies[0]


async def test_the_url_may_be_in_the_body(world: Client, listener: Listener) -> None:
    """A `callback_url` in the body does as well as the header, and is not part of what is made."""
    asked = CHARGE | {"callback_url": listener.url}

    reply = await world.send("POST", "/charges", asked, key="k1")
    await world.callbacks(1)

    assert reply.status == 202
    assert listener.told == [SUCCEEDED]


async def test_a_refusal_is_reported(world: Client, listener: Listener) -> None:
    """What the business refuses is acknowledged first, and reported as failed with its reason."""
    reply = await charge(world, listener.url, card="declined")
    await world.callbacks(1)

    assert reply.status == 202
    error = "card_declined: the card was declined"
    assert listener.told == [{"outcome": "failed", "error": error}]
    assert await world.outcomes() == ["refused"]


@pytest.mark.parametrize(
    ("data", "do", "status"), [(b"{", {"late": 0.001}, 400), (b"{}", {"decline": 409}, 409)]
)
async def test_what_is_refused_at_once_is_not_reported(
    world: Client, listener: Listener, data: bytes, do: dict[str, object], status: int
) -> None:
    """A request that cannot be read, or is declined by a switch, is no job."""
    await world.switch({"match": {"path": "/charges"}, "times": 1, "do": do})

    reply = await world.send("POST", "/charges", data=data, callback_url=listener.url)
    await charge(world, listener.url, key="k2")
    (callback,) = await world.callbacks(1)

    assert reply.status == status
    assert callback.key == "k2"


async def test_an_undo_can_be_reported(world: Client, listener: Listener) -> None:
    """Refunds and deletions are acknowledged and reported like what they undo."""
    await world.send("POST", "/charges", CHARGE, key="k1")
    await world.send("POST", "/flights", ROME, key="k2")

    undo = {"charge_key": "k1"}
    refund = await world.send("POST", "/refunds", undo, key="k3", callback_url=listener.url)
    await world.callbacks(1, key="k3")
    delete = await world.send("DELETE", "/flights/F1", key="k4", callback_url=listener.url)
    await world.callbacks(1, key="k4")

    assert (refund.status, refund.json) == (202, {"status": "pending"})
    assert (delete.status, delete.json) == (202, {"status": "pending"})
    assert listener.outcomes == ["succeeded", "succeeded"]
    assert listener.told[0]["output"] == {"id": "R1", "charge": "CH1", "amount": 90}
    assert await world.effects() == []


async def test_reads_are_answered_at_once(world: Client, listener: Listener) -> None:
    """A question is answered and not reported, also if it names a URL."""
    reply = await world.send("GET", "/charges?key=k1", callback_url=listener.url)

    assert (reply.status, reply.json) == (200, {"items": []})


async def test_a_resend_is_acknowledged_again(world: Client, listener: Listener) -> None:
    """The same key is acknowledged again; it neither acts nor reports once more."""
    await charge(world, listener.url)
    await world.callbacks(1)

    again = await charge(world, listener.url)
    await charge(world, listener.url, key="k2")
    callbacks = await world.callbacks(1, key="k2")

    assert (again.status, again.json, again.is_replayed) == (202, PENDING, True)
    assert [each.key for each in callbacks] == ["k2"]
    assert [each.key for each in await world.callbacks(2)] == ["k1", "k2"]
    assert await world.effects() == ["CH1", "CH2"]


@pytest.mark.parametrize("acts", ["now", "later"])
async def test_a_refusal_that_is_reported_keeps_its_key(
    world: Client, listener: Listener, acts: str
) -> None:
    """What was acknowledged stays so, also if it came to nothing: the business is asked once."""
    await tell(world, "truth", acts=acts)
    await charge(world, listener.url, card="declined")
    await world.callbacks(1)

    again = await charge(world, listener.url, card="declined")
    await charge(world, listener.url, key="k2")
    await world.callbacks(1, key="k2")

    assert (again.status, again.is_replayed) == (202, True)
    assert [each.key for each in await world.callbacks(2)] == ["k1", "k2"]


async def test_a_resend_can_be_reported_again(world: Client, listener: Listener) -> None:
    """A tool that is told so reports a resend once more, with the same bytes."""
    await world.switch({"resource": "charges", "calls_back_again": True})
    await charge(world, listener.url)
    await world.callbacks(1)

    await charge(world, listener.url)
    await world.callbacks(2)

    assert listener.told == [SUCCEEDED, SUCCEEDED]
    assert listener.bodies[0] == listener.bodies[1]
    assert await world.effects() == ["CH1"]


async def test_a_tool_may_know_nothing_of_callbacks(world: Client, listener: Listener) -> None:
    """A tool that does not call back answers at once, whatever URL is named."""
    await world.switch({"resource": "charges", "calls_back": False})

    reply = await charge(world, listener.url)

    assert (reply.status, reply.json) == (201, SUCCEEDED["output"])


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("http://127.0.0.1:8000/v1/callbacks/t", True),
        ("http://127.8.8.8/t", True),
        ("https://[::1]:8000/t", True),
        ("http://localhost/t", True),
        ("http://10.0.0.1/t", False),
        ("http://localhost.example.org/t", False),
        ("http://127.0.0.1@example.org/t", False),
        ("ftp://127.0.0.1/t", False),
        ("file:///etc/passwd", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_a_loopback_url_is_told_by_its_host(url: str, is_one: bool) -> None:  # noqa: FBT001
    """Only names of this machine count, over HTTP."""
    assert is_loopback(url) is is_one


async def test_other_machines_are_not_called(world: Client) -> None:
    """A URL that leads elsewhere is refused before anything is done."""
    reply = await charge(world, "http://198.51.100.1/v1/callbacks/t")

    assert (reply.status, reply.json["error"]) == (422, "callback_url")
    assert await world.outcomes() == ["refused"]
    assert await world.effects() == []


async def test_other_machines_are_called_if_that_is_wanted(ledger_path: Any) -> None:
    """A world that may call anywhere does so, or says in the ledger why it could not."""
    async with (
        serving(ledger=ledger_path, calls_anywhere=True) as served,
        client_of(served.url) as world,
    ):
        await tell(world, {"say": "truth", "attempts": 1})
        reply = await charge(world, DEAD_URL.replace("127.0.0.1", "0.0.0.0"))
        (callback,) = await world.callbacks(1)

    assert reply.status == 202
    assert (callback.status, callback.error is None) == (None, False)


@pytest.mark.parametrize("query", ["wait=long", "count=many", "wait=61"])
async def test_waiting_for_reports_has_to_make_sense(world: Client, query: str) -> None:
    """A wait or a count that is no number is refused."""
    assert (await world.send("GET", f"/world/callbacks?{query}")).status == 422


async def test_a_wait_for_reports_that_is_over_shows_what_there_is(world: Client) -> None:
    """When the time is up, or none was given, the list is given as it is."""
    assert (await world.send("GET", "/world/callbacks")).json == {"callbacks": []}
    assert (await world.send("GET", "/world/callbacks?wait=0.01")).json == {"callbacks": []}


async def test_the_summary_counts_reports(world: Client, listener: Listener) -> None:
    """The summary of a saga shows what was reported of each step, and what was answered."""
    listener.answers = [200, 404]
    await tell(world, "in_progress", "truth")
    await charge(world, listener.url)
    await world.callbacks(2, saga="s1")

    summary = await world.summary("s1")

    assert summary["callbacks"] == {"charge": ["in_progress 200", "succeeded 404"]}
    assert [each["rule"] for each in summary["violations"]] == ["callback_refused"]

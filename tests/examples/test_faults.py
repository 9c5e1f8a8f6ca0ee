"""Faults on the wire: what the client sees, and what happened in the world all the same."""

import asyncio
import socket
import time
import zlib
from typing import Any

import aiohttp
import pytest

from examples.world.wire import BOMB_BYTES, HUGE_BYTES
from tests.examples.client import Client, Reply
from tests.waiting import wait_until

ROME = {"city": "Rome"}
FOREVER = 3600
A_MOMENT = 0.05


async def book(world: Client, key: str = "k1") -> Reply:
    """Book a flight."""
    return await world.send("POST", "/flights", ROME, key=key, named="s1 flight action")


async def order(world: Client, **do: object) -> None:
    """Order a fault for the next request to the flights."""
    await world.switch({"match": {"path": "/flights"}, "times": 1, "do": do})


async def statuses(world: Client) -> list[int | None]:
    """List the statuses in the ledger."""
    return [request.status for request in (await world.ledger()).requests]


async def test_a_decline_comes_before_the_effect(world: Client) -> None:
    """A declined request changes nothing and says the code that was ordered."""
    await order(world, decline=402, code="no_funds")

    reply = await book(world)

    assert (reply.status, reply.json["error"]) == (402, "no_funds")
    assert await world.effects() == []
    assert await world.outcomes() == ["refused"]


async def test_a_key_with_an_effect_is_not_declined(world: Client) -> None:
    """A tool that acted under a key replays it, also when it would decline now."""
    await book(world)
    await order(world, decline=402)

    again = await book(world)

    assert (again.status, again.is_replayed) == (201, True)


@pytest.mark.parametrize(
    ("do", "status", "live"),
    [
        ({"fail": 500}, 500, []),
        ({"fail": 503, "effect": False}, 503, []),
        ({"fail": 500, "effect": True}, 500, ["F1"]),
        ({"answer": {"status": 404}}, 404, []),
        ({"answer": {"status": 202}, "effect": True}, 202, ["F1"]),
        ({"nonsense": "html", "status": 502, "effect": False}, 502, []),
        ({"nonsense": "empty"}, 200, ["F1"]),
    ],
)
async def test_an_ending_is_before_or_after_the_effect(
    world: Client, do: dict[str, object], status: int, live: list[str]
) -> None:
    """What is answered and what happened are told apart, and the ledger knows both."""
    await order(world, **do)

    reply = await book(world)

    assert reply.status == status
    assert await world.effects() == live
    assert await world.outcomes() == ["applied" if live else "none"]
    assert await statuses(world) == [status]


@pytest.mark.parametrize(
    ("do", "live"),
    [
        ({"drop": "before"}, []),
        ({"drop": "after"}, ["F1"]),
        ({"hang": 0.01}, []),
        ({"hang": 0.01, "effect": True}, ["F1"]),
    ],
)
async def test_a_connection_is_closed_without_an_answer(
    world: Client, do: dict[str, object], live: list[str]
) -> None:
    """The client gets nothing; a resend gets the answer and there is one effect either way."""
    await order(world, **do)

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await book(world)

    assert await world.effects() == live
    assert await statuses(world) == [None]
    again = await book(world)
    assert (again.status, again.is_replayed) == (201, bool(live))
    assert await world.effects() == ["F1"]


async def test_a_made_answer_is_sent_as_it_is(world: Client) -> None:
    """Status, headers and JSON body of an answer are free, for instance a 429 that asks to wait."""
    headers = {"Retry-After": "Wed, 21 Oct 2037 07:28:00 GMT"}
    await order(world, answer={"status": 429, "headers": headers, "body": {"slow": ["down"]}})

    reply = await book(world)

    assert reply.status == 429
    assert reply.headers["Retry-After"] == headers["Retry-After"]
    assert reply.json == {"slow": ["down"]}


async def test_a_made_answer_may_be_plain_text(world: Client) -> None:
    """A string body is sent as text, under the content type that is ordered."""
    headers = {"content-type": "application/json"}
    await order(world, answer={"status": 200, "headers": headers, "body": "not json"})

    reply = await book(world)

    assert (reply.body, reply.headers["Content-Type"]) == (b"not json", "application/json")


@pytest.mark.parametrize("do", [{"delay": A_MOMENT}, {"late_effect": A_MOMENT}, {"late": A_MOMENT}])
async def test_a_slow_answer_is_the_true_one(world: Client, do: dict[str, object]) -> None:
    """A request that is slowed down takes at least that long and then is answered as usual."""
    await order(world, **do)
    begin = time.monotonic()

    reply = await book(world)

    assert reply.status == 201
    assert time.monotonic() - begin >= A_MOMENT


async def test_a_late_answer_comes_after_its_effect(world: Client) -> None:
    """The effect of a late answer is there, and replayed, while the answer is still to come."""
    await order(world, late=FOREVER)
    async with asyncio.TaskGroup() as tasks:
        late = tasks.create_task(book(world))
        await wait_until(world.effects, what="the effect")
        again = await book(world)
        assert not late.done()
        late.cancel()

    assert (again.status, again.is_replayed) == (201, True)


async def test_a_delayed_request_is_in_progress(world: Client) -> None:
    """A tool that is slow before the effect has the key in use."""
    await order(world, delay=FOREVER)
    async with asyncio.TaskGroup() as tasks:
        delayed = tasks.create_task(book(world))
        await wait_until(world.outcomes, what="the request")
        again = await book(world)
        delayed.cancel()

    assert (again.status, again.json["error"]) == (409, "in_progress")


async def test_a_request_in_the_network_is_overtaken(world: Client) -> None:
    """A late effect is not known to the tool yet, so that a resend acts before it."""
    await order(world, late_effect=FOREVER)
    async with asyncio.TaskGroup() as tasks:
        late = tasks.create_task(book(world))
        await wait_until(world.outcomes, what="the request")
        again = await book(world)
        late.cancel()

    assert (again.status, again.is_replayed) == (201, False)
    assert await world.outcomes() == [None, "applied"]


@pytest.mark.parametrize("do", [{"delay": A_MOMENT}, {"late_effect": A_MOMENT}])
async def test_a_client_that_goes_away_stops_nothing(world: Client, do: dict[str, object]) -> None:
    """The effect of a slow request comes about though its client hung up long before."""
    await order(world, **do)
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(book(world))
        await wait_until(world.outcomes, what="the request")
        gone.cancel()

    await wait_until(world.effects, what="the effect")
    assert await world.outcomes() == ["applied"]


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_client_that_goes_away_from_a_hold_stops_nothing(world: Client, where: str) -> None:
    """A request whose client hung up stays held, and has its effect."""
    await order(world, hold=where, name="x")
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(book(world))
        await world.held("x")
        gone.cancel()

    assert await world.release("x") == 1
    await wait_until(world.effects, what="the effect")


async def test_faults_combine(world: Client) -> None:
    """A rule may slow a request down, hold it and then drop its answer."""
    await order(world, delay=0.01, hold="after", name="x", late=0.01, drop="after")
    async with asyncio.TaskGroup() as tasks:
        answer = tasks.create_task(asyncio.wait_for(lost(world), timeout=20))
        await world.held("x")
        assert await world.effects() == ["F1"]
        await world.release("x")

    assert await answer


async def lost(world: Client) -> bool:
    """Book a flight and tell whether the answer was lost."""
    try:
        await book(world)
    except aiohttp.ServerDisconnectedError:
        return True
    return False


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("html", b"<!doctype html>"),
        ("bad_json", b'{"id": "F1", "city": '),
        ("bad_utf8", b'{"id": "\xff\xfe"}'),
        ("nan", b'{"id": NaN'),
        ("deep", b"[" * 10_000),
        ("nul", b'{"id": "F\\u00001", "city": "\\ud800"}'),
        ("empty", b""),
        ("huge", b"x" * HUGE_BYTES),
    ],
)
async def test_nonsense_is_a_success_that_cannot_be_used(
    world: Client, kind: str, body: bytes
) -> None:
    """Nonsense comes with status 200 and after the effect."""
    await order(world, nonsense=kind)

    reply = await book(world)

    assert reply.status == 200
    assert reply.body.startswith(body)
    assert await world.effects() == ["F1"]


async def test_a_truncated_answer_ends_early(world: Client) -> None:
    """A truncated answer announces more than it sends."""
    await order(world, nonsense="truncated")

    with pytest.raises(aiohttp.ClientPayloadError):
        await book(world)

    assert await world.effects() == ["F1"]


@pytest.mark.parametrize(
    ("do", "error"),
    [
        ({"cut": "body"}, aiohttp.ClientPayloadError),
        ({"cut": "headers"}, aiohttp.ServerDisconnectedError),
        # The client tells it by a status that nobody sent, 400.
        ({"nonsense": "wrong_chunks"}, aiohttp.ClientResponseError),
    ],
)
async def test_an_answer_is_spoilt_on_its_way(
    world: Client, do: dict[str, object], error: type[Exception]
) -> None:
    """An answer that stops in the middle, or is badly chunked, comes after its effect."""
    await order(world, **do)

    with pytest.raises(error):
        await book(world)

    assert await world.effects() == ["F1"]
    again = await book(world)
    assert (again.status, again.is_replayed) == (201, True)


@pytest.mark.parametrize(
    ("where", "answer"),
    [
        ("headers", b"HTTP/1.1 201 Created\r\nContent-Type: appli"),
        ("body", b'\r\n\r\n{"id": "F1", "'),
    ],
)
async def test_an_answer_is_cut_in_the_middle(world: Client, where: str, answer: bytes) -> None:
    """What is there of the tool's own answer is true, and the rest never comes."""
    await order(world, cut=where)

    got = await asyncio.to_thread(raw_book, world.url)

    assert got.endswith(answer)


def raw_book(url: str) -> bytes:
    """Book a flight and return all bytes that come until the other side closes."""
    request = b'POST /flights HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n{"city": "Rome"}'
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


async def test_an_answer_drips(world: Client) -> None:
    """A dripping answer is the true one, and takes its time for each byte."""
    await order(world, drip=0.002)
    begin = time.monotonic()

    reply = await book(world)

    assert (reply.status, reply.json) == (201, {"id": "F1", "city": "Rome"})
    assert time.monotonic() - begin >= 0.002 * len(reply.body)
    assert await statuses(world) == [201]


async def test_a_redirect_that_is_followed_shows_in_the_ledger(world: Client) -> None:
    """A redirect leads to a path of the world, so that following it is recorded."""
    await order(world, nonsense="redirect")

    reply = await book(world)
    assert (reply.status, reply.headers["Location"]) == (302, "/redirected")

    await world.send("GET", "/redirected")
    assert [each.path for each in (await world.ledger()).requests] == ["/flights", "/redirected"]


async def test_a_gzip_bomb_is_small_on_the_wire(world: Client) -> None:
    """The bomb is far under the limit of a client and unpacks to far more."""
    await order(world, nonsense="gzip_bomb")

    reply = await book(world)

    assert reply.headers["Content-Encoding"] == "gzip"
    assert len(reply.body) < 200_000
    assert len(zlib.decompress(reply.body, wbits=31)) == BOMB_BYTES


async def test_a_bank_answers_in_any_order(world: Client) -> None:
    """A charge held back in the network comes after its refund and is barred (fault F25)."""
    charge: dict[str, Any] = {"card": "4242"}
    await world.switch({"match": {"path": "/charges"}, "times": 1, "do": {"late_effect": A_MOMENT}})
    async with asyncio.TaskGroup() as tasks:
        late = tasks.create_task(world.send("POST", "/charges", charge, key="k1"))
        await wait_until(world.outcomes, what="the request")
        await world.send("POST", "/refunds", {"charge_key": "k1"}, key="k2")

    # Either order may come about; none leaves anything behind.
    assert late.result().status in {201, 409}
    assert await world.effects() == []

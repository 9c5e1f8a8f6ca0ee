"""The business of the world: what can be made, found and undone, and what is refused."""

import asyncio
import socket

import pytest

from tests.examples.client import Client

ROME = {"city": "Rome"}
CHARGE = {"card": "4242", "amount": 90}


@pytest.mark.parametrize(("resource", "prefix"), [("flights", "F"), ("hotels", "H"), ("cars", "C")])
async def test_a_booking_can_be_made_shown_found_and_deleted(
    world: Client, resource: str, prefix: str
) -> None:
    """A booking gets an id, is found by id and by key while it is live, and then no more."""
    item = {"id": f"{prefix}1", "city": "Rome", "seat": "4A"}

    made = await world.send("POST", f"/{resource}", ROME | {"seat": "4A"}, key="k1")
    assert (made.status, made.json) == (201, item)
    assert (await world.send("GET", f"/{resource}/{prefix}1")).json == item
    assert (await world.send("GET", f"/{resource}?key=k1")).json == {"items": [item]}
    assert (await world.send("GET", f"/{resource}?key=k2")).json == {"items": []}
    assert (await world.send("GET", f"/{resource}")).json == {"items": [item]}

    deleted = await world.send("DELETE", f"/{resource}/{prefix}1")
    assert (deleted.status, deleted.json) == (200, {"id": f"{prefix}1", "deleted": True})
    assert (await world.send("GET", f"/{resource}/{prefix}1")).status == 404
    assert (await world.send("GET", f"/{resource}?key=k1")).json == {"items": []}


async def test_a_charge_can_be_refunded_by_id(world: Client) -> None:
    """A charge is shown with its amount and without its card, and as refunded once it is."""
    made = await world.send("POST", "/charges", CHARGE, key="k1")
    assert (made.status, made.json) == (201, {"id": "CH1", "amount": 90})

    refund = await world.send("POST", "/refunds", {"charge": "CH1"}, key="k2")
    assert (refund.status, refund.json) == (201, {"id": "R1", "charge": "CH1", "amount": 90})

    shown = await world.send("GET", "/charges/CH1")
    assert shown.json == {"id": "CH1", "amount": 90, "refunded": True}
    assert (await world.send("GET", "/charges?key=k1")).json == {"items": []}


async def test_a_charge_can_be_refunded_by_its_key(world: Client) -> None:
    """A refund needs no more than the key that the charge was made under."""
    await world.send("POST", "/charges", CHARGE, key="k1")

    refund = await world.send("POST", "/refunds", {"charge_key": "k1"}, key="k2")

    assert refund.json == {"id": "R1", "charge": "CH1", "amount": 90}
    assert await world.effects() == []


@pytest.mark.parametrize("named", [{"charge": "CH1"}, {"charge_key": "k1"}])
async def test_a_charge_is_refunded_once(world: Client, named: dict[str, str]) -> None:
    """A second refund of a charge under another key is refused."""
    await world.send("POST", "/charges", CHARGE, key="k1")
    await world.send("POST", "/refunds", {"charge": "CH1"}, key="k2")

    again = await world.send("POST", "/refunds", named, key="k3")

    assert (again.status, again.json["error"]) == (409, "already_refunded")


async def test_a_refund_that_comes_first_bars_its_charge(world: Client) -> None:
    """A key that was refunded before its charge came refuses the charge for good."""
    refund = await world.send("POST", "/refunds", {"charge_key": "k1"}, key="k2")
    charge = await world.send("POST", "/charges", CHARGE, key="k1")

    assert (refund.status, refund.json) == (200, {"refunded": None})
    assert (charge.status, charge.json["error"]) == (409, "refunded_before")
    assert await world.effects() == []


async def test_a_refund_bars_a_charge_that_is_under_way(world: Client) -> None:
    """A charge that was received, but has not had its effect, is barred by its refund."""
    await world.switch({"match": {"path": "/charges"}, "do": {"hold": "before", "name": "x"}})
    async with asyncio.TaskGroup() as tasks:
        charge = tasks.create_task(world.send("POST", "/charges", CHARGE, key="k1"))
        await world.held("x")
        await world.send("POST", "/refunds", {"charge_key": "k1"}, key="k2")
        await world.release("x")

    assert charge.result().status == 409
    assert await world.effects() == []


async def test_the_barrier_can_be_switched_off(world: Client) -> None:
    """A bank without barrier lets a late charge through, as many do."""
    await world.switch({"resource": "refunds", "barrier": False})

    await world.send("POST", "/refunds", {"charge_key": "k1"}, key="k2")

    assert (await world.send("POST", "/charges", CHARGE, key="k1")).status == 201


@pytest.mark.parametrize(
    ("method", "path", "asked", "status", "code"),
    [
        ("POST", "/flights", {"city": "Atlantis"}, 422, "sold_out"),
        ("POST", "/hotels", {}, 422, "invalid"),
        ("POST", "/cars", {"city": 7}, 422, "invalid"),
        ("POST", "/charges", {"card": "declined", "amount": 1}, 402, "card_declined"),
        ("POST", "/charges", {"card": "40000000000000021234"}, 402, "card_declined"),
        ("POST", "/charges", {"amount": 1}, 422, "invalid"),
        ("POST", "/charges", {"card": "4242", "amount": -1}, 422, "invalid"),
        ("POST", "/charges", {"card": "4242", "amount": True}, 422, "invalid"),
        ("POST", "/refunds", {"charge": "CH9"}, 404, "not_found"),
        ("POST", "/refunds", {}, 422, "invalid"),
        ("POST", "/refunds", {"charge": "CH1", "charge_key": "k"}, 422, "invalid"),
        ("DELETE", "/flights/F9", None, 404, "not_found"),
        ("GET", "/flights/F9", None, 404, "not_found"),
        ("GET", "/charges/CH9", None, 404, "not_found"),
        ("GET", "/trains", None, 404, "no_such_path"),
        ("GET", "/flights/F1/seats", None, 404, "no_such_path"),
        ("POST", "/", {}, 404, "no_such_path"),
        ("GET", "//[", None, 404, "no_such_path"),
        ("DELETE", "/charges/CH1", None, 405, "no_such_path"),
        ("GET", "/refunds", None, 405, "no_such_path"),
        ("PUT", "/flights", {}, 405, "no_such_path"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    world: Client, *, method: str, path: str, asked: object, status: int, code: str
) -> None:
    """A refusal has a code, changes nothing, and is in the ledger."""
    reply = await world.send(method, path, asked, key="k1")

    assert (reply.status, reply.json["error"]) == (status, code)
    ledger = await world.ledger()
    assert [(each.outcome, each.status) for each in ledger.requests] == [("refused", status)]
    assert ledger.effects == ()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"city": NaN}',
        b'{"city": 1e400}',
        b'{"city": "\xff"}',
        b'{"city": ' + b"9" * 5000 + b"}",
        b"[" * 200_000,
    ],
    ids=lambda body: repr(body[:20]),
)
async def test_malformed_json_is_refused(world: Client, body: bytes) -> None:
    """A body that is no JSON object is refused, whatever is wrong with it."""
    reply = await world.send("POST", "/flights", data=body, key="k1")

    assert (reply.status, reply.json["error"]) == (400, "malformed_json")


async def test_strange_text_is_kept(world: Client) -> None:
    """A NUL and a lone surrogate in a body neither break the world nor get lost."""
    city = "R\0me\ud800"

    made = await world.send("POST", "/flights", {"city": city}, key="k1")

    assert made.json["city"] == city
    assert (await world.send("GET", "/flights/F1")).json["city"] == city


def raw_exchange(url: str, request: bytes) -> bytes:
    """Send bytes and return what comes back until the other side closes."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


async def test_a_key_that_is_not_utf_8_is_a_key(world: Client) -> None:
    """A key of any bytes is honoured and shown in the ledger with the bytes escaped."""
    request = (
        b"POST /flights HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: k\xff\r\n"
        b'Content-Length: 16\r\n\r\n{"city": "Rome"}'
    )

    first = await asyncio.to_thread(raw_exchange, world.url, request)
    second = await asyncio.to_thread(raw_exchange, world.url, request)

    assert first.startswith(b"HTTP/1.1 201")
    assert b"Idempotent-Replayed: true" in second
    assert [effect.key for effect in (await world.ledger()).effects] == ["k\\udcff"]


async def test_a_body_over_the_limit_is_refused(world: Client) -> None:
    """A body of 1 MiB is read, one of a byte more is refused and yet recorded."""
    room = 1024 * 1024 - len(b'{"city": "Rome", "x": ""}')

    fits = await world.send("POST", "/flights", {"city": "Rome", "x": "y" * room}, key="k1")
    over = await world.send("POST", "/flights", {"city": "Rome", "x": "y" * (room + 1)}, key="k2")

    assert (fits.status, over.status) == (201, 413)
    assert await world.outcomes() == ["applied", "refused"]


@pytest.mark.parametrize("status", [404, 410])
async def test_deleting_again_is_refused(world: Client, status: int) -> None:
    """What is deleted already cannot be deleted under another key: 404, or 410 by switch."""
    await world.switch({"resource": "flights", "deleted_again": status})
    await world.send("POST", "/flights", ROME, key="k1")
    await world.send("DELETE", "/flights/F1", key="k2")

    again = await world.send("DELETE", "/flights/F1", key="k3")

    assert (again.status, again.json["error"]) == (status, "already_deleted")
    assert (await world.send("GET", "/flights/F1")).status == status

"""What else the world deals in, and how it is asked whether something happened."""

import pytest

from examples.world.catalogue import KINDS
from tests.examples.client import Client
from tests.waiting import wait_until

ROME = {"city": "Rome"}
CHARGE = {"card": "4242", "amount": 90}
DELETABLE = [name for name, kind in KINDS.items() if kind.undo == "delete"]
IRREVERSIBLE = [name for name, kind in KINDS.items() if kind.undo == "never"]
REFUSALS = [
    (name, begins, status, code)
    for name, kind in KINDS.items()
    for begins, (status, code, _) in kind.unwelcome.items()
]


def test_there_is_a_tool_for_each_story() -> None:
    """There are tools for a trip, a payment, an order and a new user."""
    assert DELETABLE == [
        "flights",
        "hotels",
        "cars",
        "fees",
        "reservations",
        "accounts",
        "avatars",
        "subscriptions",
    ]
    assert IRREVERSIBLE == ["shipments", "mails"]
    assert [name for name, kind in KINDS.items() if not kind.honours_keys] == ["fees", "mails"]
    prefixes = {kind.prefix for kind in KINDS.values()}
    assert len(prefixes) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_made_can_be_found_by_its_key(world: Client, kind: str) -> None:
    """Every kind of thing is made with the one field that it needs, and found by key and id."""
    field, prefix = KINDS[kind].needs, KINDS[kind].prefix

    made = await world.send("POST", f"/{kind}", {field: "x"}, key="k1")

    assert made.status == 201
    assert made.json["id"] == f"{prefix}1"
    assert (await world.send("GET", f"/{kind}?key=k1")).json == {"items": [made.json]}
    assert (await world.send("GET", f"/{kind}?key=k2")).json == {"items": []}
    assert (await world.send("GET", f"/{kind}/{prefix}1")).json["id"] == f"{prefix}1"
    assert (await world.send("POST", f"/{kind}", {})).status == 422
    (effect,) = (await world.ledger()).effects
    assert (effect.resource, effect.kind, effect.live) == (f"{prefix}1", kind, True)


@pytest.mark.parametrize("kind", DELETABLE)
async def test_what_can_be_undone_is_deleted(world: Client, kind: str) -> None:
    """A thing that can be undone is gone after its deletion."""
    made = await world.send("POST", f"/{kind}", {KINDS[kind].needs: "x"}, key="k1")

    deleted = await world.send("DELETE", f"/{kind}/{made.json['id']}", key="k2")

    assert deleted.status == 200
    assert (await world.send("GET", f"/{kind}?key=k1")).json == {"items": []}


@pytest.mark.parametrize("kind", IRREVERSIBLE)
async def test_what_cannot_be_undone_stays(world: Client, kind: str) -> None:
    """A mail that was sent, or a parcel, cannot be called back."""
    made = await world.send("POST", f"/{kind}", {KINDS[kind].needs: "x"}, key="k1")

    refused = await world.send("DELETE", f"/{kind}/{made.json['id']}", key="k2")

    assert refused.status == 405
    assert await world.effects() == [made.json["id"]]


@pytest.mark.parametrize(("kind", "begins", "status", "code"), REFUSALS)
async def test_some_things_cannot_be_had(
    world: Client, *, kind: str, begins: str, status: int, code: str
) -> None:
    """Each kind has a value that it refuses, whatever follows it."""
    reply = await world.send("POST", f"/{kind}", {KINDS[kind].needs: f"{begins}!"}, key="k1")

    assert (reply.status, reply.json["error"]) == (status, code)
    assert await world.effects() == []


@pytest.mark.parametrize(("kind", "prefix"), [("fees", "FE"), ("mails", "M")])
async def test_a_tool_that_knows_no_keys_acts_each_time(
    world: Client, kind: str, prefix: str
) -> None:
    """Fees are taken and mails sent as often as they are asked for, unless a switch says else."""
    asked = {KINDS[kind].needs: "x"}
    await world.send("POST", f"/{kind}", asked, key="k1")
    await world.send("POST", f"/{kind}", asked, key="k1")
    await world.switch({"resource": kind, "honours_keys": True})

    for _ in range(2):
        await world.send("POST", f"/{kind}", asked, key="k2")

    assert await world.effects() == [f"{prefix}1", f"{prefix}2", f"{prefix}3"]
    assert await world.outcomes() == ["applied", "applied", "applied", "replayed"]


async def test_a_mode_about_something_else_leaves_keys_alone(world: Client) -> None:
    """A mode that does not speak of keys does not make a tool honour them."""
    await world.switch({"resource": "mails", "calls_back": False})

    for _ in range(2):
        await world.send("POST", "/mails", {"to": "x"}, key="k1")

    assert await world.effects() == ["M1", "M2"]


async def test_a_refund_is_found_by_its_key(world: Client) -> None:
    """The bank can be asked whether a refund came about; all refunds it does not show."""
    await world.send("POST", "/charges", CHARGE, key="k1")
    before = await world.send("GET", "/refunds?key=k2")

    await world.send("POST", "/refunds", {"charge_key": "k1"}, key="k2")

    assert before.json == {"items": []}
    assert (await world.send("GET", "/refunds?key=k2")).json == {"items": [{"charge": "CH1"}]}
    assert (await world.send("GET", "/refunds")).status == 405


async def test_a_search_can_need_to_be_asked_again(world: Client) -> None:
    """A tool that is slow to notice leaves out what was made from the first few questions."""
    await world.switch({"resource": "flights", "shown_after_queries": 2})
    await world.send("GET", "/flights?key=k1")
    await world.send("POST", "/flights", ROME, key="k1")

    found = [len((await world.send("GET", "/flights?key=k1")).json["items"]) for _ in range(4)]

    assert found == [0, 0, 1, 1]
    assert (await world.send("GET", "/flights/F1")).status == 200


async def test_a_search_can_need_time(world: Client) -> None:
    """A tool that is slow to notice shows what was made after a while, and not before."""
    await world.switch({"resource": "flights", "shown_after_seconds": 3600})
    await world.send("POST", "/flights", ROME, key="k1")

    async def found() -> bool:
        return bool((await world.send("GET", "/flights?key=k1")).json["items"])

    assert not await found()
    await world.switch({"resource": "flights", "shown_after_seconds": 0.05})
    await wait_until(found, what="the flight")


@pytest.mark.parametrize("items", [[], [{"id": "F99"}]])
async def test_a_search_can_lie(world: Client, items: list[object]) -> None:
    """A made answer says that there is nothing, or something that is not."""
    await world.send("POST", "/flights", ROME, key="k1")
    answer = {"status": 200, "body": {"items": items}}
    await world.switch(
        {"match": {"method": "GET", "path": "/flights"}, "times": 1, "do": {"answer": answer}}
    )

    first = await world.send("GET", "/flights?key=k1")
    second = await world.send("GET", "/flights?key=k1")

    assert first.json == {"items": items}
    assert [each["id"] for each in second.json["items"]] == ["F1"]


@pytest.mark.parametrize("do", [{"fail": 503}, {"decline": 404}])
async def test_a_search_can_fail(world: Client, do: dict[str, object]) -> None:
    """Questions can be made to fail and actions be left alone."""
    await world.switch({"match": {"method": "GET"}, "do": do})

    made = await world.send("POST", "/flights", ROME, key="k1")
    asked = await world.send("GET", "/flights?key=k1")

    assert (made.status, [asked.status]) == (201, list(do.values()))

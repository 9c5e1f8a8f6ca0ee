"""Idempotency keys: one key, one request, one effect; and tools that do not keep to that."""

import asyncio

import pytest

from tests.examples.client import Client

ROME = {"city": "Rome"}


async def test_the_same_request_is_replayed(world: Client) -> None:
    """The same key and bytes get the same answer, marked as a replay, and one effect."""
    first = await world.send("POST", "/flights", ROME, key="k1")
    second = await world.send("POST", "/flights", ROME, key="k1")

    assert (second.status, second.body) == (first.status, first.body)
    assert (first.is_replayed, second.is_replayed) == (False, True)
    assert await world.outcomes() == ["applied", "replayed"]
    assert await world.effects() == ["F1"]


async def test_a_delete_is_replayed(world: Client) -> None:
    """A deletion under a key answers 200 as often as it is sent."""
    await world.send("POST", "/flights", ROME, key="k1")
    await world.send("DELETE", "/flights/F1", key="k2")

    again = await world.send("DELETE", "/flights/F1", key="k2")

    assert (again.status, again.is_replayed) == (200, True)


async def test_a_barrier_is_replayed(world: Client) -> None:
    """A refund that found nothing says so again under its key."""
    await world.send("POST", "/refunds", {"charge_key": "k1"}, key="k2")

    again = await world.send("POST", "/refunds", {"charge_key": "k1"}, key="k2")

    assert (again.json, again.is_replayed) == ({"refunded": None}, True)


@pytest.mark.parametrize(
    ("path", "asked"), [("/flights", {"city": "Oslo"}), ("/hotels", ROME), ("/flights?x=1", ROME)]
)
async def test_other_bytes_are_a_violation(world: Client, path: str, asked: object) -> None:
    """The same key with another body or path is refused, and the summary names it."""
    await world.send("POST", "/flights", ROME, key="k1", named="s1 flight action")

    other = await world.send("POST", path, asked, key="k1", named="s1 flight action")

    assert (other.status, other.json["error"]) == (422, "key_reused")
    summary = await world.summary("s1")
    assert [each["rule"] for each in summary["violations"]] == ["key_with_other_bytes"]
    assert await world.effects() == ["F1"]


@pytest.mark.parametrize(
    ("city", "status", "code"), [("Rome", 409, "in_progress"), ("Oslo", 422, "key_reused")]
)
async def test_a_running_request_keeps_its_key(
    world: Client, city: str, status: int, code: str
) -> None:
    """While the first request of a key has not had its effect, others with that key are refused."""
    await world.switch({"times": 1, "do": {"hold": "before", "name": "x"}})
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(world.send("POST", "/flights", ROME, key="k1"))
        await world.held("x")
        second = await world.send("POST", "/flights", {"city": city}, key="k1")
        await world.release("x")

    assert (second.status, second.json["error"]) == (status, code)
    assert first.result().status == 201
    assert await world.effects() == ["F1"]


async def test_an_effect_frees_its_key_before_its_answer(world: Client) -> None:
    """Once the effect is there, the key replays, though the first answer is still held."""
    await world.switch({"times": 1, "do": {"hold": "after", "name": "x"}})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.send("POST", "/flights", ROME, key="k1"))
        await world.held("x")
        second = await world.send("POST", "/flights", ROME, key="k1")
        await world.release("x")

    assert (second.status, second.is_replayed) == (201, True)


async def test_the_same_request_at_once_has_one_effect(world: Client) -> None:
    """Of twenty equal requests at the same time one acts; the others replay it or are put off."""
    replies = await asyncio.gather(
        *(world.send("POST", "/flights", ROME, key="k1") for _ in range(20))
    )

    assert {reply.status for reply in replies} <= {201, 409}
    assert sum(reply.status == 201 and not reply.is_replayed for reply in replies) == 1
    assert await world.effects() == ["F1"]


async def test_a_refusal_is_not_stored(world: Client) -> None:
    """A key that was refused can succeed later, with the same bytes."""
    await world.switch({"times": 1, "do": {"decline": 402, "code": "no_funds"}})

    refused = await world.send("POST", "/flights", ROME, key="k1")
    accepted = await world.send("POST", "/flights", ROME, key="k1")

    assert (refused.status, refused.json["error"]) == (402, "no_funds")
    assert (accepted.status, accepted.is_replayed) == (201, False)


async def test_a_refusal_can_be_stored(world: Client) -> None:
    """A tool that caches errors replays its refusal, even when it would accept now."""
    await world.switch(
        {"times": 1, "do": {"decline": 402}}, {"resource": "flights", "caches_errors": True}
    )

    await world.send("POST", "/flights", ROME, key="k1")
    again = await world.send("POST", "/flights", ROME, key="k1")

    assert (again.status, again.is_replayed) == (402, True)
    assert await world.effects() == []


async def test_malformed_json_is_never_stored(world: Client) -> None:
    """A request that could not be read was never begun, so that nothing is replayed of it."""
    await world.switch({"resource": "flights", "caches_errors": True})

    await world.send("POST", "/flights", data=b"{", key="k1")
    again = await world.send("POST", "/flights", data=b"{", key="k1")

    assert (again.status, again.is_replayed) == (400, False)


@pytest.mark.parametrize(("effect", "live"), [(True, ["F1"]), (False, [])])
async def test_a_failure_can_be_stored(world: Client, *, effect: bool, live: list[str]) -> None:
    """A tool that caches errors replays its 500, with the effect or without (fault F23)."""
    await world.switch(
        {"times": 1, "do": {"fail": 500, "effect": effect}},
        {"resource": "flights", "caches_errors": True},
    )

    first = await world.send("POST", "/flights", ROME, key="k1")
    again = await world.send("POST", "/flights", ROME, key="k1")

    assert (first.status, again.status, again.is_replayed) == (500, 500, True)
    assert await world.effects() == live


async def test_a_tool_without_idempotency_acts_each_time(world: Client) -> None:
    """A resource that does not honour keys acts on every request, and only that resource."""
    await world.switch({"resource": "flights", "honours_keys": False})
    for path in ("/flights", "/flights", "/hotels", "/hotels"):
        await world.send("POST", path, ROME, key=f"k{path}", named=f"s1 {path[1:]} action")

    assert await world.effects() == ["F1", "F2", "H1"]
    assert len((await world.send("GET", "/flights?key=k/flights")).json["items"]) == 2
    rules = [each["rule"] for each in (await world.summary("s1"))["duplicates"]]
    assert rules == ["key_with_two_effects", "two_live_effects"]


async def test_reads_ignore_keys(world: Client) -> None:
    """A question under the key of an action is answered afresh and is no violation."""
    await world.send("GET", "/flights?key=k1", key="k1", named="s1 flight verify")
    await world.send("POST", "/flights", ROME, key="k1", named="s1 flight action")

    found = await world.send("GET", "/flights?key=k1", key="k1", named="s1 flight verify")

    assert len(found.json["items"]) == 1
    assert (await world.summary("s1"))["violations"] == []

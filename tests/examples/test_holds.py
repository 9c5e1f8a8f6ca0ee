"""Holds: a request waits exactly where it is told to, and everybody can know that it does."""

import asyncio

import pytest

from tests.examples.client import Client
from tests.waiting import wait_until

ROME = {"city": "Rome"}


@pytest.mark.parametrize(("where", "live"), [("before", []), ("after", ["F1"])])
async def test_a_hold_is_before_or_after_the_effect(
    world: Client, where: str, live: list[str]
) -> None:
    """A request that is held before its effect has none yet, after it has."""
    await world.switch({"do": {"hold": where, "name": "x"}})
    async with asyncio.TaskGroup() as tasks:
        booked = tasks.create_task(
            world.send("POST", "/flights", ROME, key="k1", named="s1 flight action 2")
        )
        held = await world.held("x")
        while_held = await world.effects()
        released = await world.release("x")

    assert held == [
        {
            "where": where,
            "name": "x",
            "seq": 1,
            "method": "POST",
            "path": "/flights",
            "key": "k1",
            "saga": "s1",
            "step": "flight",
            "call": "action",
            "attempt": "2",
        }
    ]
    assert while_held == live
    assert released == 1
    assert booked.result().status == 201
    assert (await world.send("GET", "/world/held")).json == {"held": []}


async def test_nobody_held_is_told_at_once(world: Client) -> None:
    """Without `wait` the list is given as it is, and a wait that is over gives it too."""
    assert (await world.send("GET", "/world/held?name=x")).json == {"held": []}
    assert (await world.send("GET", "/world/held?name=x&wait=0.01")).json == {"held": []}


@pytest.mark.parametrize("query", ["wait=long", "count=many", "wait=nan", "wait=-1", "wait=61"])
async def test_a_wait_is_a_number_of_seconds(world: Client, query: str) -> None:
    """A wait or a count that is no number, or a wait over a minute, is refused."""
    assert (await world.send("GET", f"/world/held?{query}")).status == 422


async def test_names_are_held_and_released_apart(world: Client) -> None:
    """A release lets go one name, all of those held under it, and no other."""
    await world.switch(
        {"match": {"path": "/flights"}, "do": {"hold": "before", "name": "x"}},
        {"match": {"path": "/hotels"}, "do": {"hold": "before", "name": "y"}},
    )
    async with asyncio.TaskGroup() as tasks:
        for path in ("/flights", "/flights", "/hotels"):
            tasks.create_task(world.send("POST", path, ROME))
        await world.held("x", count=2)
        await world.held("y")

        assert await world.release("z") == 0
        assert await world.release("x") == 2
        await wait_until(world.effects, what="the flights")
        assert [each["name"] for each in await world.held("y")] == ["y"]
        assert (await world.send("POST", "/world/release", {})).json == {"released": 1}

    assert sorted(await world.effects()) == ["F1", "F2", "H1"]


async def test_a_hold_goes_on_for_others_after_a_release(world: Client) -> None:
    """A release is for those who are held now; the rule holds the next request again."""
    await world.switch({"do": {"hold": "before", "name": "x"}})
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(world.send("POST", "/flights", ROME))
            await world.held("x")
            assert await world.release("x") == 1

    assert await world.effects() == ["F1", "F2"]


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), (b"[]", 422), (b'{"nam": "x"}', 422), (b'{"name": 7}', 422)]
)
async def test_a_release_has_to_make_sense(world: Client, body: bytes, status: int) -> None:
    """A release with a slip in it is refused rather than taken to mean everybody."""
    assert (await world.send("POST", "/world/release", data=body)).status == status

"""The ledger: what was received is on disk before it is acted on, and all of it adds up."""

import asyncio
import dataclasses
import datetime as dt
import hashlib
from pathlib import Path

from examples.world import Ledger, Received, read_ledger
from examples.world.arrivals import Arrival
from examples.world.storage import Storage
from tests.examples.client import Client

ROME = {"city": "Rome"}


async def test_a_request_is_recorded_before_it_is_acted_on(
    world: Client, ledger_path: Path
) -> None:
    """While a request waits for its effect, the file on disk has it without an outcome."""
    await world.switch({"do": {"hold": "before", "name": "x"}})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.send("POST", "/flights", ROME, key="k1", named="s flight action 3"))
        await world.held("x")
        (row,) = read_ledger(ledger_path).requests
        await world.release("x")

    assert dt.datetime.fromisoformat(row.at).tzinfo == dt.UTC
    body = b'{"city": "Rome"}'
    assert dataclasses.replace(row, at="") == Received(
        seq=1,
        at="",
        method="POST",
        path="/flights",
        key="k1",
        saga="s",
        step="flight",
        call="action",
        attempt="3",
        body_sha256=hashlib.sha256(body).hexdigest(),
        body_text=body.decode(),
        fault='{"hold": "before", "name": "x"}',
    )


async def test_an_effect_and_its_undo_are_recorded(world: Client) -> None:
    """An effect knows who made it, who undid it, and when in the one order of things."""
    await world.send("POST", "/flights", ROME, key="k1", named="s1 flight action")
    await world.send("DELETE", "/flights/F1", key="k2", named="s1 flight compensation")

    ledger = await world.ledger()

    (effect,) = ledger.effects
    action, undo = ledger.requests
    assert (effect.resource, effect.kind, effect.live) == ("F1", "flights", False)
    assert (effect.key, effect.saga, effect.step) == ("k1", "s1", "flight")
    assert effect.undone_by_key == "k2"
    assert (action.resource, undo.resource) == ("F1", "F1")
    assert None not in {action.outcome_seq, effect.undone_seq, undo.outcome_seq}
    order = [action.seq, effect.created_seq, action.outcome_seq, undo.seq, effect.undone_seq]
    assert order == sorted(order, key=lambda seq: seq or 0)


async def test_the_ledger_can_be_asked_for_one_saga(world: Client) -> None:
    """With `saga`, requests and effects of that saga alone are shown."""
    await world.send("POST", "/flights", ROME, key="k1", named="s1 flight action")
    await world.send("POST", "/flights", ROME, key="k2", named="s2 flight action")

    ledger = await world.ledger("s2")

    assert [each.saga for each in ledger.requests] == ["s2"]
    assert [each.resource for each in ledger.effects] == ["F2"]


async def test_the_file_and_the_answer_are_one_ledger(world: Client, ledger_path: Path) -> None:
    """Reading the file, asking the world, and a round trip through JSON give the same."""
    await world.send("POST", "/flights", ROME, key="k1", named="s1 flight action")
    await world.send("DELETE", "/flights/F1", key="k2", named="s1 flight compensation")

    asked = await world.ledger()

    assert read_ledger(ledger_path) == asked
    assert read_ledger(ledger_path, saga="s1") == asked
    assert Ledger.from_json(asked.to_json()) == asked


async def test_the_summary_counts(world: Client) -> None:
    """The summary of a saga shows its calls, its effects, and the order of its undo."""
    for path, step in (("/flights", "flight"), ("/hotels", "hotel")):
        for _ in range(2):
            await world.send("POST", path, ROME, key=step, named=f"s1 {step} action")
    await world.send("DELETE", "/hotels/H1", key="k3", named="s1 hotel compensation")
    await world.send("DELETE", "/flights/F1", key="k4", named="s1 flight compensation")

    summary = (await world.send("GET", "/world/summary")).json

    assert summary == {
        "requests": 6,
        "effects_live": 0,
        "effects_total": 2,
        "sagas": {
            "s1": {
                "calls": {
                    "flight": {"action": 2, "compensation": 1},
                    "hotel": {"action": 2, "compensation": 1},
                },
                "effects_live": 0,
                "effects_total": 2,
                "undo_order": ["hotel", "flight"],
                "callbacks": {},
                "duplicates": [],
                "violations": [],
            }
        },
        "unattributed": [],
    }


async def test_the_control_desk_is_not_in_the_ledger(world: Client) -> None:
    """What is asked of the control desk, slips included, is no request to a tool."""
    assert (await world.send("GET", "/health")).status == 200
    assert (await world.send("POST", "/world/switches", [])).status == 404
    assert (await world.send("GET", "/world/nothing")).status == 404

    assert await world.ledger() == Ledger()


async def test_hundreds_of_clients_at_once(world: Client) -> None:
    """Four hundred requests at the same time are all answered, each with an effect of its own."""
    replies = await asyncio.gather(
        *(
            world.send("POST", "/flights", ROME, key=f"k{n}", named=f"s{n} flight action")
            for n in range(400)
        )
    )

    assert {reply.status for reply in replies} == {201}
    assert len({reply.json["id"] for reply in replies}) == 400
    assert len(await world.effects()) == 400


async def test_one_bad_row_does_not_fail_the_others(ledger_path: Path) -> None:
    """Of requests that share a commit, one that cannot be stored fails alone."""
    storage = await Storage.open(ledger_path)
    arrivals = [
        Arrival(row=Received(seq=0, at="", method="GET", path=path), body=b"", path=path)
        for path in ("/1", "/2", "/\ud800", "/3")
    ]

    results = await asyncio.gather(
        *(storage.receive(arrival, fault=None) for arrival in arrivals), return_exceptions=True
    )
    ledger = await storage.ledger()
    await storage.close()

    assert [type(result) for result in results] == [
        Received,
        Received,
        UnicodeEncodeError,
        Received,
    ]
    assert [each.path for each in ledger.requests] == ["/1", "/2", "/3"]


async def test_a_caller_that_gives_up_does_not_undo_its_commit(ledger_path: Path) -> None:
    """Work that was asked for is committed, also when nobody waits for it any more."""
    storage = await Storage.open(ledger_path)
    arrival = Arrival(row=Received(seq=0, at="", method="GET", path="/1"), body=b"", path="/1")

    async with asyncio.TaskGroup() as tasks:
        receiving = tasks.create_task(storage.receive(arrival, fault=None))
        # Runs when the first task has asked and waits.
        tasks.create_task(cancel(receiving))
    await storage.close()

    assert receiving.cancelled()
    assert [each.path for each in read_ledger(ledger_path).requests] == ["/1"]


async def cancel(task: asyncio.Task[Received]) -> None:
    """Cancel another task."""
    task.cancel()

"""Faults at the one moment that matters: an entry is being committed, or has just been.

A foreign lock makes the moment as long as it takes: the replica has sent its statement and waits.
Then the replica is killed or frozen, the lock is lifted, and Postgres commits what nobody reads.
"""

import asyncio
from uuid import UUID

import aiohttp
import pytest

from tests.e2e.conftest import Stage
from tests.e2e.load import TRIP, UNANSWERED, Answer, Api
from tests.e2e.postgres import START, Heads, Lock
from tests.e2e.worlds import judged, switch
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HOLD_FLIGHT = {"match": {"step": "flight"}, "times": 1, "do": {"hold": "after", "name": "f"}}


async def committed(heads: Heads, saga: str, *, seq: int) -> None:
    """Return once the saga's head has that entry."""

    async def has() -> bool:
        rows = await heads.fetch("SELECT seq FROM sagas WHERE id = $1", UUID(saga))
        return bool(rows and rows[0]["seq"] >= seq)

    await wait_until(has, what=f"entry {seq} of {saga} to be committed")


@pytest.mark.parametrize("how", ["freeze", "kill"])
@pytest.mark.parametrize("definition", ["trip", "careful"])
async def test_an_intent_that_was_never_sent(
    stage: Stage, session: aiohttp.ClientSession, definition: str, how: str
) -> None:
    """Who loses its lease between the commit of an intent and the call never makes that call."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=1.0), stage.replica("other", lease=1.0)
    api = await stage.start(session, one, other)
    living = set(await stage.heads.living_replicas())
    await switch(world, HOLD_FLIGHT)
    saga = await api.start(definition, TRIP)
    await world.held("f")

    async with Lock(stage.database_url, saga) as lock:
        await world.release("f")
        await stage.heads.wait_for_a_lock()
        # It has sent "the flight is booked, and the next call begins" and waits for the answer.
        if how == "freeze":
            one.freeze()
        else:
            one.kill()
        await lock.lift()
    await committed(stage.heads, saga, seq=2)
    sent = await world.ledger()
    rested = await Api(session, other).rested(saga)
    if how == "freeze":
        one.thaw()
        await stage.heads.registered_anew(living)
        await Api(session, one).ready()
        # It works on, which gives what it may still send the time to come.
        await Api(session, one).rested(await Api(session, one).start("rental", TRIP))
    ledger = await world.ledger(saga)
    second = [each for each in ledger.requests if each.step in {"hotel", "fee"}]

    assert {"flight"} == {request.step for request in sent.requests}
    if definition == "trip":
        assert "completed" == rested["status"]
        assert [("action", "2")] == [(each.call, each.attempt) for each in second]
    else:
        # Nobody can know that it never left: it must not be sent again, and is undone.
        assert ("compensated", "owner_lost") == (rested["status"], rested["failure"]["code"])
        assert ["compensation"] == [each.call for each in second]
    assert "" == judged(ledger, {saga: rested["status"]})


async def test_a_lock_that_outlasts_its_owner(stage: Stage, session: aiohttp.ClientSession) -> None:
    """A dead replica's statement that waits for a lock neither commits nor blocks the heir."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one", lease=1.0), stage.replica("other", lease=1.0)
    api = await stage.start(session, one, other)
    await switch(world, HOLD_FLIGHT)
    saga = await api.start("trip", TRIP)
    await world.held("f")

    async with Lock(stage.database_url, saga):
        await world.release("f")
        await stage.heads.wait_for_a_lock()
        one.kill()
        # The heir has other work, and does it, while this saga is locked.
        busy = Api(session, other)
        await busy.rested(await busy.start("rental", TRIP))

        async def revoked() -> bool:
            return len(await stage.heads.living_replicas()) == 1

        await wait_until(revoked, what="the dead replica to be revoked")
    rested = await Api(session, other).rested(saga)
    ledger = await world.ledger(saga)

    assert "completed" == rested["status"]
    assert "" == judged(ledger, {saga: "completed"})


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_start_whose_answer_is_lost(
    stage: Stage,
    session: aiohttp.ClientSession,
    is_stored: bool,  # noqa: FBT001
) -> None:
    """A start repeated with its key after a kill is one saga, whether it was stored or not."""
    world = (await stage.set_up()).client(session)
    replica = stage.replica("replica", lease=1.0)
    api = await stage.start(session, replica)
    # A statement that was sent once is sent in one piece the next time.
    earlier = await api.rested(await api.start("rental", TRIP))
    body = {"definition": "trip", "input": TRIP}
    headers = {"Idempotency-Key": "lost"}

    async def start() -> Answer | None:
        try:
            return await api.call("POST", "/v1/sagas", body, headers=headers)
        except UNANSWERED:
            return None

    async with asyncio.TaskGroup() as group, Lock(stage.database_url, None) as lock:
        unanswered = group.create_task(start())
        await stage.heads.wait_for_a_lock(START)
        replica.kill()
        if not is_stored:
            await terminate_waiting(stage.heads)
        await lock.lift()
    expected = 2 if is_stored else 1

    async def stored() -> bool:
        return len(await stage.heads.statuses()) == expected

    await wait_until(stored, what="the saga to be stored after all, or not")
    await replica.start()
    again = await api.insist("POST", "/v1/sagas", body, headers=headers)
    rested = await api.rested(again.json["id"])
    statuses = dict(await stage.heads.statuses())

    assert unanswered.result() is None
    assert (200 if is_stored else 202) == again.status
    assert {earlier["id"]: "completed", again.json["id"]: "completed"} == statuses
    assert "" == judged(await world.ledger(), statuses)
    assert "completed" == rested["status"]


async def terminate_waiting(heads: Heads) -> None:
    """Terminate whoever waits for a lock, and return when they are gone."""

    async def gone() -> bool:
        rows = await heads.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return not rows

    await wait_until(gone, what="the waiting statements to be gone")


async def test_one_key_many_clients(stage: Stage, session: aiohttp.ClientSession) -> None:
    """The same key through two replicas at once starts one saga; a business key has one winner."""
    world = (await stage.set_up()).client(session)
    one, other = stage.replica("one"), stage.replica("other")
    await stage.start(session, one, other)
    await switch(world, {"match": {"step": "flight"}, "do": {"hold": "after", "name": "b"}})
    body = {"definition": "trip", "input": TRIP}
    keyed = {**body, "business_key": "order-1"}

    async with asyncio.TaskGroup() as group:
        same = [
            group.create_task(
                Api(session, replica).call(
                    "POST", "/v1/sagas", body, headers={"Idempotency-Key": "same"}
                )
            )
            for replica in [one, other] * 10
        ]
        rivals = [
            group.create_task(Api(session, replica).call("POST", "/v1/sagas", keyed))
            for replica in [one, other] * 10
        ]
    same_ids = {task.result().json["id"] for task in same}
    won = [task.result() for task in rivals if task.result().status == 202]
    lost = [task.result() for task in rivals if task.result().status == 409]
    await world.held("b", count=2)
    await switch(world)
    await world.release("b")
    api = Api(session, one)
    rested = [await api.rested(saga) for saga in (*same_ids, *(each.json["id"] for each in won))]

    assert 1 == len(same_ids)
    assert [202] + [200] * 19 == sorted((task.result().status for task in same), reverse=True)
    assert (1, 19) == (len(won), len(lost))
    assert {won[0].json["id"]} == {answer.json["saga"] for answer in lost}
    assert ["completed"] * 2 == [saga["status"] for saga in rested]
    assert "" == judged(await world.ledger(), {saga["id"]: "completed" for saga in rested})

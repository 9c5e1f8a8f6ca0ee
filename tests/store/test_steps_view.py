"""The view of steps: for people and plain SQL, the last conclusion per step and direction."""

import json

import asyncpg

from app.core.observation import Answered
from app.core.saga import Saga
from tests.store.place import TIMED_OUT, Place, answered

STEPS = """
SELECT step, direction, status, effect, generation, attempts, idempotency_key, open, error, output,
    started_at, finished_at, seq, tenant_id
FROM saga_steps WHERE saga_id = $1 ORDER BY direction, step
"""


async def steps_of(look: asyncpg.Connection, saga: Saga) -> dict[tuple[str, str], asyncpg.Record]:
    """The rows of a saga by step and direction."""
    rows = await look.fetch(STEPS, saga.id)
    return {(row["step"], row["direction"]): row for row in rows}


async def test_the_last_conclusion_of_each_call_is_shown(
    place: Place, look: asyncpg.Connection
) -> None:
    """What the view says of a call is what the fold of the journal says."""
    saga = await place.start()
    await place.observe(saga, "flight", answered(body={"id": "F1"}))
    await place.observe(saga, "hotel", answered(402))
    saga = await place.observe(saga, "flight", answered(204), undo=True)

    rows = await steps_of(look, saga)

    assert saga.calls.keys() == rows.keys()
    for name, call in saga.calls.items():
        row = rows[name]
        assert (call.status, call.effect, call.attempts, call.generation, call.key, None) == (
            row["status"],
            row["effect"],
            row["attempts"],
            row["generation"],
            row["idempotency_key"],
            row["open"],
        )
        assert (call.started_at, call.finished_at) == (row["started_at"], row["finished_at"])
    assert {"id": "F1"} == json.loads(rows["flight", "action"]["output"])
    assert "refused" == json.loads(rows["hotel", "action"]["error"])["code"]


async def test_an_attempt_that_is_out_is_shown(place: Place, look: asyncpg.Connection) -> None:
    """While an attempt is out the view names it, and what came of the one before."""
    saga = await place.start()
    row = (await steps_of(look, saga))["flight", "action"]
    assert ("running", "unknown", 1) == (row["status"], row["effect"], row["attempts"])
    assert str(place.incarnation) == json.loads(row["open"])["incarnation"]

    saga = await place.observe(saga, "flight", TIMED_OUT)
    row = (await steps_of(look, saga))["flight", "action"]
    assert ("backing_off", "unknown", None) == (row["status"], row["effect"], row["open"])
    assert "timed_out" == json.loads(row["error"])["code"]


async def test_an_output_of_null_is_an_output(place: Place, look: asyncpg.Connection) -> None:
    """A tool that answers nothing has the output null, and one that did not succeed has none."""
    saga = await place.start()
    saga = await place.observe(saga, "flight", Answered(status=204))

    row = (await steps_of(look, saga))["flight", "action"]

    assert "null" == (row["output"] or "null")


async def test_a_nul_in_an_output_does_not_break_the_view(
    place: Place, look: asyncpg.Connection
) -> None:
    """A saga with a NUL in what a tool said is shown, and so are all others."""
    odd = await place.start()
    await place.observe(odd, "flight", answered(body={"id": "F1", "note": "\0 \\u0000"}))
    plain = await place.start()

    assert {"flight", "hotel"} == {step for step, _ in await steps_of(look, odd)}
    shown = await look.fetch("SELECT * FROM saga_steps")
    assert {odd.id, plain.id} == {row["saga_id"] for row in shown}


async def test_a_nul_anywhere_else_does_not_break_the_view(
    place: Place, look: asyncpg.Connection
) -> None:
    """A NUL in an answer that is only reported, or in a reason, is harmless as well."""
    saga = await place.start()
    await place.observe(saga, "flight", answered(402, body={"error": "\0"}))

    assert {"flight"} == {step for step, _ in await steps_of(look, saga)}

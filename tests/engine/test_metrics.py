"""What a replica counts of the sagas that it runs, and what it does not let counting spoil."""

import asyncio

import asyncpg
from prometheus_client.parser import text_string_to_metric_families

from app.engine import Surveyor
from tests.engine.replica import Running, a_replica
from tests.store.place import TIMED_OUT, answered
from tests.waiting import wait_until


def told(running: Running, name: str, **labels: str) -> float:
    """The value of one series, as it is scraped."""
    value = running.metrics.registry.get_sample_value(f"amends_{name}", labels)
    assert value is not None, (name, labels)
    return value


async def ended(running: Running, status: str, count: int = 1) -> None:
    """Wait until so many sagas have ended so: all that came before is counted then."""
    await wait_until(
        lambda: told(running, "sagas_ended_total", status=status) == count, what=f"{status} {count}"
    )


async def test_a_saga_that_completes_is_counted(running: Running) -> None:
    """Start, calls, attempts, commits and end are counted, each once."""
    await running.start()

    await ended(running, "completed")

    assert 1 == told(running, "sagas_started_total")
    assert 2 == told(running, "calls_concluded_total", call="action", outcome="succeeded")
    assert 2 == told(running, "attempts_total", connector="http", observation="answered_2xx")
    assert 2 == told(running, "attempt_seconds_count", connector="http")
    assert 3 == told(running, "commit_rows_sum")
    assert 3 == told(running, "commit_seconds_count")
    assert 0 == told(running, "retries_total", call="action")
    assert 0 == told(running, "sagas_ended_total", status="compensated")


async def test_undoing_is_counted(running: Running) -> None:
    """The decision to undo has its cause, and a compensation its outcome."""
    running.tools.answer("hotel", answered(402))
    await running.start()

    await ended(running, "compensated")

    assert 1 == told(running, "rollbacks_total", cause="step_failed")
    assert 1 == told(running, "calls_concluded_total", call="action", outcome="failed")
    assert 1 == told(running, "calls_concluded_total", call="compensation", outcome="succeeded")
    assert 1 == told(running, "attempts_total", connector="http", observation="answered_4xx")


async def test_getting_stuck_is_counted_and_surveyed(running: Running) -> None:
    """The question is counted when it comes up, and the survey shows the saga while it waits."""
    running.tools.answer("hotel", answered(402))
    running.tools.answer("flight", answered(400), call="compensation")
    surveyor = Surveyor(running.database, running.metrics)
    saga = await running.start()
    await wait_until(lambda: told(running, "sagas_stuck_total", question="how_to_undo") == 1)

    await surveyor.start()
    await wait_until(lambda: told(running, "survey_timestamp_seconds") > 0)
    await surveyor.stop()

    assert 1 == told(running, "calls_concluded_total", call="compensation", outcome="failed")
    assert 1 == told(running, "sagas_live", status="stuck")
    assert 0 == told(running, "sagas_live", status="running")
    assert 0 == told(running, "sagas_without_reason")
    running.tools.answer("flight", answered(), call="compensation")
    await running.retry(saga)
    await ended(running, "compensated")
    assert 1 == told(running, "sagas_stuck_total", question="how_to_undo")


async def test_retries_are_counted(running: Running) -> None:
    """An attempt that follows another of the same key is a retry."""
    running.tools.answer("flight", TIMED_OUT, answered())
    await running.start()

    await ended(running, "completed")

    assert 1 == told(running, "retries_total", call="action")
    seen = {"connector": "http", "observation": "broken_off_timed_out"}
    assert 1 == told(running, "attempts_total", **seen)


async def test_what_is_in_hand_is_shown(running: Running) -> None:
    """Sagas held and attempts out are gauges; nothing waits while nothing is to be stored."""
    gate = running.tools.hold("flight")
    await running.start()
    await running.tools.arrived(1)

    assert 1 == told(running, "sagas_held")
    assert 1 == told(running, "attempts_in_flight")
    assert 0 == told(running, "writer_rows")
    assert 0 == told(running, "writer_wait_seconds")
    assert 0 < told(running, "lease_seconds") <= 10
    assert 0 <= told(running, "heartbeat_age_seconds") < 10
    gate.open()
    await ended(running, "completed")
    await wait_until(lambda: told(running, "sagas_held") == 0)


async def test_sagas_that_were_due_are_counted(running: Running, database_url: str) -> None:
    """Each replica counts its part: one the start, the other the claim and the end."""
    async with a_replica(database_url, runs_engine=False) as front:
        await front.start()

        await ended(running, "completed")

        assert 1 == told(front, "sagas_started_total")
        assert 0 == told(running, "sagas_started_total")
        assert 1 == told(running, "sagas_claimed_total", reason="due")
        assert 0 == told(front, "sagas_ended_total", status="completed")


async def test_a_takeover_is_counted(database_url: str) -> None:
    """The heir counts whom it revoked and what it took over, the other that it lost its lease."""
    async with a_replica(database_url, lease_seconds=0.9) as first:
        gate = first.tools.hold("flight")
        await first.start()
        await first.tools.arrived(1)
        await first.heart.stop()
        async with a_replica(database_url, lease_seconds=0.9) as heir:
            await ended(heir, "completed")
            gate.open()
            await first.heart._beat()

            assert 1 == told(heir, "replicas_revoked_total")
            assert 1 == told(heir, "sagas_claimed_total", reason="orphaned")
            assert 1 == told(heir, "retries_total", call="action")
            assert 1 == told(first, "leases_lost_total")
            assert 0 == told(first, "sagas_ended_total", status="completed")


async def test_a_queue_that_stands_still_is_shown(
    running: Running, look: asyncpg.Connection
) -> None:
    """While the database holds up a commit, its rows are told, and how long they have waited."""
    async with asyncio.TaskGroup() as tasks, look.transaction():
        await look.execute("SELECT FROM replicas FOR UPDATE")
        tasks.create_task(running.start())

        await wait_until(lambda: told(running, "writer_rows") == 1)
        await wait_until(lambda: told(running, "writer_wait_seconds") > 0.05)

    await ended(running, "completed")
    assert 0 == told(running, "writer_rows")


async def test_counting_that_fails_costs_nothing(running: Running) -> None:
    """Observers that raise are logged: commits, answers and the writer's connection stay."""

    def fail(*_: object) -> None:
        raise RuntimeError("cannot count")

    running.journal.observe(fail)
    running.writer.on_flush = fail
    flushes = running.writer.flushes
    saga = await running.start()

    (done,) = await running.rest(saga)

    assert "completed" == done.status
    await wait_until(lambda: running.writer.flushes == flushes + 3)
    assert ["flight action 1", "hotel action 1"] == running.tools.names()


async def test_all_of_it_is_prometheus_text(running: Running) -> None:
    """Prometheus' own parser reads every series, and none of them tells when it began."""
    await running.start()
    await ended(running, "completed")

    families = list(text_string_to_metric_families(running.metrics.render().decode()))

    names = {family.name for family in families}
    assert {"amends_build_info", "amends_sagas_ended", "process_open_fds"} <= names
    assert [] == [name for name in names if name.endswith("_created")]
    assert all(family.documentation for family in families)


async def test_attempts_of_broken_code_are_counted(running: Running) -> None:
    """A connector that fails is counted as the dispatcher reports it: broken off."""
    running.tools.answer("flight", RuntimeError("a bug"), answered())
    await running.start()

    await ended(running, "completed")

    seen = {"connector": "http", "observation": "broken_off_internal"}
    assert 1 == told(running, "attempts_total", **seen)

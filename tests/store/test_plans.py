"""The plans of the hot statements, with many finished and many waiting sagas in the tables.

All statements run as the service runs them: prepared, with a generic plan, under the role's
settings. A plan made while the tables were empty must stay right: nobody makes it again.
"""

import asyncio
import datetime as dt
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import override
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg
import pytest

from app.core.entries import FORMAT
from app.core.identity import SagaId, TenantId
from app.core.saga import SagaStatus
from app.store import Filter, ReadTx, claims, journal, list_sagas, replicas, sagas, survey
from app.store.schema import ROLE_SETTINGS
from app.store.statements import FIND, FIND_BUSINESS_KEY, columns, flush_statement
from tests.store.place import a_move, a_start, connected
from tests.store.plans import Plan, prepare, run

pytestmark = pytest.mark.xdist_group("plans")
"""The big database is made once, by the one worker that runs these."""

FINISHED, WAITING, DUE, HELD, ORPHANED = 100_000, 20_000, 5_000, 200, 200

HERE, GONE = uuid.uuid4(), uuid.uuid4()

STATEMENTS = {
    "flush": flush_statement(starts=True, moves=True),
    "flush_starts": flush_statement(starts=True, moves=False),
    "flush_moves": flush_statement(starts=False, moves=True),
    "find": FIND,
    "find_business_key": FIND_BUSINESS_KEY,
    "claim_due": claims._CLAIM_DUE.format(losses="< 3"),
    "claim_suspects": claims._CLAIM_DUE.format(losses=">= 3"),
    "claim_orphans": claims._CLAIM_ORPHANS,
    "set_aside": claims._SET_ASIDE,
    "owned": claims._OWNED,
    "without_reason": claims.WITHOUT_REASON,
    "load": journal._LOAD,
    "load_many": journal._LOAD_MANY,
    "owner": journal._OWNER,
    "heads": sagas._HEADS,
    "beat": replicas._BEAT,
    "revoke": replicas._REVOKE_EXPIRED,
    "prune": replicas._PRUNE,
    "survey_live": survey._LIVE,
    "survey_attention": survey._ATTENTION,
    "survey_due": survey._DUE_OLDEST,
    "steps": "SELECT * FROM saga_steps WHERE saga_id = $1",
}

SLOW_PACED = {"without_reason", "survey_live"}
"""Those that look at every saga under way, now and then."""

_FILL = """
INSERT INTO sagas (id, tenant_id, definition_name, definition_version, status, seq, entry_id,
    owner, due_at, losses, format, business_key, labels, created_at, updated_at, finished_at)
SELECT gen_random_uuid(), 1, 'book_trip', 1, $2, 2, gen_random_uuid(), $3::uuid,
    now() + $4::interval, 0, 1, CASE WHEN $5 THEN 'order ' || n END, '{}',
    now() - n * interval '1 second', now(), CASE WHEN $5 THEN now() END
FROM generate_series(1, $1::integer) n
"""

_FILL_JOURNAL = """
INSERT INTO saga_journal (saga_id, seq, id, tenant_id, at, type, format, data)
SELECT s.id, n, gen_random_uuid(), 1, now(), 'saga_woken', 1,
    '{"now": {}, "calls": [{"step": "a", "direction": "action"}]}'
FROM sagas s, generate_series(1, 2) n
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A database with much in it.

    Attributes:
        early: of each statement, planned on empty tables and run on full ones: the plan.
        held: ids of sagas that a replica holds.
    """

    url: str
    early: dict[str, Plan]
    held: list[UUID]


def arguments(name: str, held: list[UUID]) -> list[object]:
    """What a statement is called with."""
    starts, moves = [a_start() for _ in range(50)], [a_move(a_start()) for _ in range(50)]
    one = held[0] if held else uuid.uuid4()
    known: dict[str, list[object]] = {
        "flush": [HERE, *columns(starts), *columns(moves)],
        "flush_starts": [HERE, *columns(starts)],
        "flush_moves": [HERE, *columns(moves)],
        "find": [held, [3] * len(held)],
        "find_business_key": [1, "book_trip", "order 7"],
        "claim_due": [HERE, FORMAT, 100],
        "claim_suspects": [HERE, FORMAT, 1],
        "claim_orphans": [HERE, FORMAT, 100, claims.SUSPECT_LOSSES, claims.SUSPECT_DELAY],
        "set_aside": [one, HERE, claims.SUSPECT_DELAY],
        "owned": [HERE],
        "load": [one, 0, 100],
        "load_many": [held],
        "owner": [one],
        "heads": [held],
        "beat": [HERE, claims.SUSPECT_DELAY],
        "revoke": [HERE],
        "steps": [one],
    }
    return known.get(name, [])


async def fill(look: asyncpg.Connection) -> None:
    """Many finished sagas, many that wait, and some that are due, held or orphaned."""
    await look.execute(
        "INSERT INTO replicas (id, role, started_at, revoked_at)"
        " VALUES ($1, 'all', now(), NULL), ($2, 'all', now(), now() - interval '2 days')",
        HERE,
        GONE,
    )
    await look.execute("INSERT INTO heartbeats SELECT id, now(), now() FROM replicas")
    hour = dt.timedelta(hours=1)
    for count, status, owner, due in (
        (FINISHED, "completed", None, None),
        (WAITING, "running", None, hour),
        (DUE, "pending", None, -hour),
        (HELD, "running", HERE, None),
        (ORPHANED, "running", GONE, None),
    ):
        await look.execute(_FILL, count, status, owner, due, status == "completed")
    await look.execute(_FILL_JOURNAL)


async def make_world(url: str) -> World:
    """Plan everything on empty tables, fill them, and see how the plans do then."""
    async with connected(url) as early, connected(url) as look:
        for name, sql in STATEMENTS.items():
            await prepare(early, name, sql)
            await run(early, name, *arguments(name, []))
        await fill(look)
        held = [r["id"] for r in await look.fetch("SELECT id FROM sagas WHERE owner = $1", HERE)]
        plans = {name: await run(early, name, *arguments(name, held)) for name in STATEMENTS}
        await look.execute("ANALYZE")
    return World(url=url, early=plans, held=held)


@pytest.fixture(scope="module")
def world(postgres_url: str, template_url: str) -> Iterator[World]:
    """The database with much in it; nothing in it is changed by a test."""
    name = f"plans_{uuid.uuid4().hex}"
    template = urlsplit(template_url).path.removeprefix("/")

    async def execute(*statements: str) -> None:
        async with connected(postgres_url) as connection:
            for statement in statements:
                await connection.execute(statement)

    asyncio.run(
        execute(
            f"CREATE DATABASE {name} TEMPLATE {template}",
            *(
                f"ALTER ROLE CURRENT_USER IN DATABASE {name} SET {setting} = '{value}'"
                for setting, value in ROLE_SETTINGS.items()
            ),
        )
    )
    url = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
    yield asyncio.run(make_world(url))
    asyncio.run(execute(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def fresh(world: World) -> AsyncIterator[asyncpg.Connection]:
    """A connection that plans anew, on full tables."""
    async with connected(world.url) as connection:
        yield connection


async def plan_of(fresh: asyncpg.Connection, name: str, *args: object) -> Plan:
    """The plan of a statement as a new connection makes it."""
    await prepare(fresh, name, STATEMENTS[name])
    return await run(fresh, name, *args)


@pytest.mark.parametrize("when", ["planned on empty tables", "planned on full tables"])
@pytest.mark.parametrize("name", STATEMENTS)
async def test_hot_statements_look_at_few_rows(
    world: World, fresh: asyncpg.Connection, name: str, when: str
) -> None:
    """A hot statement reads tables by their indexes, and not more rows than it deals with."""
    if when == "planned on empty tables":
        plan = world.early[name]
    else:
        plan = await plan_of(fresh, name, *arguments(name, world.held))
    few = FINISHED / 2 if name in SLOW_PACED else 1_000

    assert [] == [node for node in plan.scans() if node.table in {"sagas", "saga_journal"}]
    assert plan.touched("sagas") <= few, plan.on("sagas")
    assert plan.touched("saga_journal") <= 1_000, plan.on("saga_journal")


async def test_claiming_what_is_due_does_not_look_at_what_waits(
    world: World, fresh: asyncpg.Connection
) -> None:
    """Claiming stops at the first saga that is not due yet, however many wait behind it."""
    plan = await plan_of(fresh, "claim_due", HERE, FORMAT, DUE + 100)

    (scan,) = (node for node in plan.on("sagas") if node.index == "sagas_due")
    assert "due_at" in scan.condition
    assert scan.touched == DUE


async def test_looking_for_suspects_does_not_look_at_all_that_is_due(
    world: World, fresh: asyncpg.Connection
) -> None:
    """However much is due, it costs nothing to find that none of it is under suspicion."""
    plan = await plan_of(fresh, "claim_suspects", HERE, FORMAT, 1)

    assert plan.touched("sagas") == 0


async def test_a_full_flush_of_starts_compares_each_row_once(
    world: World, fresh: asyncpg.Connection
) -> None:
    """The journal's rows of 500 starts are not found by comparing all with all."""
    args = [HERE, *columns([a_start() for _ in range(500)])]
    plan = await plan_of(fresh, "flush_starts", *args)

    assert plan.mismatches <= 1_000


class Explaining(ReadTx):
    """Keeps the plan of what is fetched instead of fetching it."""

    def __init__(self, driver: asyncpg.Connection) -> None:
        super().__init__(driver)
        self.plan: Plan | None = None

    @override
    async def fetch(self, sql: str, *args: object) -> list[asyncpg.Record]:
        await prepare(self._driver, "listed", sql)
        self.plan = await run(self._driver, "listed", *args)
        return []


NOW = dt.datetime.now(dt.UTC)

LISTS = {
    "all": (Filter(), 100),
    "running": (Filter(status=SagaStatus.RUNNING), 500),
    "completed": (Filter(status=SagaStatus.COMPLETED), 500),
    "stuck": (Filter(status=SagaStatus.STUCK), WAITING + DUE + HELD + ORPHANED),
    "of a definition": (Filter(definition="book_trip"), 100),
    "by business key": (Filter(business_key="order 77"), 10),
    "by label": (Filter(labels={"team": "travel"}), 10),
    "since": (Filter(created_after=NOW - dt.timedelta(minutes=1)), 500),
    "attention": (Filter(attention=True), 10),
    "no attention": (Filter(attention=False), 100),
    "a later page": (
        Filter(before=(NOW - dt.timedelta(minutes=9), SagaId(uuid.UUID(int=0)))),
        200,
    ),
}


@pytest.mark.parametrize("name", LISTS)
async def test_lists_read_an_index(world: World, fresh: asyncpg.Connection, name: str) -> None:
    """A page of a list is read in the order of an index, and little beyond the page."""
    chosen, few = LISTS[name]
    tx = Explaining(fresh)

    await list_sagas(tx, TenantId(1), chosen, limit=50)

    assert tx.plan is not None
    assert [] == tx.plan.scans()
    assert tx.plan.touched("sagas") <= few, tx.plan.on("sagas")

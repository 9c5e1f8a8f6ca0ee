"""Plans as Postgres makes them for the service: prepared, generic, under the role's settings."""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a plan that was run.

    Attributes:
        kind: as "Index Scan".
        table, index: what it reads, if it reads a table.
        condition: what the index was searched by; empty if it was walked from one end.
        rows: read and kept, all loops together.
        discarded: read and thrown away by a filter, all loops together.
        mismatched: pairs that were compared and did not belong together, where it is a join.
    """

    kind: str
    table: str | None
    index: str | None
    condition: str
    rows: float
    discarded: float
    mismatched: float

    @property
    def touched(self) -> float:
        """Rows looked at, whether they were of use or not."""
        return self.rows + self.discarded


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan that was run."""

    nodes: tuple[Node, ...]

    @property
    def mismatches(self) -> float:
        """Pairs of rows that a join compared in vain."""
        return sum(node.mismatched for node in self.nodes)

    def on(self, table: str) -> list[Node]:
        """The nodes that read a table."""
        return [node for node in self.nodes if node.table == table]

    def scans(self) -> list[Node]:
        """The nodes that read a table from end to end."""
        return [node for node in self.nodes if node.kind == "Seq Scan" and node.table]

    def touched(self, table: str) -> float:
        """How many rows of a table were looked at."""
        return sum(node.touched for node in self.on(table))


async def prepare(connection: asyncpg.Connection, name: str, sql: str) -> None:
    """Prepare a statement with ``$1`` parameters under a name."""
    await connection.execute(f"PREPARE {name} AS {sql}")


async def run(connection: asyncpg.Connection, name: str, *args: object) -> Plan:
    """Run a prepared statement and return its plan; what it wrote is rolled back."""
    values = ", ".join(_literal(value) for value in args)
    call = f"EXECUTE {name}({values})" if args else f"EXECUTE {name}"
    transaction = connection.transaction()
    await transaction.start()
    try:
        explained = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {call}")
    finally:
        await transaction.rollback()
    (top,) = json.loads(explained)
    return Plan(nodes=tuple(_nodes(top["Plan"])))


def _nodes(plan: Mapping[str, Any]) -> Iterator[Node]:
    loops = plan["Actual Loops"]
    yield Node(
        kind=plan["Node Type"],
        table=plan.get("Relation Name"),
        index=plan.get("Index Name"),
        condition=plan.get("Index Cond", ""),
        rows=plan["Actual Rows"] * loops,
        discarded=plan.get("Rows Removed by Filter", 0) * loops,
        mismatched=plan.get("Rows Removed by Join Filter", 0) * loops,
    )
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


def _literal(value: object) -> str:
    if isinstance(value, list):
        return _quoted("{" + ",".join(_element(item) for item in value) + "}")
    text = _text(value)
    return "NULL" if text is None else _quoted(text)


def _element(value: object) -> str:
    text = _text(value)
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case dt.datetime():
            return value.isoformat()
        case dt.timedelta():
            return f"{value.total_seconds()} seconds"
        case bytes():
            return "\\x" + value.hex()
        case UUID() | int() | str():
            return str(value)
        case _:
            raise TypeError(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

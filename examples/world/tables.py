"""The tables of the world, and every statement on them.

Each function runs inside the transaction of its caller, on one connection. `requests` is the log
of what was received; `effects` what was made; `answers` what is replayed under a key; `barriers`
the charge keys refunded before their charge came; `counters` numbers everything.
"""

import dataclasses
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from examples.world.records import Effect, Ledger, Outcome, Received

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    key TEXT,
    saga TEXT,
    step TEXT,
    call TEXT,
    attempt TEXT,
    body_sha256 TEXT,
    body_text TEXT NOT NULL,
    fault TEXT,
    outcome TEXT CHECK (outcome IN ('applied', 'replayed', 'refused', 'none')),
    outcome_seq INTEGER CHECK (outcome_seq > seq),
    status INTEGER,
    resource TEXT,
    CHECK ((outcome IS NULL) = (outcome_seq IS NULL))
) STRICT;
CREATE INDEX IF NOT EXISTS requests_by_saga ON requests (saga);
CREATE TABLE IF NOT EXISTS effects (
    resource TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    item TEXT NOT NULL,
    request_seq INTEGER NOT NULL REFERENCES requests,
    key TEXT,
    saga TEXT,
    step TEXT,
    created_seq INTEGER NOT NULL UNIQUE CHECK (created_seq > request_seq),
    undone_seq INTEGER UNIQUE CHECK (undone_seq > created_seq),
    undone_by_key TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS effects_by_key ON effects (key);
CREATE INDEX IF NOT EXISTS effects_by_saga ON effects (saga);
CREATE INDEX IF NOT EXISTS effects_live ON effects (kind, created_seq) WHERE undone_seq IS NULL;
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    status INTEGER NOT NULL,
    body TEXT NOT NULL,
    resource TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS barriers (charge_key TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT;
"""

# The columns bear the names of the fields.
_REQUEST_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Received))
_REQUEST_COLUMNS: Final = ", ".join(_REQUEST_FIELDS)
_REQUEST_VALUES: Final = ", ".join(f":{name}" for name in _REQUEST_FIELDS)
_EFFECT_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Effect))
_EFFECT_COLUMNS: Final = ", ".join(_EFFECT_FIELDS)
_PAGE: Final = 100
"""How many items a listing shows at most."""


class StoredAnswer(NamedTuple):
    """What is replayed under a key, and the fingerprint of the request that it belongs to."""

    fingerprint: str
    status: int
    body: str
    resource: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An effect together with the item shown to clients, a JSON object as text."""

    effect: Effect
    item: str


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a ledger; unless ``read_only``, make it if it is missing, every commit synced."""
    if read_only:
        # Not `mode=ro`: a reader of a write-ahead log has to lock, and perhaps recover, it.
        uri = f"{path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, autocommit=True)
        connection.execute("PRAGMA query_only = ON")
        return connection
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, autocommit=True, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    # FULL syncs the log at every commit: https://sqlite.org/pragma.html#pragma_synchronous.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.executescript(_SCHEMA)
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done inside, all of it or, on an exception, none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have rolled back by itself, as when the disk is full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def next_number(connection: sqlite3.Connection, name: str) -> int:
    """Count up the named counter, from 1."""
    rows = connection.execute(
        "INSERT INTO counters VALUES (?, 1)"
        " ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value",
        (name,),
    ).fetchall()
    return int(rows[0][0])


def next_seq(connection: sqlite3.Connection) -> int:
    """Number the next thing that happens."""
    return next_number(connection, "seq")


def add_request(connection: sqlite3.Connection, request: Received) -> None:
    """Record that a request was received."""
    connection.execute(
        f"INSERT INTO requests ({_REQUEST_COLUMNS}) VALUES ({_REQUEST_VALUES})",  # noqa: S608 - constants
        dataclasses.asdict(request),
    )


def set_outcome(
    connection: sqlite3.Connection,
    seq: int,
    *,
    outcome: Outcome,
    status: int | None,
    resource: str | None = None,
) -> None:
    """Record how a request ended."""
    connection.execute(
        "UPDATE requests SET outcome = ?, status = ?, resource = ?, outcome_seq = ? WHERE seq = ?",
        (outcome, status, resource, next_seq(connection), seq),
    )


def add_effect(
    connection: sqlite3.Connection, *, kind: str, resource: str, item: str, request: Received
) -> None:
    """Make something in the world."""
    connection.execute(
        "INSERT INTO effects (resource, kind, item, request_seq, key, saga, step, created_seq)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            resource,
            kind,
            item,
            request.seq,
            request.key,
            request.saga,
            request.step,
            next_seq(connection),
        ),
    )


def undo_effect(connection: sqlite3.Connection, resource: str, *, by_key: str | None) -> None:
    """Undo what is live."""
    done = connection.execute(
        "UPDATE effects SET undone_seq = ?, undone_by_key = ?"
        " WHERE resource = ? AND undone_seq IS NULL",
        (next_seq(connection), by_key, resource),
    )
    assert done.rowcount == 1, f"{resource!r} is not live"


def find_effect(connection: sqlite3.Connection, kind: str, resource: str) -> Made | None:
    """Find an effect, live or undone."""
    made = _select_effects(connection, "kind = ? AND resource = ?", (kind, resource))
    return made[0] if made else None


def list_effects(
    connection: sqlite3.Connection, kind: str, *, key: str | None, live_only: bool = True
) -> list[Made]:
    """List the first 100 effects, oldest first, of a key or of all."""
    condition = "kind = ?" + (" AND undone_seq IS NULL" if live_only else "")
    if key is None:
        return _select_effects(connection, condition, (kind,))
    return _select_effects(connection, condition + " AND key = ?", (kind, key))


def _select_effects(
    connection: sqlite3.Connection, condition: str, values: tuple[str, ...]
) -> list[Made]:
    rows = connection.execute(
        f"SELECT item, {_EFFECT_COLUMNS} FROM effects WHERE {condition}"  # noqa: S608 - constants
        f" ORDER BY created_seq LIMIT {_PAGE}",
        values,
    )
    return [Made(item=row[0], effect=_effect(row[1:])) for row in rows]


def find_answer(connection: sqlite3.Connection, key: str) -> StoredAnswer | None:
    """Find what was answered under a key."""
    row = connection.execute(
        "SELECT fingerprint, status, body, resource FROM answers WHERE key = ?", (key,)
    ).fetchone()
    return None if row is None else StoredAnswer(*row)


def add_answer(connection: sqlite3.Connection, key: str, answer: StoredAnswer) -> None:
    """Remember what was answered under a key."""
    connection.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?)", (key, *answer))


def add_barrier(connection: sqlite3.Connection, charge_key: str) -> None:
    """Bar a charge that has not come yet."""
    connection.execute(
        "INSERT INTO barriers VALUES (?, ?) ON CONFLICT DO NOTHING",
        (charge_key, next_seq(connection)),
    )


def has_barrier(connection: sqlite3.Connection, charge_key: str) -> bool:
    """Tell whether a charge under this key is barred."""
    rows = connection.execute("SELECT 1 FROM barriers WHERE charge_key = ?", (charge_key,))
    return rows.fetchone() is not None


def fetch_ledger(connection: sqlite3.Connection, *, saga: str | None = None) -> Ledger:
    """Read the whole ledger, or what bears the name of one saga."""
    condition, values = ("TRUE", ()) if saga is None else ("saga = ?", (saga,))
    requests = connection.execute(
        f"SELECT {_REQUEST_COLUMNS} FROM requests WHERE {condition} ORDER BY seq",  # noqa: S608 - constants
        values,
    )
    effects = connection.execute(
        f"SELECT {_EFFECT_COLUMNS} FROM effects WHERE {condition} ORDER BY created_seq",  # noqa: S608 - constants
        values,
    )
    return Ledger(
        requests=tuple(
            Received(**dict(zip(_REQUEST_FIELDS, row, strict=True))) for row in requests
        ),
        effects=tuple(_effect(row) for row in effects),
    )


def _effect(row: tuple[str, ...]) -> Effect:
    values: dict[str, Any] = dict(zip(_EFFECT_FIELDS, row, strict=True))
    return Effect(**values)

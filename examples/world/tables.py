"""Every statement on what was received and done; ``jobs`` has those on what is to be reported.

Each function runs inside the transaction of its caller, on one connection.
"""

import dataclasses
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from examples.world.records import Callback, Effect, Ledger, Outcome, Received
from examples.world.schema import SCHEMA, VERSION

# The columns bear the names of the fields.
_REQUEST_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Received))
_REQUEST_COLUMNS: Final = ", ".join(_REQUEST_FIELDS)
_REQUEST_VALUES: Final = ", ".join(f":{name}" for name in _REQUEST_FIELDS)
_EFFECT_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Effect))
_EFFECT_COLUMNS: Final = ", ".join(_EFFECT_FIELDS)
_CALLBACK_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Callback))
_CALLBACK_COLUMNS: Final = ", ".join(_CALLBACK_FIELDS)
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


class ForeignLedgerError(OSError):
    """The file is a ledger of another version of the world."""

    def __init__(self, path: Path, version: int) -> None:
        """Name the file and say what to do."""
        super().__init__(
            f"{path} has version {version} of the ledger, not {VERSION}: take a new file"
        )


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a ledger; unless ``read_only``, make it if it is missing, every commit synced.

    Raises:
        ForeignLedgerError: another version of the world made it.
    """
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
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and version != VERSION:
        connection.close()
        raise ForeignLedgerError(path, version)
    connection.executescript(f"{SCHEMA} PRAGMA user_version = {VERSION};")
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
        "INSERT INTO effects"
        " (resource, kind, item, request_seq, key, saga, step, created_seq, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            resource,
            kind,
            item,
            request.seq,
            request.key,
            request.saga,
            request.step,
            next_seq(connection),
            time.time(),
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


def list_effects(connection: sqlite3.Connection, kind: str, *, key: str) -> list[Made]:
    """List the first 100 effects of a key, oldest first, live or undone."""
    return _select_effects(connection, "kind = ? AND key = ?", (kind, key))


def list_settled_effects(
    connection: sqlite3.Connection,
    kind: str,
    *,
    key: str | None,
    asked: Received,
    seconds: float,
    queries: int,
) -> list[Made]:
    """List what is live as a tool does that is slow to notice.

    An effect is left out for so many seconds, and from so many of the same questions.
    """
    condition = "kind = ? AND undone_seq IS NULL"
    values: list[object] = [kind]
    if key is not None:
        condition += " AND key = ?"
        values.append(key)
    if seconds:
        condition += " AND created_at <= ?"
        values.append(time.time() - seconds)
    if queries:
        condition += (
            " AND (SELECT count(*) FROM requests WHERE method = ? AND path = ?"
            " AND seq > created_seq AND seq < ?) >= ?"
        )
        values += (asked.method, asked.path, asked.seq, queries)
    return _select_effects(connection, condition, values)


def list_undone_by(connection: sqlite3.Connection, kind: str, key: str) -> list[Made]:
    """List what was undone under a key."""
    return _select_effects(connection, "kind = ? AND undone_by_key = ?", (kind, key))


def _select_effects(
    connection: sqlite3.Connection, condition: str, values: Sequence[object]
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
    callbacks = connection.execute(
        f"SELECT {_CALLBACK_COLUMNS} FROM named_callbacks WHERE {condition} ORDER BY seq",  # noqa: S608 - constants
        values,
    )
    return Ledger(
        requests=tuple(_request(row) for row in requests),
        effects=tuple(_effect(row) for row in effects),
        callbacks=tuple(
            Callback(**values | {"is_changed": bool(values["is_changed"])})
            for values in (dict(zip(_CALLBACK_FIELDS, row, strict=True)) for row in callbacks)
        ),
    )


def fetch_request(connection: sqlite3.Connection, seq: int) -> Received:
    """Read a request that was recorded."""
    row = connection.execute(
        f"SELECT {_REQUEST_COLUMNS} FROM requests WHERE seq = ?",  # noqa: S608 - constants
        (seq,),
    ).fetchone()
    return _request(row)


def _request(row: tuple[Any, ...]) -> Received:
    return Received(**dict(zip(_REQUEST_FIELDS, row, strict=True)))


def _effect(row: tuple[str, ...]) -> Effect:
    values: dict[str, Any] = dict(zip(_EFFECT_FIELDS, row, strict=True))
    return Effect(**values)

"""Every statement on what was acknowledged and is to be reported, and on the reports.

A *job* is a request that was acknowledged. It knows how far it has come: what was decided, and how
many reports of its plan are settled, so that a world that is started again goes on where it was.
Each function runs inside the transaction of its caller.
"""

import datetime as dt
import hashlib
import sqlite3
from dataclasses import dataclass

from examples.world import tables
from examples.world.decisions import Decision
from examples.world.records import Received, Saying, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request that was acknowledged."""

    request: Received
    url: str
    """Where to report to."""
    body: bytes
    reserved: str | None
    """The id promised to what it will make."""
    decision: Decision | None
    """``None`` until it has acted."""
    reported: int
    """How many reports are settled: answered, or given up."""


def add(
    connection: sqlite3.Connection,
    request: Received,
    body: bytes,
    *,
    url: str,
    reserved: str | None = None,
) -> None:
    """Remember that a request is to be reported on."""
    connection.execute(
        "INSERT INTO jobs (request_seq, url, body, reserved) VALUES (?, ?, ?, ?)",
        (request.seq, url, body, reserved),
    )


def decide(connection: sqlite3.Connection, request_seq: int, decision: Decision) -> None:
    """Remember what a job has done."""
    connection.execute(
        "UPDATE jobs SET outcome = ?, status = ?, answer = ?, resource = ? WHERE request_seq = ?",
        (decision.outcome, decision.status, decision.body, decision.resource, request_seq),
    )


def finish(connection: sqlite3.Connection, request_seq: int) -> None:
    """Remember that all is told."""
    connection.execute("UPDATE jobs SET is_finished = 1 WHERE request_seq = ?", (request_seq,))


def fetch(connection: sqlite3.Connection, request_seq: int) -> Job:
    """Read a job as it is now."""
    row = connection.execute(
        "SELECT url, body, reserved, reported, outcome, status, answer, resource"
        " FROM jobs WHERE request_seq = ?",
        (request_seq,),
    ).fetchone()
    url, body, reserved, reported, outcome, status, answer, resource = row
    decision = None
    if outcome is not None:
        decision = Decision(outcome=outcome, status=status, body=answer, resource=resource)
    return Job(
        request=tables.fetch_request(connection, request_seq),
        url=url,
        body=body,
        reserved=reserved,
        decision=decision,
        reported=reported,
    )


def find_decided(connection: sqlite3.Connection, key: str) -> Job | None:
    """Find the first job under a key that has acted."""
    row = connection.execute(
        "SELECT request_seq FROM jobs JOIN requests ON requests.seq = request_seq"
        " WHERE requests.key = ? AND jobs.outcome IS NOT NULL ORDER BY request_seq",
        (key,),
    ).fetchone()
    return None if row is None else fetch(connection, row[0])


def list_open(connection: sqlite3.Connection) -> list[int]:
    """List the requests that have not been wholly reported on, oldest first."""
    rows = connection.execute(
        "SELECT request_seq FROM jobs WHERE is_finished = 0 ORDER BY request_seq"
    )
    return [row[0] for row in rows]


def count_pending(connection: sqlite3.Connection, kind: str, key: str) -> int:
    """Count what was acknowledged under a key and has not acted yet."""
    (count,) = connection.execute(
        "SELECT count(*) FROM requests JOIN jobs ON request_seq = requests.seq"
        " WHERE requests.key = ? AND requests.path = ? AND jobs.outcome IS NULL",
        (key, f"/{kind}"),
    ).fetchone()
    return int(count)


def count_answered(connection: sqlite3.Connection, *, saga: str | None, key: str | None) -> int:
    """Count the reports of a saga and a key, or of any, that were answered or found nobody."""
    (count,) = connection.execute(
        "SELECT count(*) FROM named_callbacks WHERE answered_seq IS NOT NULL"
        " AND (:saga IS NULL OR saga = :saga) AND (:key IS NULL OR key = :key)",
        {"saga": saga, "key": key},
    ).fetchone()
    return int(count)


def begin_callback(
    connection: sqlite3.Connection,
    job: Job,
    *,
    report: int,
    says: Saying,
    sent_to: Target,
    is_changed: bool,
    url: str,
    body: str,
) -> int:
    """Record that a report is about to be sent; return the number it got."""
    seq = tables.next_seq(connection)
    token = url.rpartition("/")[2]
    connection.execute(
        "INSERT INTO callbacks (seq, at, request_seq, report, attempt, outcome, sent_to,"
        " is_changed, token_sha256, body_text)"
        " VALUES (:seq, :at, :request_seq, :report,"
        " (SELECT 1 + count(*) FROM callbacks"
        "  WHERE request_seq = :request_seq AND report = :report),"
        " :outcome, :sent_to, :is_changed, :token_sha256, :body_text)",
        {
            "seq": seq,
            "at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
            "request_seq": job.request.seq,
            "report": report,
            "outcome": says,
            "sent_to": sent_to,
            "is_changed": is_changed,
            "token_sha256": hashlib.sha256(token.encode()).hexdigest(),
            "body_text": body,
        },
    )
    return seq


def end_callback(
    connection: sqlite3.Connection,
    seq: int,
    *,
    status: int | None,
    error: str | None,
    is_settled: bool,
) -> None:
    """Record what was answered to a report, and whether it will not be sent again."""
    row = connection.execute(
        "UPDATE callbacks SET answered_seq = ?, status = ?, error = ? WHERE seq = ?"
        " RETURNING request_seq, report",
        (tables.next_seq(connection), status, error, seq),
    ).fetchall()
    request_seq, report = row[0]
    if is_settled:
        connection.execute(
            "UPDATE jobs SET reported = ? WHERE request_seq = ?", (report + 1, request_seq)
        )

"""What a request does, given its key: act, act and report later, or say again what was said.

``carry_out`` runs inside the transaction that also keeps the answer and the ledger row, so that
after a crash either all of them exist or none.

The order in which a request is looked at: is its key known (replay, or refuse other bytes); does
it make sense; has a switch ordered a refusal; what does the business say. A request that names a
URL to call back is acknowledged before the business is asked, and its *job* asks it.
"""

import dataclasses
import hashlib
import json
import sqlite3
from dataclasses import dataclass

from examples.world import jobs, rules, tables
from examples.world.decisions import ACKNOWLEDGED, MALFORMED, Decision, key_reused
from examples.world.records import Received
from examples.world.routes import Delete, Make, Nowhere, Refund, route
from examples.world.switches import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """All that is known of how a request is to be met."""

    mode: Mode
    """What the tool is like."""
    ordered: Decision | None = None
    """A refusal ordered by a switch; a replay goes before it."""
    stored_instead: Decision | None = None
    """Under ``caches_errors``, what to remember in place of the true answer."""
    callback_url: str | None = None
    """Where the outcome is to be reported to; ``None``: it is the answer."""
    acts_now: bool = False
    """Whether what is reported later is done at once."""


def fingerprint(request: Received) -> str:
    """Tell requests apart: two with one fingerprint ask for the same, byte by byte."""
    parts = "\n".join((request.method, request.path, request.body_sha256 or ""))
    return hashlib.sha256(parts.encode()).hexdigest()


def carry_out(
    connection: sqlite3.Connection, request: Received, body: bytes, asked: Asked
) -> Decision:
    """Do what is asked and remember the answer under its key."""
    verb = route(request.method, request.path)
    key = None if isinstance(verb, Nowhere) or request.is_read else request.key
    if key is None or not asked.mode.honours_keys:
        return _act(connection, request, body, asked)
    known = tables.find_answer(connection, key)
    if known is not None and known.fingerprint != fingerprint(request):
        return key_reused(key)
    if known is not None:
        return Decision(
            outcome="replayed",
            status=known.status,
            body=known.body,
            resource=known.resource,
            calls_back=_will_report_again(connection, request, body, asked),
        )
    decision = _act(connection, request, body, asked)
    stored = decision
    if asked.mode.caches_errors and asked.stored_instead is not None:
        stored = asked.stored_instead
    # What could not be read was never begun, so there is nothing to remember of it.
    is_kept = asked.mode.caches_errors and decision.status != MALFORMED
    if decision.outcome != "refused" or decision.calls_back or is_kept:
        answer = tables.StoredAnswer(
            fingerprint=fingerprint(request),
            status=stored.status,
            body=stored.body,
            resource=decision.resource,
        )
        tables.add_answer(connection, key, answer)
    return decision


def act_later(connection: sqlite3.Connection, job: jobs.Job, mode: Mode) -> Decision:
    """Do what was acknowledged, once."""
    if job.decision is not None:
        return job.decision
    request = job.request
    decision = rules.decide(connection, request, job.body, mode=mode, reserved=job.reserved)
    jobs.decide(connection, request.seq, decision)
    # Its answer has left already, with whatever status.
    tables.set_outcome(
        connection,
        request.seq,
        outcome=decision.outcome,
        status=request.status,
        resource=decision.resource,
    )
    return decision


def _act(connection: sqlite3.Connection, request: Received, body: bytes, asked: Asked) -> Decision:
    verb = route(request.method, request.path)
    url = asked.callback_url
    if url is None or not isinstance(verb, Make | Delete | Refund):
        return rules.decide(connection, request, body, mode=asked.mode, ordered=asked.ordered)
    refused = rules.refuse_unreadable(verb, body) or asked.ordered
    if refused is not None:
        return refused
    reserved = rules.reserve(connection, verb)
    jobs.add(connection, request, body, url=url, reserved=reserved)
    shown = {"status": "pending"} if reserved is None else {"id": reserved, "status": "pending"}
    acknowledged = Decision(
        outcome="accepted", status=ACKNOWLEDGED, body=json.dumps(shown), calls_back=True
    )
    if not asked.acts_now:
        return acknowledged
    done = act_later(connection, jobs.fetch(connection, request.seq), asked.mode)
    return dataclasses.replace(acknowledged, outcome=done.outcome, resource=done.resource)


def _will_report_again(
    connection: sqlite3.Connection, request: Received, body: bytes, asked: Asked
) -> bool:
    """Make a job of a resend, if the tool is like that and what it would say is known."""
    if asked.callback_url is None or request.key is None or not asked.mode.calls_back_again:
        return False
    told = jobs.find_decided(connection, request.key)
    if told is None or told.decision is None:
        return False
    jobs.add(connection, request, body, url=asked.callback_url)
    jobs.decide(connection, request.seq, told.decision)
    return True

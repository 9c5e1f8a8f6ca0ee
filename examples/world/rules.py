"""The business of the world: what a request means, and what it does.

``carry_out`` acts, inside the transaction that also keeps the answer and the ledger row, so that
after a crash either all of them exist or none.

The order in which a request is looked at: is its key known (replay, or refuse other bytes); does
it make sense; has a switch ordered a refusal; what does the business say.
"""

import hashlib
import json
import sqlite3
from dataclasses import dataclass
from typing import Final, assert_never

from examples.world import tables
from examples.world.records import JsonValue, Outcome, Received
from examples.world.routes import (
    PREFIXES,
    Delete,
    Make,
    Nowhere,
    Refund,
    Search,
    Show,
    Verb,
    route,
)
from examples.world.switches import Mode

MALFORMED: Final = 400
_SOLD_OUT_CITY: Final = "Atlantis"
_DECLINED_CARD: Final = "4000000000000002"
"""Stripe's test card that is always declined: https://docs.stripe.com/testing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a request did, and what the tool says about it; ``body`` is JSON text."""

    outcome: Outcome
    status: int
    body: str
    resource: str | None = None


def refusal(status: int, code: str, message: str, *, resource: str | None = None) -> Decision:
    """Refuse, changing nothing."""
    body = json.dumps({"error": code, "message": message})
    return Decision(outcome="refused", status=status, body=body, resource=resource)


def key_reused(key: str) -> Decision:
    """Refuse other bytes under a key that is taken."""
    return refusal(422, "key_reused", f"key {key!r} was used before for another request")


def fingerprint(request: Received) -> str:
    """Tell requests apart: two with one fingerprint ask for the same, byte by byte."""
    parts = "\n".join((request.method, request.path, request.body_sha256 or ""))
    return hashlib.sha256(parts.encode()).hexdigest()


def carry_out(
    connection: sqlite3.Connection,
    request: Received,
    body: bytes,
    *,
    mode: Mode,
    ordered: Decision | None = None,
    stored_instead: Decision | None = None,
) -> Decision:
    """Do what is asked and remember the answer under its key.

    Args:
        connection: inside a transaction.
        request: as it was recorded.
        body: its bytes.
        mode: what the tool is like.
        ordered: a refusal ordered by a switch; a replay goes before it.
        stored_instead: under ``caches_errors``, what to remember in place of the true answer.
    """
    verb = route(request.method, request.path)
    key = None if isinstance(verb, Nowhere) or request.is_read else request.key
    if key is None or not mode.honours_keys:
        return _decide(connection, verb, request, body, mode=mode, ordered=ordered)
    known = tables.find_answer(connection, key)
    if known is not None and known.fingerprint != fingerprint(request):
        return key_reused(key)
    if known is not None:
        return Decision(
            outcome="replayed", status=known.status, body=known.body, resource=known.resource
        )
    decision = _decide(connection, verb, request, body, mode=mode, ordered=ordered)
    stored = stored_instead if mode.caches_errors and stored_instead is not None else decision
    # What could not be read was never begun, so there is nothing to remember of it.
    is_kept = mode.caches_errors and decision.status != MALFORMED
    if decision.outcome != "refused" or is_kept:
        answer = tables.StoredAnswer(
            fingerprint=fingerprint(request),
            status=stored.status,
            body=stored.body,
            resource=decision.resource,
        )
        tables.add_answer(connection, key, answer)
    return decision


def _decide(
    connection: sqlite3.Connection,
    verb: Verb,
    request: Received,
    body: bytes,
    *,
    mode: Mode,
    ordered: Decision | None,
) -> Decision:
    match verb:
        case Make(resource=resource):
            asked = _read_object(body)
            if isinstance(asked, Decision):
                return asked
            return ordered or _make(connection, resource, asked, request, barrier=mode.barrier)
        case Refund():
            asked = _read_object(body)
            if isinstance(asked, Decision):
                return asked
            return ordered or _refund(connection, asked, request, barrier=mode.barrier)
        case Delete(resource=resource, id=id_):
            return ordered or _delete(connection, resource, id_, request, mode)
        case Show(resource=resource, id=id_):
            return ordered or _show(connection, resource, id_, mode)
        case Search(resource=resource, key=key):
            found = tables.list_effects(connection, resource, key=key)
            items = ", ".join(made.item for made in found)
            return ordered or Decision(outcome="none", status=200, body=f'{{"items": [{items}]}}')
        case Nowhere(status=status):
            return refusal(status, "no_such_path", f"no {request.method} {request.path!r} here")
        case _:
            assert_never(verb)


def _read_object(body: bytes) -> dict[str, JsonValue] | Decision:
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
        # Python reads 1e400 as infinity without a word; writing it back finds that out.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        return refusal(MALFORMED, "malformed_json", f"expected JSON: {error}")
    if not isinstance(value, dict):
        return refusal(MALFORMED, "malformed_json", "expected a JSON object")
    return value


def _refuse_constant(name: str) -> None:
    message = f"{name} is not JSON"
    raise ValueError(message)


def _make(
    connection: sqlite3.Connection,
    resource: str,
    asked: dict[str, JsonValue],
    request: Received,
    *,
    barrier: bool,
) -> Decision:
    if resource == "charges":
        refused = _refuse_charge(connection, asked, request, barrier=barrier)
    else:
        refused = _refuse_booking(asked)
    if refused is not None:
        return refused
    made = f"{PREFIXES[resource]}{tables.next_number(connection, resource)}"
    shown = {name: value for name, value in asked.items() if name not in {"id", "card"}}
    if resource == "charges":
        shown.setdefault("amount", 0)
    item = json.dumps({"id": made, **shown})
    tables.add_effect(connection, kind=resource, resource=made, item=item, request=request)
    return Decision(outcome="applied", status=201, body=item, resource=made)


def _refuse_booking(asked: dict[str, JsonValue]) -> Decision | None:
    city = asked.get("city")
    if not isinstance(city, str) or not city:
        return refusal(422, "invalid", "city must be a string that is not empty")
    if city == _SOLD_OUT_CITY:
        return refusal(422, "sold_out", f"nothing left in {city}")
    return None


def _refuse_charge(
    connection: sqlite3.Connection,
    asked: dict[str, JsonValue],
    request: Received,
    *,
    barrier: bool,
) -> Decision | None:
    card, amount = asked.get("card"), asked.get("amount", 0)
    if not isinstance(card, str) or not card:
        return refusal(422, "invalid", "card must be a string that is not empty")
    if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
        return refusal(422, "invalid", "amount must be a number from 0")
    if card == "declined" or card.startswith(_DECLINED_CARD):
        return refusal(402, "card_declined", "the card was declined")
    if barrier and request.key is not None and tables.has_barrier(connection, request.key):
        return refusal(409, "refunded_before", f"key {request.key!r} was refunded before")
    return None


def _delete(
    connection: sqlite3.Connection, resource: str, id_: str, request: Received, mode: Mode
) -> Decision:
    made = tables.find_effect(connection, resource, id_)
    if made is None:
        return refusal(404, "not_found", f"no {id_!r} among {resource}")
    if not made.effect.live:
        message = f"{id_!r} was deleted before"
        return refusal(mode.deleted_again, "already_deleted", message, resource=id_)
    tables.undo_effect(connection, id_, by_key=request.key)
    body = json.dumps({"id": id_, "deleted": True})
    return Decision(outcome="applied", status=200, body=body, resource=id_)


def _refund(
    connection: sqlite3.Connection,
    asked: dict[str, JsonValue],
    request: Received,
    *,
    barrier: bool,
) -> Decision:
    charge, charge_key = asked.get("charge"), asked.get("charge_key")
    if isinstance(charge, str) and charge_key is None:
        made = tables.find_effect(connection, "charges", charge)
        if made is None:
            return refusal(404, "not_found", f"no {charge!r} among charges")
        return _refund_charge(connection, made, request)
    if not isinstance(charge_key, str) or charge is not None:
        return refusal(422, "invalid", "give either charge or charge_key, a string")
    charges = tables.list_effects(connection, "charges", key=charge_key, live_only=False)
    if charges:
        live = [made for made in charges if made.effect.live]
        return _refund_charge(connection, (live or charges)[0], request)
    if barrier:
        tables.add_barrier(connection, charge_key)
    return Decision(outcome="none", status=200, body=json.dumps({"refunded": None}))


def _refund_charge(
    connection: sqlite3.Connection, made: tables.Made, request: Received
) -> Decision:
    charge = made.effect.resource
    if not made.effect.live:
        message = f"{charge!r} was refunded before"
        return refusal(409, "already_refunded", message, resource=charge)
    tables.undo_effect(connection, charge, by_key=request.key)
    refund = f"{PREFIXES['refunds']}{tables.next_number(connection, 'refunds')}"
    amount = json.loads(made.item)["amount"]
    body = json.dumps({"id": refund, "charge": charge, "amount": amount})
    return Decision(outcome="applied", status=201, body=body, resource=charge)


def _show(connection: sqlite3.Connection, resource: str, id_: str, mode: Mode) -> Decision:
    made = tables.find_effect(connection, resource, id_)
    if made is None:
        return refusal(404, "not_found", f"no {id_!r} among {resource}")
    if resource == "charges":
        body = json.dumps(json.loads(made.item) | {"refunded": not made.effect.live})
        return Decision(outcome="none", status=200, body=body, resource=id_)
    if not made.effect.live:
        return refusal(mode.deleted_again, "deleted", f"{id_!r} was deleted", resource=id_)
    return Decision(outcome="none", status=200, body=made.item, resource=id_)

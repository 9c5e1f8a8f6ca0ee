"""The business of the world: what a request means, and what it does or why it is refused."""

import json
import sqlite3
from typing import Final, assert_never

from examples.world import jobs, tables
from examples.world.catalogue import KINDS, REFUND_PREFIX, REFUNDS
from examples.world.decisions import MALFORMED, Decision, refusal
from examples.world.records import JsonValue, Received
from examples.world.routes import (
    Delete,
    Make,
    Nowhere,
    Refund,
    Search,
    SearchRefunds,
    Show,
    Verb,
    route,
)
from examples.world.switches import Mode

_NOT_SHOWN: Final = frozenset({"id", "card", "callback_url"})


def decide(
    connection: sqlite3.Connection,
    request: Received,
    body: bytes,
    *,
    mode: Mode,
    ordered: Decision | None = None,
    reserved: str | None = None,
) -> Decision:
    """Do what is asked, or say why not.

    Args:
        connection: inside a transaction.
        request: as it was recorded.
        body: its bytes.
        mode: what the tool is like.
        ordered: a refusal to give instead, if the request makes sense.
        reserved: the id that was promised to what it makes.
    """
    verb = route(request.method, request.path)
    match verb:
        case Make(resource=resource):
            asked = _read_object(body)
            if isinstance(asked, Decision):
                return asked
            return ordered or _make(
                connection, resource, asked, request, mode=mode, reserved=reserved
            )
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
            return ordered or _search(connection, resource, key, request, mode)
        case SearchRefunds(key=key):
            found = tables.list_undone_by(connection, "charges", key)
            return ordered or _listing([{"charge": made.effect.resource} for made in found])
        case Nowhere(status=status):
            return refusal(status, "no_such_path", f"no {request.method} {request.path!r} here")
        case _:
            assert_never(verb)


def refuse_unreadable(verb: Verb, body: bytes) -> Decision | None:
    """Refuse what cannot even be acknowledged."""
    asked = None if isinstance(verb, Delete) else _read_object(body)
    return asked if isinstance(asked, Decision) else None


def reserve(connection: sqlite3.Connection, verb: Verb) -> str | None:
    """Promise an id to what will be made, if anything will."""
    return _next_id(connection, verb.resource) if isinstance(verb, Make) else None


def _next_id(connection: sqlite3.Connection, resource: str) -> str:
    prefix = REFUND_PREFIX if resource == REFUNDS else KINDS[resource].prefix
    return f"{prefix}{tables.next_number(connection, resource)}"


def _listing(items: list[JsonValue], *, pending: int = 0) -> Decision:
    body: dict[str, JsonValue] = {"items": items}
    if pending:
        body["pending"] = pending
    return Decision(outcome="none", status=200, body=json.dumps(body))


def _search(
    connection: sqlite3.Connection, resource: str, key: str | None, request: Received, mode: Mode
) -> Decision:
    found = tables.list_settled_effects(
        connection,
        resource,
        key=key,
        asked=request,
        seconds=mode.shown_after_seconds,
        queries=mode.shown_after_queries,
    )
    pending = 0 if key is None else jobs.count_pending(connection, resource, key)
    return _listing([json.loads(made.item) for made in found], pending=pending)


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
    mode: Mode,
    reserved: str | None,
) -> Decision:
    refused = _refuse(resource, asked) or _refuse_barred(connection, resource, request, mode)
    if refused is not None:
        return refused
    made = reserved or _next_id(connection, resource)
    shown = {name: value for name, value in asked.items() if name not in _NOT_SHOWN}
    if KINDS[resource].has_amount:
        shown.setdefault("amount", 0)
    item = json.dumps({"id": made, **shown})
    tables.add_effect(connection, kind=resource, resource=made, item=item, request=request)
    return Decision(outcome="applied", status=201, body=item, resource=made)


def _refuse(resource: str, asked: dict[str, JsonValue]) -> Decision | None:
    kind = KINDS[resource]
    value, amount = asked.get(kind.needs), asked.get("amount", 0)
    if not isinstance(value, str) or not value:
        return refusal(422, "invalid", f"{kind.needs} must be a string that is not empty")
    if kind.has_amount and (
        isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0
    ):
        return refusal(422, "invalid", "amount must be a number from 0")
    for begins, (status, code, message) in kind.unwelcome.items():
        if value.startswith(begins):
            return refusal(status, code, message)
    return None


def _refuse_barred(
    connection: sqlite3.Connection, resource: str, request: Received, mode: Mode
) -> Decision | None:
    if KINDS[resource].undo != "refund" or not mode.barrier or request.key is None:
        return None
    if not tables.has_barrier(connection, request.key):
        return None
    return refusal(409, "refunded_before", f"key {request.key!r} was refunded before")


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
    charges = tables.list_effects(connection, "charges", key=charge_key)
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
    refund = _next_id(connection, REFUNDS)
    amount = json.loads(made.item)["amount"]
    body = json.dumps({"id": refund, "charge": charge, "amount": amount})
    return Decision(outcome="applied", status=201, body=body, resource=charge)


def _show(connection: sqlite3.Connection, resource: str, id_: str, mode: Mode) -> Decision:
    made = tables.find_effect(connection, resource, id_)
    if made is None:
        return refusal(404, "not_found", f"no {id_!r} among {resource}")
    if KINDS[resource].undo == "refund":
        body = json.dumps(json.loads(made.item) | {"refunded": not made.effect.live})
        return Decision(outcome="none", status=200, body=body, resource=id_)
    if not made.effect.live:
        return refusal(mode.deleted_again, "deleted", f"{id_!r} was deleted", resource=id_)
    return Decision(outcome="none", status=200, body=made.item, resource=id_)

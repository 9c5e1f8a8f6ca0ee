"""Reading what a request asks for from its method and path: one verb, one value."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote

PREFIXES: Final = {"flights": "F", "hotels": "H", "cars": "C", "charges": "CH", "refunds": "R"}
"""How the ids of each resource begin."""
_BOOKED: Final = frozenset({"flights", "hotels", "cars"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """POST a flight, hotel, car or charge."""

    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """GET one."""

    resource: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """GET what is live, of a key or all."""

    resource: str
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DELETE a flight, hotel or car."""

    resource: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """POST a refund, by charge or by the key of the charge."""

    resource: str = "refunds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nowhere:
    """A path that does not exist (404), or not for this method (405)."""

    status: int
    resource: str = ""


type Verb = Make | Show | Search | Delete | Refund | Nowhere


def route(method: str, path: str) -> Verb:
    """Read a method and a path with its query."""
    plain, _, query = path.partition("?")
    parts = [unquote(part) for part in plain.split("/")[1:]]
    keys = parse_qs(query).get("key", [])
    match method, parts:
        case "POST", ["refunds"]:
            return Refund()
        case _, ["refunds"]:
            return Nowhere(status=405)
        case "POST", [resource] if resource in PREFIXES:
            return Make(resource=resource)
        case "GET", [resource] if resource in PREFIXES:
            return Search(resource=resource, key=keys[0] if keys else None)
        case "GET", [resource, id_] if resource in PREFIXES and resource != "refunds":
            return Show(resource=resource, id=id_)
        case "DELETE", [resource, id_] if resource in _BOOKED:
            return Delete(resource=resource, id=id_)
        case _, [resource, *rest] if resource in PREFIXES and len(rest) <= 1:
            return Nowhere(status=405)
    return Nowhere(status=404)

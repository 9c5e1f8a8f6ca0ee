"""Reading what a request asks for from its method and path: one verb, one value."""

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

from examples.world.catalogue import KINDS, REFUNDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """POST a thing of some kind."""

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
    """DELETE what can be deleted."""

    resource: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """POST a refund, by charge or by the key of the charge."""

    resource: str = REFUNDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRefunds:
    """GET what was refunded under a key."""

    key: str
    resource: str = REFUNDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Nowhere:
    """A path that does not exist (404), or not for this method (405)."""

    status: int
    resource: str = ""


type Verb = Make | Show | Search | Delete | Refund | SearchRefunds | Nowhere


def route(method: str, path: str) -> Verb:
    """Read a method and a path with its query."""
    plain, _, query = path.partition("?")
    parts = [unquote(part) for part in plain.split("/")[1:]]
    keys = parse_qs(query).get("key", [])
    match method, parts:
        case "POST", ["refunds"]:
            return Refund()
        case "GET", ["refunds"] if keys:
            return SearchRefunds(key=keys[0])
        case _, ["refunds", *rest] if len(rest) <= 1:
            return Nowhere(status=405)
        case "POST", [resource] if resource in KINDS:
            return Make(resource=resource)
        case "GET", [resource] if resource in KINDS:
            return Search(resource=resource, key=keys[0] if keys else None)
        case "GET", [resource, id_] if resource in KINDS:
            return Show(resource=resource, id=id_)
        case "DELETE", [resource, id_] if resource in KINDS and KINDS[resource].undo == "delete":
            return Delete(resource=resource, id=id_)
        case _, [resource, *rest] if resource in KINDS and len(rest) <= 1:
            return Nowhere(status=405)
    return Nowhere(status=404)

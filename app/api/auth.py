"""Who may ask: bearer keys, compared as digests in constant time.

It stands before everything else, so that nothing of a stranger's request is read: not its body, not
even whether its path exists. Without any key configured the service listens on loopback only, and
everybody there may ask; but not a page in somebody's browser that has its own name point to this
machine (DNS rebinding): it would send that name as the host.
"""

import hashlib
import hmac
import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import respond_to
from app.api.refusals import ForeignHost, Unauthorized

_OPEN_PREFIXES = ("/health/", "/v1/callbacks/")
"""What orchestrators ask, for it tells nothing about sagas; and where tools report, whom their
token authorizes."""

_OPEN_PATHS = frozenset({"/v1/definition-schema"})
"""The language's schema: the same for everybody, and fetched by editors, which can send no key."""

LOCAL_ACTOR = "local"
_SCHEME = "bearer"


class Authentication:
    """Lets requests with a key pass, and notes in ``request.state.actor`` whose they are."""

    def __init__(self, app: ASGIApp, *, api_keys: tuple[str, ...]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] != "http" or is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        host = _header(scope, b"host").decode("latin-1")
        if not self._digests and not _is_loopback(host):
            refusal = respond_to(ForeignHost(host=host), method=scope["method"])
            await refusal(scope, receive, send)
            return
        actor = self._actor_of(scope)
        if actor is None:
            refusal = respond_to(Unauthorized(), method=scope["method"])
            await refusal(scope, receive, send)
            return
        scope.setdefault("state", {})["actor"] = actor
        await self._app(scope, receive, send)

    def _actor_of(self, scope: Scope) -> str | None:
        """What audits call the one who asks; None for a stranger."""
        if not self._digests:
            return LOCAL_ACTOR
        given = _digest(_bearer_key(scope))
        # All of them, whichever fits: the time taken tells nothing.
        fits = [hmac.compare_digest(given, digest) for digest in self._digests]
        return f"key:{given.hex()[:8]}" if any(fits) else None


def is_open(path: str) -> bool:
    """Whether no key is asked for at a path."""
    return path in _OPEN_PATHS or path.startswith(_OPEN_PREFIXES)


def _bearer_key(scope: Scope) -> bytes:
    """The key that came with the request; nothing if none did."""
    scheme, _, key = _header(scope, b"authorization").partition(b" ")
    return key.strip() if scheme.lower() == _SCHEME.encode() else b""


def _header(scope: Scope, wanted: bytes) -> bytes:
    """A header's value; nothing if it did not come."""
    value: bytes = next((value for name, value in scope["headers"] if name == wanted), b"")
    return value


def _is_loopback(host: str) -> bool:
    """Whether a ``Host`` header names this machine and no other; it may lack (HTTP/1.0)."""
    name = host.removesuffix(f":{host.rpartition(':')[2]}") if not host.endswith("]") else host
    if name.lower() in {"", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()

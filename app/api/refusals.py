"""What only a front door that speaks HTTP refuses; the rest is in ``core.errors``."""

from app.core.errors import CallerError


class Unauthorized(CallerError):
    """No key came with the request, or not one of ours."""

    code = "unauthorized"

    def __init__(self) -> None:
        super().__init__(
            "this needs one of the service's API keys (AMENDS_API_KEYS), "
            "sent as 'Authorization: Bearer <key>'"
        )


class ForeignHost(CallerError):
    """Without keys only this machine is served, and the request names another."""

    code = "foreign_host"

    def __init__(self, *, host: str) -> None:
        super().__init__(
            f"without an API key only this machine is served, and the request was sent to "
            f"{host[:100]!r}; use http://127.0.0.1, or configure AMENDS_API_KEYS"
        )


class UnsupportedMediaType(CallerError):
    """The body is not in a notation that is read here."""

    code = "unsupported_media_type"

    def __init__(self, *, found: str | None, accepted: str) -> None:
        told = f"is {found[:100]!r}" if found else "is missing"
        super().__init__(f"the Content-Type {told}; accepted: {accepted}")


class MalformedJson(CallerError):
    """The body is not JSON, or not JSON that everybody reads alike (RFC 7493)."""

    code = "malformed_json"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the body cannot be read as JSON: {reason}")

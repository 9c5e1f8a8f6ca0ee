"""Requests as they are stored with an intent: rendered, and the same bytes at every attempt."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One HTTP request, rendered.

    Attributes:
        method: upper case.
        url: absolute ``http`` or ``https`` URL, percent-encoded.
        headers: (name, value) pairs as the definition gave them, in its order.
        body: the exact text to send (as UTF-8), or None for no body. JSON bodies are serialised
            once, here, so that a resend carries the same bytes.
        content_type: of the body; None without one.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    content_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRequest:
    """One call of a Python function, rendered.

    Attributes:
        function: ``module.function``.
        arguments: the exact JSON text of an object, by parameter name; made once, as a body is.
    """

    function: str
    arguments: str


type Request = HttpRequest | FunctionRequest
"""A rendered request of any connector."""

"""Secrets of requests: written into them only as they are sent, and stored nowhere.

A definition names a secret, ``${{ secrets.bank_key }}``. What is rendered, and stored with the
intent, holds a *mark* in its place, of characters that no encoding changes. Who sends the request
puts the secret where its mark is. A mark carries a code under the saga's own key: neither an input
nor a tool's output can bring one about. So a secret may be replaced by a new one while sagas run.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import quote

from app.core.requests import FunctionRequest, HttpRequest, Request

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

_MARK = re.compile(rf"amends\.secret\.({NAME.pattern})\.([0-9a-f]{{32}})")


class MissingSecret(Exception):
    """A request needs a secret that this replica does not have."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the secret {name!r} is not configured at this replica")


def mark(name: str, *, key_seed: bytes) -> str:
    """What stands for a secret in a stored request of a saga.

    Args:
        name: of the secret.
        key_seed: the saga's (``derive_key_seed``).
    """
    code = hashlib.blake2b(name.encode(), key=key_seed, digest_size=16, person=b"secret")
    return f"amends.secret.{name}.{code.hexdigest()}"


def reveal(request: Request, secrets: Mapping[str, str], *, key_seed: bytes) -> Request:
    """The request as it is sent: with the secrets in place of their marks.

    Raises:
        MissingSecret: one is not among ``secrets``.
    """

    def put(text: str, encode: Callable[[str], str]) -> str:
        def secret_of(found: re.Match[str]) -> str:
            name = found[1]
            if found[0] != mark(name, key_seed=key_seed):
                return found[0]
            if name not in secrets:
                raise MissingSecret(name)
            return encode(secrets[name])

        return _MARK.sub(secret_of, text) if "amends.secret." in text else text

    match request:
        case FunctionRequest():
            return replace(request, arguments=put(request.arguments, _in_json))
        case HttpRequest():
            in_body = _in_json if request.content_type == "application/json" else str
            body = request.body
            return replace(
                request,
                url=put(request.url, lambda secret: quote(secret, safe="")),
                headers=tuple((name, put(value, str)) for name, value in request.headers),
                body=None if body is None else put(body, in_body),
            )


def as_template(text: str, *, key_seed: bytes) -> str:
    """A template that renders to ``text``, in which the marks of a saga name their secrets again.

    Args:
        text: of a rendered request; everything else in it is literal.
        key_seed: of the saga that it was rendered for.
    """

    def name_of(found: re.Match[str]) -> str:
        is_ours = found[0] == mark(found[1], key_seed=key_seed)
        return f"${{{{ secrets.{found[1]} }}}}" if is_ours else found[0]

    return _MARK.sub(name_of, text.replace("${{", "$${{"))


def _in_json(secret: str) -> str:
    return json.dumps(secret, ensure_ascii=False)[1:-1]

"""Callback tokens: they name one call, and nobody else could have made them.

A token holds all that it takes to find the call, so that any replica can accept it without a look
at any table of tokens, and a code over all of it. The code's key follows from the tenant's secret.
It alone authorizes whoever has it, for this one call.
"""

import base64
import binascii
import hashlib
import hmac
import struct
from dataclasses import dataclass
from uuid import UUID

from app.core.identity import Direction, SagaId, StepId, TenantId
from app.core.saga import CallState, Facts

_HEAD = struct.Struct(">B I 16s B I")
_VERSION = 1
_CODE_BYTES = 16
_DIRECTIONS = (Direction.ACTION, Direction.COMPENSATION)

TOKEN_CHARACTERS_MAX = 200
"""A step id has 64 at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackAddress:
    """The call that a token names."""

    tenant: TenantId
    saga: SagaId
    step: StepId
    direction: Direction
    generation: int


def make_token(address: CallbackAddress, *, key_seed: bytes) -> str:
    """The token of a call: letters, digits, ``-`` and ``_``.

    Args:
        address: which call; an action or a compensation.
        key_seed: the saga's (``derive_key_seed``).
    """
    named = _pack(address)
    return base64.urlsafe_b64encode(named + _code(named, key_seed)).decode().rstrip("=")


def token_of(facts: Facts, call: CallState) -> str:
    """The token of a call of a saga, in its present generation."""
    address = CallbackAddress(
        tenant=facts.tenant,
        saga=facts.id,
        step=call.step,
        direction=call.direction,
        generation=call.generation,
    )
    return make_token(address, key_seed=facts.key_seed)


def read_token(token: str) -> CallbackAddress | None:
    """The call that a token names, whoever made it; None if it is no token.

    Only ``is_genuine`` says whether it is ours.
    """
    if len(token) > TOKEN_CHARACTERS_MAX or not token.isascii():
        return None
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        version, tenant, saga, direction, generation = _HEAD.unpack_from(data)
        step = data[_HEAD.size : -_CODE_BYTES].decode("ascii")
    except (binascii.Error, struct.error, UnicodeDecodeError):
        return None
    if version != _VERSION or direction >= len(_DIRECTIONS):
        return None
    return CallbackAddress(
        tenant=TenantId(tenant),
        saga=SagaId(UUID(bytes=saga)),
        step=StepId(step),
        direction=_DIRECTIONS[direction],
        generation=generation,
    )


def is_genuine(token: str, address: CallbackAddress, *, key_seed: bytes) -> bool:
    """Whether a token that was read as ``address`` was made by us."""
    return hmac.compare_digest(token, make_token(address, key_seed=key_seed))


def _pack(address: CallbackAddress) -> bytes:
    direction = _DIRECTIONS.index(address.direction)
    head = _HEAD.pack(_VERSION, address.tenant, address.saga.bytes, direction, address.generation)
    return head + address.step.encode("ascii")


def _code(named: bytes, key_seed: bytes) -> bytes:
    return hashlib.blake2b(
        named, key=key_seed, digest_size=_CODE_BYTES, person=b"callback"
    ).digest()

"""Ids and idempotency keys: what names what, and how each name is derived.

Nothing here rolls dice. A saga id is made by the caller (UUIDv7) or derived from the tenant's
secret and the client's ``Idempotency-Key``; an idempotency key is derived from the saga id. So a
client that posts again after a database failover meets the same saga and the same keys, and the
tools behind them still deduplicate. The hash is BLAKE2b keyed with a per-tenant secret that is
created once and never rotated: ids stay unguessable, and deduplication survives.
"""

import hashlib
from enum import StrEnum
from typing import NewType
from uuid import UUID

TenantId = NewType("TenantId", int)
SagaId = NewType("SagaId", UUID)
StepId = NewType("StepId", str)
EntryId = NewType("EntryId", UUID)
Incarnation = NewType("Incarnation", UUID)
"""One start of one replica; new at every start, so a process never meets its own past."""

CallKey = NewType("CallKey", UUID)
"""The idempotency key of one call, in UUID form (some tools accept nothing else)."""


class Direction(StrEnum):
    """Which of a step's calls is meant: one of the two with an effect, or the question about it."""

    ACTION = "action"
    COMPENSATION = "compensation"
    VERIFY = "verify"
    """Asks whether the action took effect."""
    COMPENSATION_VERIFY = "compensation_verify"
    """Asks whether the compensation did."""

    @property
    def verifier(self) -> "Direction":
        """The call that asks about this one's effect."""
        return {
            Direction.ACTION: Direction.VERIFY,
            Direction.COMPENSATION: Direction.COMPENSATION_VERIFY,
        }[self]

    @property
    def subject(self) -> "Direction | None":
        """The call whose effect this one asks about; None for one that has an effect itself."""
        return {
            Direction.VERIFY: Direction.ACTION,
            Direction.COMPENSATION_VERIFY: Direction.COMPENSATION,
        }.get(self)


def derive_saga_id(*, tenant_secret: bytes, idempotency_key: str) -> SagaId:
    """The id of the saga that a client's ``Idempotency-Key`` names, for ever.

    Args:
        tenant_secret: 32 random bytes, created with the tenant.
        idempotency_key: the header's value as received.
    """
    return SagaId(_uuid(tenant_secret, "saga", idempotency_key))


def derive_key_seed(*, tenant_secret: bytes, saga: SagaId) -> bytes:
    """The 16 bytes from which a saga's idempotency keys follow; stored with the saga.

    Args:
        tenant_secret: 32 random bytes, created with the tenant.
        saga: whose keys they are.
    """
    return hashlib.blake2b(b"keys" + saga.bytes, key=tenant_secret, digest_size=16).digest()


def derive_call_key(
    *, key_seed: bytes, step: StepId, direction: Direction, generation: int
) -> CallKey:
    """The idempotency key of (saga, step, direction, generation): the same for every attempt.

    Args:
        key_seed: the saga's own (``derive_key_seed``).
        step: the step in that saga.
        direction: action and compensation have different keys.
        generation: from 0; grows only where a fresh key is needed (see ``machine``).
    """
    return CallKey(_uuid(key_seed, "call", step, direction.value, str(generation)))


def _uuid(secret: bytes, *parts: str) -> UUID:
    """Hash ``parts`` unambiguously (each prefixed with its length) into a version 8 UUID."""
    digest = hashlib.blake2b(key=secret, digest_size=16)
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4))
        digest.update(encoded)
    value = int.from_bytes(digest.digest())
    value = value & ~(0xF << 76) | (0x8 << 76)  # version 8: custom content (RFC 9562)
    value = value & ~(0x3 << 62) | (0x2 << 62)  # variant
    return UUID(int=value)

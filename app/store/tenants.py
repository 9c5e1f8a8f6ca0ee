"""Tenants. There is one so far, made at the first start."""

import secrets
from dataclasses import dataclass

from app.core.identity import TenantId
from app.store.database import WriteTx

DEFAULT_TENANT = "default"

_INSERT = """
INSERT INTO tenants (name, secret, created_at) VALUES ($1, $2, amends_now())
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A customer.

    Attributes:
        secret: 32 bytes from which saga ids and idempotency keys are derived; shared by all
            replicas through the database, and never changed.
    """

    id: TenantId
    name: str
    secret: bytes


async def ensure_tenant(tx: WriteTx, name: str) -> Tenant:
    """The tenant of that name; made, with a new secret, if there is none."""
    await tx.execute(_INSERT, name, secrets.token_bytes(32))
    row = await tx.fetch_row("SELECT id, name, secret FROM tenants WHERE name = $1", name)
    assert row is not None, name
    return Tenant(id=TenantId(row["id"]), name=row["name"], secret=row["secret"])

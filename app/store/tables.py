"""The tables, as SQLAlchemy knows them. The migrations make them; a test holds both equal.

``sagas`` is the state table: one narrow head row a saga, true at every commit. ``saga_journal`` is
append-only, an entry a row; ``saga_steps`` (a view) shows the last conclusion per step and
direction. ``replicas`` is written at birth and at revocation and locked by every flush;
``heartbeats`` is apart, so that a flush never holds up a heartbeat. Every table has the tenant.
"""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

metadata = sa.MetaData()

_TIME = sa.DateTime(timezone=True)

LIVE_STATUSES = ("pending", "running", "compensating", "paused", "stuck")
FINAL_STATUSES = ("completed", "compensated", "partially_compensated", "terminated")
STATUSES = (*LIVE_STATUSES, *FINAL_STATUSES)

tenants = sa.Table(
    "tenants",
    metadata,
    sa.Column("id", sa.Integer, sa.Identity(always=True), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # 32 random bytes, made once and never changed: ids and idempotency keys are derived from it.
    sa.Column("secret", sa.LargeBinary, nullable=False),
    sa.Column("created_at", _TIME, nullable=False),
    sa.PrimaryKeyConstraint("id", name="tenants_pkey"),
    sa.UniqueConstraint("name", name="tenants_name_key"),
)

definitions = sa.Table(
    "definitions",
    metadata,
    sa.Column("tenant_id", sa.Integer, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("document", pg.JSON, nullable=False),
    sa.Column("created_at", _TIME, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "name", "version", name="definitions_pkey"),
    # Negative: a document that came with the request that started a saga.
    sa.CheckConstraint("version <> 0", name="definitions_version_check"),
)

sa.Index(
    "definitions_published",
    definitions.c.tenant_id,
    definitions.c.name,
    definitions.c.version,
    postgresql_where=sa.text("version > 0"),
)

replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("id", sa.Uuid, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("started_at", _TIME, nullable=False),
    sa.Column("revoked_at", _TIME),
    sa.PrimaryKeyConstraint("id", name="replicas_pkey"),
)

heartbeats = sa.Table(
    "heartbeats",
    metadata,
    sa.Column("replica_id", sa.Uuid, nullable=False),
    sa.Column("beat_at", _TIME, nullable=False),
    sa.Column("expires_at", _TIME, nullable=False),
    sa.PrimaryKeyConstraint("replica_id", name="heartbeats_pkey"),
    # No index on the times: every beat is a heap-only update within its own page.
    postgresql_with={"fillfactor": "50"},
)

sagas = sa.Table(
    "sagas",
    metadata,
    sa.Column("id", sa.Uuid, nullable=False),
    sa.Column("tenant_id", sa.Integer, nullable=False),
    sa.Column("definition_name", sa.Text, nullable=False),
    sa.Column("definition_version", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    # The last entry of the journal: what a transition compares before it sets it.
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("entry_id", sa.Uuid, nullable=False),
    # The incarnation that sends what is open; null while parked.
    sa.Column("owner", sa.Uuid),
    sa.Column("due_at", _TIME),
    # Owners lost in a row without progress: counted by the claim, so that a saga that kills its
    # process before it can write anything is counted too.
    sa.Column("losses", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("attention", sa.Boolean, nullable=False, server_default="false"),
    # The newest entry format in its journal: older replicas leave the saga alone.
    sa.Column("format", sa.SmallInteger, nullable=False),
    sa.Column("business_key", sa.Text),
    sa.Column("labels", pg.JSONB, nullable=False),
    sa.Column("failure", pg.JSON),
    # Of the request that started it, where that came with an Idempotency-Key.
    sa.Column("fingerprint", sa.LargeBinary),
    sa.Column("created_at", _TIME, nullable=False),
    sa.Column("updated_at", _TIME, nullable=False),
    sa.Column("finished_at", _TIME),
    sa.PrimaryKeyConstraint("id", name="sagas_pkey"),
    sa.CheckConstraint(f"status IN {STATUSES}", name="sagas_status_check"),
    sa.CheckConstraint(
        f"(finished_at IS NOT NULL) = (status IN {FINAL_STATUSES})",
        name="sagas_finished_check",
    ),
    # A saga that is not at rest has an owner or a due time: a reason to move.
    sa.CheckConstraint(
        f"status IN {('paused', 'stuck', *FINAL_STATUSES)}"
        " OR owner IS NOT NULL OR due_at IS NOT NULL",
        name="sagas_reason_check",
    ),
    sa.CheckConstraint("seq >= 1", name="sagas_seq_check"),
    postgresql_with={"fillfactor": "70"},
)

sa.Index(
    "sagas_business_key_live",
    sagas.c.tenant_id,
    sagas.c.definition_name,
    sagas.c.business_key,
    unique=True,
    postgresql_where=sa.text("business_key IS NOT NULL AND finished_at IS NULL"),
)
sa.Index(
    "sagas_due",
    sagas.c.due_at,
    postgresql_where=sa.text("owner IS NULL AND due_at IS NOT NULL AND losses < 3"),
)
sa.Index(
    "sagas_suspects",
    sagas.c.due_at,
    postgresql_where=sa.text("owner IS NULL AND due_at IS NOT NULL AND losses >= 3"),
)
sa.Index("sagas_owner", sagas.c.owner, postgresql_where=sa.text("owner IS NOT NULL"))
sa.Index("sagas_newest", sagas.c.tenant_id, sagas.c.created_at, sagas.c.id)
sa.Index(
    "sagas_live",
    sagas.c.tenant_id,
    sagas.c.created_at,
    sagas.c.id,
    postgresql_where=sa.text("finished_at IS NULL"),
)
sa.Index(
    "sagas_attention",
    sagas.c.tenant_id,
    sagas.c.created_at,
    sagas.c.id,
    postgresql_where=sa.text("attention OR status = 'stuck'"),
)
sa.Index(
    "sagas_by_business_key",
    sagas.c.tenant_id,
    sagas.c.business_key,
    postgresql_where=sa.text("business_key IS NOT NULL"),
)
sa.Index(
    "sagas_labels",
    sagas.c.labels,
    postgresql_using="gin",
    postgresql_ops={"labels": "jsonb_path_ops"},
    postgresql_where=sa.text("labels <> '{}'"),
)

saga_journal = sa.Table(
    "saga_journal",
    metadata,
    sa.Column("saga_id", sa.Uuid, nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("id", sa.Uuid, nullable=False),
    sa.Column("tenant_id", sa.Integer, nullable=False),
    sa.Column("at", _TIME, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("format", sa.SmallInteger, nullable=False),
    # json, not jsonb: stored as written, NUL escapes and key order included, and cheaper.
    sa.Column("data", pg.JSON, nullable=False),
    sa.PrimaryKeyConstraint("saga_id", "seq", name="saga_journal_pkey"),
)

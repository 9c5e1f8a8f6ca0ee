"""The first schema: tenants, definitions, replicas, sagas and their journal."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# The database's clock, through one function: the only time that replicas agree on. A test may
# replace it.
NOW = """
CREATE FUNCTION amends_now() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT clock_timestamp() $$
"""

TABLES = """
CREATE TABLE tenants (
    id integer GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    secret bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT tenants_pkey PRIMARY KEY (id),
    CONSTRAINT tenants_name_key UNIQUE (name)
);

CREATE TABLE definitions (
    tenant_id integer NOT NULL,
    name text NOT NULL,
    version integer NOT NULL,
    digest bytea NOT NULL,
    document json NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT definitions_pkey PRIMARY KEY (tenant_id, name, version),
    CONSTRAINT definitions_version_check CHECK (version >= 1)
);

CREATE TABLE replicas (
    id uuid NOT NULL,
    role text NOT NULL,
    started_at timestamptz NOT NULL,
    revoked_at timestamptz,
    CONSTRAINT replicas_pkey PRIMARY KEY (id)
);

CREATE TABLE heartbeats (
    replica_id uuid NOT NULL,
    beat_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT heartbeats_pkey PRIMARY KEY (replica_id)
) WITH (fillfactor = 50);

CREATE TABLE sagas (
    id uuid NOT NULL,
    tenant_id integer NOT NULL,
    definition_name text NOT NULL,
    definition_version integer NOT NULL,
    status text NOT NULL,
    seq integer NOT NULL,
    entry_id uuid NOT NULL,
    owner uuid,
    due_at timestamptz,
    losses smallint DEFAULT 0 NOT NULL,
    attention boolean DEFAULT false NOT NULL,
    format smallint NOT NULL,
    business_key text,
    labels jsonb NOT NULL,
    failure json,
    fingerprint bytea,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    finished_at timestamptz,
    CONSTRAINT sagas_pkey PRIMARY KEY (id),
    CONSTRAINT sagas_status_check CHECK (status IN
        ('pending', 'running', 'compensating', 'stuck', 'completed', 'compensated')),
    CONSTRAINT sagas_finished_check CHECK
        ((finished_at IS NOT NULL) = (status IN ('completed', 'compensated'))),
    CONSTRAINT sagas_reason_check CHECK
        (status IN ('stuck', 'completed', 'compensated')
         OR owner IS NOT NULL OR due_at IS NOT NULL),
    CONSTRAINT sagas_seq_check CHECK (seq >= 1)
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX sagas_business_key_live ON sagas (tenant_id, definition_name, business_key)
    WHERE business_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX sagas_due ON sagas (due_at)
    WHERE owner IS NULL AND due_at IS NOT NULL AND losses < 3;
CREATE INDEX sagas_suspects ON sagas (due_at)
    WHERE owner IS NULL AND due_at IS NOT NULL AND losses >= 3;
CREATE INDEX sagas_owner ON sagas (owner) WHERE owner IS NOT NULL;
CREATE INDEX sagas_newest ON sagas (tenant_id, created_at, id);
CREATE INDEX sagas_live ON sagas (tenant_id, created_at, id) WHERE finished_at IS NULL;
CREATE INDEX sagas_attention ON sagas (tenant_id, created_at, id)
    WHERE attention OR status = 'stuck';
CREATE INDEX sagas_by_business_key ON sagas (tenant_id, business_key)
    WHERE business_key IS NOT NULL;
CREATE INDEX sagas_labels ON sagas USING gin (labels jsonb_path_ops) WHERE labels <> '{}';

CREATE TABLE saga_journal (
    saga_id uuid NOT NULL,
    seq integer NOT NULL,
    id uuid NOT NULL,
    tenant_id integer NOT NULL,
    at timestamptz NOT NULL,
    type text NOT NULL,
    format smallint NOT NULL,
    data json NOT NULL,
    CONSTRAINT saga_journal_pkey PRIMARY KEY (saga_id, seq)
);
"""

# For people and plain SQL: the last conclusion per step and direction. A NUL, which a tool may
# answer and json can hold, but no text of Postgres, is shown as the replacement character.
STEPS = r"""
CREATE VIEW saga_steps AS
SELECT DISTINCT ON (j.saga_id, call ->> 'step', call ->> 'direction')
    j.tenant_id,
    j.saga_id,
    call ->> 'step' AS step,
    call ->> 'direction' AS direction,
    call ->> 'status' AS status,
    call ->> 'effect' AS effect,
    coalesce((call ->> 'generation')::integer, 0) AS generation,
    coalesce((call ->> 'attempts')::integer, 0) AS attempts,
    (call ->> 'key')::uuid AS idempotency_key,
    call -> 'open' AS open,
    call -> 'error' AS error,
    (
        SELECT made -> 'output' -> 'value'
        FROM saga_journal k,
            json_array_elements(replace(k.data::text, '\u0000', '\ufffd')::json -> 'calls') AS made
        WHERE k.saga_id = j.saga_id
          AND made ->> 'step' = call ->> 'step'
          AND made ->> 'direction' = call ->> 'direction'
          AND made -> 'output' IS NOT NULL
        ORDER BY k.seq DESC
        LIMIT 1
    ) AS output,
    (call ->> 'started_at')::timestamptz AS started_at,
    (call ->> 'finished_at')::timestamptz AS finished_at,
    j.seq,
    j.at AS updated_at
FROM saga_journal j,
    json_array_elements(replace(j.data::text, '\u0000', '\ufffd')::json -> 'calls') AS call
ORDER BY j.saga_id, call ->> 'step', call ->> 'direction', j.seq DESC
"""


def upgrade() -> None:
    """Make everything; there is no release before."""
    op.execute(NOW)
    for statement in TABLES.strip().split(";\n"):
        op.execute(statement)
    op.execute(STEPS)

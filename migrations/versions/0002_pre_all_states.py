"""All states of a saga, and definitions that came with the request that started one.

Constraints are widened without a scan under lock: added unproved, then proved.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = """
ALTER TABLE sagas DROP CONSTRAINT sagas_status_check;
ALTER TABLE sagas ADD CONSTRAINT sagas_status_check CHECK (status IN
    ('pending', 'running', 'compensating', 'paused', 'stuck',
     'completed', 'compensated', 'partially_compensated', 'terminated')) NOT VALID;
ALTER TABLE sagas VALIDATE CONSTRAINT sagas_status_check;
ALTER TABLE sagas DROP CONSTRAINT sagas_finished_check;
ALTER TABLE sagas ADD CONSTRAINT sagas_finished_check CHECK
    ((finished_at IS NOT NULL) = (status IN
        ('completed', 'compensated', 'partially_compensated', 'terminated'))) NOT VALID;
ALTER TABLE sagas VALIDATE CONSTRAINT sagas_finished_check;
ALTER TABLE sagas DROP CONSTRAINT sagas_reason_check;
ALTER TABLE sagas ADD CONSTRAINT sagas_reason_check CHECK
    (status IN ('paused', 'stuck',
        'completed', 'compensated', 'partially_compensated', 'terminated')
     OR owner IS NOT NULL OR due_at IS NOT NULL) NOT VALID;
ALTER TABLE sagas VALIDATE CONSTRAINT sagas_reason_check;
ALTER TABLE definitions DROP CONSTRAINT definitions_version_check;
ALTER TABLE definitions ADD CONSTRAINT definitions_version_check CHECK (version <> 0) NOT VALID;
ALTER TABLE definitions VALIDATE CONSTRAINT definitions_version_check;
CREATE INDEX definitions_published ON definitions (tenant_id, name, version) WHERE version > 0
"""


def upgrade() -> None:
    """Widen what the first release knew."""
    for statement in STATEMENTS.strip().split(";\n"):
        op.execute(statement)

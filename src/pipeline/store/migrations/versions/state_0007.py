"""On PostgreSQL the records of every database alike, whether it was made as it is or migrated from what was before."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Columns that are compared by their beginnings, or by which rows are sorted: bytewise on every database.
_BYTEWISE = {
    "records": ("id", "kind", "subject", "session", "verdict", "action", "revision"),
    "record_facts": ("name", "value"),
}


def upgrade() -> None:
    """Give what was made anew the order of the migrated, and what was migrated the names of the new."""
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("ALTER INDEX IF EXISTS records_pkey1 RENAME TO records_pkey")
    op.execute("ALTER SEQUENCE IF EXISTS records_seq_seq1 RENAME TO records_seq_seq")
    for table, columns in _BYTEWISE.items():
        for column in columns:
            op.execute(f'ALTER TABLE {table} ALTER COLUMN "{column}" TYPE text COLLATE "C"')

"""What was judged, apart from its record; legal holds over it; the policies by revision."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Columns that are compared by their beginnings, or by which rows are sorted: bytewise on every database.
_BYTEWISE = {
    "records": ("id", "kind", "subject", "session", "verdict", "action", "revision"),
    "record_facts": ("name", "value"),
}


def upgrade() -> None:
    """Make the tables as they are from here on."""
    op.create_table(
        "contents",
        sa.Column("record", sa.Text, sa.ForeignKey("records.id"), primary_key=True),
        _text("subject"),
        _text("session", nullable=True),
        _number("at"),
        _number("expires_at", nullable=True),
        sa.Column("salt", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("contents_session", "contents", ["subject", "session"])
    op.create_index("contents_at", "contents", ["at"])
    op.create_index("contents_expires_at", "contents", ["expires_at"])
    op.create_table(
        "holds",
        sa.Column("id", sa.Text, primary_key=True),
        _text("subject", nullable=True),
        _text("session", nullable=True),
        _text("actor"),
        _text("reason"),
        _number("at"),
        _number("released_at", nullable=True),
    )
    op.create_table(
        "policy_sets",
        sa.Column("revision", sa.Text, primary_key=True),
        _number("at"),
        sa.Column("bundle", sa.LargeBinary, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        for table, columns in _BYTEWISE.items():
            for column in columns:
                op.execute(f'ALTER TABLE {table} ALTER COLUMN "{column}" TYPE text COLLATE "C"')


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)

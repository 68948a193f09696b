"""What approvals are asked about, sealed; and the second pair of eyes on a declassification."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables as they are from here on."""
    op.add_column("session_grants", sa.Column("seconder", sa.Text, nullable=True))
    op.create_table(
        "sealed",
        sa.Column("approval_id", sa.Text, sa.ForeignKey("approvals.id"), primary_key=True),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("sealed_expires_at", "sealed", ["expires_at"])

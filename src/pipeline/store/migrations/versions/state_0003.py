"""The model that a session goes on with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables as they are from here on."""
    op.add_column("session_state", sa.Column("active_model", sa.Text, nullable=True))

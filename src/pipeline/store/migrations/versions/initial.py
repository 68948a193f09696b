"""The tables of the first version. The first release writes them out here: what is written then does not change."""

from __future__ import annotations

from alembic import op

from pipeline.store.tables import METADATA

revision = "initial"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    METADATA.create_all(op.get_bind(), checkfirst=False)

"""Records become leaves of a log; their bytes may be erased, their digests not."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_KEPT = "at, subject, session, verdict, action, revision, body, digest"


def upgrade() -> None:
    """Make the tables as they are from here on."""
    op.drop_index("records_session", "records")
    op.drop_index("records_at", "records")
    op.rename_table("records", "records_0003")
    op.create_table(
        "records",
        sa.Column("seq", _SEQUENCE, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        _text("kind"),
        _number("at"),
        _text("subject"),
        _text("session", nullable=True),
        _text("verdict"),
        _text("action"),
        _text("revision"),
        sa.Column("body", sa.LargeBinary, nullable=True),
        _text("digest"),
        _text("log", nullable=True),
        _number("place", nullable=True),
        sqlite_autoincrement=True,
    )
    op.execute(
        f"INSERT INTO records (seq, id, kind, {_KEPT}) SELECT seq, decision_id, "  # noqa: S608 - names of columns
        f"CASE WHEN decision_id LIKE 'swp_%' THEN 'sweep' ELSE 'decision' END, {_KEPT} FROM records_0003 ORDER BY seq"
    )
    op.drop_table("records_0003")
    op.create_index("records_session", "records", ["subject", "session", "seq"])
    op.create_index("records_at", "records", ["at"])
    op.create_index("records_place", "records", ["log", "place"], unique=True)
    op.create_table(
        "logs",
        sa.Column("id", sa.Text, primary_key=True),
        _text("key"),
        _text("public_key"),
        _number("opened_at"),
        _number("seen"),
    )
    op.create_table(
        "heads",
        sa.Column("log", sa.Text, sa.ForeignKey("logs.id"), nullable=False),
        _number("size"),
        _text("root"),
        _number("first"),
        _text("batch"),
        _number("at"),
        _text("key"),
        _text("signature"),
        sa.Column("leaves", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("log", "size"),
    )
    op.create_table(
        "record_facts",
        _number("seq"),
        _text("name"),
        _text("value"),
        sa.PrimaryKeyConstraint("seq", "name", "value"),
    )
    op.create_index("record_facts_value", "record_facts", ["name", "value", "seq"])
    op.create_table("record_facts_done", sa.Column("upto", sa.BigInteger, primary_key=True, autoincrement=False))


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)

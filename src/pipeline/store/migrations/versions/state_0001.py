"""Sessions, approvals, budgets and records: the first tables. What is written here does not change any more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "session_state",
        _text("subject"),
        _text("session"),
        sa.Column("version", sa.BigInteger, nullable=False),
        _moment("updated_at"),
        sa.PrimaryKeyConstraint("subject", "session"),
    )
    op.create_table(
        "session_labels",
        *_of_session(),
        _text("label"),
        _text("source"),
        sa.PrimaryKeyConstraint("subject", "session", "label", "source"),
    )
    _create_grants()
    op.create_table(
        "session_counters",
        *_of_session(),
        _text("name"),
        _text("amount"),
        sa.PrimaryKeyConstraint("subject", "session", "name"),
    )
    op.create_table(
        "session_events",
        *_of_session(),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("subject", "session", "seq"),
    )
    op.create_table(
        "session_tool_ids",
        *_of_session(),
        _text("canonical_id"),
        _text("provider"),
        _text("provider_id"),
        sa.PrimaryKeyConstraint("subject", "session", "canonical_id", "provider"),
        sa.UniqueConstraint("subject", "session", "provider", "provider_id"),
    )
    op.create_table(
        "session_marks",
        *_of_session(),
        _text("mark"),
        sa.PrimaryKeyConstraint("subject", "session", "mark"),
    )
    _create_approvals()
    _create_budgets()
    _create_records()


def _create_grants() -> None:
    op.create_table(
        "session_grants",
        sa.Column("id", sa.Text, primary_key=True),
        *_of_session(),
        _text("label"),
        _text("actor"),
        _text("reason"),
        _text("scope"),
        _moment("granted_at"),
        _moment("expires_at"),
    )
    op.create_index("session_grants_session", "session_grants", ["subject", "session"])
    op.create_table(
        "session_grant_sources",
        sa.Column("grant_id", sa.Text, sa.ForeignKey("session_grants.id"), nullable=False),
        _text("source"),
        sa.PrimaryKeyConstraint("grant_id", "source"),
    )


def _create_approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text, primary_key=True),
        *_of_session(),
        _text("digest"),
        _text("target"),
        sa.Column("rules", sa.LargeBinary, nullable=False),
        _text("revision"),
        _text("status"),
        _text("approver", nullable=True),
        _moment("requested_at"),
        _moment("expires_at"),
        _moment("decided_at", nullable=True),
        _moment("used_at", nullable=True),
    )
    op.create_index("approvals_session", "approvals", ["subject", "session"])
    op.create_index("approvals_status", "approvals", ["status", "requested_at"])


def _create_budgets() -> None:
    name = ("scope", "subject", "session", "name")
    op.create_table("budgets", *map(_text, name), _text("spent"), sa.PrimaryKeyConstraint(*name))
    op.create_table(
        "budget_holds",
        *map(_text, name),
        _text("id"),
        _text("amount"),
        sa.PrimaryKeyConstraint(*name, "id"),
        sa.ForeignKeyConstraint(name, [f"budgets.{column}" for column in name]),
    )


def _create_records() -> None:
    op.create_table(
        "records",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("decision_id", sa.Text, nullable=False, unique=True),
        _moment("at"),
        _text("subject"),
        _text("session", nullable=True),
        _text("verdict"),
        _text("action"),
        _text("revision"),
        sa.Column("body", sa.LargeBinary, nullable=False),
        _text("digest"),
        sqlite_autoincrement=True,
    )
    op.create_index("records_session", "records", ["subject", "session", "seq"])
    op.create_index("records_at", "records", ["at"])


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _moment(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _of_session() -> tuple[sa.Column[str], sa.Column[str], sa.ForeignKeyConstraint]:
    owner = sa.ForeignKeyConstraint(("subject", "session"), ["session_state.subject", "session_state.session"])
    return _text("subject"), _text("session"), owner

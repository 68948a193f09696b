"""The ledger. A file that was made with the tables of seed 000 §9.1 alone becomes one of ours, its rows as they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables as they are from here on."""
    of_v1 = sa.inspect(op.get_bind()).has_table("sessions")
    if not of_v1:
        _create_sessions()
    op.create_table(
        "session_names",
        _text("subject"),
        _text("session"),
        sa.Column("id", sa.Text, sa.ForeignKey("sessions.id"), nullable=False, unique=True),
        sa.PrimaryKeyConstraint("subject", "session"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, sa.ForeignKey("sessions.id"), nullable=False),
        _text("fork_from_message_id", nullable=True),
        _text("status"),
        _number("created_at"),
        _number("committed_at", nullable=True),
    )
    op.create_index("runs_session", "runs", ["session_id", "fork_from_message_id"])
    if of_v1:
        _adopt_v1()
    else:
        _create_messages()
    op.create_index("messages_parent", "messages", ["parent_id"])
    op.create_index("messages_run", "messages", ["run_id"])


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, primary_key=True),
        _text("workspace_path"),
        _text("active_model", nullable=True),
        _text("routing_policy_json", nullable=True),
        sa.Column("schema_version", sa.Integer, nullable=False),
        _number("created_at"),
        _number("updated_at"),
    )


def _create_messages() -> None:
    session = sa.ForeignKey("sessions.id")
    op.create_table(
        "messages",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, session, nullable=False),
        _text("role"),
        _text("content_json"),
        _text("metadata_json"),
        _number("created_at"),
        sa.Column("schema_version", sa.Integer, nullable=False),
        _text("parent_id", nullable=True),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id"), nullable=True),
    )
    op.create_index("idx_messages_session_created", "messages", ["session_id", "created_at"])
    op.create_table(
        "tool_calls",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, sa.ForeignKey("sessions.id"), nullable=False),
        sa.Column("message_id", sa.Text, sa.ForeignKey("messages.id"), nullable=False),
        sa.Column("result_message_id", sa.Text, sa.ForeignKey("messages.id"), nullable=True),
        _text("name"),
        _text("status"),
        _text("provider_id", nullable=True),
        _text("provider", nullable=True),
        _number("created_at"),
        _number("completed_at", nullable=True),
    )
    op.create_index("idx_tool_calls_session_status", "tool_calls", ["session_id", "status"])


def _adopt_v1() -> None:
    """Give the rows of version 1 what they lack: a committed run a session, and each message the one before as parent.

    What they hold stays as it was written: it is read as version 1 [A14].
    """
    op.add_column("messages", sa.Column("parent_id", sa.Text, nullable=True))
    # Not by `add_column`: SQLite adds a column with a foreign key, but not the key by itself, as Alembic would have it.
    op.execute("ALTER TABLE messages ADD COLUMN run_id TEXT REFERENCES runs (id)")
    op.execute(
        "INSERT INTO runs (id, session_id, fork_from_message_id, status, created_at, committed_at)"
        " SELECT 'run_v1_' || id, id, NULL, 'committed', created_at, updated_at FROM sessions"
    )
    op.execute("UPDATE messages SET run_id = 'run_v1_' || session_id")
    op.execute(
        "UPDATE messages SET parent_id = (SELECT earlier.id FROM messages AS earlier"
        " WHERE earlier.session_id = messages.session_id"
        " AND (earlier.created_at < messages.created_at"
        " OR (earlier.created_at = messages.created_at AND earlier.rowid < messages.rowid))"
        " ORDER BY earlier.created_at DESC, earlier.rowid DESC LIMIT 1)"
    )


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)

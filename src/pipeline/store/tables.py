"""Every table. Times are microseconds since the epoch, UTC; amounts are exact decimals spelled as text.

A change here needs a migration in `migrations/versions`; a test compares the two.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

METADATA: Final = MetaData()

# SQLite autoincrements only INTEGER keys; PostgreSQL's INTEGER is too small for a log.
_SEQUENCE: Final = BigInteger().with_variant(Integer, "sqlite")


# For prefix matches and a stable order: bytewise collation on every database, as in SQLite.
_BYTEWISE: Final = Text().with_variant(Text(collation="C"), "postgresql")


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def _word(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, _BYTEWISE, nullable=nullable)


def _moment(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _of_session() -> tuple[Column[str], Column[str], ForeignKeyConstraint]:
    owner = ForeignKeyConstraint(("subject", "session"), ("session_state.subject", "session_state.session"))
    return _text("subject"), _text("session"), owner


SESSION_STATE: Final = Table(
    "session_state",
    METADATA,
    _text("subject"),
    _text("session"),
    Column("version", BigInteger, nullable=False),
    _moment("updated_at"),
    _text("active_model", nullable=True),
    PrimaryKeyConstraint("subject", "session"),
)
SESSION_LABELS: Final = Table(
    "session_labels",
    METADATA,
    *_of_session(),
    _text("label"),
    _text("source"),
    PrimaryKeyConstraint("subject", "session", "label", "source"),
)
SESSION_GRANTS: Final = Table(
    "session_grants",
    METADATA,
    Column("id", Text, primary_key=True),
    *_of_session(),
    _text("label"),
    _text("actor"),
    _text("reason"),
    _text("scope"),
    _moment("granted_at"),
    _moment("expires_at"),
    _text("seconder", nullable=True),
    Index("session_grants_session", "subject", "session"),
)
SESSION_GRANT_SOURCES: Final = Table(
    "session_grant_sources",
    METADATA,
    Column("grant_id", Text, ForeignKey("session_grants.id"), nullable=False),
    _text("source"),
    PrimaryKeyConstraint("grant_id", "source"),
)
SESSION_COUNTERS: Final = Table(
    "session_counters",
    METADATA,
    *_of_session(),
    _text("name"),
    _text("amount"),
    PrimaryKeyConstraint("subject", "session", "name"),
)
SESSION_EVENTS: Final = Table(
    "session_events",
    METADATA,
    *_of_session(),
    Column("seq", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("subject", "session", "seq"),
)
SESSION_TOOL_IDS: Final = Table(
    "session_tool_ids",
    METADATA,
    *_of_session(),
    _text("canonical_id"),
    _text("provider"),
    _text("provider_id"),
    PrimaryKeyConstraint("subject", "session", "canonical_id", "provider"),
    UniqueConstraint("subject", "session", "provider", "provider_id"),
)
SESSION_MARKS: Final = Table(
    "session_marks",
    METADATA,
    *_of_session(),
    _text("mark"),
    PrimaryKeyConstraint("subject", "session", "mark"),
)
APPROVALS: Final = Table(
    "approvals",
    METADATA,
    Column("id", Text, primary_key=True),
    *_of_session(),
    _text("digest"),
    _text("target"),
    Column("rules", LargeBinary, nullable=False),
    _text("revision"),
    _text("status"),
    _text("approver", nullable=True),
    _moment("requested_at"),
    _moment("expires_at"),
    _moment("decided_at", nullable=True),
    _moment("used_at", nullable=True),
    Column("scopes", LargeBinary, nullable=False),
    _text("repeat"),
    _text("owner", nullable=True),
    Column("arguments", LargeBinary, nullable=False),
    Column("reasons", LargeBinary, nullable=False),
    _text("scope"),
    _moment("scope_until", nullable=True),
    _text("revoker", nullable=True),
    Index("approvals_scope", "scope", "owner"),
    Index("approvals_session", "subject", "session"),
    Index("approvals_status", "status", "requested_at"),
)
SEALED: Final = Table(
    "sealed",
    METADATA,
    Column("approval_id", Text, ForeignKey("approvals.id"), primary_key=True),
    _moment("expires_at"),
    Column("body", LargeBinary, nullable=False),
    Index("sealed_expires_at", "expires_at"),
)
BUDGETS: Final = Table(
    "budgets",
    METADATA,
    _text("scope"),
    _text("subject"),
    _text("session"),
    _text("name"),
    _text("spent"),
    PrimaryKeyConstraint("scope", "subject", "session", "name"),
)
BUDGET_HOLDS: Final = Table(
    "budget_holds",
    METADATA,
    _text("scope"),
    _text("subject"),
    _text("session"),
    _text("name"),
    _text("id"),
    _text("amount"),
    PrimaryKeyConstraint("scope", "subject", "session", "name", "id"),
    ForeignKeyConstraint(
        ("scope", "subject", "session", "name"),
        ("budgets.scope", "budgets.subject", "budgets.session", "budgets.name"),
    ),
)
RECORDS: Final = Table(
    "records",
    METADATA,
    Column("seq", _SEQUENCE, primary_key=True, autoincrement=True),
    Column("id", _BYTEWISE, nullable=False, unique=True),
    _word("kind"),
    _moment("at"),
    _word("subject"),
    _word("session", nullable=True),
    _word("verdict"),
    _word("action"),
    _word("revision"),
    Column("body", LargeBinary, nullable=True),  # null once erased; the digest stays [AUD-40]
    _text("digest"),
    _text("log", nullable=True),  # null in a record that no log vouches for
    Column("place", BigInteger, nullable=True),
    Index("records_session", "subject", "session", "seq"),
    Index("records_at", "at"),
    Index("records_place", "log", "place", unique=True),
    sqlite_autoincrement=True,
)
LOGS: Final = Table(
    "logs",
    METADATA,
    Column("id", Text, primary_key=True),
    _text("key"),
    _text("public_key"),
    _moment("opened_at"),
    Column("seen", BigInteger, nullable=False),  # the size at which a later log noted this one
)
HEADS: Final = Table(
    "heads",
    METADATA,
    Column("log", Text, ForeignKey("logs.id"), nullable=False),
    Column("size", BigInteger, nullable=False),
    _text("root"),
    Column("first", BigInteger, nullable=False),
    _text("batch"),
    _moment("at"),
    _text("key"),
    _text("signature"),
    Column("leaves", LargeBinary, nullable=False),
    PrimaryKeyConstraint("log", "size"),
)
# The search index. Built when somebody searches, so that recording costs nothing more [AUD-61].
RECORD_FACTS: Final = Table(
    "record_facts",
    METADATA,
    Column("seq", BigInteger, nullable=False),
    _word("name"),
    _word("value"),
    PrimaryKeyConstraint("seq", "name", "value"),
    Index("record_facts_value", "name", "value", "seq"),
)
RECORD_FACTS_DONE: Final = Table(
    "record_facts_done",
    METADATA,
    Column("upto", BigInteger, primary_key=True, autoincrement=False),
)

# The content of runs. Its record holds only a commitment to it, so it can be erased and the log stays valid [AUD-70].
CONTENTS: Final = Table(
    "contents",
    METADATA,
    Column("record", Text, ForeignKey("records.id"), primary_key=True),
    _text("subject"),
    _text("session", nullable=True),
    _moment("at"),
    _moment("expires_at", nullable=True),
    Column("salt", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("contents_session", "subject", "session"),
    Index("contents_at", "at"),
    Index("contents_expires_at", "expires_at"),
)
HOLDS: Final = Table(
    "holds",
    METADATA,
    Column("id", Text, primary_key=True),
    _text("subject", nullable=True),  # null: all subjects
    _text("session", nullable=True),  # null: all sessions
    _text("actor"),
    _text("reason"),
    _moment("at"),
    _moment("released_at", nullable=True),
)
POLICY_SETS: Final = Table(
    "policy_sets",
    METADATA,
    Column("revision", Text, primary_key=True),
    _moment("at"),
    Column("bundle", LargeBinary, nullable=False),
)

# -- the ledger: messages, sessions and their branches [E4] ------------------------------------------------------------

SESSIONS: Final = Table(
    "sessions",
    METADATA,
    Column("id", Text, primary_key=True),
    _text("workspace_path"),
    _text("active_model", nullable=True),
    _text("routing_policy_json", nullable=True),
    Column("schema_version", Integer, nullable=False),
    _moment("created_at"),
    _moment("updated_at"),
)
SESSION_NAMES: Final = Table(
    "session_names",
    METADATA,
    _text("subject"),
    _text("session"),
    Column("id", Text, ForeignKey("sessions.id"), nullable=False, unique=True),
    PrimaryKeyConstraint("subject", "session"),
)
RUNS: Final = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    _text("fork_from_message_id", nullable=True),
    _text("status"),
    _moment("created_at"),
    _moment("committed_at", nullable=True),
    Index("runs_session", "session_id", "fork_from_message_id"),
)
MESSAGES: Final = Table(
    "messages",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    _text("role"),
    _text("content_json"),
    _text("metadata_json"),
    _moment("created_at"),
    Column("schema_version", Integer, nullable=False),
    _text("parent_id", nullable=True),
    Column("run_id", Text, ForeignKey("runs.id"), nullable=True),
    Index("idx_messages_session_created", "session_id", "created_at"),
    Index("messages_parent", "parent_id"),
    Index("messages_run", "run_id"),
)
TOOL_CALLS: Final = Table(
    "tool_calls",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    Column("message_id", Text, ForeignKey("messages.id"), nullable=False),
    Column("result_message_id", Text, ForeignKey("messages.id"), nullable=True),
    _text("name"),
    _text("status"),
    _text("provider_id", nullable=True),
    _text("provider", nullable=True),
    _moment("created_at"),
    _moment("completed_at", nullable=True),
    Index("idx_tool_calls_session_status", "session_id", "status"),
)

"""Every table. Times are microseconds since the epoch, UTC; amounts are exact decimals spelled as text.

A change here needs a migration in `migrations/versions`; a test compares the two.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy import PrimaryKeyConstraint as Key

METADATA: Final = MetaData()

# SQLite autoincrements only INTEGER keys; PostgreSQL's INTEGER is too small for a log.
_SEQUENCE: Final = BigInteger().with_variant(Integer, "sqlite")


# For prefix matches and a stable order: bytewise collation on every database, as in SQLite.
_BYTEWISE: Final = Text().with_variant(Text(collation="C"), "postgresql")


def _columns(kind: Any, names: str) -> list[Column[Any]]:
    """The columns of one type with these names; one whose name ends in `?` may be null."""
    return [Column(name.removesuffix("?"), kind, nullable=name.endswith("?")) for name in names.split()]


def _texts(names: str) -> list[Column[str]]:
    return _columns(Text, names)


def _numbers(names: str) -> list[Column[int]]:
    return _columns(BigInteger, names)


def _blobs(names: str) -> list[Column[bytes]]:
    return _columns(LargeBinary, names)


def _id() -> Column[str]:
    return Column("id", Text, primary_key=True)


def _of(name: str, key: str, *, nullable: bool = False, **options: Any) -> Column[str]:
    """A column that refers to the key of another table."""
    return Column(name, Text, ForeignKey(key), nullable=nullable, **options)


def _of_session() -> tuple[Column[str] | ForeignKeyConstraint, ...]:
    owner = ForeignKeyConstraint(("subject", "session"), ("session_state.subject", "session_state.session"))
    return *_texts("subject session"), owner


def _table(name: str, *items: Any, **options: Any) -> Table:
    return Table(name, METADATA, *items, **options)


SESSION_STATE: Final = _table(
    "session_state",
    *_texts("subject session"),
    *_numbers("version updated_at"),
    *_texts("active_model?"),
    Key("subject", "session"),
)
SESSION_LABELS: Final = _table(
    "session_labels", *_of_session(), *_texts("label source"), Key("subject", "session", "label", "source")
)
SESSION_GRANTS: Final = _table(
    "session_grants",
    _id(),
    *_of_session(),
    *_texts("label actor reason scope"),
    *_numbers("granted_at expires_at"),
    *_texts("seconder?"),
    Index("session_grants_session", "subject", "session"),
)
SESSION_GRANT_SOURCES: Final = _table(
    "session_grant_sources", _of("grant_id", "session_grants.id"), *_texts("source"), Key("grant_id", "source")
)
SESSION_COUNTERS: Final = _table(
    "session_counters", *_of_session(), *_texts("name amount"), Key("subject", "session", "name")
)
SESSION_EVENTS: Final = _table(
    "session_events", *_of_session(), *_numbers("seq"), *_blobs("body"), Key("subject", "session", "seq")
)
SESSION_TOOL_IDS: Final = _table(
    "session_tool_ids",
    *_of_session(),
    *_texts("canonical_id provider provider_id"),
    Key("subject", "session", "canonical_id", "provider"),
    UniqueConstraint("subject", "session", "provider", "provider_id"),
)
SESSION_MARKS: Final = _table("session_marks", *_of_session(), *_texts("mark"), Key("subject", "session", "mark"))
APPROVALS: Final = _table(
    "approvals",
    _id(),
    *_of_session(),
    *_texts("digest target"),
    *_blobs("rules"),
    *_texts("revision status approver?"),
    *_numbers("requested_at expires_at decided_at? used_at?"),
    *_blobs("scopes"),
    *_texts("repeat owner?"),
    *_blobs("arguments reasons"),
    *_texts("scope"),
    *_numbers("scope_until?"),
    *_texts("revoker?"),
    Index("approvals_scope", "scope", "owner"),
    Index("approvals_session", "subject", "session"),
    Index("approvals_status", "status", "requested_at"),
)
SEALED: Final = _table(
    "sealed",
    _of("approval_id", "approvals.id", primary_key=True),
    *_numbers("expires_at"),
    *_blobs("body"),
    Index("sealed_expires_at", "expires_at"),
)
BUDGETS: Final = _table(
    "budgets", *_texts("scope subject session name spent"), Key("scope", "subject", "session", "name")
)
BUDGET_HOLDS: Final = _table(
    "budget_holds",
    *_texts("scope subject session name id amount"),
    Key("scope", "subject", "session", "name", "id"),
    ForeignKeyConstraint(
        ("scope", "subject", "session", "name"),
        ("budgets.scope", "budgets.subject", "budgets.session", "budgets.name"),
    ),
)
RECORDS: Final = _table(
    "records",
    Column("seq", _SEQUENCE, primary_key=True, autoincrement=True),
    Column("id", _BYTEWISE, nullable=False, unique=True),
    *_columns(_BYTEWISE, "kind"),
    *_numbers("at"),
    *_columns(_BYTEWISE, "subject session? verdict action revision"),
    *_blobs("body?"),  # null once erased; the digest stays [AUD-40]
    *_texts("digest log?"),  # no log: none vouches for the record
    *_numbers("place?"),
    Index("records_session", "subject", "session", "seq"),
    Index("records_at", "at"),
    Index("records_place", "log", "place", unique=True),
    sqlite_autoincrement=True,
)
LOGS: Final = _table(
    "logs",
    _id(),
    *_texts("key public_key"),
    *_numbers("opened_at seen"),  # seen: the size at which a later log noted this one
)
HEADS: Final = _table(
    "heads",
    _of("log", "logs.id"),
    *_numbers("size"),
    *_texts("root"),
    *_numbers("first"),
    *_texts("batch"),
    *_numbers("at"),
    *_texts("key signature"),
    *_blobs("leaves"),
    Key("log", "size"),
)
# The search index. Built when somebody searches, so that recording costs nothing more [AUD-61].
RECORD_FACTS: Final = _table(
    "record_facts",
    *_numbers("seq"),
    *_columns(_BYTEWISE, "name value"),
    Key("seq", "name", "value"),
    Index("record_facts_value", "name", "value", "seq"),
)
RECORD_FACTS_DONE: Final = _table(
    "record_facts_done", Column("upto", BigInteger, primary_key=True, autoincrement=False)
)

# The content of runs. Its record holds only a commitment to it, so it can be erased and the log stays valid [AUD-70].
CONTENTS: Final = _table(
    "contents",
    _of("record", "records.id", primary_key=True),
    *_texts("subject session?"),
    *_numbers("at expires_at?"),
    *_blobs("salt body"),
    Index("contents_session", "subject", "session"),
    Index("contents_at", "at"),
    Index("contents_expires_at", "expires_at"),
)
# No subject, no session: all of them.
HOLDS: Final = _table("holds", _id(), *_texts("subject? session? actor reason"), *_numbers("at released_at?"))
POLICY_SETS: Final = _table(
    "policy_sets", Column("revision", Text, primary_key=True), *_numbers("at"), *_blobs("bundle")
)

# -- the ledger: messages, sessions and their branches [E4] ------------------------------------------------------------

SESSIONS: Final = _table(
    "sessions",
    _id(),
    *_texts("workspace_path active_model? routing_policy_json?"),
    *_columns(Integer, "schema_version"),
    *_numbers("created_at updated_at"),
)
SESSION_NAMES: Final = _table(
    "session_names", *_texts("subject session"), _of("id", "sessions.id", unique=True), Key("subject", "session")
)
RUNS: Final = _table(
    "runs",
    _id(),
    _of("session_id", "sessions.id"),
    *_texts("fork_from_message_id? status"),
    *_numbers("created_at committed_at?"),
    Index("runs_session", "session_id", "fork_from_message_id"),
)
MESSAGES: Final = _table(
    "messages",
    _id(),
    _of("session_id", "sessions.id"),
    *_texts("role content_json metadata_json"),
    *_numbers("created_at"),
    *_columns(Integer, "schema_version"),
    *_texts("parent_id?"),
    _of("run_id", "runs.id", nullable=True),
    Index("idx_messages_session_created", "session_id", "created_at"),
    Index("messages_parent", "parent_id"),
    Index("messages_run", "run_id"),
)
TOOL_CALLS: Final = _table(
    "tool_calls",
    _id(),
    _of("session_id", "sessions.id"),
    _of("message_id", "messages.id"),
    _of("result_message_id", "messages.id", nullable=True),
    *_texts("name status provider_id? provider?"),
    *_numbers("created_at completed_at?"),
    Index("idx_tool_calls_session_status", "session_id", "status"),
)

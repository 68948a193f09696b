"""Messages as rows and back: the columns of seed 000 §9.1. Spec: docs/spec/ledger.md [LED-2], [LED-3]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cmf.errors import CmfError
from cmf.json.codec import dumps, loads
from cmf.message.message import SCHEMA_VERSION, Message, ToolCallPart, ToolResultPart
from pipeline.decisions.errors import LedgerError
from pipeline.decisions.timestamps import instant_of, micros

_COLUMNS: Final = ("id", "session_id", "role", "content", "created_at", "schema_version", "parent_id")
_FIRST_VERSION: Final = 1  # it had one metadata field per message; now they are separate fields


@dataclass(frozen=True, slots=True)
class LedgerSession:
    """A conversation. `subject` and `session` are its owner and the client's id for it, if known."""

    id: str
    workspace_path: str
    active_model: str | None
    created_at: int
    updated_at: int
    subject: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """A part of a conversation that is committed as a unit; it continues from a message, or (None) starts over."""

    id: str
    session_id: str
    fork_from_message_id: str | None
    status: str
    created_at: int
    committed_at: int | None


@dataclass(frozen=True, slots=True)
class LedgerCall:
    """A tool call, and the message with its result."""

    id: str
    session_id: str
    message_id: str
    result_message_id: str | None
    name: str
    status: str
    provider_id: str | None
    provider: str | None
    created_at: int
    completed_at: int | None


def row_of(message: Message, *, session_id: str, run_id: str) -> dict[str, Any]:
    """The row of a message that has an id and a time."""
    if message.id is None or message.created_at is None:
        hint = "`cmf.message.ids.stamp` sets both"
        raise LedgerError("a message needs an id and a time", code="ledger.unstamped", hint=hint)
    shown = message.model_dump()
    return {
        "id": message.id,
        "session_id": session_id,
        "role": shown["role"],
        "content_json": dumps(shown["content"]).decode(),
        "metadata_json": dumps({name: item for name, item in shown.items() if name not in _COLUMNS}).decode(),
        "created_at": micros(message.created_at),
        "schema_version": SCHEMA_VERSION,
        "parent_id": message.parent_id,
        "run_id": run_id,
    }


def message_of(row: Mapping[str, Any]) -> Message:
    """The message in a row of any supported version.

    Raises:
        LedgerError: the row is damaged (`ledger.damaged`), or of a newer version.
    """
    try:
        content, metadata = loads(row["content_json"]), loads(row["metadata_json"])
        at = instant_of(row["created_at"]).isoformat()
        shown = {"role": row["role"], "content": content, "id": row["id"], "session_id": row["session_id"]}
        shown |= {"created_at": at, "schema_version": row["schema_version"]}
        if row["schema_version"] == _FIRST_VERSION:
            shown["metadata"] = metadata
        else:
            shown |= metadata
        message = Message.model_validate(shown)
    except (CmfError, TypeError) as error:
        code, hint = (error.code, error.hint) if isinstance(error, CmfError) else ("shape", "")
        raise LedgerError(
            f"a message cannot be read ({code})",
            path=f"messages[{row['id']}]",
            code="ledger.damaged",
            hint=hint or "restore it from a backup",
        ) from None
    return message.model_copy(update={"parent_id": row["parent_id"]})


def calls_in(message: Message) -> Iterator[ToolCallPart]:
    """The tool calls in a message."""
    return (part for part in message.content if isinstance(part, ToolCallPart))


def results_in(message: Message) -> Iterator[ToolResultPart]:
    """The tool results in a message."""
    return (part for part in message.content if isinstance(part, ToolResultPart))

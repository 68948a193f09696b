"""What a run puts into its session's counters and events. Spec: docs/spec/sessions.md [SES-21]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

from cmf.message.digests import content_digest
from cmf.message.message import Message, ToolCallPart
from cmf.views.uris import tool_uri
from pipeline.decisions.approval import ApprovalUse
from pipeline.sessions.state import Count, Taint

MAX_NAME: Final = 256  # characters of a name in a session's event: well within what an event may hold


def calls_in(messages: Iterable[tuple[int | None, Message]], call_id: str | None) -> Iterator[Count]:
    """One count per tool call, marked by its content and place, so that resent history counts nothing twice [C4]."""
    own = f"{call_id}:" if call_id is not None else ""
    for at, message in messages:
        calls = [(index, part) for index, part in enumerate(message.content) if isinstance(part, ToolCallPart)]
        digest = content_digest(message) if calls else ""
        for index, part in calls:
            mark = None if at is None else f"{own}{digest}:{at}:{index}"
            uri = tool_uri(part.name, part.namespace)
            event = {"type": "tool_call", "uri": _named(uri)}
            yield Count(name=f"calls:{uri}", amount=Decimal(1), mark=mark, event=event)


def events_of(taints: Iterable[Taint], used: Iterable[ApprovalUse]) -> tuple[dict[str, Any], ...]:
    """What came to pass in the session besides calls: labels, and approvals that were used [SES-21]."""
    labels = sorted({taint.label for taint in taints})
    approved = ({"type": "approval_used", "target": _named(use.target)} for use in used)
    return (*({"type": "label", "label": _named(label)} for label in labels), *approved)


def _named(name: str) -> str:
    """The name as an event has it: the end of one that is too long for any event is cut off, and that shows."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"

"""Turning a recorded input into a test case, as `cmf case from-record` does. Spec: docs/spec/replay.md [RPL-9]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from cmf.json.value import to_json
from cmf.message.request import Request
from pipeline.run.recorded_input import Entry

_PLAIN: Final = frozenset({"messages", "model", "tools"})  # what a case can express without a wire body


def case_text(entry: Entry, name: str | None = None) -> str:
    """A file of one case, in YAML."""
    document = {"cases": [case_of(entry, name)]}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    if all(line.isprintable() for line in text.split("\n")):
        return text
    return yaml.safe_dump(document, sort_keys=False, width=110)  # escapes, for what nobody would see or a terminal obey


def case_of(entry: Entry, name: str | None = None) -> dict[str, Any]:
    """The case as in a case file; it expects the entry's recorded decision."""
    case: dict[str, Any] = {"name": name or entry.id, "description": f"Judged as {entry.id}."}
    case |= _traffic(entry)
    context = to_json(entry.context)
    subject = context.pop("subject", None)
    if subject is not None:
        case["subject"] = subject
    if context:
        case["context"] = context
    session = {"labels": sorted(entry.session.labels), "counters": dict(entry.session.counters)}
    if any(session.values()):
        case["session"] = {part: held for part, held in session.items() if held}
    if entry.history != "claimed":
        case["history"] = entry.history
    hits = [hit for view in entry.decision["views"] for hit in view["hits"]]
    case["expect"] = {
        "verdict": entry.decision["verdict"],
        "rules": sorted({hit["rule"] for hit in hits}),
        "codes": sorted({hit["code"] for hit in hits}),
    }
    return case


def left_out(entry: Entry) -> Iterator[str]:
    """What was known when the entry was judged, but a case cannot express."""
    if entry.session.events:
        yield "the session's events"
    if entry.session.asked:
        yield "the session's approvals"
    if entry.session.lifted:
        yield "labels that were lifted"
    if entry.session.overrides:
        yield "overrides in force"
    if entry.seen:
        yield "earlier traffic of the session"


def _traffic(entry: Entry) -> dict[str, Any]:
    body = to_json(entry.traffic)
    if isinstance(entry.traffic, Request) and body.keys() <= _PLAIN:
        spelled = {"conversation": [_message(message) for message in body.get("messages", [])]}
        return spelled | {part: body[part] for part in ("model", "tools") if part in body}
    return {"conversation": {"from": "canonical", "kind": type(entry.traffic).__name__.lower(), "body": body}}


def _message(body: dict[str, Any]) -> dict[str, Any]:
    """The short spelling of a message that is one text; any other as it is."""
    content = body.get("content", [])
    if body.keys() == {"role", "content"} and len(content) == 1:
        (part,) = content
        if part.keys() == {"content_type", "text"} and part["content_type"] == "text":
            return {"role": body["role"], "text": part["text"]}
    return body

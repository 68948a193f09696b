"""The one JSON document that policy sees of a view, as bytes. Spec: docs/spec/policy-input.md.

It is exactly `view.to_opa_input()["input"]` plus `session` and `origins` [B8]. What the views of a message share is
encoded once, and the engine puts the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cmf.codec import dumps
from cmf.enums import Capability
from cmf.outlines import OUTLINES, Place, beginning, filling, form_of
from cmf.value import to_bytes
from cmf.view import MessageView
from pipeline import _native

if TYPE_CHECKING:
    from pipeline.approval_state import Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What policy may know of the session, as it was before this run [C4].

    The rest is for the pipeline alone: the version that was read [C5], the tool ids as `IdMap.to_json()` has them, for
    each label in force the events that brought it, the labels and events that grants lift [C3], the approvals that
    still mean something [C10], the moment of reading, in microseconds since the epoch, and the model that the session
    goes on with [C16].
    """

    labels: frozenset[str] = frozenset()
    counters: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()
    approvals: Sequence[Mapping[str, Any]] = ()
    version: int = 0
    tool_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    label_sources: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lifted: frozenset[tuple[str, str]] = frozenset()
    asked: Sequence[Approval] = ()
    moment: int = 0
    active_model: str | None = None

    def whole(self) -> dict[str, Any]:
        """The `session` block for a reader who may see everything."""
        events = [dict(event) for event in self.events]
        approvals = [dict(approval) for approval in self.approvals]
        counters = dict(self.counters)
        return {"labels": sorted(self.labels), "counters": counters, "events": events, "approvals": approvals}

    def shown(self, view: MessageView) -> dict[str, Any]:
        """The `session` block for a reader: labels need `read_labels`, the rest `read_agent` [B8]."""
        block = self.whole()
        for name in list(block):
            if not view.scope.grants(Capability.READ_LABELS if name == "labels" else Capability.READ_AGENT):
                del block[name]
        return block


def shared_bytes(view: MessageView, session: SessionFacts | None) -> bytes:
    """What all views of one message have in common: `extensions`, and `session` if there is one."""
    block: dict[str, Any] = {"extensions": view.scope.shared()}
    if session is not None:
        block["session"] = session.shown(view)
    return json_bytes(block)


def json_bytes(item: Any) -> bytes:
    """The same bytes as `cmf.value.to_bytes` gives, in a third of its time."""
    written = _write(item)
    return to_bytes(item) if written is None else written


def view_bytes(view: MessageView, origins: Sequence[Mapping[str, Any]] | None = None) -> bytes:
    """What is this view's alone; `origins` are those of a tool call [C18]."""
    shown = None if origins is None else _shown_origins(view, origins)
    filled = filling(view)
    if filled is not None:
        place, part, path, uri, message, security = filled
        written = _fill(_TEMPLATES[place], part, path, uri, message, security, shown)
        if written is not None:
            return written
    return view.to_bytes() if shown is None else view.to_bytes(origins=shown)


def whole(view: MessageView, session: SessionFacts | None, origins: Sequence[Mapping[str, Any]] | None = None) -> bytes:
    """The whole input in one piece, for tools and tests; the engines are given the two parts."""
    document = view.to_dict()
    if session is not None:
        document["session"] = session.shown(view)
    if origins is not None:
        document["origins"] = _shown_origins(view, origins)
    return dumps(document)


def _shown_origins(view: MessageView, origins: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The origins for a reader: the labels of sources need `read_labels` [INP-5]."""
    if view.scope.grants(Capability.READ_LABELS):
        return list(origins)
    return [{**entry, "sources": [_unlabelled(source) for source in entry["sources"]]} for entry in origins]


def _unlabelled(source: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in source.items() if name != "labels"}


class _Templates(dict[Place, _native.Template]):
    """The outline of a type of part with its beginning, as the native module takes it."""

    def __missing__(self, place: Place) -> _native.Template:
        before, after = (dumps(entries)[1:-1] for entries in beginning(place))
        outline = OUTLINES[place[0]]
        self[place] = template = _native.Template(
            place[0],
            b"{" + before + b',"path":',
            b"," + after,
            list(outline.none),
            list(outline.entries),
            list(outline.properties),
        )
        return template


_TEMPLATES: Final = _Templates()
_WRITER: Final = _native.ValueWriter(form_of)  # writes what `to_bytes` would, or leaves it to that [INP-6]
_write: Final = _WRITER.write
_fill: Final = _WRITER.fill

__all__ = ["SessionFacts", "json_bytes", "shared_bytes", "view_bytes", "whole"]

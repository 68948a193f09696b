"""The one JSON document that policy sees of a view, as bytes. Spec: docs/spec/policy-input.md.

It is exactly `view.to_opa_input()["input"]` plus `session`, `origins` [B8] and the `Facts` that rules read. What the
views of a message share is encoded once, and the engine puts the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cmf import _native
from cmf.enums import Capability
from cmf.json.codec import dumps
from cmf.json.value import Entry, Value, encoded, entries, to_bytes
from cmf.views.view import MessageView

if TYPE_CHECKING:
    from pipeline.decisions.approval import Approval
    from pipeline.decisions.override import Override


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """The session as it was before this run [C4].

    Policy sees `labels`, `counters`, `events` and `approvals`; all else is for the pipeline alone.

    Attributes:
        labels: the labels in force.
        counters: by name.
        events: the newest, in order.
        approvals: those that wait or are approved, as policy sees them.
        version: the version that was read [C5].
        tool_ids: as `IdMap.to_json()` has them.
        label_sources: for each label in force, the events that brought it.
        lifted: the labels, each with an event, that a grant lifts [C3].
        asked: every approval that is not too old, those that were used [C10], and those that stand [APR-11].
        standing: approvals of values that stand for whoever asks, from whatever session; read only if they may matter.
        moment: when it was read, in microseconds since the epoch.
        active_model: the model that the session goes on with [C16].
        overrides: the overrides that hold now [EXC-10].
        spent: see `Context`.
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
    standing: Sequence[Approval] = ()
    moment: int = 0
    active_model: str | None = None
    overrides: Sequence[Override] = ()
    spent: frozenset[str] = frozenset()

    def whole(self, *, events: bool = True) -> dict[str, Any]:
        """The `session` block for a reader who may see everything, with or without its events."""
        shown = {"events": [dict(event) for event in self.events]} if events else {}
        approvals = [dict(approval) for approval in self.approvals]
        return {"labels": sorted(self.labels), "counters": dict(self.counters), **shown, "approvals": approvals}

    def shown(self, view: MessageView) -> dict[str, Any]:
        """The `session` block for a reader: labels and their events need `read_labels`, the rest `read_agent` [B8]."""
        rest, grants = self.whole(), view.scope.grants
        labels = {"labels": rest.pop("labels")}
        if not grants(Capability.READ_LABELS):
            labels = {}
            rest["events"] = [event for event in rest["events"] if event.get("type") != "label"]
        return labels | (rest if grants(Capability.READ_AGENT) else {})


def shared_bytes(
    view: MessageView,
    session: SessionFacts | None,
    blocks: dict[tuple[bool, bool], bytes] | None = None,
    *,
    spelled: bool = False,
) -> bytes:
    """The part of the input that all views of one message share, as JSON: `extensions`, and `session` if there is one.

    `blocks` remembers the JSON of `session`, by what the reader may see of it, for calls with the same session.
    `spelled` adds `spelled_context` [INP-10].
    """
    written = b'{"extensions":' + json_bytes(view.scope.shared())
    if session is not None:
        blocks = {} if blocks is None else blocks
        grants = view.scope.grants
        reader = (grants(Capability.READ_LABELS), grants(Capability.READ_AGENT))
        if reader not in blocks:
            blocks[reader] = json_bytes(session.shown(view))
        written += b',"session":' + blocks[reader]
    written += b"}"
    return (_native.with_context_facts(written) or written) if spelled else written


def json_bytes(item: Any) -> bytes:
    """The same bytes as `cmf.json.value.to_bytes` gives, in a third of its time."""
    written = _write(item)
    return to_bytes(item) if written is None else written


class Facts(NamedTuple):
    """Which facts about the texts of a view rules read; each is in its input only then [INP-7]."""

    plain: bool = False
    folded: bool = False
    decoded: bool = False
    spelled: bool = False
    addresses: bool = False


def view_bytes(
    view: MessageView, origins: Sequence[Mapping[str, Any]] | None = None, facts: Facts | None = None
) -> bytes:
    """The part of the input that is this view's alone, as JSON; `origins` are those of a tool call [C18]."""
    written = view.to_bytes() if origins is None else view.to_bytes(origins=_shown_origins(view, origins))
    return written if facts is None else with_facts(written, facts)


def with_facts(written: bytes, facts: Facts) -> bytes:
    """The JSON of a view with the facts."""
    return _native.with_facts(written, facts) or written


def in_content(view: MessageView, form: str, spans: Sequence[Sequence[int]]) -> list[list[int]]:
    """Spans of a view's content for those of its `form`, `plain` or `folded` [INP-8]."""
    places = [(start, end) for start, end in spans]
    return [list(span) for span in _native.in_content(view.content or "", form == "folded", places)]


def plain_of(text: str) -> str:
    """A text in plain letters, as `input.plain` has it [INP-7]; the same object where it is in plain letters."""
    plain = _native.plain(text)
    return text if plain is None else plain


def of_plain(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of a text for those of its plain form."""
    return _native.in_content(text, False, spans)


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
    return [
        {
            **entry,
            "sources": [
                {name: item for name, item in source.items() if name != "labels"} for source in entry["sources"]
            ],
        }
        for entry in origins
    ]


# -- for the native module [INP-6] -------------------------------------------------------------------------------------


def form_of(cls: type) -> str | tuple[Entry, ...] | Callable[[Any], Any]:
    """How the native module writes a type that is not JSON's own, exactly as `cmf.json.value.to_bytes` does.

    That is the name of a form it knows, the fields of an object, or a function whose result it can write.
    """
    if issubclass(cls, Value):
        fields = entries(cls)
        # Only Python can compare a field with a default that is itself a value of the format.
        plain = all(field.absent != "equal" or isinstance(field.default, str | int) for field in fields)
        return fields if plain else encoded
    if issubclass(cls, dict):
        return "object"
    if issubclass(cls, list):
        return "array"
    if issubclass(cls, StrEnum):
        return "text"
    return "set" if cls is frozenset else encoded


_write: Final = _native.ValueWriter(form_of).write

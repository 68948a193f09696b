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
from cmf.enums import Capability, Hook, Role
from cmf.json.codec import dumps
from cmf.json.value import Entry, Value, encoded, entries, to_bytes
from cmf.message.headers import is_sensitive
from cmf.message.message import Extensions, HttpExtension, Message
from cmf.message.security import SecurityExtension, SubjectExtension
from cmf.views.access import Scope, shown_to
from cmf.views.render import KINDS, OUTLINES
from cmf.views.tiers import Grants
from cmf.views.view import MessageView, head

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
        asked: every approval that is not too old, and those that were used [C10].
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
        """The `session` block for a reader: labels need `read_labels`, the rest `read_agent` [B8]."""
        rest, grants = self.whole(), view.scope.grants
        labels = {"labels": rest.pop("labels")}
        return (labels if grants(Capability.READ_LABELS) else {}) | (rest if grants(Capability.READ_AGENT) else {})


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
    if session is not None and blocks is not None:
        written = _shared(view.scope, _block(view, session, blocks))
    else:
        written = _shared(view.scope, None if session is None else session.shown(view))
    if written is None:
        block = {"extensions": view.scope.shared()}
        written = to_bytes(block if session is None else {**block, "session": session.shown(view)})
    return (_native.with_context_facts(written) or written) if spelled else written


def _block(view: MessageView, session: SessionFacts, blocks: dict[tuple[bool, bool], bytes]) -> bytes:
    grants = view.scope.grants
    reader = (grants(Capability.READ_LABELS), grants(Capability.READ_AGENT))
    if reader not in blocks:
        blocks[reader] = json_bytes(session.shown(view))
    return blocks[reader]


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
    if origins is None:
        written = _own(view) or view.to_bytes()
    else:
        shown = _shown_origins(view, origins)
        written = _own(view, shown) or view.to_bytes(origins=shown)
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
    return [{**entry, "sources": [_unlabelled(source) for source in entry["sources"]]} for entry in origins]


def _unlabelled(source: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in source.items() if name != "labels"}


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


def _template_of(part_type: type, role: Role, hook: Hook | None) -> _native.Template | None:
    """The template of a type of part, with its fixed beginning; None if the type has no template."""
    outline = OUTLINES.get(part_type)
    if outline is None:
        return None
    shown = list(head(KINDS[part_type][0], role, False, hook).items())
    at = [name for name, _ in shown].index("path")
    before, after = (dumps(dict(shown[some]))[1:-1] for some in (slice(at), slice(at + 1, None)))
    beginning = b"{" + before + b',"path":', b"," + after
    return _native.Template(part_type, *beginning, outline.none, outline.entries, outline.properties, outline.address)


def _context_of(grants: Grants) -> _native.Context:
    """The fields of a message's context that the native module writes for a reader with these grants."""
    types = (Message, Extensions, HttpExtension, SecurityExtension, SubjectExtension)
    what = shown_to(grants)
    slots, subject = ([(name, None) for name in names] for names in (what.slots, what.subject))
    return _native.Context(types, what.message, slots, what.security, subject, what.profiles, grants is None)


_VALUES: Final = _native.ValueWriter(form_of)  # writes what `to_bytes` would, or leaves it to that
_INPUTS: Final = _native.InputWriter(_VALUES, MessageView, Scope, _template_of, _context_of, is_sensitive)
_write: Final = _VALUES.write
_own: Final = _INPUTS.view
_shared: Final = _INPUTS.shared

__all__ = [
    "Facts",
    "SessionFacts",
    "form_of",
    "in_content",
    "json_bytes",
    "shared_bytes",
    "view_bytes",
    "whole",
    "with_facts",
]

"""The one JSON document that policy sees of a view, as bytes. Spec: docs/spec/policy-input.md.

It is exactly `view.to_opa_input()["input"]` plus `session` and `origins` [B8]. What the views of a message share is
encoded once, and the engine puts the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cmf.codec import dumps
from cmf.enums import Capability
from cmf.value import to_bytes
from cmf.view import MessageView


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What policy may know of the session, as it was before this run [C4].

    The last three are for the pipeline alone: the version that was read [C5], the tool ids as `IdMap.to_json()` has
    them, and for each label in force the events that brought it [C3].
    """

    labels: frozenset[str] = frozenset()
    counters: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()
    approvals: Sequence[Mapping[str, Any]] = ()
    version: int = 0
    tool_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    label_sources: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def shown(self, view: MessageView) -> dict[str, Any]:
        """The `session` block for a reader: labels need `read_labels`, the rest `read_agent` [B8]."""
        block: dict[str, Any] = {}
        if view.scope.grants(Capability.READ_LABELS):
            block["labels"] = sorted(self.labels)
        if view.scope.grants(Capability.READ_AGENT):
            block["counters"] = dict(self.counters)
            block["events"] = [dict(event) for event in self.events]
            block["approvals"] = [dict(approval) for approval in self.approvals]
        return block


def shared_bytes(view: MessageView, session: SessionFacts | None) -> bytes:
    """What all views of one message have in common: `extensions`, and `session` if there is one."""
    block: dict[str, Any] = {"extensions": view.scope.shared()}
    if session is not None:
        block["session"] = session.shown(view)
    return to_bytes(block)


def view_bytes(view: MessageView, origins: Sequence[Mapping[str, Any]] | None = None) -> bytes:
    """What is this view's alone."""
    body = view.body()
    own = view.own_extensions()
    if own:
        body["extensions"] = own
    if origins is not None:
        body["origins"] = list(origins)
    return to_bytes(body)


def whole(view: MessageView, session: SessionFacts | None, origins: Sequence[Mapping[str, Any]] | None = None) -> bytes:
    """The whole input in one piece, for tools and tests; the engines are given the two parts."""
    document = view.to_dict()
    if session is not None:
        document["session"] = session.shown(view)
    if origins is not None:
        document["origins"] = list(origins)
    return dumps(document)


__all__ = ["SessionFacts", "shared_bytes", "view_bytes", "whole"]

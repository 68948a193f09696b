"""Labels that rules added, put on the messages that they hold for [C3]. Spec: docs/spec/pipeline.md [PIPE-4]."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from cmf.json.value import replace
from cmf.message.digests import content_digest, value_hash
from cmf.message.message import Message
from cmf.message.request import Request
from pipeline.decisions.context import labelled
from pipeline.decisions.decision import Effect, ViewDecision
from pipeline.decisions.paths import message_path, message_place, part_at
from pipeline.decisions.stage import Traffic
from pipeline.decisions.traffic import labels_of

LabelSources: TypeAlias = frozenset[tuple[str, str]]
"""Labels, each with the event that brought it."""


def added_labels(
    views: Sequence[ViewDecision], value: Traffic, lifted: LabelSources
) -> tuple[dict[str, frozenset[str]], LabelSources]:
    """The labels that rules added, by the path of the message that caused them; and the same with their source events.

    The source event is made from the message's content. A client that sends the message again causes no new event, so
    that a label which was declassified for it stays away.
    """
    by_message: dict[str, set[str]] = defaultdict(set)
    for view in views:
        added = {str(hit.fields["label"]) for hit in view.hits if hit.effect is Effect.LABEL}
        if added:
            by_message[message_path(view.path)] |= added
    labels: dict[str, frozenset[str]] = {}
    label_sources: set[tuple[str, str]] = set()
    for where, added in by_message.items():
        event = _event(value, where)  # reads the whole message: once, however many of its parts were labelled
        if event is not None:
            added = {label for label in added if (label, event) not in lifted}
            label_sources |= {(label, event) for label in added}
        labels[where] = frozenset(added)
    return labels, frozenset(label_sources)


def _event(value: Traffic, where: str) -> str | None:
    """The source event of the message at `where`; None for a request's or response's own view, new each time."""
    found = value if isinstance(value, Message) else part_at(value, where) if "[" in where else None
    if isinstance(found, Message):
        return f"said:{content_digest(found)}"
    return None if found is None else f"tool:{value_hash(found)}"


def stamp(value: Traffic, labels: Mapping[str, frozenset[str]]) -> Traffic:
    """`value` with the labels on the messages that caused them and on all later ones [C3]; itself if nothing is new."""
    found = frozenset[str]().union(*labels.values())
    if not found:
        return value
    if isinstance(value, Message):
        return labelled(value, found)
    if isinstance(value, Request):
        return _stamp_request(value, labels)
    messages = [labelled(choice.message, found) for choice in value.choices]
    if all(new is choice.message for new, choice in zip(messages, value.choices, strict=True)):
        return value
    choices = [replace(choice, message=new) for new, choice in zip(messages, value.choices, strict=True)]
    return replace(value, choices=tuple(choices))


def _stamp_request(request: Request, labels: Mapping[str, frozenset[str]]) -> Request:
    # What arose in the request's own view or in a tool's holds for every message.
    apart = (added for where, added in labels.items() if not where.startswith("messages["))
    carried = frozenset[str]().union(*apart)
    if _all_carry(request, labels, everywhere=bool(carried)):
        return request
    messages = []
    for index, message in enumerate(request.messages):
        carried |= labels.get(f"messages[{index}]", frozenset())
        messages.append(labelled(message, carried))
    if all(new is old for new, old in zip(messages, request.messages, strict=True)):
        return request
    return replace(request, messages=tuple(messages))


def _all_carry(request: Request, labels: Mapping[str, frozenset[str]], *, everywhere: bool) -> bool:
    """Whether all messages from the first labelled one on have all the labels already, so that nothing changes."""
    first = 0 if everywhere else min(message_place(where) or 0 for where, added in labels.items() if added)
    found = frozenset[str]().union(*labels.values())
    shared = {id(message.extensions): message for message in request.messages[first:]}
    return all(found <= labels_of(message) for message in shared.values())

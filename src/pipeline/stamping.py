"""Labels that rules added, and where they hold [C3]. Spec: docs/spec/pipeline.md [PIPE-4]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cmf.message import Message
from cmf.request import Request
from cmf.value import replace
from pipeline.context import labelled
from pipeline.decision import Effect, ViewDecision
from pipeline.paths import message_path
from pipeline.stage import Traffic


def added_labels(views: Sequence[ViewDecision]) -> dict[str, frozenset[str]]:
    """The labels that rules added, by the path of the message where they arose."""
    labels: dict[str, frozenset[str]] = {}
    for view in views:
        added = frozenset(str(hit.fields["label"]) for hit in view.hits if hit.effect is Effect.LABEL)
        if added:
            where = message_path(view.path)
            labels[where] = labels.get(where, frozenset()) | added
    return labels


def stamp(value: Traffic, labels: Mapping[str, frozenset[str]]) -> Traffic:
    """Labels on the message where they arose, and on every later one [C3]; `value` itself if that adds nothing."""
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
    messages = []
    for index, message in enumerate(request.messages):
        carried |= labels.get(f"messages[{index}]", frozenset())
        messages.append(labelled(message, carried))
    if all(new is old for new, old in zip(messages, request.messages, strict=True)):
        return request
    return replace(request, messages=tuple(messages))


__all__ = ["added_labels", "stamp"]

"""Traffic as it is judged: with the context's facts, and the labels of data, of entities and of rules in it.

What stages change is taken in again, so that what they bring in is labelled too. Labels that rules added are put on
the messages that they hold for [C3]. Spec: docs/spec/data.md, docs/spec/pipeline.md [PIPE-4].
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cmf.json.frozen import FrozenDict
from cmf.json.value import replace, to_bytes, trusted
from cmf.message.digests import content_digest, value_hash
from cmf.message.message import Message, RequestExtension
from cmf.message.request import Request, Response
from cmf.message.security import RetentionPolicy
from cmf.message.tools import ToolDefinition
from cmf.message.transform import messages_of, with_messages
from pipeline.decisions.context import Context, carried_labels, ingest, labelled
from pipeline.decisions.decision import Effect, ViewDecision
from pipeline.decisions.paths import message_path, message_place, part_at
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.stage import Traffic
from pipeline.decisions.traffic import (
    brought_labels,
    equal_start,
    identical_start,
    labels_of,
    unchanged,
)
from pipeline.provenance.data_policy import DataRule
from pipeline.provenance.profiles import Profiles
from pipeline.provenance.registry import Lookup, Registry, look_up, retention_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """What was added to a request, for the next request that begins with the same messages [PIPE-16].

    Attributes:
        given: its messages as decoded. Where they equal those of the turn before, the objects of that turn.
        prints: the fingerprints of `given` (see `unchanged.equal_start`).
        tools: the tools that it offers.
        messages: its messages as they are judged.
        found: what the registry says of the entities in it.
        request: the context's ids and time of the request, which `messages` have too (`turn_memory.KeptTurn.told`).
        facts: all else that `messages` depends on; if it differs, nothing is taken over.
        same: how many messages at the beginning were taken over from the turn before.
    """

    given: tuple[Message, ...]
    prints: bytes
    tools: tuple[ToolDefinition, ...]
    messages: tuple[Message, ...]
    found: Lookup
    request: RequestExtension | None
    facts: tuple[object, ...]
    same: int = 0


@dataclass(frozen=True, slots=True)
class Ingested:
    """Traffic as it is judged. `before` is the conversation so far; None in requests, which bring it with them."""

    value: Traffic
    registry: Registry
    found: Lookup
    session: SessionFacts
    before: Sequence[Message] = ()
    taken: TakenIn | None = None

    @property
    def events(self) -> frozenset[tuple[str, str]]:
        """The labels that data brought, each as `(label, source event)`: the session's taints [C3]."""
        return self.found.stamped(self.session.lifted)

    @property
    def retention(self) -> RetentionPolicy | None:
        """How long the data in it, and in its session, may be kept together; None where nobody limits it."""
        if not self.found.returned and not self.session.label_sources:
            return None
        earlier = (policy for _, policy in self.registry.bound_to(self.session))
        return retention_of((*(one.policy for one in self.found.returned), *earlier))

    def rule(self) -> DataRule:
        """The rule on what the data may be used for, for this traffic."""
        return DataRule(self.registry, self.found.returned, self.session, reply=not isinstance(self.value, Request))

    def after(self, value: Traffic) -> Ingested:
        """The same for `value`, which the stages made of it; `self` if they changed nothing."""
        if value is self.value:
            return self
        found = look_up(value, self.registry, self.session.lifted, self.before)
        own = messages_of(value)
        labels = carried_labels(own, found.known, frozenset(), together=isinstance(value, Response))
        messages = tuple(map(labelled, own, labels))
        return dataclasses.replace(self, value=with_messages(value, messages), found=found)


def take_in(
    traffic: Traffic,
    context: Context,
    session: SessionFacts,
    profiles: Profiles,
    before: Sequence[Message] | None,
    kept: TakenIn | None = None,
) -> Ingested:
    """`traffic` with the context's facts, the facts registered for what it names, and the labels of its data.

    `kept` is how the request of the turn before was taken in; what it says of unchanged messages is not worked out
    again. The result has `taken`, for the turn after this one, only for a request of a session.

    Raises:
        ConfigError: the registry failed, so that nobody knows which policies bind this traffic.
    """
    registry = Registry(profiles, context)
    if isinstance(traffic, Request):
        if context.session is not None:
            return _request_taken_in(traffic, context, session, registry, kept)
        before = None  # a request brings the conversation with it
    so_far = () if before is None else before
    found = look_up(traffic, registry, session.lifted, so_far)
    # What this process remembers is labelled in the session; what the host gives brings its labels with it.
    given = map(brought_labels, so_far if context.history is not None else ())
    earlier = frozenset[str]().union(*given, *(one.stamped(session.lifted) for one in found.earlier))
    value = ingest(traffic, context, session.labels, found.known, before=earlier)
    return trusted(Ingested, value=value, registry=registry, found=found, session=session, before=so_far)


def _request_taken_in(
    request: Request, context: Context, session: SessionFacts, registry: Registry, kept: TakenIn | None
) -> Ingested:
    given, tools = tuple(request.messages), tuple(request.tools)
    lasting = replace(context, request=None, recorded=FrozenDict(), history=None, call_id=None)
    facts = (to_bytes(lasting), lasting.headers, session.labels, session.lifted)
    same, done = 0, None
    if kept is not None and kept.facts == facts:
        same, prints = equal_start(kept.given, kept.prints, given)
        given = given if identical_start(kept.given, given) >= same else kept.given[:same] + given[same:]
    else:
        prints = equal_start((), b"", given)[1]
    if kept is not None and registry:  # a look-up reads a conversation in order: it can only be continued at its end
        goes_on = same == len(kept.given) > 0 and unchanged(kept.tools, tools) == len(kept.tools) == len(tools)
        same, done = (same, kept.found) if goes_on else (0, None)
    found = look_up(request, registry, session.lifted, done=done)
    begin = kept.messages[:same] if kept is not None else ()
    value = ingest(request, context, session.labels, found.known, done=begin)
    taken = TakenIn(
        given=given,
        prints=prints,
        tools=tools,
        messages=tuple(value.messages),
        found=found,
        request=context.request,
        facts=facts,
        same=same,
    )
    return trusted(Ingested, value=value, registry=registry, found=found, session=session, taken=taken)


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

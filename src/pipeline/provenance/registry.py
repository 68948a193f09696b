"""What is registered of the entities that traffic names: access profiles, data policies, labels.

It is looked up by entity [B9], in the context first and then in the profiles; what the traffic itself says of it never
counts. Entries that grant something need an exact match. Entries that restrict are united over all entities that a name
may mean. Spec: docs/spec/data.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from cmf.json.frozen import FrozenDict, frozen_mapping
from cmf.json.value import fields_of
from cmf.message.digests import canonical_bytes
from cmf.message.message import (
    MCPExtension,
    Message,
    Part,
    PromptRequestPart,
    PromptResultPart,
    ResourcePart,
    ResourceRefPart,
    ToolCallPart,
    ToolMetadata,
    ToolResultPart,
)
from cmf.message.request import Request, Response
from cmf.message.security import DataPolicy, ObjectSecurityProfile, RetentionPolicy
from cmf.message.tools import ToolDefinition
from cmf.message.transform import messages_of
from cmf.views.access import registered
from cmf.views.uris import normalise, segment
from pipeline.decisions.context import NOTHING_KNOWN, Context, Known
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.retention import strictest
from pipeline.provenance.profile import Profile
from pipeline.provenance.profiles import Entity, Found, Profiles, annotations_of
from pipeline.provenance.result_fields import result_labels

_T = TypeVar("_T")
_EVENT: Final = "data:"
_UNDIGESTED: Final = frozenset({"tool_call_id", "tool_name", "extra"})  # spelt differently from turn to turn


class Returned(NamedTuple):
    """Data of one entity that a message brought back. `event` is the source event of the labels that it brings [C3].

    The same data in the same history has the same event, so that a label that was declassified for it stays away.
    `names` are the entity's names in origins (`Entity.names`), with those of its containers.
    """

    message: int
    entity: Entity
    policy: DataPolicy | None
    labels: frozenset[str]
    event: str
    names: frozenset[str | None]

    def stamped(self, lifted: frozenset[tuple[str, str]]) -> frozenset[str]:
        """Its labels, without those that a declassification has lifted for it."""
        return frozenset(label for label in self.labels if (label, self.event) not in lifted)


class Lookup(NamedTuple):
    """The registry's entries for some traffic: by message, and all data that came back in it or before it (message -1).

    `reader` has read to its end. To read on, a copy of it is made.
    """

    known: tuple[Known, ...]
    returned: tuple[Returned, ...]
    reader: _Reader | None = None

    @property
    def earlier(self) -> tuple[Returned, ...]:
        """The data that came back before the traffic."""
        return tuple(one for one in self.returned if one.message < 0)

    def stamped(self, lifted: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """The labels that the data brings, each with its source event."""
        return frozenset((label, one.event) for one in self.returned for label in one.stamped(lifted))


class Registry:
    """The profiles, under the entries of the context of this run, which win."""

    def __init__(self, profiles: Profiles, context: Context) -> None:
        self.profiles = profiles
        self._objects = context.objects
        self._data = context.data

    def __bool__(self) -> bool:
        """Whether it can have any entries."""
        return bool(self.profiles or self._objects or self._data)

    def object(self, entity: Entity) -> ObjectSecurityProfile | None:
        """What access to the entity requires; None if that is not registered."""
        own: ObjectSecurityProfile | None = registered(self._objects, entity.keys)
        if own is not None:
            return own
        found = self.profiles.lookup(entity)
        return None if found is None else found.profile.object

    def returning(self, entity: Entity) -> tuple[tuple[Entity, DataPolicy | None, Profile | None], ...]:
        """Every entity that may be meant, with its data policy (the context's before the profile's) and its profile."""
        profiles = [(_as_entity(found, entity), found.profile) for found in self.profiles.named(entity)]
        own = _all_registered(self._data, entity)
        if own:
            profile = profiles[0][1] if len(profiles) == 1 else None
            return tuple((Entity(uri, entity.name, entity.namespace), policy, profile) for uri, policy in own)
        return tuple((named, profile.data_policy, profile) for named, profile in profiles)

    def bound_to(self, session: SessionFacts) -> Iterator[tuple[Entity, DataPolicy]]:
        """The data policies of data that came back earlier in the session, as far as its labels tell."""
        for uri in remembered(session):
            yield from (
                (resolved, policy) for resolved, policy, _ in self.returning(Entity.of_uri(uri)) if policy is not None
            )

    def policies(self) -> Iterator[tuple[Entity, DataPolicy]]:
        """Every data policy that the context and the documents have; functions cannot be listed."""
        for key, policy in self._data.items():
            yield Entity.of_key(key), policy
        for uri, policy in self.profiles.data_policies().items():
            if uri not in self._data:
                yield Entity.of_key(uri), policy


def remembered(session: SessionFacts) -> dict[str, set[str]]:
    """The URIs of entities whose data brought labels that are in force in the session, with the events of each."""
    found: dict[str, set[str]] = {}
    for events in session.label_sources.values():
        for event in events:
            uri = event_entity(event)
            if uri is not None:
                found.setdefault(uri, set()).add(event)
    return found


def event_entity(event: str) -> str | None:
    """The URI of the entity whose data made a label's source event; None for events of another kind."""
    return event.removeprefix(_EVENT).rpartition("#")[0] if event.startswith(_EVENT) else None


def look_up(
    value: Message | Request | Response,
    registry: Registry,
    lifted: frozenset[tuple[str, str]],
    before: Sequence[Message] = (),
    done: Lookup | None = None,
) -> Lookup:
    """What the registry knows of the entities that each message of `value` names; `before` is the conversation so far.

    `done` is what this found of the first messages of a request, by the same registry.

    Raises:
        ConfigError: a function of the registry failed, or answered with no profile.
    """
    messages = messages_of(value)
    if not registry:
        return Lookup((NOTHING_KNOWN,) * len(messages), ())
    if done is not None and done.reader is not None:
        reader, known, returned = done.reader.copy(registry), [*done.known], [*done.returned]
    else:
        reader, earlier = _Reader(registry), _Message(-1)
        for message in before:
            reader.read_all(message, earlier)
        known, returned = [], earlier.returned
    for place, message in enumerate(messages[len(known) :], len(known)):
        found = _Message(place)
        if place == 0:  # the definitions' views are judged in the context of the first message
            for tool in () if isinstance(value, Message) else value.tools:
                reader.define(tool, found)
        reader.read_all(message, found)
        known.append(found.known(lifted))
        returned += found.returned
    return Lookup(tuple(known), tuple(returned), reader)


class _Message:
    """What was found so far of one message."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.objects: dict[str, ObjectSecurityProfile] = {}
        self.data: dict[str, DataPolicy] = {}
        self.returned: list[Returned] = []
        self.tools: dict[str, ToolDefinition] = {}

    def known(self, lifted: frozenset[tuple[str, str]]) -> Known:
        labels = frozenset[str]().union(*(one.stamped(lifted) for one in self.returned))
        tool = next(iter(self.tools.values())) if len(self.tools) == 1 else None
        mcp = None if tool is None else MCPExtension(tool=_metadata(tool))
        if not (labels or self.objects or self.data or mcp):
            return NOTHING_KNOWN
        return Known(labels, frozen_mapping(self.objects), frozen_mapping(self.data), mcp)


class _Reader:
    """Reads messages in order, and remembers calls to know which tool a result is of."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._calls: dict[str, frozenset[Entity]] = {}
        self._open: list[Entity] = []
        self._prompts: dict[str, frozenset[Entity]] = {}

    def copy(self, registry: Registry) -> _Reader:
        """A copy, to read on from the same place with `registry`, which must have the same entries."""
        other = _Reader(registry)
        other._calls, other._open, other._prompts = dict(self._calls), list(self._open), dict(self._prompts)
        return other

    def define(self, tool: ToolDefinition, found: _Message) -> None:
        entity = Entity.tool(tool.name, tool.namespace)
        self._put_object(entity, found)

    def read_all(self, message: Message, found: _Message) -> None:
        """The parts of the next message."""
        for part in message.content:
            self.read(part, found, ())

    def read(self, part: Part, found: _Message, around: tuple[Returned, ...]) -> None:
        """Read one part, and the parts inside it. `around` is the data of the parts that it is inside of."""
        match part:
            case ToolCallPart():
                self._called(part, found)
            case PromptRequestPart():
                entity = Entity.prompt(part.name, part.server_id)
                if part.prompt_request_id:
                    _add(self._prompts, part.prompt_request_id, entity)
                self._put_object(entity, found)
            case ResourceRefPart():
                self._put_object(Entity.resource(part.uri), found)
            case ToolResultPart():
                name = part.tool_name
                key = f"tool_result://{segment(name) if name else '_'}"
                inner = self._return(part, self._answered(part), key, found, around)
                for nested in part.content if isinstance(part.content, tuple) else ():
                    self.read(nested, found, inner)
            case PromptResultPart():
                asked = self._prompts.get(part.prompt_request_id or "", frozenset())
                named = {one for one in asked if one.name == part.prompt_name} or {
                    Entity.prompt(part.prompt_name, None)
                }
                inner = self._return(part, named | asked, f"prompt_result://{segment(part.prompt_name)}", found, around)
                for message in part.messages:
                    for nested in message.content:
                        self.read(nested, found, inner)
            case ResourcePart():
                self._return(part, {Entity.resource(part.uri)}, normalise(part.uri), found, around)
            case _:
                pass

    def _called(self, part: ToolCallPart, found: _Message) -> None:
        entity = Entity.tool(part.name, part.namespace)
        if part.tool_call_id:
            _add(self._calls, part.tool_call_id, entity)
        else:
            self._open.append(entity)
        self._put_object(entity, found)
        declared = self._registry.profiles.tool(entity.uri)
        if declared is not None:
            found.tools[entity.uri] = declared

    def _put_object(self, entity: Entity, found: _Message) -> None:
        profile = self._registry.object(entity)
        if profile is not None:
            found.objects[entity.uri] = profile

    def _answered(self, part: ToolResultPart) -> set[Entity]:
        """The tools that the result may be of: those called under its id, and the one that it names."""
        name = part.tool_name
        called = set(self._calls.get(part.tool_call_id, ())) if part.tool_call_id else self._next_open(name)
        if name is not None and not any(one.name == name for one in called):
            called.add(Entity.tool(name, None))
        return called

    def _next_open(self, name: str | None) -> set[Entity]:
        for place, entity in enumerate(self._open):
            if name in (None, entity.name):
                return {self._open.pop(place)}
        return set()

    def _return(
        self, part: Part, named: Iterable[Entity], key: str, found: _Message, around: tuple[Returned, ...]
    ) -> tuple[Returned, ...]:
        own = []
        tool_names = frozenset[str | None]({part.tool_name} - {None} if isinstance(part, ToolResultPart) else ())
        tool_names = tool_names.union(*(one.names for one in around))
        for entity in sorted(named, key=lambda one: one.uri):
            for resolved, policy, profile in self._registry.returning(entity):
                labels = _labels(part, policy, profile)
                names = tool_names | entity.names | resolved.names
                event = _event(resolved, part) if labels or policy is not None else ""  # nobody asks for it
                own.append(Returned(found.place, resolved, policy, labels, event, names))
        found.returned += own
        inside = (*around, *own)
        policies = [one.policy for one in inside if one.policy is not None]
        if policies:
            before = found.data.get(key)
            found.data[key] = merged(policies if before is None else [before, *policies])
        return inside


def _add(known: dict[str, frozenset[Entity]], name: str, entity: Entity) -> None:
    known[name] = known.get(name, frozenset()) | {entity}


def merged(policies: Sequence[DataPolicy]) -> DataPolicy:
    """One policy that forbids what any of them forbids, and allows only what all of them allow."""
    if len(policies) == 1:
        return policies[0]
    lists = [frozenset(one.allowed_actions) for one in policies if one.allowed_actions is not None]
    allowed = tuple(sorted(frozenset.intersection(*lists))) if lists else None
    return DataPolicy(
        apply_labels=_united(one.apply_labels for one in policies),
        allowed_actions=allowed,
        denied_actions=_united(one.denied_actions for one in policies),
        retention=retention_of(policies),
    )


def retention_of(policies: Iterable[DataPolicy | None]) -> RetentionPolicy | None:
    """The strictest retention of data under all these policies; None where none of them limits it."""
    return strictest(one.retention for one in policies if one is not None)


def _united(words: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted({word for each in words for word in each}))


def _labels(part: Part, policy: DataPolicy | None, profile: Profile | None) -> frozenset[str]:
    labels = frozenset(policy.apply_labels) if policy is not None else frozenset[str]()
    if profile is None:
        return labels
    return labels | (
        result_labels(part, profile.rules) if isinstance(part, ToolResultPart) else profile.rules.every_label
    )


def _event(entity: Entity, part: Part) -> str:
    fields = {name: item for name, item in fields_of(part).items() if name not in _UNDIGESTED}
    return f"{_EVENT}{entity.uri}#{hashlib.sha256(canonical_bytes(fields)).hexdigest()[:16]}"


def _as_entity(found: Found, asked: Entity) -> Entity:
    return asked if found.uri == asked.uri else Entity.of_key(found.uri)


def _all_registered(registry: Mapping[str, _T], entity: Entity) -> list[tuple[str, _T]]:
    """The entry for the entity; if only its name is known, the entries of all entities of that name."""
    found: _T | None = registered(registry, entity.keys) if registry else None
    if found is not None:
        return [(entity.uri, found)]
    if entity.name is None or entity.namespace is not None:
        return []
    ends = f"/{entity.name}"
    return [(Entity.of_key(key).uri, item) for key, item in registry.items() if key.endswith(ends) or key == ends[1:]]


def _metadata(tool: ToolDefinition) -> ToolMetadata:
    said: Mapping[str, Any] = (tool.extra or {}).get("mcp") or {}
    title, output = said.get("title"), said.get("outputSchema")
    return ToolMetadata(
        name=tool.name,
        title=title if isinstance(title, str) else None,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=output if isinstance(output, FrozenDict) else None,
        server_id=tool.namespace,
        namespace=tool.namespace,
        annotations=FrozenDict(annotations_of(tool) or {}),
    )

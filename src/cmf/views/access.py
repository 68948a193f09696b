"""What a reader may see of a message's context: its extensions, as far as capabilities grant them [B7, C2].

All views of a message share one context. It is projected once: into attributes here, into JSON bytes in the pipeline.
Spec: docs/spec/views.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from cmf.enums import Capability, Hook, MessageStatus
from cmf.json.frozen import FrozenDict
from cmf.json.value import REQUIRED, entries, fields_of, replace, trusted
from cmf.message.message import (
    AgentExtension,
    Extensions,
    HttpExtension,
    Part,
    PromptResultPart,
    RequestExtension,
    ToolResultPart,
)
from cmf.message.request import Request
from cmf.message.security import SecurityExtension, SubjectExtension, without_sensitive
from cmf.views.tiers import SLOTS, SUBJECT_FIELDS, Grants, granted

if TYPE_CHECKING:
    from cmf.message.message import Message

_V = TypeVar("_V")
_EMPTY: Final = trusted(Extensions)
_NO_SECURITY: Final = trusted(SecurityExtension)
_READ_SLOT: Final = {name: slot.read for name, slot in SLOTS.items() if "." not in name}
_NOTHING: Final = FrozenDict()


class Scope:
    """The context that the views of one message share. `grants` None means the host itself, which sees everything."""

    __slots__ = ("_extensions", "_grants", "_message", "_source", "_subject", "facts", "hook", "security")

    security: SecurityExtension
    """The ungated security block; for this module's callers, never for a reader."""

    facts: Mapping[str, Any] | None
    """`message_facts` of all views but the first; None until they were asked for."""

    def __init__(
        self, message: Message | None, extensions: Extensions | None, grants: Grants, hook: Hook | None
    ) -> None:
        self._message = message
        self._source = self._extensions = _EMPTY if extensions is None else extensions
        self.security = self._extensions.security or _NO_SECURITY
        self._grants = grants
        if (agent := self._extensions.agent) is not None and agent.conversation is not None:
            shown = self.veil.agent(agent)
            self._extensions = self._source if shown is agent else replace(self._source, agent=shown)
        self.hook = hook
        self.facts = None
        self._subject: SubjectExtension | bool | None = False

    @property
    def context_id(self) -> int:
        """A number that is equal for scopes over the same extensions object, as long as one of them is alive."""
        return id(self._source)

    @property
    def veil(self) -> Veil:
        """What is hidden of the messages inside this one [VIEW-25]."""
        return veil_for(self._grants, written=True)

    def grants(self, capability: Capability | None) -> bool:
        """Whether the reader holds `capability`."""
        return granted(self._grants, capability)

    @property
    def subject(self) -> SubjectExtension | None:
        """The subject with only the granted fields."""
        if isinstance(self._subject, bool):
            self._subject = self.veil.subject_shown(self.security.subject)
        return self._subject

    @property
    def request(self) -> RequestExtension | None:
        """The request slot: everybody may read it."""
        return self._extensions.request

    @property
    def agent(self) -> AgentExtension | None:
        """The agent slot; None without `read_agent`."""
        return self._extensions.agent if self.grants(Capability.READ_AGENT) else None

    @property
    def headers(self) -> Mapping[str, str | None] | None:
        """The headers, sensitive ones by name alone; None without `read_headers`."""
        http = self._extensions.http
        return http.headers if http is not None and self.grants(Capability.READ_HEADERS) else None

    def entity(self, keys: tuple[str, ...], container: str | None) -> dict[str, Any]:
        """`object` and `data_policy` as registered under the first of `keys` that has any, as far as granted.

        An entity without its own has those of the entity whose URI is `container` [B2].
        """
        profiles: dict[str, Any] = {}
        if self.security is _NO_SECURITY:
            return profiles
        for name, field in shown_to(self._grants).profiles:
            registry = getattr(self.security, field)
            if (entry := registered(registry, keys)) is None and container is not None:
                entry = registered(registry, (container,))
            if entry is not None:
                profiles[name] = entry
        return profiles

    def message_facts(self, first: bool) -> Mapping[str, Any]:
        """The message's own fields, as properties of a view; `extra` only for the `first` view. Not to be changed."""
        message = self._message
        if message is None:
            return _NOTHING
        if self.facts is None:
            held = ((name, getattr(message, name), omitted_at) for name, omitted_at in shown_to(self._grants).message)
            self.facts = {name: str.__str__(item) for name, item, omitted_at in held if item is not omitted_at}
        return {**self.facts, "extra": message.extra} if first and message.extra else self.facts

    def shared(self) -> dict[str, Any]:
        """The `extensions` block of the policy input, but for each view's own `object` and `data_policy`.

        The dicts are fresh; in them are values of the format and frozen JSON, which `cmf.json.value.to_bytes` and
        `to_json` write.
        """
        what, extensions, held = shown_to(self._grants), self._extensions, fields_of(self._extensions)
        shown = {slot: held[slot] for slot in what.slots if slot in held}
        if extensions.http is not None and "http" in shown:
            shown["http"] = {"headers": without_sensitive(extensions.http.headers)}
        security: dict[str, Any] = {}
        subject = self.subject
        if subject is not None and (self._grants is None or fields_of(subject)):
            security["subject"] = subject
        for name, omitted_at in what.security:
            if (item := getattr(self.security, name)) is not omitted_at:
                security[name] = item
        if security:
            shown["security"] = security
        return shown


# -- messages, with what a reader may see of them ----------------------------------------------------------------------


class Veil(NamedTuple):
    """What a set of grants hides of a message, and of the messages inside it at any depth.

    It has slots; fields of `security`, each with what replaces it; fields of the subject. `session` is whether the id
    of the session is hidden, `headers` whether not even the names of sensitive headers are shown.
    """

    slots: tuple[str, ...]
    security: tuple[tuple[str, Any], ...]
    subject: tuple[str, ...]
    session: bool
    headers: bool

    def request(self, value: _V) -> _V:
        """The value without the session that a request itself names, if that is hidden."""
        named = self.session and isinstance(value, Request) and value.session_id is not None
        return replace(value, session_id=None) if named else value

    def message(self, message: Message, extensions: Extensions | None) -> Message:
        """The message with these extensions, without what is hidden; the same object if that changes nothing."""
        changed: dict[str, Any] = {} if extensions is message.extensions else {"extensions": extensions}
        if self.session and message.session_id is not None:
            changed["session_id"] = None
        content = self._parts(message.content)
        if content is not message.content:
            changed["content"] = content
        return replace(message, **changed) if changed else message

    def extensions(self, extensions: Extensions | None) -> Extensions | None:
        """The extensions without what is hidden; the same object if nothing of it is."""
        if extensions is None:
            return None
        hidden: dict[str, Any] = {slot: None for slot in self.slots if getattr(extensions, slot) is not None}
        if "agent" not in hidden and (agent := self.agent(extensions.agent)) is not extensions.agent:
            hidden["agent"] = agent
        if self.headers and "http" not in hidden and extensions.http is not None:
            hidden["http"] = HttpExtension(headers=without_sensitive(extensions.http.headers))
        security = self._security(extensions.security)
        if security is not extensions.security:
            hidden["security"] = security
        return replace(extensions, **hidden) if hidden else extensions

    def agent(self, agent: AgentExtension | None) -> AgentExtension | None:
        """The agent, with the messages of its history without what is hidden."""
        conversation = None if agent is None else agent.conversation
        if agent is None or conversation is None or not conversation.history:
            return agent
        history = self._messages(conversation.history)
        if history is conversation.history:
            return agent
        return replace(agent, conversation=replace(conversation, history=history))

    def subject_shown(self, subject: SubjectExtension | None) -> SubjectExtension | None:
        """The subject with only the granted fields; None where none of them is granted [C2]."""
        if subject is None or len(self.subject) == len(SUBJECT_FIELDS):
            return None
        hidden = {name: None for name in self.subject if getattr(subject, name) is not None}
        return replace(subject, **hidden) if hidden else subject

    def _security(self, security: SecurityExtension | None) -> SecurityExtension | None:
        if security is None:
            return None
        changed: dict[str, Any] = {
            field: nothing for field, nothing in self.security if getattr(security, field) != nothing
        }
        subject = self.subject_shown(security.subject)
        if subject is not security.subject:
            changed["subject"] = subject
        return replace(security, **changed) if changed else security

    def _messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        shown = tuple([self.message(each, self.extensions(each.extensions)) for each in messages])
        return messages if all(map(is_, shown, messages)) else shown

    def _parts(self, parts: Sequence[Part]) -> Sequence[Part]:
        if _HOLDING.isdisjoint(map(type, parts)):
            return parts
        shown = tuple(map(self._part, parts))
        return parts if all(map(is_, shown, parts)) else shown

    def _part(self, part: Part) -> Part:
        if isinstance(part, PromptResultPart):
            messages = self._messages(part.messages)
            return part if messages is part.messages else replace(part, messages=messages)
        if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
            content = self._parts(part.content)
            return part if content is part.content else replace(part, content=content)
        return part


_HOLDING: Final = frozenset({PromptResultPart, ToolResultPart})


@lru_cache(maxsize=256)  # as many as an installation has stages and policy sets
def veil_for(grants: Grants, *, written: bool = False) -> Veil:
    """What `grants` hide; it is all empty or false if they hide nothing. `written` hides the names of headers too."""
    return Veil(
        slots=tuple(slot for slot, needs in _READ_SLOT.items() if not granted(grants, needs)),
        security=tuple(
            (field, getattr(_NO_SECURITY, field))
            for field in ("labels", "classification", "objects", "data")
            if not granted(grants, SLOTS[f"security.{field}"].read)
        ),
        subject=tuple(name for name, needs in SUBJECT_FIELDS.items() if not granted(grants, needs)),
        session=not granted(grants, Capability.READ_AGENT),
        headers=written,
    )


def messages_inside(message: Message) -> list[Message]:
    """The messages that stand in the parts of a message, or in its agent's history."""
    agent = None if message.extensions is None else message.extensions.agent
    conversation = None if agent is None else agent.conversation
    inside = list(conversation.history or ()) if conversation is not None else []
    parts = list(message.content) if not _HOLDING.isdisjoint(map(type, message.content)) else []
    while parts:
        part = parts.pop()
        if isinstance(part, PromptResultPart):
            inside += part.messages
        elif isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
            parts += part.content
    return inside


# -- what a reader is shown of a message's context ---------------------------------------------------------------------


class Shown(NamedTuple):
    """The fields of a message's context that a reader is shown, in the order of the input.

    A field is paired with the value at which it is left out, if there is one.
    """

    message: tuple[tuple[str, Any], ...]
    slots: tuple[str, ...]
    security: tuple[tuple[str, Any], ...]
    profiles: tuple[tuple[str, str], ...]
    """What an entity has of its own, and the field of the security block in which that is registered."""


@lru_cache(maxsize=64)  # a reader asks for the same ones each time
def shown_to(grants: Grants) -> Shown:
    """What `grants` allow a reader to see."""
    return Shown(
        tuple((name, omitted_at) for name, (needs, omitted_at) in _MESSAGE.items() if granted(grants, needs)),
        tuple(slot for slot in _SLOTS if granted(grants, _READ_SLOT[slot])),
        tuple(_LABELS.items()) if granted(grants, Capability.READ_LABELS) else (),
        tuple((name, field) for name, (field, needs) in _PROFILES.items() if granted(grants, needs)),
    )


_SLOTS: Final = tuple(name for name, _, _ in entries(Extensions) if name != "security")
_MESSAGE: Final[dict[str, tuple[Capability | None, Any]]] = {
    "id": (None, None),
    "parent_id": (None, None),
    "channel": (None, None),
    "session_id": (Capability.READ_AGENT, None),
    "status": (None, MessageStatus.COMPLETE),
}
_PROFILES: Final = {"object": ("objects", Capability.READ_OBJECTS), "data_policy": ("data", Capability.READ_DATA)}
_LABELS: Final = {"labels": REQUIRED, "classification": None}  # labels are shown even if empty


def registered(registry: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """What is registered under the first of `keys` that is found.

    The last is a bare name; if it could also mean an entity of a namespace, it names none [B9].
    """
    for key in keys:
        if key in registry:
            is_bare = len(registry) > 1 and key == keys[-1]
            if not is_bare or not any(other.endswith(f"/{key}") for other in registry):
                return registry[key]
    return None

"""What a reader may see of a message's context: its extensions, as far as capabilities grant them [B7, C2].

All views of a message share one context. It is projected once: into attributes here, into JSON bytes in the pipeline.
Spec: docs/spec/views.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cmf.enums import Capability, Hook, MessageStatus
from cmf.extensions import AgentExtension, Extensions, RequestExtension
from cmf.frozen import FrozenDict
from cmf.headers import without_sensitive
from cmf.security import SecurityExtension, SubjectExtension
from cmf.tiers import SLOTS, SUBJECT_FIELDS, Grants, granted
from cmf.value import REQUIRED, entries, fields_of, trusted

if TYPE_CHECKING:
    from cmf.message import Message

_EMPTY: Final = trusted(Extensions)
_NO_SECURITY: Final = trusted(SecurityExtension)
_READ_SLOT: Final = {name: slot.read for name, slot in SLOTS.items() if "." not in name}
_NOTHING: Final = FrozenDict()


class Scope:
    """The context that the views of one message share. `grants` None means the host itself, which sees everything."""

    __slots__ = ("_extensions", "_grants", "_message", "_subject", "facts", "hook", "security")

    security: SecurityExtension
    """The ungated security block; for this module's callers, never for a reader."""

    facts: Mapping[str, Any] | None
    """`message_facts` of all views but the first; None until they were asked for."""

    def __init__(
        self, message: Message | None, extensions: Extensions | None, grants: Grants, hook: Hook | None
    ) -> None:
        self._message = message
        self._extensions = _EMPTY if extensions is None else extensions
        self.security = self._extensions.security or _NO_SECURITY
        self._grants = grants
        self.hook = hook
        self.facts = None
        self._subject: SubjectExtension | bool | None = False

    @property
    def context_id(self) -> int:
        """A number that is equal for scopes over the same extensions object, as long as one of them is alive."""
        return id(self._extensions)

    def grants(self, capability: Capability | None) -> bool:
        """Whether the reader holds `capability`."""
        return granted(self._grants, capability)

    @property
    def subject(self) -> SubjectExtension | None:
        """The subject with only the granted fields."""
        if isinstance(self._subject, bool):
            self._subject = self._gated_subject()
        return self._subject

    def _gated_subject(self) -> SubjectExtension | None:
        subject = self.security.subject
        if subject is None or self._grants is None:
            return subject
        fields = {name: getattr(subject, name) for name in shown_to(self._grants).subject}
        return trusted(SubjectExtension, **fields) if fields else None

    def subject_set(self, field: str) -> frozenset[str] | None:
        """Roles, permissions or teams; None where not granted or not known."""
        subject = self.security.subject
        if subject is None or not self.grants(SUBJECT_FIELDS[field]):
            return None
        members: frozenset[str] | None = getattr(subject, field)
        return members

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

    @property
    def labels(self) -> frozenset[str] | None:
        """The labels; None without `read_labels`. Granted and empty is an empty set."""
        return self.security.labels if self.grants(Capability.READ_LABELS) else None

    def entity(self, keys: tuple[str, ...], container: str | None) -> dict[str, Any]:
        """`object` and `data_policy` as registered under the first of `keys` that has any, as far as granted.

        An entity without its own has those of the entity whose URI is `container` [B2].
        """
        known: dict[str, Any] = {}
        if self.security is _NO_SECURITY:
            return known
        for name, field in shown_to(self._grants).profiles:
            registry = getattr(self.security, field)
            entry = registered(registry, keys)
            if entry is None and container is not None:
                entry = registered(registry, (container,))
            if entry is not None:
                known[name] = entry
        return known

    def message_facts(self, first: bool) -> Mapping[str, Any]:
        """The message's own fields, as properties of a view; `extra` only for the `first` view. Not to be changed."""
        message = self._message
        if message is None:
            return _NOTHING
        if self.facts is None:
            self.facts = self._message_fields(message)
        return {**self.facts, "extra": message.extra} if first and message.extra else self.facts

    def _message_fields(self, message: Message) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name, omitted_at in shown_to(self._grants).message:
            if (held := getattr(message, name)) is not omitted_at:
                shown[name] = str.__str__(held)
        return shown

    def shared(self) -> dict[str, Any]:
        """The `extensions` block of the policy input, but for each view's own `object` and `data_policy`.

        The dicts are fresh; in them are values of the format and frozen JSON, which `cmf.value.to_bytes` and `to_json`
        write.
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


class Shown(NamedTuple):
    """The fields of a message's context that a reader is shown, in the order of the input.

    A field is paired with the value at which it is left out, if there is one.
    """

    message: tuple[tuple[str, Any], ...]
    slots: tuple[str, ...]
    subject: tuple[str, ...]
    security: tuple[tuple[str, Any], ...]
    profiles: tuple[tuple[str, str], ...]
    """What an entity has of its own, and the field of the security block in which that is registered."""


@lru_cache(maxsize=64)  # a reader asks for the same ones each time
def shown_to(grants: Grants) -> Shown:
    """What `grants` allow a reader to see: for `Scope`, and for the native module, which writes the same [INP-6]."""
    return Shown(
        tuple((name, omitted_at) for name, (needs, omitted_at) in _MESSAGE.items() if granted(grants, needs)),
        tuple(slot for slot in _SLOTS if granted(grants, _READ_SLOT[slot])),
        tuple(field for field, needs in SUBJECT_FIELDS.items() if granted(grants, needs)),
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
    """What is registered under the first of `keys` that is found. The last is a bare name: not if ambiguous [B9]."""
    for key in keys:
        if key in registry and not (len(registry) > 1 and key == keys[-1] and _ambiguous(registry, key)):
            return registry[key]
    return None


def _ambiguous(registry: Mapping[str, Any], name: str) -> bool:
    """Whether the bare `name` could also mean an entity of a namespace: then it names none [B9]."""
    suffix = f"/{name}"
    return any(key.endswith(suffix) for key in registry)

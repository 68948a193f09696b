"""What a reader may know of a message's context: the extensions, gated by capability [B7, C2]. Spec: views.md.

The views of one message share their context, so it is projected once: as attributes here, as bytes in the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cmf.enums import Capability, Hook, MessageStatus
from cmf.extensions import AgentExtension, Extensions, RequestExtension
from cmf.frozen import FrozenDict
from cmf.headers import without_sensitive
from cmf.security import SecurityExtension, SubjectExtension
from cmf.tiers import SLOTS, SUBJECT_FIELDS, Grants, granted
from cmf.value import fields_of, trusted

if TYPE_CHECKING:
    from cmf.message import Message

_EMPTY: Final = trusted(Extensions)
_NO_SECURITY: Final = trusted(SecurityExtension)
_COMPLETE: Final = MessageStatus.COMPLETE
# Looking up a member on its enum takes longer than asking whether it was granted.
_READ_LABELS, _READ_OBJECTS, _READ_DATA = Capability.READ_LABELS, Capability.READ_OBJECTS, Capability.READ_DATA
_READ_SLOT: Final = {name: slot.read for name, slot in SLOTS.items() if "." not in name}
_NOTHING: Final = FrozenDict()


class Scope:
    """The context that the views of one message share. `grants` None is the host itself, who sees everything."""

    __slots__ = ("_extensions", "_grants", "_message", "_subject", "facts", "hook", "registries", "security")

    security: SecurityExtension
    """The ungated security block; for this module's callers, never for a reader."""

    facts: Mapping[str, Any] | None
    """`message_facts` of all views but the first; None until they were asked for."""

    registries: tuple[tuple[str, Mapping[str, Any]], ...]
    """Where `object` and `data_policy` are looked up: those that are granted and not empty."""

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
        # Most messages bring no profiles: then there is nothing to ask for.
        self.registries = () if self.security is _NO_SECURITY else self._granted_registries()

    def _granted_registries(self) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        objects, data = self.security.objects, self.security.data
        found: list[tuple[str, Mapping[str, Any]]] = []
        if objects and self.grants(_READ_OBJECTS):
            found.append(("object", objects))
        if data and self.grants(_READ_DATA):
            found.append(("data_policy", data))
        return tuple(found)

    @property
    def context_id(self) -> int:
        """The same for scopes over the very same extensions, as long as one of them lives."""
        return id(self._extensions)

    def grants(self, capability: Capability | None) -> bool:
        """Whether the reader holds `capability`."""
        return self._grants is None or granted(self._grants, capability)

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
        fields = {name: getattr(subject, name) for name, needs in SUBJECT_FIELDS.items() if self.grants(needs)}
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
    def headers(self) -> Mapping[str, str] | None:
        """All headers, sensitive ones included; None without `read_headers`."""
        http = self._extensions.http
        return http.headers if http is not None and self.grants(Capability.READ_HEADERS) else None

    @property
    def labels(self) -> frozenset[str] | None:
        """The labels; None without `read_labels`. Granted and empty is an empty set."""
        return self.security.labels if self.grants(Capability.READ_LABELS) else None

    def entity(self, keys: tuple[str, ...], container: str | None) -> dict[str, Any]:
        """`object` and `data_policy` as registered under the first of `keys`, as far as granted.

        What has none of its own has that of the entity whose URI is `container` [B2].
        """
        known: dict[str, Any] = {}
        for name, registry in self.registries:
            entry = registered(registry, keys)
            if entry is None and container is not None:
                entry = registered(registry, (container,))
            if entry is not None:
                known[name] = entry
        return known

    def message_facts(self, first: bool) -> Mapping[str, Any]:
        """What is known of the message itself; its `extra` is shown once, with the first view. Read only."""
        message = self._message
        if message is None:
            return _NOTHING
        if self.facts is None:
            self.facts = self._known_of(message)
        return {**self.facts, "extra": message.extra} if first and message.extra else self.facts

    def _known_of(self, message: Message) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        if message.id is not None:
            shown["id"] = message.id
        if message.parent_id is not None:
            shown["parent_id"] = message.parent_id
        if message.channel is not None:
            shown["channel"] = message.channel.value
        if message.session_id is not None and self.grants(Capability.READ_AGENT):
            shown["session_id"] = message.session_id
        if message.status is not _COMPLETE:
            shown["status"] = message.status.value
        return shown

    def shared(self) -> dict[str, Any]:
        """The `extensions` block of the policy input, but for each view's own `object` and `data_policy`.

        The dicts are fresh; in them are values of the format and frozen JSON, which `cmf.value.to_bytes` and `to_json`
        write.
        """
        extensions, grants = self._extensions, self._grants
        shown = fields_of(extensions)
        shown.pop("security", None)
        if grants is not None:
            shown = {slot: block for slot, block in shown.items() if granted(grants, _READ_SLOT[slot])}
        if extensions.http is not None and "http" in shown:
            shown["http"] = {"headers": without_sensitive(extensions.http.headers)}
        security: dict[str, Any] = {}
        subject = self.security.subject if grants is None else self.subject
        if subject is not None and (grants is None or fields_of(subject)):
            security["subject"] = subject
        if grants is None or granted(grants, _READ_LABELS):
            security["labels"] = self.security.labels
            if (classification := self.security.classification) is not None:
                security["classification"] = classification
        if security:
            shown["security"] = security
        return shown


def registered(registry: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """What is registered under the first of `keys`; the last is a bare name, and finds nothing if ambiguous [B9]."""
    for key in keys:
        if key in registry and not (len(registry) > 1 and key == keys[-1] and _ambiguous(registry, key)):
            return registry[key]
    return None


def _ambiguous(registry: Mapping[str, Any], name: str) -> bool:
    """Whether the bare `name` could also mean an entity of a namespace: then it names none [B9]."""
    suffix = f"/{name}"
    return any(key.endswith(suffix) for key in registry)

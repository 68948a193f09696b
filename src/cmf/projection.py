"""What a reader may know of a message's context: the extensions, gated by capability [B7, C2]. Spec: views.md.

The views of one message share their context, so it is projected once: as attributes here, as bytes in the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.enums import Capability, Hook, MessageStatus
from cmf.extensions import AgentExtension, Extensions, RequestExtension
from cmf.headers import without_sensitive
from cmf.security import DataPolicy, ObjectSecurityProfile, SecurityExtension, SubjectExtension
from cmf.tiers import SLOTS, SUBJECT_FIELDS, Grants, granted
from cmf.value import fields_of, trusted

_EMPTY: Final = trusted(Extensions)
_NO_SECURITY: Final = trusted(SecurityExtension)
_COMPLETE: Final = MessageStatus.COMPLETE
# Looking up a member on its enum takes longer than asking whether it was granted.
_READ_LABELS, _READ_OBJECTS, _READ_DATA = Capability.READ_LABELS, Capability.READ_OBJECTS, Capability.READ_DATA
_PLAIN_SLOTS: Final = tuple((name, slot.read) for name, slot in SLOTS.items() if "." not in name and name != "http")


class Scope:
    """The context that the views of one message share. `grants` None is the host itself, who sees everything."""

    __slots__ = ("_extensions", "_facts", "_grants", "_message", "_subject", "hook")

    def __init__(self, message: Any, grants: Grants, hook: Hook | None) -> None:
        self._message = message
        self._extensions: Extensions = getattr(message, "extensions", None) or _EMPTY
        self._grants = grants
        self.hook = hook
        self._facts: dict[str, Any] | None = None
        self._subject: SubjectExtension | bool | None = False

    @property
    def context_id(self) -> int:
        """The same for scopes over the very same extensions, as long as one of them lives."""
        return id(self._extensions)

    def grants(self, capability: Capability | None) -> bool:
        """Whether the reader holds `capability`."""
        return self._grants is None or granted(self._grants, capability)

    @property
    def security(self) -> SecurityExtension:
        """The ungated security block; for this module's callers, never for a reader."""
        return self._extensions.security or _NO_SECURITY

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

    def object_profile(self, keys: tuple[str, ...]) -> ObjectSecurityProfile | None:
        """The profile registered under the first of `keys`; None without `read_objects`."""
        registry = self.security.objects
        found: ObjectSecurityProfile | None = None
        if registry and self.grants(_READ_OBJECTS):
            found = registered(registry, keys)
        return found

    def data_policy(self, keys: tuple[str, ...]) -> DataPolicy | None:
        """The data policy registered under the first of `keys`; None without `read_data`."""
        registry = self.security.data
        found: DataPolicy | None = None
        if registry and self.grants(_READ_DATA):
            found = registered(registry, keys)
        return found

    def message_facts(self, *, first: bool) -> dict[str, Any]:
        """What is known of the message itself; its `extra` is shown once, with the first view. Read only."""
        if self._facts is None:
            self._facts = self._known_of_message()
        if first and (extra := getattr(self._message, "extra", None)):
            return {**self._facts, "extra": extra}
        return self._facts

    def _known_of_message(self) -> dict[str, Any]:
        message = self._message
        shown: dict[str, Any] = {}
        for name in ("id", "parent_id", "channel"):
            if (item := getattr(message, name, None)) is not None:
                shown[name] = str(item)
        if (session := getattr(message, "session_id", None)) is not None and self.grants(Capability.READ_AGENT):
            shown["session_id"] = session
        status = getattr(message, "status", _COMPLETE)
        if status is not _COMPLETE:
            shown["status"] = status.value
        return shown

    def shared(self) -> dict[str, Any]:
        """The `extensions` block of the policy input, but for each view's own `object` and `data_policy`.

        The dicts are fresh; in them are values of the format and frozen JSON, which `cmf.value.to_bytes` and `to_json`
        write.
        """
        extensions = self._extensions
        shown: dict[str, Any] = {}
        for slot, needs in _PLAIN_SLOTS:
            block = getattr(extensions, slot)
            if block is not None and (needs is None or self.grants(needs)):
                shown[slot] = block
        if (headers := self.headers) is not None:
            shown["http"] = {"headers": without_sensitive(headers)}
        security: dict[str, Any] = {}
        subject = self.subject
        if subject is not None and (self._grants is None or fields_of(subject)):
            security["subject"] = subject
        if self.grants(_READ_LABELS):
            security["labels"] = self.security.labels
            if (classification := self.security.classification) is not None:
                security["classification"] = classification
        if security:
            shown["security"] = security
        return shown


def registered(registry: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """What is registered under the first of `keys`; the last is a bare name, and finds nothing if ambiguous [B9]."""
    for key in keys:
        entry = registry.get(key)
        if entry is not None and not (len(registry) > 1 and key == keys[-1] and _ambiguous(registry, key)):
            return entry
    return None


def _ambiguous(registry: Mapping[str, Any], name: str) -> bool:
    """Whether the bare `name` could also mean an entity of a namespace: then it names none [B9]."""
    suffix = f"/{name}"
    return any(key.endswith(suffix) for key in registry)

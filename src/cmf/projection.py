"""What a reader may know of a message's context: the extensions, gated by capability [B7, C2]. Spec: views.md.

The views of one message share their context, so it is projected once: as attributes here, as bytes in the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.enums import Capability, Hook, MessageStatus
from cmf.extensions import AgentExtension, Extensions, RequestExtension
from cmf.frozen import FrozenDict
from cmf.headers import without_sensitive
from cmf.security import DataPolicy, ObjectSecurityProfile, SecurityExtension, SubjectExtension
from cmf.tiers import SLOTS, SUBJECT_FIELDS, Grants, granted
from cmf.value import to_json, trusted

_EMPTY: Final = trusted(Extensions)
_NO_SECURITY: Final = trusted(SecurityExtension)
_PLAIN_SLOTS: Final = tuple(name for name in SLOTS if "." not in name and name != "http")


class Scope:
    """The context that the views of one message share. `grants` None is the host itself, who sees everything."""

    __slots__ = ("_extensions", "_grants", "_message", "_shared", "_subject", "hook")

    def __init__(self, message: Any, grants: Grants, hook: Hook | None) -> None:
        self._message = message
        self._extensions: Extensions = getattr(message, "extensions", None) or _EMPTY
        self._grants = grants
        self.hook = hook
        self._shared: dict[str, Any] | None = None
        self._subject: SubjectExtension | bool | None = False

    def grants(self, capability: Capability | None) -> bool:
        """Whether the reader holds `capability`."""
        return granted(self._grants, capability)

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

    @property
    def has_profiles(self) -> bool:
        """Whether any entity has a profile or a data policy."""
        security = self._extensions.security
        return security is not None and bool(security.objects or security.data)

    def object_profile(self, keys: tuple[str, ...]) -> ObjectSecurityProfile | None:
        """The profile registered under the first of `keys`; None without `read_objects`."""
        if not self.grants(Capability.READ_OBJECTS):
            return None
        found: ObjectSecurityProfile | None = _registered(self.security.objects, keys)
        return found

    def data_policy(self, keys: tuple[str, ...]) -> DataPolicy | None:
        """The data policy registered under the first of `keys`; None without `read_data`."""
        if not self.grants(Capability.READ_DATA):
            return None
        found: DataPolicy | None = _registered(self.security.data, keys)
        return found

    def message_facts(self, *, first: bool) -> dict[str, Any]:
        """What is known of the message itself; its `extra` is shown once, with the first view."""
        message = self._message
        shown: dict[str, Any] = {}
        for name in ("id", "parent_id", "channel"):
            if (item := getattr(message, name, None)) is not None:
                shown[name] = str(item)
        if (session := getattr(message, "session_id", None)) is not None and self.grants(Capability.READ_AGENT):
            shown["session_id"] = session
        status = getattr(message, "status", MessageStatus.COMPLETE)
        if status is not MessageStatus.COMPLETE:
            shown["status"] = status.value
        if first and (extra := getattr(message, "extra", None)):
            shown["extra"] = extra
        return shown

    def shared(self) -> dict[str, Any]:
        """The `extensions` block of the policy input, but for each view's own `object` and `data_policy`. Read only."""
        if self._shared is None:
            self._shared = self._project()
        return self._shared

    def _project(self) -> dict[str, Any]:
        extensions = self._extensions
        shown: dict[str, Any] = {}
        for slot in _PLAIN_SLOTS:
            block = getattr(extensions, slot)
            if block is not None and self.grants(SLOTS[slot].read):
                shown[slot] = block if isinstance(block, FrozenDict) else block.model_dump()
        if (headers := self.headers) is not None:
            shown["http"] = {"headers": without_sensitive(headers)}
        security = self._project_security()
        if security:
            shown["security"] = security
        return shown

    def _project_security(self) -> dict[str, Any]:
        security = self.security
        shown: dict[str, Any] = {}
        subject = self.subject
        if subject is not None:
            dumped = subject.model_dump()
            if dumped or self._grants is None:
                shown["subject"] = dumped
        if self.grants(Capability.READ_LABELS):
            shown["labels"] = to_json(security.labels)
            if security.classification is not None:
                shown["classification"] = security.classification
        return shown


def _registered(registry: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        entry = registry.get(key)
        if entry is not None and not (key == keys[-1] and _ambiguous(registry, key)):
            return entry
    return None


def _ambiguous(registry: Mapping[str, Any], name: str) -> bool:
    """Whether the bare `name` could also mean an entity of a namespace: then it names none [B9]."""
    suffix = f"/{name}"
    return any(key.endswith(suffix) for key in registry)

"""The one table of extension slots: how each may change, who may read it, who may write it [C1].

View gating, drafting, enforcement, documentation and tests all read this table. Spec: docs/spec/tiers.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cmf.enums import Capability, Tier

Grants = frozenset[Capability] | None
"""What a reader may see: a set of capabilities, or None for the host itself, who sees everything."""


class Slot(NamedTuple):
    """One slot: its tier, the capability that reads it and the one that writes it (None: nobody needs one)."""

    tier: Tier
    read: Capability | None = None
    write: Capability | None = None


SLOTS: Final[dict[str, Slot]] = {
    "request": Slot(Tier.IMMUTABLE),
    "agent": Slot(Tier.IMMUTABLE, Capability.READ_AGENT),
    "http": Slot(Tier.GUARDED, Capability.READ_HEADERS, Capability.WRITE_HEADERS),
    "security.labels": Slot(Tier.MONOTONIC, Capability.READ_LABELS),
    "security.classification": Slot(Tier.IMMUTABLE, Capability.READ_LABELS),
    "security.subject": Slot(Tier.IMMUTABLE, Capability.READ_SUBJECT),
    "security.objects": Slot(Tier.IMMUTABLE, Capability.READ_OBJECTS),
    "security.data": Slot(Tier.IMMUTABLE, Capability.READ_DATA),
    "mcp": Slot(Tier.IMMUTABLE),
    "completion": Slot(Tier.IMMUTABLE),
    "provenance": Slot(Tier.IMMUTABLE),
    "llm": Slot(Tier.IMMUTABLE),
    "framework": Slot(Tier.IMMUTABLE),
    "meta": Slot(Tier.IMMUTABLE),
    "routing": Slot(Tier.IMMUTABLE),
    "delegation": Slot(Tier.MONOTONIC, Capability.READ_DELEGATION),
    "custom": Slot(Tier.MUTABLE),
}

SUBJECT_FIELDS: Final[dict[str, Capability]] = {
    "id": Capability.READ_SUBJECT,
    "type": Capability.READ_SUBJECT,
    "roles": Capability.READ_ROLES,
    "permissions": Capability.READ_PERMISSIONS,
    "teams": Capability.READ_TEAMS,
    "claims": Capability.READ_CLAIMS,
}
"""Each field of the subject is granted on its own: one capability never implies another [C2]."""


def granted(grants: Grants, capability: Capability | None) -> bool:
    """Whether `grants` cover `capability`; writing headers implies reading them."""
    if grants is None or capability is None or capability in grants:
        return True
    return capability is Capability.READ_HEADERS and Capability.WRITE_HEADERS in grants

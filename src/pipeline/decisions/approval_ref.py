"""An approval as a decision names it. Spec: docs/spec/approvals.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ApprovalStatus(StrEnum):
    """The state of an approval [C10]."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRef:
    """An approval that a decision rests on or waits for; without an id where none can be kept [SES-12]."""

    id: str | None
    path: str
    status: ApprovalStatus

    def to_json(self) -> dict[str, Any]:
        """The approval's line in a decision."""
        known = {} if self.id is None else {"id": self.id}
        return {**known, "path": self.path, "status": self.status.value}

"""What is on record of what keeps a hit from being enforced. Spec: docs/spec/exceptions.md [EXC-3], [EXC-11]."""

from __future__ import annotations

from typing import NamedTuple


class Excused(NamedTuple):
    """Who answers for it, and until when: the last day of an exception (`2026-12-31`), the end of an override.

    `override` is the id of its record; None of an exception, which is data of the policies.
    """

    owner: str
    until: str
    override: str | None = None

    def to_json(self) -> dict[str, str]:
        """It as it is shown and recorded; `override` only where it is one."""
        shown = {"owner": self.owner, "until": self.until}
        return shown if self.override is None else shown | {"override": self.override}

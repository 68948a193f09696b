"""Why a hit was not enforced, as it is shown and recorded. Spec: docs/spec/exceptions.md [EXC-3], [EXC-11]."""

from __future__ import annotations

from typing import NamedTuple


class Excused(NamedTuple):
    """The exception or the override that covers a hit.

    Attributes:
        owner: who answers for it.
        until: the last day of an exception (`2026-12-31`), or the moment at which an override ends.
        override: the id of an override's record; None for an exception, which is data of the policies.
    """

    owner: str
    until: str
    override: str | None = None

    def to_json(self) -> dict[str, str]:
        """The same as JSON; `override` only where it is one."""
        shown = {"owner": self.owner, "until": self.until}
        return shown if self.override is None else shown | {"override": self.override}

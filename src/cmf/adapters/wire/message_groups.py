"""Wire messages that hold more than one canonical message. Spec: docs/spec/adapters.md.

Some formats put the results of tools beside the user's own words; a canonical message has one role.
"""

from __future__ import annotations

from collections.abc import Sequence

from cmf.enums import Role
from cmf.message.message import Part, ToolResultPart


def user_runs(parts: Sequence[Part]) -> list[tuple[Role, tuple[Part, ...]]]:
    """The parts of a user's wire message by role: each tool result alone, as TOOL; what is between them, as USER.

    A message without parts is one run without parts, of the user.
    """
    runs: list[tuple[Role, list[Part]]] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            runs.append((Role.TOOL, [part]))
        elif runs and runs[-1][0] is Role.USER:
            runs[-1][1].append(part)
        else:
            runs.append((Role.USER, [part]))
    return [(role, tuple(run)) for role, run in runs] or [(Role.USER, ())]

"""What is on record of an exception that keeps a hit from being enforced. Spec: docs/spec/exceptions.md [EXC-3]."""

from __future__ import annotations

from typing import NamedTuple


class Excused(NamedTuple):
    """Who answers for the exception, and its last day (`2026-12-31`)."""

    owner: str
    until: str

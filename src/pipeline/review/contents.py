"""What a decision was about, where it was kept: beside the log, never in it. Spec: docs/spec/review.md [REV-12]."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from cmf.security import SubjectExtension
from pipeline.case_writing import case_text
from pipeline.errors import PipelineError
from pipeline.masking import Masking
from pipeline.policy_set import PolicySet
from pipeline.replay import Replay
from pipeline.replay_file import read_entry
from pipeline.store import contents as stored

Json: TypeAlias = dict[str, Any]


class Kept(StrEnum):
    """Whether the content of a decision is there."""

    NONE = "none"
    HERE = "here"
    ERASED = "erased"


class Contents(Protocol):
    """Where content is kept. It is read only once it is on record who reads it, and why."""

    def kept(self, decision: str, body: Mapping[str, Any] | None) -> Kept:
        """Whether the content of the decision with that record is there, without reading it."""
        ...

    def reveal(self, decision: str, *, person: str, reason: str) -> bytes:
        """The line of a replay file that was judged, once that `person` sees it is on record.

        Raises:
            AuditError: it is not shown, and why. StoreError: the database failed.
        """
        ...


class StoreContents:
    """What the store of the records keeps."""

    def __init__(self, contents: stored.Contents) -> None:
        self._contents = contents

    def kept(self, decision: str, body: Mapping[str, Any] | None) -> Kept:
        """See `Contents`."""
        if self._contents.has(decision):
            return Kept.HERE
        committed = body is not None and "commitment" in (body.get("content") or {})
        return Kept.ERASED if committed else Kept.NONE

    def reveal(self, decision: str, *, person: str, reason: str) -> bytes:
        """See `Contents`."""
        actor = SubjectExtension(id=person, permissions=frozenset({stored.REVEAL}))
        return self._contents.reveal(decision, actor=actor, reason=reason)


class Again:
    """Judges what was kept again, under policy sets that are at hand. Safe to use from any thread."""

    def __init__(self, sets: Mapping[str, PolicySet]) -> None:
        self._sets = sets
        self._lock = threading.Lock()
        self._replays: dict[str, Replay] = {}

    def shown(self, line: bytes) -> Json:
        """What was judged, as a case for `cmf test` with stand-ins for secrets, and under each set at hand."""
        entry = read_entry(line)
        clean = entry if entry.masked else Masking().masked(entry)
        return {"traffic": entry.to_json()["traffic"], "case": case_text(clean), "judged": self._judged(line)}

    def _judged(self, line: bytes) -> list[Json]:
        entry = read_entry(line)
        found: list[Json] = []
        with self._lock:
            for revision, policies in self._sets.items():
                try:
                    if revision not in self._replays:
                        self._replays[revision] = Replay(policies)
                    decision = self._replays[revision].judged(entry)
                    rules = sorted({hit.rule for hit in decision.hits})
                    found.append(
                        {"revision": revision, "verdict": decision.verdict.value, "rules": rules, "problem": ""}
                    )
                except PipelineError as error:
                    found.append({"revision": revision, "verdict": "", "rules": [], "problem": error.message})
        return found


__all__ = ["Again", "Contents", "Kept", "StoreContents"]

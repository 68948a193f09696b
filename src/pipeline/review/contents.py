"""What a decision was about, where it was kept: beside the log, never in it. Spec: docs/spec/review.md [REV-12]."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from cmf.security import SubjectExtension
from pipeline.case_writing import case_text
from pipeline.errors import PipelineError
from pipeline.impact import Impact, compare
from pipeline.masking import Masking
from pipeline.replay import Replay
from pipeline.replay_file import Entry, read_entry
from pipeline.review.rules import PoliciesAtHand
from pipeline.store import contents as stored
from pipeline.store.second_eyes import Ask, RevealGrant

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

    def two_needed(self) -> bool:
        """Whether a second person has to agree before anything is shown."""
        ...

    def ask(self, decision: str, *, person: str, reason: str) -> None:
        """Put on record that `person` wants to see it. AuditError, StoreError as `reveal`."""
        ...

    def asks(self) -> Sequence[Ask]:
        """What was asked and is open still, the oldest first."""
        ...

    def grant(self, ask: str, *, person: str, reason: str) -> RevealGrant:
        """Put on record that `person` agrees. AuditError: to nothing that is asked, or to their own wish."""
        ...

    def granted(self, decision: str, *, person: str) -> RevealGrant | None:
        """What lets `person` see it; None where nothing does."""
        ...

    def newest(self, size: int, *, person: str, reason: str) -> Sequence[bytes]:
        """The last `size` lines that are kept, for a program, once it is on record who has it run and why.

        Raises:
            AuditError, StoreError: as `reveal`.
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
        return self._contents.reveal(decision, actor=_revealing(person), reason=reason)

    def two_needed(self) -> bool:
        """See `Contents`."""
        return self._contents.eyes.needed

    def ask(self, decision: str, *, person: str, reason: str) -> None:
        """See `Contents`."""
        self._contents.eyes.ask(decision, actor=_revealing(person), reason=reason)

    def asks(self) -> Sequence[Ask]:
        """See `Contents`."""
        return self._contents.eyes.asks()

    def grant(self, ask: str, *, person: str, reason: str) -> RevealGrant:
        """See `Contents`."""
        return self._contents.eyes.grant(ask, actor=_revealing(person), reason=reason)

    def granted(self, decision: str, *, person: str) -> RevealGrant | None:
        """See `Contents`."""
        return self._contents.eyes.granted(decision, _revealing(person))

    def newest(self, size: int, *, person: str, reason: str) -> Sequence[bytes]:
        """See `Contents`."""
        return deque(self._contents.lines(actor=_revealing(person), reason=reason)(), maxlen=size)


def _revealing(person: str) -> SubjectExtension:
    """The site has asked for a role before it comes to this."""
    return SubjectExtension(id=person, permissions=frozenset({stored.REVEAL}))


class Again:
    """Judges what was kept again, under policy sets that are at hand. Safe to use from any thread."""

    def __init__(self, policies: PoliciesAtHand) -> None:
        self._policies = policies
        self._lock = threading.Lock()
        self._replays: dict[str, Replay] = {}

    def shown(self, line: bytes) -> Json:
        """What was judged, as a case for `cmf test` with stand-ins for secrets, and under each set at hand."""
        entry = read_entry(line)
        clean = entry if entry.masked else Masking().masked(entry)
        return {"traffic": entry.to_json()["traffic"], "case": case_text(clean), "judged": self._judged(entry)}

    def _judged(self, entry: Entry) -> list[Json]:
        own = str(entry.decision["revision"])
        found: list[Json] = []
        with self._lock:
            for revision in dict.fromkeys([own, *self._policies.given()]):
                said: Json = {"revision": revision, "name": self._policies.name(revision), "then": revision == own}
                try:
                    replay = self._replay(revision)
                    if replay is None:
                        continue
                    decision = replay.judged(entry)
                    rules = sorted({hit.rule for hit in decision.hits})
                    found.append(said | {"verdict": decision.verdict.value, "rules": rules, "problem": ""})
                except PipelineError as error:
                    found.append(said | {"verdict": "", "rules": [], "problem": error.message})
        return found

    def _replay(self, revision: str) -> Replay | None:
        if revision not in self._replays and (policies := self._policies.of(revision)) is not None:
            self._replays[revision] = Replay(policies)
        return self._replays.get(revision)

    def impact(self, lines: Iterable[bytes], base: str, head: str) -> Json | None:
        """What the change from one revision to another is to what was kept; None where one of them is not at hand."""
        with self._lock:
            before, after = self._replay(base), self._replay(head)
            if before is None or after is None:
                return None
            found = Impact()
            for line in lines:
                found.add(compare(line, before, after))
        return found.to_json()


__all__ = ["Again", "Contents", "Kept", "StoreContents"]

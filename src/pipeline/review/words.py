"""What people put on record about decisions: records of their own, never edits. Spec: docs/spec/review.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cmf.codec import loads
from cmf.errors import DecodeError
from pipeline.store.overview import Placed

KINDS: Final = frozenset({"review", "signoff", "reveal", "ask", "grant", "filter", "sample", "export", "declassify"})
MAX_TEXT: Final = 4_000  # characters of a comment or reason
_OF_LIFTING: Final = frozenset(
    {"action", "by", "second", "grant", "label", "session", "sources", "scope", "reason", "until"}
)


class Disposition(StrEnum):
    """What a person says of a decision."""

    OK = "ok"
    FALSE_POSITIVE = "false_positive"
    FALSE_NEGATIVE = "false_negative"
    NEEDS_POLICY_CHANGE = "needs_policy_change"
    INCIDENT = "incident"


@dataclass(frozen=True, slots=True)
class Word:
    """One thing that somebody put on record.

    Attributes:
        kind: of the record; `said` is its body as JSON objects. at: microseconds since the epoch. by: who.
    """

    id: str
    kind: str
    at: int
    by: str
    said: Mapping[str, Any] = field(hash=False)

    @property
    def subject_session(self) -> tuple[str, str | None] | None:
        """The session that it is about, where it is about one."""
        session = self.said.get("session")
        return (session["subject"], session["id"]) if isinstance(session, dict) else None


def word_of(row: Placed, body: bytes | None) -> Word | None:
    """The word in a record; None where it was erased or says nothing that this code knows."""
    if body is None:
        return None
    try:
        said = loads(body)
        if row.kind in ("reveal", "ask", "grant"):  # kept by the contents themselves, which name several at once
            about = {"decision": str(said["contents"][0]), "reason": str(said["reason"])}
            return Word(row.id, row.kind, row.at, str(said["actor"]), about)
        by = str(said["by"]["id"])
        if row.kind == "declassify":  # what else it might say is about no decision
            said = {name: item for name, item in said.items() if name in _OF_LIFTING}
        word = Word(row.id, row.kind, row.at, by, said)
    except (DecodeError, LookupError, TypeError):
        return None
    return word if _fits(row.kind, said) else None


def _fits(kind: str, said: Mapping[str, Any]) -> bool:
    """Whether a body says what this code writes: who can write to the store must not be able to break the pages."""
    match kind, said:
        case "signoff", {"action": "sign", "set": dict() as places, "counts": dict(), "records": int()}:
            texts = all(isinstance(said.get(name), str) for name in ("scope", "said", "hash"))
            return texts and _session_fits(said) and all(map(_are_stretches, places.values()))
        case "signoff", {"action": "reopen", "of": str()} | {"action": "second", "of": str(), "hash": str()}:
            return _session_fits(said)
        case "sample", {"ids": list() as ids, "query": str(), "seed": str(), "size": int(), "by_rule": bool()}:
            return all(isinstance(one, str) for one in ids)
        case "filter", {"name": str(), "query": str()}:
            return True
        case "declassify", {"label": str(), "reason": str(), "scope": str(), "sources": list(), "until": str()}:
            return isinstance(said.get("second", {}), dict) and _session_fits(said)
        case "review", _:
            texts = all(isinstance(said.get(name, ""), str) for name in ("decision", "comment", "assignee"))
            several = said.get("decisions", [])
            texts = texts and isinstance(several, list) and all(isinstance(one, str) for one in several)
            return texts and _session_fits(said) and said.get("disposition", "ok") in set(Disposition)
        case _:
            return kind == "export"


def needs_second(signature: Word) -> bool:
    """Whether a signature counts only once another person has signed the same set."""
    return signature.said.get("needs") == 2


def seconds(word: Word, signature: Word) -> bool:
    """Whether a word is the second signature under the first: another person's, of the same set."""
    same = word.said["action"] == "second" and word.said["hash"] == signature.said["hash"]
    return same and needs_second(signature) and word.by != signature.by


def _session_fits(said: Mapping[str, Any]) -> bool:
    match said.get("session"):
        case None | {"subject": str(), "id": str() | None}:
            return isinstance(said.get("comment", ""), str)
        case _:
            return False


def _are_stretches(found: object) -> bool:
    return isinstance(found, list) and all(
        isinstance(one, list) and len(one) == 2 and all(type(place) is int for place in one) for one in found
    )


def ranges_of(rows: Iterable[Placed], all_places: Mapping[str, Sequence[int]]) -> dict[str, list[list[int]]]:
    """Where decisions are: log → first and last place of each stretch in which every decision is one of `rows`.

    Args:
        rows: decisions that are in a log.
        all_places: of every log the places of all its decisions, in order.
    """
    wanted: dict[str, set[int]] = {}
    for row in rows:
        if row.log is not None and row.place is not None:
            wanted.setdefault(row.log, set()).add(row.place)
    return {log: _stretches(all_places[log], places) for log, places in sorted(wanted.items())}


def _stretches(every: Sequence[int], wanted: set[int]) -> list[list[int]]:
    found: list[list[int]] = []
    within = False
    for place in every:
        if place in wanted:
            if within:
                found[-1][1] = place
            else:
                found.append([place, place])
        within = place in wanted
    return found


def set_hash(rows: Iterable[Placed]) -> str:
    """SHA-256, as hex, over a line `<id> <digest>` for each record, by log and place: what a signature is about."""
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda row: (row.log or "", row.place or 0, row.id)):
        digest.update(f"{row.id} {row.digest}\n".encode())
    return digest.hexdigest()


def sampled(rows: Sequence[Placed], seed: str, size: int) -> list[Placed]:
    """The `size` of `rows` that come first by SHA-256 of seed and id: anybody with the seed draws the same."""
    drawn = sorted(rows, key=lambda row: hashlib.sha256(f"{seed}\n{row.id}".encode()).digest())[:size]
    return sorted(drawn, key=lambda row: row.seq, reverse=True)


__all__ = [
    "KINDS",
    "MAX_TEXT",
    "Disposition",
    "Word",
    "needs_second",
    "ranges_of",
    "sampled",
    "seconds",
    "set_hash",
    "word_of",
]

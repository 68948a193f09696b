"""What people record about decisions: separate records, never edits. Spec: docs/spec/review.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from cmf.errors import DecodeError
from cmf.json.codec import loads
from pipeline.audit.query import Disposition
from pipeline.decisions.authority import is_same_person
from pipeline.store.records import Placed

KINDS: Final = frozenset({"review", "signoff", "reveal", "ask", "grant", "filter", "sample", "export", "declassify"})
MAX_TEXT: Final = 4_000  # characters of a comment or reason
_DECLASSIFY_KEYS: Final = frozenset(
    {"action", "by", "second", "grant", "label", "session", "sources", "scope", "reason", "until"}
)


@dataclass(frozen=True, slots=True)
class Annotation:
    """One recorded act of a person: a review, a signature, a reveal and so on.

    Attributes:
        kind: the kind of the record. at: microseconds since the epoch. by: the person. body: the record's body.
    """

    id: str
    kind: str
    at: int
    by: str
    body: Mapping[str, Any] = field(hash=False)

    @property
    def subject_session(self) -> tuple[str, str | None] | None:
        """The session that it is about, if it is about one."""
        session = self.body.get("session")
        return (session["subject"], session["id"]) if isinstance(session, dict) else None


def annotation_of(row: Placed, body: bytes | None) -> Annotation | None:
    """The annotation in a record; None if it was erased or is not well formed."""
    if body is None:
        return None
    try:
        parsed = loads(body)
        if row.kind in ("reveal", "ask", "grant"):  # written by `Contents`, with a list of records
            about = {"decision": str(parsed["contents"][0]), "reason": str(parsed["reason"])}
            return Annotation(row.id, row.kind, row.at, str(parsed["actor"]), about)
        by = str(parsed["by"]["id"])
        if row.kind == "declassify":  # its other fields do not concern decisions
            parsed = {name: item for name, item in parsed.items() if name in _DECLASSIFY_KEYS}
        annotation = Annotation(row.id, row.kind, row.at, by, parsed)
    except (DecodeError, LookupError, TypeError):
        return None
    return annotation if _fits(row.kind, parsed) else None


def _fits(kind: str, fields: Mapping[str, Any]) -> bool:
    """Whether a body is well formed: anybody who can write to the store must not be able to break the pages."""
    match kind, fields:
        case "signoff", {"action": "sign", "set": dict() as places, "counts": dict(), "records": int()}:
            texts = all(isinstance(fields.get(name), str) for name in ("scope", "said", "hash"))
            runs = [run for of_log in places.values() for run in (of_log if isinstance(of_log, list) else [None])]
            are_runs = all(isinstance(run, list) and [type(place) for place in run] == [int, int] for run in runs)
            return texts and _session_fits(fields) and are_runs
        case "signoff", {"action": "reopen", "of": str()} | {"action": "second", "of": str(), "hash": str()}:
            return _session_fits(fields)
        case "sample", {"ids": list() as ids, "query": str(), "seed": str(), "size": int(), "by_rule": bool()}:
            return all(isinstance(entry, str) for entry in ids)
        case "filter", {"name": str(), "query": str()}:
            return True
        case "declassify", {"label": str(), "reason": str(), "scope": str(), "sources": list(), "until": str()}:
            return isinstance(fields.get("second", {}), dict) and _session_fits(fields)
        case "review", _:
            texts = all(isinstance(fields.get(name, ""), str) for name in ("decision", "comment", "assignee"))
            several = fields.get("decisions", [])
            texts = texts and isinstance(several, list) and all(isinstance(entry, str) for entry in several)
            return texts and _session_fits(fields) and fields.get("disposition", "ok") in set(Disposition)
        case _:
            return kind == "export"


def needs_second(signature: Annotation) -> bool:
    """Whether a signature takes effect only once another person has signed the same set."""
    return signature.body.get("needs") == 2


def seconds(annotation: Annotation, signature: Annotation) -> bool:
    """Whether an annotation is the second signature under the first: by another person, of the same set."""
    same = annotation.body["action"] == "second" and annotation.body["hash"] == signature.body["hash"]
    return same and needs_second(signature) and not is_same_person(annotation.by, signature.by)


def _session_fits(fields: Mapping[str, Any]) -> bool:
    match fields.get("session"):
        case None | {"subject": str(), "id": str() | None}:
            return isinstance(fields.get("comment", ""), str)
        case _:
            return False


def ranges_of(rows: Iterable[Placed], all_places: Mapping[str, Sequence[int]]) -> dict[str, list[list[int]]]:
    """The places of decisions: log → first and last place of each run in which every decision is one of `rows`.

    `all_places` are those of all decisions of each log, in order.
    """
    wanted: dict[str, set[int]] = {}
    for row in rows:
        if row.log is not None and row.place is not None:
            wanted.setdefault(row.log, set()).add(row.place)
    return {log: _runs(all_places[log], places) for log, places in sorted(wanted.items())}


def _runs(every: Sequence[int], wanted: set[int]) -> list[list[int]]:
    groups = (list(run) for is_in, run in groupby(every, wanted.__contains__) if is_in)
    return [[run[0], run[-1]] for run in groups]


def set_hash(rows: Iterable[Placed]) -> str:
    """What a signature covers: SHA-256, as hex, over a line `<id> <digest>` per record, ordered by log and place."""
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda row: (row.log or "", row.place or 0, row.id)):
        digest.update(f"{row.id} {row.digest}\n".encode())
    return digest.hexdigest()


def sampled(rows: Sequence[Placed], seed: str, size: int) -> list[Placed]:
    """The first `size` rows by SHA-256 of seed and id: anybody with the seed draws the same sample."""
    drawn = sorted(rows, key=lambda row: hashlib.sha256(f"{seed}\n{row.id}".encode()).digest())[:size]
    return sorted(drawn, key=lambda row: row.seq, reverse=True)

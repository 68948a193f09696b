"""What a decision was about, where it was kept: beside the log, never in it. Spec: docs/spec/review.md [REV-12]."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from cmf.value import to_json
from pipeline.assembly import embedded_engine
from pipeline.cases.writing import case_text
from pipeline.checks.why import Why
from pipeline.decision import Decision
from pipeline.display import escaped_json
from pipeline.engines.survey import Place
from pipeline.engines.tap import Tap
from pipeline.errors import PipelineError
from pipeline.outcome import Outcome
from pipeline.policy_set import PolicySet
from pipeline.replay.file import Entry, read_entry
from pipeline.replay.impact import Compared, Impact, compare
from pipeline.replay.masking import Masking
from pipeline.replay.replay import Replay, agrees
from pipeline.review.differences import parts
from pipeline.review.rules import PoliciesAtHand
from pipeline.review.telling import Json
from pipeline.store.contents import Contents

_MOST_LINES: Final = 40  # of a definition
_MOST_SHOWN: Final = 400  # characters of a value
_READS: Final = re.compile(r"\binput(?:\.[A-Za-z_]\w*)+")


class Kept(StrEnum):
    """Whether the content of a decision is there."""

    NONE = "none"
    HERE = "here"
    ERASED = "erased"


def kept_of(contents: Contents, decision: str, body: Mapping[str, Any] | None) -> Kept:
    """Whether the content of the decision with that record is there, without reading it."""
    if contents.has(decision):
        return Kept.HERE
    committed = body is not None and "commitment" in (body.get("content") or {})
    return Kept.ERASED if committed else Kept.NONE


class _Judge:
    """One set: it judges, and says why."""

    def __init__(self, policies: PolicySet) -> None:
        self.policies = policies
        self.tap = Tap(embedded_engine(policies))
        self.replay = Replay(policies, engine=self.tap)

    @functools.cached_property
    def why(self) -> Why:
        """Made when it is first asked for: it takes a while."""
        return Why(self.policies)

    def outcome(self, entry: Entry) -> Outcome:
        """What comes of it; what policy saw of it is in the tap afterwards."""
        self.tap.asked.clear()
        return self.replay.outcome(entry)

    def compared(self, line: bytes, after: _Judge) -> Compared:
        """What another set is to the line."""
        found = compare(line, self.replay, after.replay)
        for one in (self, after):
            one.tap.asked.clear()
        return found


class Again:
    """Judges what was kept again, under policy sets that are at hand. Safe to use from any thread."""

    def __init__(self, policies: PoliciesAtHand) -> None:
        self._policies = policies
        self._lock = threading.Lock()
        self._judges: dict[str, _Judge] = {}

    def shown(self, line: bytes) -> Json:
        """What was judged, as a case for `cmf test` with stand-ins for secrets, and under each set at hand."""
        entry = read_entry(line)
        clean = entry if entry.masked else Masking().masked(entry)
        traffic = entry.to_json()["traffic"]
        said: Json = {"traffic": traffic, "case": case_text(clean), "judged": self._judged(entry)}
        return said | self._then(entry, traffic)

    def _then(self, entry: Entry, traffic: Json) -> Json:
        """What went on then, against what came; and for each rule that spoke, its text with the values that it had."""
        with self._lock:
            try:
                judge = self._judge(str(entry.decision["revision"]))
                outcome = None if judge is None else judge.outcome(entry)
                if judge is None or outcome is None or not agrees(entry, outcome.decision):
                    return {"out": None, "why": []}
                why = list(_told(judge, outcome.decision))
            except PipelineError:
                return {"out": None, "why": []}
        if outcome.value is None:
            return {"out": {"goes": False, "parts": []}, "why": why}
        changed = parts(_content(traffic), _content(to_json(outcome.value)))
        return {"out": {"goes": True, "parts": changed}, "why": why}

    def _judged(self, entry: Entry) -> list[Json]:
        own = str(entry.decision["revision"])
        found: list[Json] = []
        with self._lock:
            for revision in dict.fromkeys([own, *self._policies.given()]):
                said: Json = {"revision": revision, "name": self._policies.name(revision), "then": revision == own}
                try:
                    judge = self._judge(revision)
                    if judge is None:
                        continue
                    decision = judge.outcome(entry).decision
                    rules = sorted({hit.rule for hit in decision.hits})
                    found.append(said | {"verdict": decision.verdict.value, "rules": rules, "problem": ""})
                except PipelineError as error:
                    found.append(said | {"verdict": "", "rules": [], "problem": error.message})
        return found

    def _judge(self, revision: str) -> _Judge | None:
        if revision not in self._judges and (policies := self._policies.of(revision)) is not None:
            self._judges[revision] = _Judge(policies)
        return self._judges.get(revision)

    def impact(self, lines: Iterable[bytes], base: str, head: str) -> Json | None:
        """What the change from one revision to another is to what was kept; None where one of them is not at hand."""
        with self._lock:
            before, after = self._judge(base), self._judge(head)
            if before is None or after is None:
                return None
            found = Impact()
            for line in lines:
                found.add(before.compared(line, after))
        return found.to_json()


def _told(judge: _Judge, decision: Decision) -> Iterator[Json]:
    """For each definition that spoke: where it is, its text, and the values that its variables had."""
    documents = judge.tap.documents()
    known = {rule.id for rule in judge.policies.rules}
    for view in decision.views:
        spoke = sorted({hit.rule for hit in view.hits} & known)
        for document in documents.get(view.path, [])[:1] if spoke else ():
            for one in judge.why.rules(document, only=spoke):
                for effect, body in one.hits:
                    yield {
                        "rule": one.rule,
                        "effect": effect.value,
                        "view": view.path,
                        "path": body.place.module,
                        "line": body.place.line,
                        "text": _definition(judge.policies, body.place),
                        "ways": [_values(way) for way in body.ways],
                        "seen": _values(_read(document, _definition(judge.policies, body.place))),
                    }


def _values(named: Mapping[str, Any]) -> list[list[str]]:
    told = ((name, escaped_json(value, indent=None)) for name, value in named.items())
    return [[name, text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"] for name, text in told]


def _read(document: Mapping[str, Any], text: Sequence[str]) -> dict[str, Any]:
    """What the lines of a definition read of the input by name, with its values."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(_READS.findall("\n".join(text))):
        value: Any = document
        for step in name.split(".")[1:]:
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            found[name] = value
    return found


def _definition(policies: PolicySet, place: Place) -> list[str]:
    """The lines of the definition that begins there."""
    lines = next((one.text.splitlines() for one in policies.modules if one.path == place.module), [])
    found = lines[place.line - 1 :][:_MOST_LINES]
    end = next((at for at, line in enumerate(found) if at and (not line or line == "}")), len(found))
    return found[: end + (end < len(found) and found[end] == "}")]


def _content(value: Json) -> list[str]:
    """Its lines; what the pipeline adds for policy goes to nobody."""
    return escaped_json({name: item for name, item in value.items() if name != "extensions"}).splitlines()


__all__ = ["Again", "Kept", "kept_of"]

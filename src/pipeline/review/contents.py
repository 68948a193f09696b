"""The content of decisions, stored beside the log, never in it. Spec: docs/spec/review.md [REV-12]."""

from __future__ import annotations

import difflib
import functools
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

from cmf.json.value import to_json
from pipeline.authoring.case import case_text
from pipeline.authoring.explain import Why
from pipeline.decisions.decision import Decision
from pipeline.decisions.display import escaped_json
from pipeline.decisions.errors import PipelineError
from pipeline.engines.recording import Tap
from pipeline.policy.analysis import Place
from pipeline.policy.policy_set import PolicySet
from pipeline.replay.impact import Impact, compare
from pipeline.replay.replay import Replay, agrees
from pipeline.review.rules import PoliciesAtHand
from pipeline.review.summary import Json
from pipeline.run.assembly import embedded_engine
from pipeline.run.masking import Masking
from pipeline.run.outcome import Outcome
from pipeline.run.recorded_input import Entry, read_entry
from pipeline.store.contents import Contents

_CONTEXT_LINES: Final = 3  # around a difference
_MOST_LINES: Final = 40  # lines shown of a definition
_MOST_SHOWN: Final = 400  # characters shown of a value
_READS: Final = re.compile(r"\binput(?:\.[A-Za-z_]\w*)+")


class Kept(StrEnum):
    """Whether a decision has content."""

    NONE = "none"
    HERE = "here"
    ERASED = "erased"


def kept_of(contents: Contents, decision: str, body: Mapping[str, Any] | None) -> Kept:
    """Whether the decision of that record has content, without reading it."""
    if contents.has(decision):
        return Kept.HERE
    committed = body is not None and "commitment" in (body.get("content") or {})
    return Kept.ERASED if committed else Kept.NONE


class _Judge:
    """One policy set, ready to judge and to explain."""

    def __init__(self, policies: PolicySet) -> None:
        self.policies = policies
        self.tap = Tap(embedded_engine(policies))
        self.replay = Replay(policies, engine=self.tap)

    @functools.cached_property
    def why(self) -> Why:
        """Built on first use, because it takes a while."""
        return Why(self.policies)

    def outcome(self, entry: Entry) -> Outcome:
        """The outcome of judging it; the tap then has the policy inputs."""
        self.tap.asked.clear()
        return self.replay.outcome(entry)


class Rejudging:
    """Judges stored content again, under the policy sets available. Safe to use from any thread."""

    def __init__(self, policies: PoliciesAtHand) -> None:
        self._policies = policies
        self._lock = threading.Lock()
        self._judges: dict[str, _Judge] = {}

    def shown(self, line: bytes) -> Json:
        """The content as a case for `cmf test`, secrets replaced, and the decision of each available set."""
        entry = read_entry(line)
        clean = entry if entry.masked else Masking().masked(entry)
        traffic = entry.to_json()["traffic"]
        own, rows = str(entry.decision["revision"]), list[Json]()
        then: Json = {"out": None, "why": []}
        with self._lock:
            for revision in dict.fromkeys([own, *self._policies.given()]):
                row: Json = {"revision": revision, "name": self._policies.name(revision), "then": revision == own}
                try:
                    if (judge := self._judge(revision)) is None:
                        continue
                    outcome = judge.outcome(entry)
                except PipelineError as error:
                    rows.append(row | {"verdict": "", "rules": [], "problem": error.message})
                    continue
                rules = sorted({hit.rule for hit in outcome.decision.hits})
                rows.append(row | {"verdict": outcome.decision.verdict.value, "rules": rules, "problem": ""})
                if revision == own and agrees(entry, outcome.decision):
                    with suppress(PipelineError):
                        then = _then(judge, outcome, traffic)
        return {"traffic": traffic, "case": case_text(clean), "judged": rows, **then}

    def _judge(self, revision: str) -> _Judge | None:
        if revision not in self._judges and (policies := self._policies.of(revision)) is not None:
            self._judges[revision] = _Judge(policies)
        return self._judges.get(revision)

    def impact(self, lines: Iterable[bytes], base: str, head: str) -> Json | None:
        """The impact of a change of revision on stored content; None if one of them is not available."""
        with self._lock:
            before, after = self._judge(base), self._judge(head)
            if before is None or after is None:
                return None
            impact = Impact()
            for line in lines:
                impact.add(compare(line, before.replay, after.replay))
                before.tap.asked.clear()
                after.tap.asked.clear()
        return impact.to_json()


def _then(judge: _Judge, outcome: Outcome, traffic: Json) -> Json:
    """The output then, compared with the input; and for each rule that hit, its source with its values."""
    why = list(_explained_hits(judge, outcome.decision))
    if outcome.value is None:
        return {"out": {"goes": False, "parts": []}, "why": why}
    changed = differences(_content(traffic), _content(to_json(outcome.value)))
    return {"out": {"goes": True, "parts": changed}, "why": why}


def _explained_hits(judge: _Judge, decision: Decision) -> Iterator[Json]:
    """For each definition that hit: its place, its source, and the values of its variables."""
    documents = judge.tap.documents()
    rule_ids = {explained.id for explained in judge.policies.rules}
    for view in decision.views:
        rules_hit = sorted({hit.rule for hit in view.hits} & rule_ids)
        for document in documents.get(view.path, [])[:1] if rules_hit else ():
            for explained in judge.why.rules(document, only=rules_hit):
                for effect, body in explained.hits:
                    yield {
                        "rule": explained.rule,
                        "effect": effect.value,
                        "view": view.path,
                        "path": body.place.module,
                        "line": body.place.line,
                        "text": _definition(judge.policies, body.place),
                        "ways": [_values(way) for way in body.ways],
                        "seen": _values(_read(document, _definition(judge.policies, body.place))),
                    }


def _values(named: Mapping[str, Any]) -> list[list[str]]:
    escaped = ((name, escaped_json(value, indent=None)) for name, value in named.items())
    return [[name, text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"] for name, text in escaped]


def _read(document: Mapping[str, Any], text: Sequence[str]) -> dict[str, Any]:
    """The input fields that a definition's lines name, with their values."""
    fields: dict[str, Any] = {}
    for name in dict.fromkeys(_READS.findall("\n".join(text))):
        value: Any = document
        for step in name.split(".")[1:]:
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            fields[name] = value
    return fields


def _definition(policies: PolicySet, place: Place) -> list[str]:
    """The lines of the definition that starts there."""
    lines = next((module.text.splitlines() for module in policies.modules if module.path == place.module), [])
    definition = lines[place.line - 1 :][:_MOST_LINES]
    end = next((at for at, line in enumerate(definition) if at and (not line or line == "}")), len(definition))
    return definition[: end + (end < len(definition) and definition[end] == "}")]


def _content(value: Json) -> list[str]:
    """Its lines, without the extensions, which never leave the pipeline."""
    return escaped_json({name: item for name, item in value.items() if name != "extensions"}).splitlines()


def differences(old: Sequence[str], new: Sequence[str]) -> list[list[Json]]:
    """The hunks that differ, with some context; each line has its old number, new number and kind of change."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [list(_hunk_lines(old, new, group)) for group in matcher.get_grouped_opcodes(_CONTEXT_LINES)]


def _hunk_lines(
    old: Sequence[str], new: Sequence[str], group: Sequence[tuple[str, int, int, int, int]]
) -> Iterator[Json]:
    for change, first, last, begin, end in group:
        if change == "equal":
            for offset, text in enumerate(old[first:last]):
                yield {"old": first + offset + 1, "new": begin + offset + 1, "change": "", "text": text}
            continue
        for number, text in enumerate(old[first:last], start=first + 1):
            yield {"old": number, "new": None, "change": "removed", "text": text}
        for number, text in enumerate(new[begin:end], start=begin + 1):
            yield {"old": None, "new": number, "change": "added", "text": text}

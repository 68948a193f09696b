"""Judging the page's state with the real pipeline. Spec: playground.md [PLAY-3] ff.

Everything in the answer that comes from policies or traffic is made safe to show: invisible characters are escaped.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, TypeAlias

from cmf.adapters.wire import loss
from cmf.errors import CmfError
from cmf.json.codec import dumps
from pipeline.authoring.case import Case
from pipeline.authoring.explain import Body, Operand, Why
from pipeline.authoring.playground.state import CASE_FORMAT, PaneError, State, read_case
from pipeline.authoring.run_cases import CaseRunner
from pipeline.decisions.decision import Hit, Mode, ViewDecision
from pipeline.decisions.display import escaped_json, rego_paths, visible
from pipeline.decisions.errors import EngineError, PipelineError, PolicyError
from pipeline.engines.recording import Tap
from pipeline.engines.rego_tests import Printing, prints
from pipeline.policy import policy_set
from pipeline.policy.analysis import Place, line_of
from pipeline.policy.entrypoints import is_generated
from pipeline.policy.metadata import Rule
from pipeline.run.assembly import Config, embedded_engine
from pipeline.run.emit import emit
from pipeline.run.outcome import Outcome

Json: TypeAlias = dict[str, Any]
Document: TypeAlias = Mapping[str, Any]

KEPT_SETS: Final = 8  # cached compiled policy sets: typing goes back and forth
TIMEOUT_SECONDS: Final = 2.0  # per engine query; parts that exceed it are denied
MARKS_SECONDS: Final = 2.0
_EMITTED: Final = {CASE_FORMAT: "openai_chat"}  # a case has no wire format: its output is shown in this one
MAX_SHOWN: Final = 200  # characters of a value shown beside an expression
MAX_HAD: Final = 6  # values shown beside an expression
MAX_EXPLAINED: Final = 20  # largest set whose rules are explained; the shipped ones would take seconds
QUERY_SECONDS: Final = 0.1  # per query of an explanation
WHY_SECONDS: Final = 0.5  # for all explanations of an answer; with many rules, some are left out
_LAST: Final = ("extensions", "session", "origins")
MAX_PRINTED: Final = 200  # lines printed by rules, and characters of each
MAX_VIEWS: Final = 500  # views shown; all are judged


class Evaluator:
    """Judges states. Safe to use from any thread."""

    def __init__(self) -> None:
        self._compiled = functools.lru_cache(KEPT_SETS)(Compiled)

    def evaluate(self, state: State) -> Json:
        """The answer: the decision, or the `problems` that prevent one, each with its place."""
        problems: list[Json] = []
        compiled, case = None, None
        try:
            compiled = self._compiled(tuple(sorted(state.contents().items())))
        except PolicyError as error:
            problems.append(_problem("policy", error.message, error.path, error.line, error.column, error.hint))
        try:
            case = read_case(state)
        except PaneError as error:
            problems.append(_problem(error.pane, error.problem, "", error.line, error.column, error.hint))
        if compiled is None or case is None:
            return {"problems": problems}
        try:
            return {"problems": []} | _judged(compiled, case, _EMITTED.get(state.format, state.format))
        except PipelineError as error:
            return {"problems": [_problem("conversation", error.message, error.path, 0, 0, error.hint)]}


class Compiled:
    """A policy set with its engine. If there are only data files, they configure the shipped rules.

    Raises:
        PolicyError: the set cannot be used; the error has file, line and column.
    """

    def __init__(self, files: tuple[tuple[str, bytes], ...]) -> None:
        own = any(path.endswith(".rego") for path, _ in files)
        self.policies = policy_set.load(*([] if own else [policy_set.shipped()]), dict(files))
        self.engine = embedded_engine(self.policies)
        self.texts = dict(self.policies.modules)

    @functools.cached_property
    def why(self) -> Why:
        """The explainer of the set, built on first use."""
        return Why(self.policies)

    @functools.cached_property
    def printing(self) -> Printing | None:
        """The collector of printed lines; None if the rules print nothing."""
        return Printing(self.policies) if prints(self.policies) else None


def _problem(pane: str, message: str, file: str, line: int, column: int, hint: str) -> Json:
    return {
        "pane": pane,
        "message": visible(message),
        "file": visible(file),
        "line": line,
        "column": column,
        "hint": visible(hint),
    }


def _judged(compiled: Compiled, case: Case, target: str) -> Json:
    tap = Tap(compiled.engine)
    runner = CaseRunner(compiled.policies, Config(timeout_seconds=TIMEOUT_SECONDS), engine=tap)
    begin = perf_counter()
    outcome = runner.judge(case)
    spent = perf_counter() - begin
    decision = outcome.decision
    seen = {path: documents[0] for path, documents in tap.documents().items()}
    return {
        "verdict": decision.verdict.value,
        "action": decision.action.value,
        "milliseconds": round(spent * 1000, 1),
        "revision": decision.revision,
        "coverage": decision.coverage.to_json(),
        "labels": [visible(label) for label in sorted(outcome.labels)],
        "views": [_view(view, seen.get(view.path, {}), compiled) for view in decision.views[:MAX_VIEWS]],
        "left_out": max(0, len(decision.views) - MAX_VIEWS),
        "stages": [_hit(stage.hit, compiled) for stage in decision.stages if stage.hit is not None],
        "rules": _rules(compiled, decision.views, seen),
        "lines": _lines(compiled, tap.asked),
        "printed": _printed(compiled, tap.asked),
        "findings": [
            _problem("policy", one.message, one.place.module, one.place.line, one.place.column, one.hint)
            for one in compiled.policies.findings
        ],
        "out": _out(outcome, target),
    }


def _view(view: ViewDecision, document: Document, compiled: Compiled) -> Json:
    """A view as policy first saw it, each value with its Rego reference, and its decision."""
    labels = {hit.fields["label"] for hit in view.hits if "label" in hit.fields}
    known = document.get("extensions", {}).get("security", {}).get("labels", [])
    own = {key: item for key, item in document.items() if key not in _LAST}  # before those that all views share
    ordered = own | {key: document[key] for key in _LAST if key in document}
    return {
        "path": view.path,
        "kind": view.kind,
        "role": view.role,
        "uri": visible(view.uri or ""),
        "action": view.action,
        "direction": view.direction,
        "verdict": view.verdict.value,
        "outcome": view.outcome.value,
        "labels": [visible(label) for label in known],
        "added": [visible(label) for label in sorted(labels - set(known))],
        "hits": [_hit(hit, compiled) for hit in view.hits],
        "values": [[path, escaped_json(value)] for path, value in rego_paths(ordered)],
    }


def _hit(hit: Hit, compiled: Compiled) -> Json:
    rule = next((one for one in compiled.policies.rules if one.id == hit.rule), None)
    shown: Json = {
        "rule": visible(hit.rule),
        "code": visible(hit.code),
        "effect": hit.effect.value,
        "reason": visible(hit.reason),
        "severity": hit.severity,
        "mode": hit.mode.value,
        "detail": escaped_json({**hit.detail, **hit.fields}, indent=None) if hit.detail or hit.fields else "",
    }
    if rule is not None:
        shown |= {"file": rule.path, "line": line_of(compiled.texts[rule.path], hit.effect.value, hit.code)}
    return shown


def _rules(compiled: Compiled, views: Sequence[ViewDecision], seen: Mapping[str, Document]) -> list[Json]:
    """For each active rule: on how many views it was evaluated and hit, and where it stopped."""
    rows = []
    rules = [rule for rule in compiled.policies.rules if rule.mode is not Mode.OFF]
    why = compiled.why if len(rules) <= MAX_EXPLAINED else None
    begin = perf_counter()
    for number, rule in enumerate(rules, 1):
        until = begin + WHY_SECONDS * number / len(rules)
        asked = [view for view in views if view.kind in rule.kinds]
        documents = [seen[view.path] for view in asked if view.path in seen]
        rows.append(
            {
                "rule": rule.id,
                "title": visible(rule.title),
                "file": rule.path,
                "mode": rule.mode.value,
                "asked": len(asked),
                "hit": sum(any(hit.rule == rule.id for hit in view.hits) for view in asked),
                "stopped": [] if why is None else list(_stopping_points(why, rule, documents, until)),
            }
        )
    return rows


def _stopping_points(why: Why, rule: Rule, documents: Sequence[Document], until: float) -> Iterator[Json]:
    """For each definition without a hit, the expression at which it stopped after getting furthest, with its values.

    Stops at the moment `until`, because explaining takes longer than judging.
    """
    best: dict[tuple[str, Place], Body] = {}
    for document in documents:
        if perf_counter() > until:
            break
        (explained,) = why.rules(document, only=[rule.id], query_seconds=QUERY_SECONDS)
        for effect, bodies in explained.bodies.items():
            for body in bodies:
                known = best.get((effect, body.place))
                if known is None or body.holds or (not known.holds and body.held > known.held):
                    best[effect, body.place] = body
    for body in best.values():
        if not body.holds and body.failing:
            yield _stop(body)


def _stop(body: Body) -> Json:
    """Where a body stopped, for all its failures, and where the rules behind that expression stopped."""
    first = body.failing[0]
    behind = [one for one in first.behind if one.failing]
    failing = [*body.failing, *(one.failing[0] for one in behind)]
    had = dict.fromkeys((_plain(each.text), _short(each)) for one in failing for each in one.operands)
    return {
        "line": first.place.line,
        "text": _plain(first.text),
        "held": body.held,
        "of": body.of,
        "had": [list(one) for one in had][:MAX_HAD],
        "behind": [
            {"file": at.place.module, "line": at.place.line, "text": _plain(at.text)}
            for at in (one.failing[0] for one in behind)
        ],
    }


def _plain(text: str) -> str:
    return visible(" ".join(text.split()))


def _short(operand: Operand) -> str:
    text = escaped_json(operand.value, indent=None) if operand.known else "undefined"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _lines(compiled: Compiled, asked: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    """Line coverage of each file; empty if it cannot be determined."""
    try:
        queries = [(entrypoint, dumps(document)) for entrypoint, document in asked]
        report = compiled.engine.coverage(queries, timeout_seconds=MARKS_SECONDS)
    except EngineError:
        return {}
    written = {module.path for module in compiled.policies.modules if not is_generated(module)}
    return {
        file["path"]: {"covered": file["covered"], "missed": file["not_covered"]}
        for file in report
        if file["path"] in written
    }


def _printed(compiled: Compiled, asked: Sequence[tuple[str, Json]]) -> list[Json]:
    """The lines printed by the rules; empty if they cannot be determined."""
    try:
        if compiled.printing is None:
            return []
        lines = compiled.printing.lines(asked[:MAX_PRINTED], timeout_seconds=QUERY_SECONDS)
    except (EngineError, PolicyError):
        return []
    shown = lines[:MAX_PRINTED]
    return [{"file": one.path, "line": one.line, "text": visible(one.text)[:MAX_PRINTED]} for one in shown]


def _out(outcome: Outcome, target: str) -> Json:
    """The output: the text of a wire body, or why there is none."""
    if outcome.value is None:
        return {}
    try:
        with loss.collecting() as losses:
            body = emit(outcome, target)
    except (CmfError, PipelineError) as error:
        return {"format": target, "problem": visible(str(error))}
    lost = [visible(f"{one.block_type}: {one.reason}") for one in losses]
    return {"format": target, "body": escaped_json(body), "losses": lost}

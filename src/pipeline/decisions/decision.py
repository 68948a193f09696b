"""Decisions: the verdict of policy on each view, how much was judged, what was exempted, and the action taken.

In mode `observe` verdict and action differ. An engine's answer becomes a verdict here and nowhere else, so that every
failure ends as a deny [DEC-3]. Spec: docs/spec/decisions.md, exceptions.md [EXC-3], [EXC-11].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, assert_never

from cmf.enums import ViewKind
from cmf.json.frozen import FrozenDict, freeze
from cmf.json.value import trusted
from cmf.views.view import MessageView
from pipeline.decisions.approval import SCOPES, ApprovalRef, ApprovalStatus
from pipeline.decisions.engine import Decided, EngineResult, Failed, TimedOut, Undefined
from pipeline.decisions.events import HeaderChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A view that was not evaluated, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many views there were, how many were evaluated, which were not. "Not evaluated" never reads as allowed.

    Of the evaluated views, `reused` were evaluated in an earlier turn, under the same policies [PIPE-16].
    """

    produced: int
    evaluated: int
    skipped: tuple[Skipped, ...] = ()
    reused: int = 0

    @property
    def full(self) -> bool:
        """Whether every view was evaluated."""
        return self.evaluated == self.produced and not self.skipped

    def to_json(self) -> dict[str, Any]:
        """The coverage block of a decision; `reused` only where some were."""
        skipped = [{"path": one.path, "reason": one.reason} for one in self.skipped]
        shown: dict[str, Any] = {"produced": self.produced, "evaluated": self.evaluated, "skipped": skipped}
        return shown | ({"reused": self.reused} if self.reused else {})


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


class Severity(StrEnum):
    """How much a hit of the rule matters to reviewers."""

    INFO = "info"
    WARN = "warn"
    HIGH = "high"
    CRITICAL = "critical"


class Verdict(StrEnum):
    """The result of policy."""

    ALLOW = "allow"
    WARN = "warn"
    DENY = "deny"
    REQUIRE_APPROVAL = "require_approval"


class Action(StrEnum):
    """What was done with the traffic."""

    FORWARD = "forward"
    FORWARD_MODIFIED = "forward_modified"
    REFUSE = "refuse"
    SUSPEND = "suspend"


class Mode(StrEnum):
    """Whether verdicts are enforced or only recorded."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class Effect(StrEnum):
    """The effects of rules, the strongest first [DEC-2]."""

    DENY = "deny"
    REQUIRE_APPROVAL = "require_approval"
    STRIP_TOOL = "strip_tool"
    REDACT = "redact"
    REWRITE = "rewrite"
    LABEL = "label"
    WARN = "warn"


EDITS: Final = frozenset({Effect.STRIP_TOOL, Effect.REDACT, Effect.REWRITE})
REPLACEMENTS: Final = frozenset({"mask", "hash", "drop", "token"})  # what `redact` can put in place of what it removes
WITH_ARGUMENTS: Final = frozenset({ViewKind.TOOL_CALL, ViewKind.PROMPT_REQUEST})
ARGUMENTS, EXTRA = "/arguments/", "/properties/extra/"  # where pointers of edits may go
ENGINE_RULE: Final = "engine"
SESSION_RULE: Final = "session"
INPUT_RULE: Final = "input"
TIMED_OUT: Final = "engine.timeout"
TOO_MUCH_WORK: Final = "input.too-much-work"
BAD_EFFECT: Final = "policy.bad-effect"
OUTAGE_RULES: Final = (ENGINE_RULE, SESSION_RULE)
"""The rules of hits by which policy could not be evaluated. A refusal with no other hits is an outage."""
TOO_MUCH: Final = {
    "engine.builtin-limit": "This part has too much text, or too many items, for what a policy may do with one value. "
    "Send it in several parts.",
    "engine.memory": "Judging this part would take more than 128 MiB. Send it in several parts.",
    "engine.result-too-large": "Judging this part gives more than a policy may answer. Send it in several parts.",
    "engine.too-many-steps": "Judging this part takes more than 100,000,000 steps of policy. Send it in several parts.",
    "input.number": "A number here is longer than the 400 digits that policy can judge. Send it as text.",
    "input.too-deep": "This part is nested deeper than the 64 levels that policy can judge.",
    "input.too-large": "This part, as policy sees it, is larger than 32 MiB. Send less at once.",
    "input.too-many-values": "This part has more than 1,000,000 values. Send less at once.",
    TOO_MUCH_WORK: "This cannot be judged in the time that the setting `policy_seconds` "
    "(`Config.timeout_seconds`) gives. Send less at once.",
}
"""Codes of what depends on the size of the input alone, each with its sentence, which names the limit [PIPE-21]."""
_VERDICTS: Final = (Verdict.DENY, Verdict.REQUIRE_APPROVAL, Verdict.WARN, Verdict.ALLOW)  # the strictest first
_ACTIONS: Final = (Action.REFUSE, Action.SUSPEND, Action.FORWARD_MODIFIED, Action.FORWARD)  # the strictest first
_FIELDS: Final = frozenset({"rule", "code", "reason", "detail"})  # of every effect; the others are particular to one
_EFFECT_NAMES: Final = frozenset(effect.value for effect in Effect)
NO_EFFECTS: Final[FrozenDict] = freeze({name: [] for name in _EFFECT_NAMES})
"""The answer without effects, the most frequent one: engines return this object, so that `is` recognises it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One effect of one rule on one view. `fields` are the effect's own (spans, label, pointer …)."""

    rule: str
    code: str
    effect: Effect
    reason: str
    severity: str = "high"
    mode: Mode = Mode.ENFORCE
    detail: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    excused: Excused | None = None

    @property
    def enforced(self) -> bool:
        """Whether the hit counts: its rule is not in mode `observe`, and no exception covers it [EXC-3]."""
        return self.mode is Mode.ENFORCE and self.excused is None

    @property
    def problem(self) -> str:
        """What failed in policy, and where, if the hit reports a failure; otherwise empty."""
        is_own = self.rule == ENGINE_RULE or self.code == BAD_EFFECT
        return str(self.detail.get("problem", "")) if is_own else ""

    def to_json(self) -> dict[str, Any]:
        """The hit as shown and recorded; `mode` and `excused` only if they prevent it from being enforced."""
        shown: dict[str, Any] = {
            "rule": self.rule,
            "code": self.code,
            "effect": self.effect.value,
            "reason": self.reason,
            "severity": self.severity,
        }
        if self.detail:
            shown["detail"] = dict(self.detail)
        if self.mode is not Mode.ENFORCE:
            shown["mode"] = self.mode.value
        return shown if self.excused is None else shown | {"excused": self.excused.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDecision:
    """The decision about one view. `action` is the view's (read, execute …); `outcome` is what was done.

    `origins` are where the values of a tool call came from, as policy last saw them; None for all other views. `reused`
    is true if it was decided in an earlier turn and nothing that it depends on has changed.
    """

    path: str
    kind: str
    role: str
    uri: str | None
    name: str | None
    action: str
    direction: str
    verdict: Verdict
    outcome: Action
    hits: tuple[Hit, ...] = ()
    origins: Sequence[Mapping[str, Any]] | None = None
    reused: bool = False

    def to_json(self) -> dict[str, Any]:
        """The view's entry in a decision; `origins` only for tool calls, `reused` only if true."""
        shown: dict[str, Any] = {
            "path": self.path,
            "kind": self.kind,
            "role": self.role,
            "uri": self.uri,
            "name": self.name,
            "action": self.action,
            "direction": self.direction,
            "verdict": self.verdict.value,
            "outcome": self.outcome.value,
            "hits": [hit.to_json() for hit in self.hits],
        }
        if self.reused:
            shown["reused"] = True
        return shown if self.origins is None else shown | {"origins": list(self.origins)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """What one stage did: whether it changed something, which headers, and the hit with which it stopped the run.

    `closed` marks a hit that counts in every mode, because it is a failure or a violation.
    """

    stage: str
    mode: str
    changed: bool = False
    headers: tuple[HeaderChanged, ...] = ()
    hit: Hit | None = None
    error: str | None = None
    closed: bool = False

    def to_json(self) -> dict[str, Any]:
        """The stage's entry in a decision."""
        shown: dict[str, Any] = {"stage": self.stage, "mode": self.mode, "changed": self.changed}
        if self.headers:
            shown["headers"] = [
                {"name": one.name, "removed": one.removed} | ({} if one.value is None else {"value": one.value})
                for one in self.headers
            ]
        if self.hit is not None:
            shown["hit"] = self.hit.to_json()
        if self.error is not None:
            shown["error"] = self.error
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about a message, request or response; `revision` identifies the policies and their data.

    `marked` are those of the `views` that have hits: kept separately, as a long conversation has thousands of others.
    """

    id: str
    verdict: Verdict
    action: Action
    mode: Mode
    revision: str
    views: tuple[ViewDecision, ...]
    coverage: Coverage
    stages: tuple[StageRecord, ...] = ()
    approvals: tuple[ApprovalRef, ...] = ()
    marked: tuple[ViewDecision, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def hit_views(self) -> tuple[ViewDecision, ...]:
        """The views with hits, in order."""
        return tuple(view for view in self.views if view.hits) if self.marked is None else self.marked

    @property
    def approval_ids(self) -> tuple[str, ...]:
        """The ids of the approvals that a person has to give before the same traffic can go through."""
        waiting = (one for one in self.approvals if one.status is ApprovalStatus.PENDING)
        return tuple(one.id for one in waiting if one.id is not None)

    @property
    def hits(self) -> tuple[Hit, ...]:
        """All hits: those of stages, then those of the views in order."""
        return (*stage_hits(self.stages), *(hit for view in self.hit_views for hit in view.hits))

    @property
    def excused(self) -> int:
        """How many hits were not enforced because an exception covers them."""
        return sum(hit.excused is not None for view in self.hit_views for hit in view.hits)

    @property
    def reasons(self) -> tuple[Hit, ...]:
        """The hits that the verdict follows from."""
        wanted = Effect.DENY if self.verdict is Verdict.DENY else Effect.REQUIRE_APPROVAL
        return tuple(hit for hit in self.hits if hit.effect is wanted)

    def to_json(self) -> dict[str, Any]:
        """The decision as JSON objects; no content of the message is in it."""
        shown: dict[str, Any] = {
            "verdict": self.verdict.value,
            "action": self.action.value,
            "mode": self.mode.value,
            "revision": self.revision,
            "decision_id": self.id,
            "coverage": self.coverage.to_json(),
            "views": [view.to_json() for view in self.views],
        }
        shown |= {"excused": self.excused} if self.excused else {}
        shown |= {"stages": [stage.to_json() for stage in self.stages]} if self.stages else {}
        shown |= {"approvals": [approval.to_json() for approval in self.approvals]} if self.approvals else {}
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """The fields of a rule's METADATA that a hit needs."""

    severity: str
    mode: Mode


def hits_of(result: EngineResult, rules: Mapping[str, RuleFacts], kind: ViewKind) -> tuple[Hit, ...]:
    """The hits in an engine's answer. Anything but a well-formed decision object is itself a hit: a deny [DEC-3]."""
    match result:
        case Decided(value=value):
            return _hits(value, rules, kind)
        case Undefined():
            return (_engine_hit("engine.undefined", "Policy gave no decision for this part."),)
        case TimedOut():
            return (_engine_hit(TIMED_OUT, "Policy did not decide in time."),)
        case Failed(code=code, detail=detail):
            return (_engine_hit(code, TOO_MUCH.get(code, "Policy could not be evaluated."), detail),)
        case _:
            assert_never(result)


def _engine_hit(code: str, reason: str, problem: str = "") -> Hit:
    detail = {"problem": problem} if problem else {}
    return Hit(rule=ENGINE_RULE, code=code, effect=Effect.DENY, reason=reason, severity="critical", detail=detail)


_BAD_RESULT: Final = _engine_hit("engine.bad-result", "Policy gave an answer that cannot be read.")


def _hits(value: Any, rules: Mapping[str, RuleFacts], kind: ViewKind) -> tuple[Hit, ...]:
    if value is NO_EFFECTS:  # most answers
        return ()
    if not isinstance(value, dict) or value.keys() != _EFFECT_NAMES:
        return (_BAD_RESULT,)
    hits: list[Hit] = []
    for effect in Effect:
        asked = value[effect.value]
        if not isinstance(asked, list):
            return (_BAD_RESULT,)
        hits.extend(_hit(item, effect, rules, kind) for item in asked)
    return tuple(hits)


def _hit(item: Any, effect: Effect, rules: Mapping[str, RuleFacts], kind: ViewKind) -> Hit:
    if not isinstance(item, dict):
        return _BAD_RESULT
    rule, code, reason = item.get("rule"), item.get("code"), item.get("reason")
    detail = item.get("detail", {})
    if not (isinstance(rule, str) and isinstance(code, str) and isinstance(reason, str) and isinstance(detail, dict)):
        return replace(_BAD_RESULT, detail={"problem": f"{rule}: code and reason are texts, detail an object"})
    facts = rules.get(rule)
    fields = {name: part for name, part in item.items() if name not in _FIELDS}
    problem = _misfit(effect, fields, kind)
    if problem:
        # An effect that cannot be carried out must not become an allow: the part is refused instead.
        effect, fields, detail = Effect.DENY, {}, {"problem": problem}
        code, reason = BAD_EFFECT, "A rule asked for something that cannot be done."
    return Hit(
        rule=rule,
        code=code,
        effect=effect,
        reason=reason,
        severity=facts.severity if facts is not None else "high",
        mode=facts.mode if facts is not None else Mode.ENFORCE,
        detail=detail,
        fields=fields,
    )


def _misfit(effect: Effect, fields: Mapping[str, Any], kind: ViewKind) -> str:
    """Why the effect's own fields cannot be used on a view of this kind; empty if they can."""
    match effect:
        case Effect.LABEL:
            return "" if isinstance(fields.get("label"), str) and fields["label"] else "label: not a text"
        case Effect.REDACT:
            return _misfit_redact(fields, kind)
        case Effect.REWRITE:
            if kind not in WITH_ARGUMENTS:
                return "rewrite: only arguments can be rewritten"
            pointer = fields.get("pointer")
            fits = isinstance(pointer, str) and pointer.startswith(ARGUMENTS) and "value" in fields
            return "" if fits else "rewrite: needs a pointer into /arguments and a value"
        case Effect.STRIP_TOOL:
            return "" if kind is ViewKind.TOOL_DEFINITION else "strip_tool: only on a tool definition"
        case Effect.REQUIRE_APPROVAL:
            return _misfit_approval(fields)
        case Effect.DENY | Effect.WARN:
            return ""
        case _:
            assert_never(effect)


def _misfit_approval(fields: Mapping[str, Any]) -> str:
    scopes, binds = fields.get("scopes", []), fields.get("binds", [])
    if not isinstance(scopes, list) or not all(isinstance(one, str) and one in SCOPES for one in scopes):
        return f"require_approval: `scopes` is a list of {' and '.join(sorted(SCOPES))}"
    fits = isinstance(binds, list) and all(isinstance(one, str) for one in binds)
    return "" if fits else "require_approval: `binds` is a list of names of arguments"


def _misfit_redact(fields: Mapping[str, Any], kind: ViewKind) -> str:
    replacement = fields.get("replacement", "mask")
    if not isinstance(replacement, str) or replacement not in REPLACEMENTS:
        return f"redact: unknown replacement, it is one of {', '.join(sorted(REPLACEMENTS))}"
    spans, pointer = fields.get("spans"), fields.get("pointer")
    if (spans is None) == (pointer is None):
        return "redact: needs spans or a pointer"
    if pointer is not None:
        places = (EXTRA,) if kind not in WITH_ARGUMENTS else (ARGUMENTS, EXTRA)
        fits = isinstance(pointer, str) and pointer.startswith(places)
        return "" if fits else f"redact: a pointer here begins with {' or '.join(places)}"
    if fields.get("of", "plain") not in ("plain", "folded"):
        return "redact: `of` is plain or folded; without it, spans are of the content"
    fits = isinstance(spans, list) and bool(spans) and all(map(_is_span, spans))
    return "" if fits else "redact: not spans"


def _is_span(span: Any) -> bool:
    is_pair = isinstance(span, list) and len(span) == 2 and all(type(edge) is int for edge in span)
    return is_pair and 0 <= span[0] < span[1]


def verdict_of(hits: Iterable[Hit]) -> Verdict:
    """The strictest verdict of any hit: deny, then require_approval, warn, allow [DEC-2]."""
    effects = {hit.effect for hit in hits}
    if Effect.DENY in effects:
        return Verdict.DENY
    if Effect.REQUIRE_APPROVAL in effects:
        return Verdict.REQUIRE_APPROVAL
    return Verdict.WARN if Effect.WARN in effects else Verdict.ALLOW


def action_of(hits: Iterable[Hit], mode: Mode) -> Action:
    """What is done about the hits that are in force; in mode observe, everything is forwarded [C11]."""
    effects = {hit.effect for hit in hits if hit.enforced}
    if mode is not Mode.ENFORCE:
        return Action.FORWARD
    if Effect.DENY in effects:
        return Action.REFUSE
    if Effect.REQUIRE_APPROVAL in effects:
        return Action.SUSPEND
    return Action.FORWARD_MODIFIED if effects & EDITS else Action.FORWARD


def view_decision(
    view: MessageView, hits: tuple[Hit, ...], mode: Mode, origins: Sequence[Mapping[str, Any]] | None = None
) -> ViewDecision:
    """The line of one view in a decision."""
    head, (uri, name) = view.head, view.address
    return trusted(
        ViewDecision,
        path=view.path,
        kind=head["kind"],
        role=head["role"],
        uri=uri,
        name=name,
        action=head["action"],
        direction="pre" if head["is_pre"] else "post",
        verdict=verdict_of(hits) if hits else Verdict.ALLOW,
        outcome=action_of(hits, mode) if hits else Action.FORWARD,
        hits=hits,
        origins=origins,
    )


def stronger(left: Action, right: Action) -> Action:
    """The action that lets less through."""
    return min(left, right, key=_ACTIONS.index)


def stage_hits(stages: Iterable[StageRecord]) -> tuple[Hit, ...]:
    """The hits with which stages stopped a run."""
    return tuple(stage.hit for stage in stages if stage.hit is not None)


def with_stages(
    verdict: Verdict, action: Action, stages: Sequence[StageRecord], mode: Mode, *, approved: bool = False
) -> tuple[Verdict, Action]:
    """`verdict` and `action` with the hits of stages added. A stage's failure or violation refuses in every mode.

    With `approved`, hits that ask for an approval suspend nothing: a person has given it.
    """
    for stage in stages:
        if stage.hit is not None:
            verdict = min(verdict, verdict_of([stage.hit]), key=_VERDICTS.index)
            hits = without_approval_hits([stage.hit]) if approved else (stage.hit,)
            action = stronger(action, action_of(hits, Mode.ENFORCE if stage.closed else mode))
    return verdict, action


def without_approval_hits(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """The hits without those that require a person's approval."""
    return tuple(hit for hit in hits if hit.effect is not Effect.REQUIRE_APPROVAL)


def overall(views: Sequence[ViewDecision], coverage: Coverage) -> tuple[Verdict, Action]:
    """The verdict and action of the whole: the strongest of any view; without full coverage nothing is forwarded."""
    if not views or not coverage.full:
        return Verdict.DENY, Action.REFUSE
    verdicts, actions = zip(*[(view.verdict, view.outcome) for view in views], strict=True)
    return min(verdicts, key=_VERDICTS.index), min(actions, key=_ACTIONS.index)

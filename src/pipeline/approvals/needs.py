"""What a person is asked to approve, and whether a person did. An approval is for one digest of a final effect [C10].

Nothing here reads a store or a clock: approvals and time come with the session's facts. Spec: docs/spec/approvals.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cmf.enums import Role, ViewKind
from cmf.json.codec import dumps
from cmf.json.value import to_json
from cmf.message.digests import content_of
from cmf.message.message import ToolResultPart
from cmf.message.request import Request
from cmf.views.iterate import iter_views
from cmf.views.view import MessageView
from pipeline.decisions.approval import Approval, ApprovalRef, ApprovalRequest, ApprovalStatus, ApprovalUse
from pipeline.decisions.decision import (
    Action,
    Effect,
    Hit,
    Mode,
    StageRecord,
    ViewDecision,
    action_of,
    stage_hits,
    without_approval_hits,
)
from pipeline.decisions.ids import new_ulid
from pipeline.decisions.paths import message_place
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.stage import Traffic

_NOT_BOUND: Final = frozenset({"path", "hook"})  # left out of the digest: they are its place, not what it does
DENIED_BY_PERSON: Final = Hit(
    rule="approval", code="approval.denied", effect=Effect.DENY, reason="A person refused this.", severity="high"
)
_MADE_BY_MODEL: Final = frozenset({"tool_id", "message"})


@dataclass(slots=True, kw_only=True)
class ApprovalNeed:
    """One effect, in its final form, for which rules require a person's approval.

    Attributes:
        happened: whether the conversation went on after it, so that it may have been carried out already.
        shown: what the person is to see: the call with its arguments, or the view without its context.
    """

    path: str
    digest: str
    target: str
    rules: set[str]
    happened: bool
    shown: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """The state of a run's approval needs: all are approved (`used`), one was denied, or some wait for a person.

    Attributes:
        refs: an approval for each need, as the decision names them.
        used: approvals to use up with the commit; none unless all needs are approved.
        asked: new requests for approval, to store with the commit.
        shown: what each new request is about, by its id.
    """

    refs: tuple[ApprovalRef, ...] = ()
    used: tuple[ApprovalUse, ...] = ()
    asked: tuple[ApprovalRequest, ...] = ()
    shown: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def action(self) -> Action:
        """What is done with the traffic: forward, refuse or suspend."""
        found = {ref.status for ref in self.refs}
        if ApprovalStatus.DENIED in found:
            return Action.REFUSE
        return Action.FORWARD if found and ApprovalStatus.PENDING not in found else Action.SUSPEND


def with_approval(view: ViewDecision, mode: Mode) -> ViewDecision:
    """The view after approval: the verdict stays, the action follows from its other hits."""
    return dataclasses.replace(view, outcome=action_of(without_approval_hits(view.hits), mode))


def needs_approval(views: Iterable[ViewDecision], stages: Iterable[StageRecord], mode: Mode) -> bool:
    """Whether an enforced rule, or a stage, requires a person's approval."""
    return any(view.outcome is Action.SUSPEND for view in views) or any(_stage_approval_hits(stages, mode))


def approval_needs(
    final: Traffic, passes: Sequence[tuple[Traffic, Sequence[ViewDecision]]], stages: Sequence[StageRecord], mode: Mode
) -> tuple[ApprovalNeed, ...]:
    """All approval needs of a run, each about its effect in the final form.

    `final` is what would go out; `passes` has what was judged on each pass, with its decisions. A need of any pass
    counts. If an edit moved parts, a need of an earlier pass is about the part as it was on that pass.
    """
    last = _by_path(final)
    merged: dict[tuple[str, str, int], ApprovalNeed] = {}
    for value, decided in passes:
        found = last if value is final else _by_path(value)
        stayed = _layout(found) == _layout(last)
        met: Counter[tuple[str, str]] = Counter()
        for line in decided:
            rules = {hit.rule for hit in line.hits if hit.enforced and hit.effect is Effect.REQUIRE_APPROVAL}
            if line.outcome is not Action.SUSPEND or not rules:
                continue
            need = _need_of(*(last if stayed else found)[line.path], value=final if stayed else value, rules=rules)
            # Two equal calls are two effects; the same call on two passes is one.
            place = (need.digest, need.target, met[need.digest, need.target])
            met[need.digest, need.target] += 1
            merged.setdefault(place, need).rules |= rules
    return (*merged.values(), *_stage_needs(final, stages, mode))


def _by_path(value: Traffic) -> dict[str, list[MessageView]]:
    """The views of `value` by their paths, each followed by those of what it holds."""
    views: dict[str, list[MessageView]] = {}
    open_results: list[list[MessageView]] = []
    for view in iter_views(value):
        while open_results and not view.path.startswith(f"{open_results[-1][0].path}."):
            open_results.pop()
        for held in open_results:
            held.append(view)
        views[view.path] = [view]
        if view.kind in _HOLDING:
            open_results.append(views[view.path])
    return views


_HOLDING: Final = frozenset({ViewKind.TOOL_RESULT, ViewKind.PROMPT_RESULT})


def _layout(views: Mapping[str, list[MessageView]]) -> list[tuple[str, ViewKind]]:
    return [(path, view.kind) for path, (view, *_) in views.items()]


def resolve(
    needs: Iterable[ApprovalNeed], facts: SessionFacts, *, revision: str, expires_at: int, keep: bool
) -> ApprovalAnswer:
    """The state of the needs, by the approvals that the session has on record.

    Without `keep` no approvals are asked for: a run without a session has nowhere to keep them [SES-12].
    """
    pool = [one for one in facts.asked if one.asked.revision == revision]
    refs: list[ApprovalRef] = []
    used: list[ApprovalUse] = []
    asked: list[ApprovalRequest] = []
    shown: dict[str, dict[str, Any]] = {}
    for need in needs:
        matching = [one for one in pool if (one.asked.digest, one.asked.target) == (need.digest, need.target)]
        missing = set(need.rules)
        for status in (ApprovalStatus.USED, ApprovalStatus.DENIED, ApprovalStatus.APPROVED, ApprovalStatus.PENDING):
            again = status is not ApprovalStatus.USED or need.happened
            for one in _covering([one for one in matching if again or one.asked.id in facts.spent], status, missing):
                refs.append(ApprovalRef(id=one.asked.id, path=need.path, status=one.status))
                if status is ApprovalStatus.DENIED:
                    continue  # a denial by another person holds, whatever else was approved
                pool.remove(one)  # each approval is for one effect
                missing -= set(one.asked.rules)
                if status is ApprovalStatus.APPROVED:
                    used.append(ApprovalUse(id=one.asked.id, digest=need.digest, target=need.target, revision=revision))
        if missing:
            new = ApprovalRequest(
                id=f"apr_{new_ulid()}",
                digest=need.digest,
                target=need.target,
                rules=tuple(sorted(missing)),
                revision=revision,
                expires_at=expires_at,
            )
            refs.append(ApprovalRef(id=new.id if keep else None, path=need.path, status=ApprovalStatus.PENDING))
            asked.append(new)
            shown[new.id] = need.shown
    match ApprovalAnswer(refs=tuple(refs)).action:
        case Action.REFUSE:
            return ApprovalAnswer(refs=tuple(ref for ref in refs if ref.status is ApprovalStatus.DENIED))
        case Action.SUSPEND:
            return ApprovalAnswer(refs=tuple(refs), asked=tuple(asked) if keep else (), shown=shown if keep else {})
        case _:
            return ApprovalAnswer(refs=tuple(refs), used=tuple(used))


def _covering(approvals: Iterable[Approval], status: ApprovalStatus, missing: set[str]) -> list[Approval]:
    """Approvals of that status, taken in order until each of the `missing` rules has one."""
    left = set(missing)
    chosen = []
    for one in approvals:
        if one.status is status and left & set(one.asked.rules):
            chosen.append(one)
            left -= set(one.asked.rules)
    return chosen


def _need_of(view: MessageView, *held: MessageView, value: Traffic, rules: set[str]) -> ApprovalNeed:
    content = to_json(approved_content(view))
    if held:  # a result's own view has the texts of what it holds, and nothing else of it
        content["parts"] = [to_json(approved_content(part)) for part in held]
    return ApprovalNeed(
        path=view.path,
        digest=_digest(content),
        target=view.uri or f"{view.kind.value}:{view.role.value}",
        rules=set(rules),
        happened=_already_happened(view, value),
        shown=content,
    )


def _digest(content: Any) -> str:
    return hashlib.sha256(dumps(_ordered(content))).hexdigest()


def _ordered(value: Any) -> Any:
    """A JSON value with its keys in order. Unlike in RFC 8785, 1 and 1.0 stay two: receivers may tell them apart."""
    if isinstance(value, dict):
        return {name: _ordered(value[name]) for name in sorted(value)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def approved_content(view: MessageView) -> dict[str, Any]:
    """What an approval of this view is bound to: a call's URI and arguments; of other views, all but ids and place.

    A call's id and `extra` are left out, since a model mints new ones each time that it makes the same call.
    """
    if view.kind is ViewKind.TOOL_CALL:
        arguments = {} if view.arguments is None else {"arguments": view.arguments}
        raw = view.get_property("arguments_raw")
        arguments |= {} if raw is None else {"arguments_raw": raw}
        return {"uri": view.uri, **arguments, "executed_by": view.get_property("executed_by")}
    body = {name: item for name, item in view.to_dict(include_context=False).items() if name not in _NOT_BOUND}
    body["properties"] = {name: item for name, item in body["properties"].items() if name not in _MADE_BY_MODEL}
    return body


def _already_happened(view: MessageView, value: Traffic) -> bool:
    """Whether the conversation went on after the view: a call has its result, words have a message after them.

    Then an approval that was used in the session still covers it, since it is not carried out again.
    """
    place = message_place(view.path)
    if not isinstance(value, Request) or place is None:
        return False
    message, later = value.messages[place], value.messages[place + 1 :]
    if view.kind is ViewKind.TOOL_CALL:
        called = view.get_property("tool_id")
        parts = [part for one in later for part in one.content]
        return any(isinstance(part, ToolResultPart) and part.tool_call_id == called for part in parts)
    return bool(later) if message.role is Role.ASSISTANT else any(one.role is Role.ASSISTANT for one in later)


def _stage_approval_hits(stages: Iterable[StageRecord], mode: Mode) -> list[Hit]:
    if mode is not Mode.ENFORCE:
        return []
    return [hit for hit in stage_hits(stages) if hit.effect is Effect.REQUIRE_APPROVAL]


def _stage_needs(final: Traffic, stages: Sequence[StageRecord], mode: Mode) -> tuple[ApprovalNeed, ...]:
    """The needs of stages: each is about everything that would go out."""
    rules = {hit.rule for hit in _stage_approval_hits(stages, mode)}
    if not rules:
        return ()
    path = type(final).__name__.lower()
    digest = _digest(to_json(content_of(final)))
    shown = {"kind": path, "digest": digest}
    return (ApprovalNeed(path=path, digest=digest, target=f"{path}:whole", rules=rules, happened=False, shown=shown),)

"""What a person is asked to approve, and whether a person did. An approval is for one digest of a final effect [C10].

Nothing here reads a store or a clock: approvals and time come with the session's facts. Spec: docs/spec/approvals.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cmf.enums import Role, ViewKind
from cmf.json.codec import dumps
from cmf.json.value import to_json
from cmf.message.digests import content_of
from cmf.message.message import ToolResultPart
from cmf.message.request import Request
from cmf.views.iterate import iter_views
from cmf.views.view import MessageView
from pipeline.decisions.approval import (
    SCOPES,
    Approval,
    ApprovalRef,
    ApprovalRequest,
    ApprovalScope,
    ApprovalStatus,
    ApprovalUse,
)
from pipeline.decisions.authority import is_same_person
from pipeline.decisions.context import subject_key
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
from pipeline.decisions.paths import message_place
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.stage import Traffic
from pipeline.decisions.timestamps import new_ulid

_NOT_BOUND: Final = frozenset({"path", "hook"})  # left out of the digest: they are its place, not what it does
DENIED_BY_PERSON: Final = Hit(
    rule="approval", code="approval.denied", effect=Effect.DENY, reason="A person refused this.", severity="high"
)
_UNSAID: Final = ("", "_")  # an address has `_` for these, as for what is not there
_MADE_BY_MODEL: Final = frozenset({"tool_id", "message"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")


@dataclass(slots=True, kw_only=True)
class ApprovalNeed:
    """One effect, in its final form, for which rules require a person's approval.

    Attributes:
        happened: whether the conversation went on after it, so that it may have been carried out already.
        shown: what the person is to see: the call with its arguments, or the view without its context.
        hits: those that ask. is_call: whether it is a call with arguments that can be read.
        definition: the digest of the tool's definition, as far as one is known.
    """

    path: str
    digest: str
    target: str
    rules: set[str]
    happened: bool
    shown: dict[str, Any]
    hits: list[Hit] = field(default_factory=list)
    is_call: bool = False
    definition: str = ""

    def scopes(self, *, owned: bool) -> tuple[str, ...]:
        """In which scopes it may be approved besides once: those that no rule which asks forbids [APR-12]."""
        allowed = {scope for scope in SCOPES if self.is_call and (owned or scope is not ApprovalScope.VALUE)}
        for hit in self.hits:
            allowed &= set(hit.fields.get("scopes", SCOPES))
        return tuple(sorted(allowed))

    @property
    def repeat(self) -> str:
        """The digest of what an approval with a scope stands for [APR-11]."""
        bound = [hit.fields.get("binds", ()) for hit in self.hits]
        arguments = self.shown.get("arguments", {})
        named = {name for names in bound for name in names}
        if not all(bound) or not named <= arguments.keys():
            return _digest({"definition": self.definition, "exactly": self.shown})
        values = {name: arguments[name] for name in named}
        about = {name: part for name, part in self.shown.items() if name != "arguments"}
        return _digest({"definition": self.definition, "about": about, "values": to_json(values)})

    def use_of(self, approval: Approval) -> ApprovalUse:
        """What a run does that goes ahead by that approval."""
        asked = approval.asked
        return ApprovalUse(id=asked.id, digest=self.digest, target=self.target, revision=asked.revision)

    def request(
        self, rules: Iterable[str], scopes: tuple[str, ...], owner: str | None, *, revision: str, expires_at: int
    ) -> ApprovalRequest:
        """The question to a person, for those of its rules that nobody has answered."""
        return ApprovalRequest(
            id=f"apr_{new_ulid()}",
            digest=self.digest,
            target=self.target,
            rules=tuple(sorted(rules)),
            revision=revision,
            expires_at=expires_at,
            scopes=scopes,
            repeat=self.repeat if scopes else "",
            owner=owner,
            arguments=self.arguments,
            reasons=tuple(dict.fromkeys(hit.reason for hit in self.hits)),
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the call's arguments; one that could say something is left out."""
        return tuple(filter(_NAME.fullmatch, self.shown.get("arguments", ()))) if self.is_call else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """The state of a run's approval needs: all are approved (`used`), one was denied, or some wait for a person.

    Attributes:
        refs: an approval for each need, as the decision names them.
        used: approvals to use up with the commit; none unless all needs are approved.
        rests: approvals that stand, and that the run rests on without using them up.
        asked: new requests for approval, to store with the commit.
        shown: what each new request is about, by its id.
    """

    refs: tuple[ApprovalRef, ...] = ()
    used: tuple[ApprovalUse, ...] = ()
    rests: tuple[ApprovalUse, ...] = ()
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
    final: Traffic,
    passes: Sequence[tuple[Traffic, Sequence[ViewDecision]]],
    stages: Sequence[StageRecord],
    mode: Mode,
    definition_of: Callable[[str | None], str] = lambda _uri: "",
) -> tuple[ApprovalNeed, ...]:
    """All approval needs of a run, each about its effect in the final form. `definition_of` gives a tool's digest.

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
            asking = [hit for hit in line.hits if hit.enforced and hit.effect is Effect.REQUIRE_APPROVAL]
            if line.outcome is not Action.SUSPEND or not asking:
                continue
            need = _need_of(*(last if stayed else found)[line.path], value=final if stayed else value, hits=asking)
            need.definition = definition_of(line.uri)
            # Two equal calls are two effects; the same call on two passes is one.
            place = (need.digest, need.target, met[need.digest, need.target])
            met[need.digest, need.target] += 1
            if (known := merged.setdefault(place, need)) is not need:
                known.rules |= need.rules
                known.hits += need.hits
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


class Asker(NamedTuple):
    """Who asks: the key of the subject, and whose standing approvals of values hold (None: nobody's)."""

    subject: str
    owner: str | None = None


NOBODY: Final = Asker("")


def resolve(
    needs: Iterable[ApprovalNeed],
    facts: SessionFacts,
    *,
    revision: str,
    expires_at: int,
    keep: bool,
    asker: Asker = NOBODY,
) -> ApprovalAnswer:
    """The state of the needs, by the approvals that the session has on record, and those that stand for its owner.

    Without `keep` no approvals are asked for: a run without a session has nowhere to keep them [SES-12].
    """
    every = (one for one in (*facts.asked, *facts.standing) if keep and one.stands(facts.moment))
    bound = (one for one in every if one.asked.revision == revision)
    # Nobody approves their own.
    stands = [one for one in bound if not is_same_person(subject_key(one.approver), asker.subject)]
    settled = (ApprovalStatus.USED, ApprovalStatus.DENIED)
    pool = [one for one in facts.asked if one.asked.revision == revision]
    pool = [one for one in pool if one.status in settled or one.usable(facts.moment)]
    refs: list[ApprovalRef] = []
    used: list[ApprovalUse] = []
    rests: list[ApprovalUse] = []
    asked: list[ApprovalRequest] = []
    shown: dict[str, dict[str, Any]] = {}
    for need in needs:
        matching = [one for one in pool if (one.asked.digest, one.asked.target) == (need.digest, need.target)]
        missing = set(need.rules)
        scopes = need.scopes(owned=asker.owner is not None)
        for status in (ApprovalStatus.USED, ApprovalStatus.DENIED, ApprovalStatus.APPROVED, ApprovalStatus.PENDING):
            if status is ApprovalStatus.PENDING:
                same = (one for one in stands if one.scope in scopes and one.asked.target == need.target)
                repeated = [one for one in same if one.asked.repeat == need.repeat]
                for one in _covering(repeated, missing):
                    missing -= set(one.asked.rules)
                    refs.append(ApprovalRef(id=one.asked.id, path=need.path, status=one.status, scope=one.scope))
                    rests.append(need.use_of(one))
            again = status is not ApprovalStatus.USED or need.happened
            same = (one for one in matching if one.status is status)
            for one in _covering([one for one in same if again or one.asked.id in facts.spent], missing):
                refs.append(ApprovalRef(id=one.asked.id, path=need.path, status=one.status))
                if status is ApprovalStatus.DENIED:
                    continue  # a denial by another person holds, whatever else was approved
                pool.remove(one)  # each approval is for one effect
                missing -= set(one.asked.rules)
                if status is ApprovalStatus.APPROVED:
                    used.append(need.use_of(one))
        if missing:
            new = need.request(missing, scopes, asker.owner, revision=revision, expires_at=expires_at)
            refs.append(ApprovalRef(id=new.id if keep else None, path=need.path, status=ApprovalStatus.PENDING))
            asked.append(new)
            shown[new.id] = need.shown
    match ApprovalAnswer(refs=tuple(refs)).action:
        case Action.REFUSE:
            return ApprovalAnswer(refs=tuple(ref for ref in refs if ref.status is ApprovalStatus.DENIED))
        case Action.SUSPEND:
            return ApprovalAnswer(refs=tuple(refs), asked=tuple(asked) if keep else (), shown=shown if keep else {})
        case _:
            return ApprovalAnswer(refs=tuple(refs), used=tuple(used), rests=tuple(rests))


def _covering(approvals: Iterable[Approval], missing: set[str]) -> list[Approval]:
    """Approvals, taken in order until each of the `missing` rules has one."""
    left = set(missing)
    chosen = []
    for one in approvals:
        if left & set(one.asked.rules):
            chosen.append(one)
            left -= set(one.asked.rules)
    return chosen


def _need_of(view: MessageView, *held: MessageView, value: Traffic, hits: list[Hit]) -> ApprovalNeed:
    content = to_json(approved_content(view))
    if held:  # a result's own view has the texts of what it holds, and nothing else of it
        content["parts"] = [to_json(approved_content(part)) for part in held]
    return ApprovalNeed(
        path=view.path,
        digest=_digest(content),
        target=view.uri or f"{view.kind.value}:{view.role.value}",
        rules={hit.rule for hit in hits},
        happened=_already_happened(view, value),
        shown=content,
        hits=hits,
        is_call=view.kind is ViewKind.TOOL_CALL and "arguments_raw" not in content,
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
        named = {"namespace": view.get_property("namespace"), "name": view.name}
        unsaid = {key: text for key, text in named.items() if text in _UNSAID}
        return {"uri": view.uri, **unsaid, **arguments, "executed_by": view.get_property("executed_by")}
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
    hits = stage_hits(stages) if mode is Mode.ENFORCE else ()
    return [hit for hit in hits if hit.effect is Effect.REQUIRE_APPROVAL]


def _stage_needs(final: Traffic, stages: Sequence[StageRecord], mode: Mode) -> tuple[ApprovalNeed, ...]:
    """The needs of stages: each is about everything that would go out."""
    rules = {hit.rule for hit in _stage_approval_hits(stages, mode)}
    if not rules:
        return ()
    path = type(final).__name__.lower()
    digest = _digest(to_json(content_of(final)))
    shown = {"kind": path, "digest": digest}
    return (ApprovalNeed(path=path, digest=digest, target=f"{path}:whole", rules=rules, happened=False, shown=shown),)

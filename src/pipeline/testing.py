"""For tests of guarded code: a guard with scripted verdicts, and assertions about decisions.

guard = FakeGuard(Scripted("deny", rule="mail/elsewhere", name="send_mail"))
assert_denied(cmf_guard, "my key is AKIA…", rule="data/secrets")

Spec: docs/spec/integrations.md [INT-60] ff.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from typing import Any, Literal, TypeAlias, get_args

from cmf.enums import Capability, Role
from cmf.json.codec import loads
from cmf.message.message import Message, TextPart
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Action, Decision, Effect
from pipeline.decisions.engine import Decided, EngineResult, Failed, InlineEngine
from pipeline.decisions.errors import ConfigError
from pipeline.decisions.stage import Stage, StageCall, Traffic
from pipeline.engines.recording import Tap
from pipeline.guard import Guard, Subject
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import Config
from pipeline.run.outcome import Outcome, is_outage
from pipeline.run.recording import Records
from pipeline.sessions.base import SessionStore

Word: TypeAlias = Literal["allow", "warn", "deny", "require_approval", "unavailable"]
Value: TypeAlias = Traffic | str
"""What is judged; a string is a user's message."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """A verdict, and the views that get it; `unavailable` is an outage. A condition that is None holds for every view.

    Attributes:
        rule: the id of the rule in the decision.
        code: the code of its hit.
        reason: the reason of its hit.
        kind: only views of this kind: `text`, `tool_call` …
        name: only views of this tool, prompt or resource.
        contains: only views whose content or arguments, as JSON text, contain this.
        times: how many views get it at most; after that, the next one that applies is used.
    """

    verdict: Word = "deny"
    _: KW_ONLY
    rule: str = "test/scripted"
    code: str = "test.scripted"
    reason: str = "The test says so."
    kind: str | None = None
    name: str | None = None
    contains: str | None = None
    times: int | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError: the verdict is unknown."""
        if self.verdict not in get_args(Word):
            hint = f"use {', '.join(get_args(Word))}"
            raise ConfigError("unknown verdict", path="verdict", hint=hint, code="config.word")

    def applies(self, view: Mapping[str, Any]) -> bool:
        """Whether all conditions hold for this view."""
        if self.kind not in (None, view.get("kind")) or self.name not in (None, view.get("name")):
            return False
        values = (view.get("content"), view.get("arguments"))
        texts = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in values)
        return self.contains is None or any(self.contains in text for text in texts)

    def result(self) -> EngineResult:
        """The answer of an engine with this verdict."""
        if self.verdict == "unavailable":
            return Failed("test.unavailable")
        effects: dict[str, list[Any]] = {effect.value: [] for effect in Effect}
        if self.verdict != "allow":
            effects[self.verdict].append({"rule": self.rule, "code": self.code, "reason": self.reason})
        return Decided(effects)


class FakeGuard(Guard):
    """A guard with scripted verdicts in place of policy; everything else is real: sessions, approvals, records.

    Each view gets the first verdict of the script that applies to it; if none applies, it is allowed. Only for tests.

    Args:
        script: the verdicts, in order; a word alone applies to every view.
        config, stages, sessions, profiles, recorder: as in `Guard`.
    """

    def __init__(
        self,
        *script: Scripted | Word,
        config: Config | None = None,
        stages: Sequence[Stage | StageCall] = (),
        sessions: SessionStore | None = None,
        profiles: Profiles | None = None,
        recorder: Records | None = None,
    ) -> None:
        self._script = _Script()
        self._engine = Tap(self._script)
        self.script(*script)
        super().__init__(
            _policies(),
            engine=self._engine,
            config=config,
            stages=stages,
            sessions=sessions,
            profiles=profiles,
            recorder=recorder,
        )

    def script(self, *script: Scripted | Word) -> None:
        """Replace the script."""
        self._script.begin([one if isinstance(one, Scripted) else Scripted(one) for one in script])

    @property
    def inputs(self) -> list[Mapping[str, Any]]:
        """The policy inputs of all views so far, in order."""
        return [document for _, document in self._engine.asked]


class _Script(InlineEngine):
    """An engine that answers by a script."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._remaining: list[tuple[Scripted, int | None]] = []

    @property
    def revision(self) -> str:
        """A placeholder: there are no policies."""
        return "0" * 64

    def begin(self, script: Sequence[Scripted]) -> None:
        """Use `script` from now on."""
        with self._lock:
            self._remaining = [(one, one.times) for one in script]

    def evaluate(
        self,
        entrypoints: Sequence[str],  # noqa: ARG002 - an engine is given them
        shared: bytes,  # noqa: ARG002 - as above
        views: Sequence[bytes],
        *,
        timeout_seconds: float,  # noqa: ARG002 - as above
    ) -> list[EngineResult]:
        """The scripted answer for each view."""
        return [self._next(loads(view)).result() for view in views]

    def close(self) -> None:
        """There is nothing to close."""

    def _next(self, view: Mapping[str, Any]) -> Scripted:
        with self._lock:
            for place, (one, left) in enumerate(self._remaining):
                if left != 0 and one.applies(view):
                    self._remaining[place] = (one, None if left is None else left - 1)
                    return one
        return Scripted("allow")


@cache
def _policies() -> PolicySet:
    """A set that is evaluated for every view, with all capabilities."""
    text = b"package scripted\n\nallow := true\n"
    loaded = policy_set.load({"scripted.rego": text}, entrypoint="data.scripted.allow")
    return replace(loaded, capabilities=frozenset(Capability))


# -- assertions --------------------------------------------------------------------------------------------------------


def assert_denied(
    guard: Guard,
    value: Value,
    *,
    rule: str | None = None,
    code: str | None = None,
    subject: Subject | None = None,
    session: str | None = None,
    context: Context | None = None,
) -> Decision:
    """Assert that policy refuses `value`, by this rule and with this code if given, and return the decision.

    Raises:
        AssertionError: policy does not refuse it, or refuses it otherwise, or could not be evaluated.
    """
    __tracebackhide__ = True
    decision = guard.decide(_traffic(value), subject=subject, session=session, context=context)
    wanted = [hit for hit in decision.reasons if rule in (None, hit.rule) and code in (None, hit.code) and hit.enforced]
    if decision.action is not Action.REFUSE or is_outage(decision) or not wanted:
        named = "".join(f" {word} {name}" for word, name in (("by", rule), ("with", code)) if name is not None)
        raise AssertionError(f"expected a denial{named}, but {_summary(decision)}")
    return decision


def assert_allowed(
    guard: Guard,
    value: Value,
    *,
    subject: Subject | None = None,
    session: str | None = None,
    context: Context | None = None,
) -> Outcome:
    """Assert that `value` may be sent, perhaps changed by policy (`outcome.value`), and return the outcome.

    Raises:
        AssertionError: it may not be sent.
    """
    __tracebackhide__ = True
    outcome = guard.run(_traffic(value), subject=subject, session=session, context=context)
    if outcome.value is None:
        raise AssertionError(f"expected this to be allowed, but {_summary(outcome.decision)}")
    return outcome


def _traffic(value: Value) -> Traffic:
    return Message(role=Role.USER, content=(TextPart(text=value),)) if isinstance(value, str) else value


def _summary(decision: Decision) -> str:
    """The verdict and every hit, without content."""
    verdict = f"the verdict is {decision.verdict.value}, and the action {decision.action.value}"
    hits = [*((stage.stage, stage.hit) for stage in decision.stages if stage.hit is not None)]
    hits += [(view.path, hit) for view in decision.hit_views for hit in view.hits]
    lines = "".join(
        f"\n  {place}: {hit.effect.value} {hit.rule}: {hit.reason} [{hit.code}]"
        f"{'' if hit.enforced else ' (not enforced)'}"
        for place, hit in hits
    )
    return f"{verdict} (mode {decision.mode.value}){lines or '; no rule hit'}"


__all__ = ["FakeGuard", "Scripted", "Value", "Word", "assert_allowed", "assert_denied"]

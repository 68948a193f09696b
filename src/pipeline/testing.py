"""For the tests of guarded code: a guard whose verdicts are scripted, and assertions about what a guard decides.

guard = FakeGuard(Said("deny", rule="mail/elsewhere", name="send_mail"))
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

from cmf.codec import loads
from cmf.content import TextPart
from cmf.enums import Capability, Role
from cmf.message import Message
from pipeline import policy_set
from pipeline.assembly import Config
from pipeline.audit.recording import Records
from pipeline.context import Context
from pipeline.decision import Action, Decision, Effect, Hit
from pipeline.engines.base import Decided, EngineResult, Failed, InlineEngine
from pipeline.engines.tap import Tap
from pipeline.errors import ConfigError
from pipeline.guard import Guard, Subject, is_outage
from pipeline.outcome import Outcome
from pipeline.policy_set import PolicySet
from pipeline.profiles import Profiles
from pipeline.sessions.base import SessionStore
from pipeline.stage import Stage, StageCall, Traffic

Word: TypeAlias = Literal["allow", "warn", "deny", "require_approval", "unavailable"]
Value: TypeAlias = Traffic | str
"""What is judged; a text is what a user says."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a scripted policy says of a view; `unavailable` is an outage. What is not named fits every view.

    Attributes:
        rule: who is to have said it. code, reason: with which words.
        kind: of which kind of view: `text`, `tool_call` …
        name: of which tool, prompt or resource.
        says: what its content or arguments hold, as text.
        times: of how many views it is said at most; after that, the next that fits is.
    """

    verdict: Word = "deny"
    _: KW_ONLY
    rule: str = "test/scripted"
    code: str = "test.scripted"
    reason: str = "The test says so."
    kind: str | None = None
    name: str | None = None
    says: str | None = None
    times: int | None = None

    def __post_init__(self) -> None:
        """A verdict that there is not is a ConfigError."""
        if self.verdict not in get_args(Word):
            hint = f"use {', '.join(get_args(Word))}"
            raise ConfigError("there is no such verdict", path="verdict", hint=hint, code="config.word")

    def fits(self, view: Mapping[str, Any]) -> bool:
        """Whether it is about this view."""
        if self.kind not in (None, view.get("kind")) or self.name not in (None, view.get("name")):
            return False
        said = [view.get("content"), view.get("arguments")]
        texts = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in said)
        return self.says is None or any(self.says in text for text in texts)

    def result(self) -> EngineResult:
        """What an engine would answer."""
        if self.verdict == "unavailable":
            return Failed("test.unavailable")
        effects: dict[str, list[Any]] = {effect.value: [] for effect in Effect}
        if self.verdict != "allow":
            effects[self.verdict].append({"rule": self.rule, "code": self.code, "reason": self.reason})
        return Decided(effects)


class FakeGuard(Guard):
    """A guard that judges by a script and by nothing else; all the rest of it is real: sessions, approvals, records.

    Of each view that is said which fits first; what nothing fits is allowed. Never for anything but tests.

    Args:
        script: what is said, in order; a word alone is said of every view.
        config, stages, sessions, profiles, recorder: as of `Guard`.
    """

    def __init__(
        self,
        *script: Said | Word,
        config: Config | None = None,
        stages: Sequence[Stage | StageCall] = (),
        sessions: SessionStore | None = None,
        profiles: Profiles | None = None,
        recorder: Records | None = None,
    ) -> None:
        self._script = _Script()
        self._asked = Tap(self._script)
        self.say(*script)
        super().__init__(
            _policies(),
            engine=self._asked,
            config=config,
            stages=stages,
            sessions=sessions,
            profiles=profiles,
            recorder=recorder,
        )

    def say(self, *script: Said | Word) -> None:
        """Say this from now on, and nothing of what was said before."""
        self._script.begin([one if isinstance(one, Said) else Said(one) for one in script])

    @property
    def asked(self) -> list[Mapping[str, Any]]:
        """All that was judged so far, in order: what policy sees of each view."""
        return [document for _, document in self._asked.asked]


class _Script(InlineEngine):
    """An engine that says what it is told to."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._waiting: list[tuple[Said, int | None]] = []

    @property
    def revision(self) -> str:
        """No policies, so no revision of any."""
        return "0" * 64

    def begin(self, script: Sequence[Said]) -> None:
        """Say this from now on."""
        with self._gate:
            self._waiting = [(one, one.times) for one in script]

    def evaluate(
        self,
        entrypoints: Sequence[str],  # noqa: ARG002 - an engine is given them
        shared: bytes,  # noqa: ARG002
        views: Sequence[bytes],
        *,
        timeout_seconds: float,  # noqa: ARG002
    ) -> list[EngineResult]:
        """What is said of each view."""
        return [self._said(loads(view)).result() for view in views]

    def close(self) -> None:
        """Nothing to let go of."""

    def _said(self, view: Mapping[str, Any]) -> Said:
        with self._gate:
            for place, (one, left) in enumerate(self._waiting):
                if left != 0 and one.fits(view):
                    self._waiting[place] = (one, None if left is None else left - 1)
                    return one
        return Said("allow")


@cache
def _policies() -> PolicySet:
    """A set that is asked about every view, and shown all of it."""
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
    """The decision, where policy refuses `value`: by a rule of this id and with this code, as far as they are given.

    Raises:
        AssertionError: it does not, or for another reason; or policy could not be evaluated, which is no refusal.
    """
    __tracebackhide__ = True
    decision = guard.decide(_traffic(value), subject=subject, session=session, context=context)
    wanted = [hit for hit in decision.reasons if rule in (None, hit.rule) and code in (None, hit.code) and hit.enforced]
    if decision.action is not Action.REFUSE or is_outage(decision) or not wanted:
        named = "".join(f" {word} {name}" for word, name in (("by", rule), ("with", code)) if name is not None)
        raise AssertionError(f"this is to be denied{named}, but {_told(decision)}")
    return decision


def assert_allowed(
    guard: Guard,
    value: Value,
    *,
    subject: Subject | None = None,
    session: str | None = None,
    context: Context | None = None,
) -> Outcome:
    """The outcome, where `value` may go on, as it is or as policy left it: `outcome.value`.

    Raises:
        AssertionError: it may not.
    """
    __tracebackhide__ = True
    outcome = guard.run(_traffic(value), subject=subject, session=session, context=context)
    if outcome.value is None:
        raise AssertionError(f"this is to be allowed, but {_told(outcome.decision)}")
    return outcome


def _traffic(value: Value) -> Traffic:
    return Message(role=Role.USER, content=(TextPart(text=value),)) if isinstance(value, str) else value


def _told(decision: Decision) -> str:
    """What came of it instead, with every hit; no content."""
    what = f"the verdict is {decision.verdict.value}, and the action {decision.action.value}"
    hits = [*((stage.stage, stage.hit) for stage in decision.stages if stage.hit is not None)]
    hits += [(view.path, hit) for view in decision.hit_views for hit in view.hits]
    lines = "".join(f"\n  {_line(place, hit)}" for place, hit in hits)
    return f"{what} (mode {decision.mode.value}){lines or '; no rule hit'}"


def _line(place: str, hit: Hit) -> str:
    observed = "" if hit.enforced else " (not enforced)"
    return f"{place}: {hit.effect.value} {hit.rule}: {hit.reason} [{hit.code}]{observed}"


__all__ = ["FakeGuard", "Said", "Value", "Word", "assert_allowed", "assert_denied"]

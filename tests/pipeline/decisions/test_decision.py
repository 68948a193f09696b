"""What an engine's answer becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf import ViewKind
from pipeline.decisions.decision import (
    NO_EFFECTS,
    Action,
    Coverage,
    Effect,
    Hit,
    Mode,
    RuleFacts,
    Skipped,
    Verdict,
    ViewDecision,
    action_of,
    hits_of,
    overall,
    stronger,
    verdict_of,
)
from pipeline.decisions.engine import Decided, EngineResult, Failed, TimedOut, Undefined

EMPTY: dict[str, Any] = {effect.value: [] for effect in Effect}
RULES = {"a/b": RuleFacts(severity="warn", mode=Mode.ENFORCE), "a/o": RuleFacts(severity="warn", mode=Mode.OBSERVE)}


def asked(effect: str, **fields: Any) -> EngineResult:
    return Decided(EMPTY | {effect: [{"rule": "a/b", "code": "a.b", "reason": "because", **fields}]})


def test_the_answer_that_all_share_cannot_be_changed_by_one() -> None:
    with pytest.raises(TypeError, match="frozen"):
        NO_EFFECTS["deny"].append({"rule": "a/b"})
    assert hits_of(Decided(NO_EFFECTS), RULES, ViewKind.TEXT) == ()


def only(result: EngineResult, kind: ViewKind = ViewKind.TEXT) -> Hit:
    (hit,) = hits_of(result, RULES, kind)
    return hit


@pytest.mark.spec("DEC-3")
@pytest.mark.parametrize(
    ("result", "code"),
    [
        (Undefined(), "engine.undefined"),
        (TimedOut(), "engine.timeout"),
        (Failed("engine.panic", "x"), "engine.panic"),
        (Decided(None), "engine.bad-result"),
        (Decided(False), "engine.bad-result"),
        (Decided(True), "engine.bad-result"),
        (Decided([]), "engine.bad-result"),
        (Decided("<undefined>"), "engine.bad-result"),
        (Decided({}), "engine.bad-result"),
        (Decided({name: [] for name in EMPTY if name != "deny"}), "engine.bad-result"),
        (Decided(EMPTY | {"allow": []}), "engine.bad-result"),
        (Decided(EMPTY | {"warn": {}}), "engine.bad-result"),
        (Decided(EMPTY | {"warn": ["no object"]}), "engine.bad-result"),
        (Decided(EMPTY | {"warn": [{"rule": "a/b", "code": 1, "reason": "x"}]}), "engine.bad-result"),
        (Decided(EMPTY | {"warn": [{"rule": "a/b", "code": "x", "reason": "x", "detail": 3}]}), "engine.bad-result"),
        (Decided(EMPTY | {"warn": [{"code": "x", "reason": "x"}]}), "engine.bad-result"),
    ],
)
def test_anything_but_a_decision_object_is_a_deny_of_its_own_code(result: EngineResult, code: str) -> None:
    hit = only(result)

    assert (hit.effect, hit.code, hit.enforced, hit.severity) == (Effect.DENY, code, True, "critical")


@pytest.mark.spec("DEC-3")
def test_a_failure_names_its_problem_and_a_rule_s_own_detail_is_not_taken_for_one() -> None:
    failed = only(Failed("engine.conflict", "a rule with two values in data.a.b"))
    untyped = only(Decided(EMPTY | {"warn": [{"rule": "a/b", "code": 1, "reason": "x"}]}))
    misfit = only(asked("label"), ViewKind.TEXT)
    own = only(asked("deny", detail={"problem": "of its own"}), ViewKind.TEXT)

    assert failed.problem == failed.to_json()["detail"]["problem"] == "a rule with two values in data.a.b"
    assert untyped.problem == "a/b: code and reason are texts, detail an object"
    assert misfit.problem == "label: not a text"
    assert (own.problem, only(Failed("engine.panic")).problem) == ("", "")


@pytest.mark.spec("DEC-4")
@pytest.mark.parametrize(
    ("effect", "fields", "kind"),
    [
        ("label", {}, ViewKind.TEXT),
        ("label", {"label": ""}, ViewKind.TEXT),
        ("label", {"label": 3}, ViewKind.TEXT),
        ("redact", {}, ViewKind.TEXT),
        ("redact", {"spans": []}, ViewKind.TEXT),
        ("redact", {"spans": [[0]]}, ViewKind.TEXT),
        ("redact", {"spans": [[3, 3]]}, ViewKind.TEXT),
        ("redact", {"spans": [[-1, 3]]}, ViewKind.TEXT),
        ("redact", {"spans": [[0, 1.5]]}, ViewKind.TEXT),
        ("redact", {"spans": [[False, True]]}, ViewKind.TEXT),
        ("redact", {"spans": "all"}, ViewKind.TEXT),
        ("redact", {"spans": 3}, ViewKind.TEXT),
        ("redact", {"spans": [3]}, ViewKind.TEXT),
        ("redact", {"spans": [[0, 1]], "pointer": "/arguments/a"}, ViewKind.TOOL_CALL),
        ("redact", {"spans": [[0, 1]], "replacement": "smile"}, ViewKind.TEXT),
        ("redact", {"spans": [[0, 1]], "replacement": ["mask"]}, ViewKind.TEXT),
        ("redact", {"spans": [[0, 1]], "replacement": {}}, ViewKind.TEXT),
        ("redact", {"pointer": "arguments"}, ViewKind.TOOL_CALL),
        ("redact", {"pointer": 3}, ViewKind.TOOL_CALL),
        ("redact", {"pointer": "/content"}, ViewKind.TEXT),
        ("redact", {"pointer": "/name"}, ViewKind.TOOL_CALL),
        ("redact", {"pointer": "/arguments/a"}, ViewKind.TOOL_RESULT),
        ("rewrite", {"pointer": "/arguments/a", "value": 1}, ViewKind.TEXT),
        ("rewrite", {"pointer": "/name", "value": 1}, ViewKind.TOOL_CALL),
        ("rewrite", {"pointer": "/arguments/a"}, ViewKind.TOOL_CALL),
        ("strip_tool", {}, ViewKind.TOOL_CALL),
    ],
)
def test_an_effect_that_cannot_be_carried_out_is_a_deny(effect: str, fields: dict[str, Any], kind: ViewKind) -> None:
    hit = only(asked(effect, **fields), kind)

    assert (hit.effect, hit.code, hit.rule) == (Effect.DENY, "policy.bad-effect", "a/b")


@pytest.mark.spec("DEC-4")
def test_a_misfit_effect_of_an_observed_rule_stays_observed() -> None:
    value = EMPTY | {"label": [{"rule": "a/o", "code": "x", "reason": "x"}]}

    assert only(Decided(value)).enforced is False


@pytest.mark.parametrize(
    ("effect", "fields", "kind"),
    [
        ("deny", {}, ViewKind.TEXT),
        ("require_approval", {}, ViewKind.TOOL_CALL),
        ("warn", {}, ViewKind.TEXT),
        ("label", {"label": "pii"}, ViewKind.TEXT),
        ("redact", {"spans": [[0, 1], [2, 9]]}, ViewKind.TEXT),
        ("redact", {"pointer": "/arguments/a", "replacement": "drop"}, ViewKind.TOOL_CALL),
        ("redact", {"pointer": "/properties/extra/a"}, ViewKind.TEXT),
        ("rewrite", {"pointer": "/arguments/a", "value": None}, ViewKind.PROMPT_REQUEST),
        ("strip_tool", {}, ViewKind.TOOL_DEFINITION),
    ],
)
def test_a_well_formed_effect_keeps_its_rule_code_severity_and_fields(
    effect: str, fields: dict[str, Any], kind: ViewKind
) -> None:
    hit = only(asked(effect, **fields), kind)

    assert (hit.effect.value, hit.code, hit.severity, dict(hit.fields)) == (effect, "a.b", "warn", fields)


def test_a_hit_of_an_unknown_rule_is_enforced() -> None:
    value = EMPTY | {"deny": [{"rule": "main", "code": "policy.unknown-kind", "reason": "x"}]}

    assert only(Decided(value)).enforced is True


def hit_of(effect: Effect, mode: Mode = Mode.ENFORCE) -> Hit:
    return Hit(rule="r", code="c", effect=effect, reason="x", mode=mode)


ORDER = [Verdict.DENY, Verdict.REQUIRE_APPROVAL, Verdict.WARN, Verdict.ALLOW]


@pytest.mark.spec("DEC-2")
@given(st.lists(st.sampled_from(list(Effect)), max_size=6))
def test_the_strongest_effect_decides_in_any_order(effects: list[Effect]) -> None:
    hits = [hit_of(effect) for effect in effects]
    expected = next(
        (verdict for verdict in ORDER if verdict.value in {effect.value for effect in effects}), Verdict.ALLOW
    )

    assert verdict_of(hits) is verdict_of(hits[::-1]) is expected


@pytest.mark.spec("DEC-1")
@pytest.mark.parametrize(
    ("effect", "rule_mode", "mode", "action"),
    [
        (Effect.DENY, Mode.ENFORCE, Mode.ENFORCE, Action.REFUSE),
        (Effect.DENY, Mode.OBSERVE, Mode.ENFORCE, Action.FORWARD),
        (Effect.DENY, Mode.ENFORCE, Mode.OBSERVE, Action.FORWARD),
        (Effect.REQUIRE_APPROVAL, Mode.ENFORCE, Mode.ENFORCE, Action.SUSPEND),
        (Effect.REDACT, Mode.ENFORCE, Mode.ENFORCE, Action.FORWARD_MODIFIED),
        (Effect.REWRITE, Mode.OBSERVE, Mode.ENFORCE, Action.FORWARD),
        (Effect.WARN, Mode.ENFORCE, Mode.ENFORCE, Action.FORWARD),
    ],
)
def test_the_action_follows_the_effects_that_are_in_force(
    effect: Effect, rule_mode: Mode, mode: Mode, action: Action
) -> None:
    assert action_of([hit_of(effect, rule_mode)], mode) is action


def view(verdict: Verdict, outcome: Action) -> ViewDecision:
    return ViewDecision(
        path="content[0]",
        kind="text",
        role="user",
        uri=None,
        name=None,
        action="send",
        direction="pre",
        verdict=verdict,
        outcome=outcome,
    )


FULL = Coverage(produced=1, evaluated=1)


@pytest.mark.spec("DEC-5")
@pytest.mark.parametrize(
    "coverage",
    [Coverage(produced=2, evaluated=1), Coverage(produced=1, evaluated=1, skipped=(Skipped(path="x", reason="y"),))],
)
def test_without_full_coverage_nothing_is_forwarded(coverage: Coverage) -> None:
    assert overall([view(Verdict.ALLOW, Action.FORWARD)], coverage) == (Verdict.DENY, Action.REFUSE)


@pytest.mark.spec("DEC-5")
def test_no_views_at_all_is_a_deny() -> None:
    assert overall([], Coverage(produced=0, evaluated=0)) == (Verdict.DENY, Action.REFUSE)


@pytest.mark.spec("DEC-2")
def test_one_denied_view_denies_the_whole() -> None:
    views = [view(Verdict.ALLOW, Action.FORWARD), view(Verdict.DENY, Action.REFUSE), view(Verdict.WARN, Action.FORWARD)]

    assert overall(views, FULL) == (Verdict.DENY, Action.REFUSE)


@pytest.mark.spec("DEC-6")
def test_the_line_of_a_call_has_the_origins_of_its_values_and_no_other_line_has_any() -> None:
    called = replace(view(Verdict.ALLOW, Action.FORWARD), kind="tool_call", origins=({"path": "/to", "sources": []},))

    assert called.to_json()["origins"] == [{"path": "/to", "sources": []}]
    assert "origins" not in view(Verdict.ALLOW, Action.FORWARD).to_json()


def test_the_stronger_action_lets_less_through() -> None:
    assert stronger(Action.FORWARD, Action.SUSPEND) is Action.SUSPEND
    assert stronger(Action.REFUSE, Action.FORWARD_MODIFIED) is Action.REFUSE


def test_an_observed_hit_says_so_when_shown() -> None:
    observed = Hit(rule="r", code="c", effect=Effect.DENY, reason="x", mode=Mode.OBSERVE, detail={"a": 1})

    assert observed.to_json()["mode"] == "observe"
    assert observed.to_json()["detail"] == {"a": 1}
    assert "mode" not in hit_of(Effect.DENY).to_json()

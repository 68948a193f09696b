"""The generated entrypoints, and those of policies that are not made of rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import says
from tests.pipeline.policy_files import GOOD, PLACE, Write, decide, refusal, write

from cmf.enums import ViewKind
from pipeline import Config, Pipeline
from pipeline.decisions.decision import Effect, Mode
from pipeline.policy import policy_set

__all__ = ["write"]  # a fixture

OWN = {
    "boolean": ("allow", "default allow := false\n\nallow if input.ok"),
    "object": ("answer", 'default answer := {"allow": false}\n\nanswer := {"allow": true, "by": "x"} if input.ok'),
    "texts": ("deny", 'deny contains "not ok" if not input.ok'),
    "objects": ("deny", 'deny contains {"code": "own", "reason": "Not ok."} if not input.ok'),
    "list": ("denials", 'denials := [d | some d in ["not ok"]; not input.ok]'),
}
UNREADABLE = {
    "undefined": ("allow", "allow if input.never"),
    "null": ("allow", "allow := null"),
    "text": ("allow", 'allow := "yes"'),
    "number": ("allow", "allow := 1"),
    "object without allow": ("allow", "allow := {}"),
    "object with another allow": ("allow", 'allow := {"allow": "true"}'),
}


@pytest.mark.spec("POL-6")
@pytest.mark.parametrize(
    "entrypoint", ["data.app.authz.alow", "data.app.other.allow", "app.authz.allow", "data.app", ""]
)
def test_an_entrypoint_that_is_not_there_is_refused(write: Write, entrypoint: str) -> None:
    directory = write({"app/authz.rego": "package app.authz\n\nallow := true\n"})

    assert refusal(directory, entrypoint=entrypoint).code == "policy.no-entrypoint"


@pytest.mark.spec("POL-7")
def test_a_kind_is_judged_by_the_rules_that_name_it(write: Write) -> None:
    policies = policy_set.load(write({PLACE: GOOD}))
    empty = {effect.value: [] for effect in Effect}
    hit = {"code": "test.rule", "reason": "Marked.", "rule": "test/rule"}

    for kind in ViewKind:
        view = {"kind": kind, "properties": {"redacted": True}}
        expected = empty | ({"deny": [hit]} if kind in {ViewKind.TEXT, ViewKind.TOOL_CALL} else {})
        assert decide(policies, policies.entrypoint(kind), view) == expected
        assert decide(policies, "data.cmf.main.decision", view) == expected


@pytest.mark.spec("POL-7")
@pytest.mark.parametrize("view", [{}, {"kind": "txt"}, {"kind": None}])
def test_the_general_entrypoint_refuses_what_is_of_no_kind(write: Write, view: object) -> None:
    decision = decide(policy_set.load(write({PLACE: GOOD})), "data.cmf.main.decision", view)

    assert isinstance(decision, dict)
    assert [hit["code"] for hit in decision["deny"]] == ["policy.unknown-kind"]


@pytest.mark.spec("POL-7")
def test_a_rule_that_is_off_is_not_asked_and_one_that_observes_is(write: Write) -> None:
    directory = write({PLACE: GOOD})
    view = {"kind": "text", "properties": {"redacted": True}}

    for mode, hits in ((Mode.OFF, 0), (Mode.OBSERVE, 1), (Mode.ENFORCE, 1)):
        policies = policy_set.load(directory, modes={"test/rule": mode})
        decision = decide(policies, policies.entrypoint(ViewKind.TEXT), view)
        assert isinstance(decision, dict)
        assert len(decision["deny"]) == hits
        assert policies.modes == {"test/rule": mode}


@pytest.mark.spec("POL-8")
@pytest.mark.parametrize("member", ['"no"', "1", "null", '["a"]'])
def test_an_effect_that_is_no_object_stays_a_hit(write: Write, member: str) -> None:
    policies = policy_set.load(write({PLACE: GOOD + f"\ndeny contains {member} if input.properties.is_error\n"}))

    decision = decide(policies, policies.entrypoint(ViewKind.TEXT), {"kind": "text", "properties": {"is_error": True}})

    assert isinstance(decision, dict)
    assert [(hit["code"], hit["rule"]) for hit in decision["deny"]] == [("policy.bad-effect", "test/rule")]


@pytest.mark.spec("POL-8")
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("marks", [[], ["rule"], ["other"], ["other", "rule"]], ids="-".join)
def test_a_set_that_several_rules_put_into_says_which_did(write: Write, compiled: bool, marks: list[str]) -> None:
    other = GOOD.replace("test.rule", "test.other").replace("properties.redacted", "properties.is_error")
    # It puts nothing into the set that its text mentions, and hides nobody's hits by that.
    mentioning = GOOD.replace("test.rule", "test.third").replace("deny contains", "warn contains")
    files = {"rule": GOOD, "other": other, "third": f'{mentioning}\nhint := "write deny contains"\n'}
    places = {f"cmf/rules/test/{name}/{name}.rego": text for name, text in files.items()}
    policies = policy_set.load(write(places))
    view = {"kind": "text", "properties": {"redacted": "rule" in marks, "is_error": "other" in marks}}

    decision = decide(policies, policies.entrypoint(ViewKind.TEXT), view, compiled=compiled)

    assert isinstance(decision, dict)
    assert [hit["rule"] for hit in decision["deny"]] == [f"test/{name}" for name in marks]
    assert [hit["rule"] for hit in decision["warn"]] == ["test/third"] * ("rule" in marks)


@pytest.mark.spec("POL-10")
@pytest.mark.parametrize("shape", OWN)
@pytest.mark.parametrize("is_ok", [False, True])
def test_an_entrypoint_of_ones_own_allows_and_denies(write: Write, shape: str, is_ok: bool) -> None:
    name, text = OWN[shape]
    directory = write({"app/authz.rego": f"package app.authz\n\n{text}\n"})
    policies = policy_set.load(directory, entrypoint=f"data.app.authz.{name}")

    decision = decide(policies, policies.entrypoint(ViewKind.TEXT), {"kind": "text", "ok": is_ok})

    assert isinstance(decision, dict)
    assert len(decision["deny"]) == (0 if is_ok else 1)
    assert all(hit["rule"] == f"data.app.authz.{name}" and hit["reason"] for hit in decision["deny"])
    assert decision.keys() == {effect.value for effect in Effect}


@pytest.mark.spec("POL-10")
@pytest.mark.parametrize("shape", UNREADABLE)
def test_an_answer_that_cannot_be_read_is_a_deny(write: Write, shape: str) -> None:
    name, text = UNREADABLE[shape]
    directory = write({"app/authz.rego": f"package app.authz\n\n{text}\n"})
    policies = policy_set.load(directory, entrypoint=f"data.app.authz.{name}")

    decision = decide(policies, policies.entrypoint(ViewKind.TEXT), {"kind": "text"})

    assert isinstance(decision, dict)
    code = {"undefined": "policy.undefined", "null": "policy.null"}.get(shape, "policy.bad-result")
    assert [hit["code"] for hit in decision["deny"]] == [code]


@pytest.mark.spec("POL-11")
def test_the_batch_module_knows_every_entrypoint_and_the_revision(write: Write) -> None:
    policies = policy_set.load(write({PLACE: GOOD}))

    text = policies.batch_module.text

    assert policies.revision in text
    assert all(f'"{entrypoint}"' in text for entrypoint in policies.entrypoints)
    assert policies.batch_module not in policies.modules


@pytest.mark.spec("POL-7")
@pytest.mark.parametrize(
    "failing",
    [
        'deny contains {"code": "b", "reason": "x"} if to_number(input.content) > 3',
        'h := to_number(input.content)\n\ndeny contains {"code": "b", "reason": "x"} if h > 3',
        'deny contains {"code": "b", "reason": "x", "detail": {"n": to_number(input.content)}} if input.content',
    ],
    ids=["condition", "helper", "head"],
)
def test_a_rule_that_fails_does_not_hide_another_rule_s_denial(tmp_path: Path, failing: str) -> None:
    good = 'deny contains {"code": "good", "reason": "x"} if input.content == "bad"'
    policies = write_rules(tmp_path, {"good": good, "failing": failing}, kinds="text")

    outcome = Pipeline(policies=policies, config=Config(builtin_errors="undefined")).run(says("user", "bad"))

    assert [hit.code for view in outcome.decision.views for hit in view.hits] == ["good"]

"""An explanation names the expression that failed and the values it had, and hits where the decision does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.policy_files import GOOD, PLACE, Write, write

from cmf.enums import ViewKind
from pipeline.authoring.explain import Body, Failing, Operand, Why
from pipeline.decisions.decision import Effect
from pipeline.decisions.engine import Decided, Engine
from pipeline.decisions.errors import EngineError, PolicyError
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet
from pipeline.run.assembly import Config, build_engine

__all__ = ["write"]  # a fixture

SAMPLES = sorted((policy_set.shipped() / "cmf" / "rules").glob("*/*/samples/*.json"))

SOME = SAMPLES[:: max(1, len(SAMPLES) // 20)]

APP = """\
package app

import data.app.lib
import input.properties as given

deny contains msg if {
	some word in split(input.content, " ")
	word in data.bad
	not _excused(word)
	msg := sprintf("not %s", [word])
}

_excused(word) if word == given.excused

verdict := "long" if {
	count(input.content) > 10
} else := "digits" if {
	regex.match(`^[0-9]+$`, input.content)
} else := "fine"

default ready := false

ready if {
	level > 3
	level = to_number(given.version)
	lib.between(level, 1, 9)
}

pairs[key] := value if {
	some key
	value := given.pairs[key]
	value > 1
}

first := given.pairs[name] if name := "a"

late if x > 2 with input.size_bytes as 7

x := input.size_bytes

total := 5
"""
LIB = "package app.lib\n\nbetween(x, low, high) if {\n\tx >= low\n\tx <= high\n}\n"


@pytest.fixture
def why(write: Write) -> Why:
    files = {"app/app.rego": APP, "app/lib/lib.rego": LIB, "data.json": '{"bad": ["damn", "heck"]}'}
    return Why(policy_set.load(write(files), entrypoint="data.app.deny"))


def about(why: Why, rule: str, /, **document: Any) -> tuple[Body, ...]:
    return why.entrypoint(f"data.app.{rule}", {"kind": "text", "properties": {}} | document)


def only(bodies: tuple[Body, ...]) -> Body:
    (body,) = bodies
    return body


def known(failing: Failing) -> dict[str, Any]:
    return {operand.text: operand.value if operand.known else "undefined" for operand in failing.operands}


@pytest.mark.spec("POL-51")
def test_a_hit_has_its_bindings_and_its_value(why: Why) -> None:
    body = only(about(why, "deny", content="oh damn it"))

    assert body.holds
    assert body.values == ("not damn",)
    assert body.ways == ({"word": "damn", "msg": "not damn"},)
    assert (body.held, body.of) == (5, 5)


@pytest.mark.spec("POL-51")
def test_the_first_expression_that_holds_in_no_way_is_the_failing_one(why: Why) -> None:
    body = only(about(why, "deny", content="all is well"))

    assert not body.holds
    assert (body.held, body.of) == (1, 5)
    assert [(one.text, one.place.line, one.bindings) for one in body.failing] == [
        ("word in data.bad", 8, {"word": word}) for word in ("all", "is", "well")
    ]
    assert known(body.failing[0]) == {"word": "all", "data.bad": ["damn", "heck"]}


@pytest.mark.spec("POL-51")
def test_a_negated_call_is_explained_by_what_holds_in_it(why: Why) -> None:
    body = only(about(why, "deny", content="heck no", properties={"excused": "heck"}))

    (failing,) = body.failing
    assert (failing.text, known(failing)) == ("not _excused(word)", {"word": "heck"})
    assert [one.holds for one in failing.behind] == [True]


@pytest.mark.spec("POL-51")
def test_undefined_and_null_are_distinguished(why: Why) -> None:
    missing = only(about(why, "deny"))
    null = only(about(why, "first", properties={"pairs": None}))

    assert missing.failing[0].operands == (Operand(text='split(input.content, " ")', known=False),)
    assert missing.failing[0].text.startswith("some word in split(")
    assert null.failing[0].text == "given.pairs[name]"


@pytest.mark.spec("POL-51")
def test_expressions_are_shown_after_those_that_bind_their_variables(why: Why) -> None:
    low = only(about(why, "ready", properties={"version": "2"}))
    high = only(about(why, "ready", properties={"version": "12"}))

    assert (low.failing[0].text, low.failing[0].bindings) == ("level > 3", {"level": 2})
    assert high.failing[0].text == "lib.between(level, 1, 9)"


@pytest.mark.spec("POL-51")
def test_functions_are_explained_with_the_arguments_that_they_had(write: Write) -> None:
    rego = (
        "package app\n\nallow if f(input.size_bytes, input.name)\n\nf(n, name) if {\n\tn > 1\n\tname == input.uri\n}\n"
    )
    why = Why(policy_set.load(write({"a.rego": rego}), entrypoint="data.app.allow"))

    (failing,) = only(about(why, "allow", size_bytes=3, name="a", uri="b")).failing
    (inner,) = failing.behind

    assert (inner.name, inner.held, inner.of) == ("app.f", 1, 2)
    assert known(inner.failing[0]) == {"name": "a", "input.uri": "b"}
    assert inner.failing[0].operands == (
        Operand(text="name", known=True, value="a"),
        Operand(text="input.uri", known=True, value="b"),
    )


@pytest.mark.spec("POL-51")
def test_a_function_is_not_explained_with_its_own_result_as_argument(write: Write) -> None:
    rego = "package app\n\nallow if {\n\tsome x in f(input.name)\n\tx\n}\n\nf(name) := [1 | startswith(name, `b`)]\n"
    why = Why(policy_set.load(write({"a.rego": rego}), entrypoint="data.app.allow"))

    (failing,) = only(about(why, "allow", name="a")).failing

    assert (failing.text, failing.behind) == ("some x in f(input.name)", ())
    assert failing.operands == (Operand(text="f(input.name)", known=True, value=[]),)


@pytest.mark.spec("POL-51")
def test_each_branch_is_explained_on_its_own(why: Why) -> None:
    branches = about(why, "verdict", content="abc")

    assert [body.holds for body in branches] == [False, False, True]
    assert [known(body.failing[0]) for body in branches[:2]] == [{"count(input.content)": 3}, {"input.content": "abc"}]
    assert branches[2].values == ("fine",)


@pytest.mark.spec("POL-51")
def test_objects_constants_and_with_are_explained_as_well(why: Why) -> None:
    pairs = only(about(why, "pairs", properties={"pairs": {"a": 1, "b": 2}}))
    late = only(about(why, "late"))

    assert (pairs.ways, pairs.values) == (({"key": "b", "value": 2},), (2,))
    assert late.holds
    assert only(about(why, "total")).values == (5,)


@pytest.mark.spec("POL-51")
def test_an_expression_that_could_not_be_evaluated_says_so(why: Why) -> None:
    body = only(about(why, "ready", properties={"version": "high"}))

    (failing,) = body.failing
    assert (failing.text, failing.error) == ("level = to_number(given.version)", "engine.builtin-error")


@pytest.mark.spec("POL-51")
def test_only_a_few_bodies_are_shown(why: Why) -> None:
    body = only(about(why, "deny", content=" ".join(f"w{number}" for number in range(50))))

    assert len(body.failing) == 5


@pytest.mark.spec("POL-51")
def test_near_misses_come_in_the_order_of_how_far_they_went(write: Write) -> None:
    more = '\ndeny contains {"code": "b"} if { input.content; input.role == "user"; input.size_bytes > 3 }\n'
    (rule,) = Why(policy_set.load(write({PLACE: GOOD + more}))).rules(
        {"kind": "text", "properties": {}, "content": "x", "role": "user", "size_bytes": 1}
    )

    assert rule.rule == "test/rule"
    assert rule.hits == ()
    assert [(effect, body.held, body.of) for effect, body in rule.near_misses] == [
        (Effect.DENY, 2, 4),
        (Effect.DENY, 0, 2),
    ]


@pytest.mark.spec("POL-51")
def test_what_is_not_there_is_refused(why: Why, write: Write) -> None:
    rules = Why(policy_set.load(write({PLACE: GOOD}, "rules")))

    for call in (lambda: why.entrypoint("data.app.nope", {}), lambda: rules.rules({"kind": "text"}, only=["a/b"])):
        with pytest.raises(PolicyError) as caught:
            call()
        assert caught.value.code == "policy.no-rule"
    assert rules.rules({"kind": "odd"}) == []
    assert [one.rule for one in rules.rules({"kind": "image"}, only=["test/rule"])] == ["test/rule"]
    with pytest.raises(EngineError):
        rules._engine.query("data", b"{", timeout_seconds=1)


@pytest.fixture(scope="module")
def shipped() -> tuple[PolicySet, Why, Engine]:
    policies = policy_set.load(policy_set.shipped())
    return policies, Why(policies), build_engine(policies, "embedded", Config(max_verdicts=0))


@pytest.mark.spec("POL-51")
@pytest.mark.parametrize("path", SOME, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_explanations_of_shipped_rules_hit_where_the_decision_does(
    shipped: tuple[PolicySet, Why, Engine], path: Path
) -> None:
    policies, why, engine = shipped
    document = json.loads(path.read_text())
    name = policies.entrypoint(ViewKind(document["kind"]))
    (result,) = engine.evaluate([name], b"{}", [json.dumps(document).encode()], timeout_seconds=5)
    assert isinstance(result, Decided)
    decided = {(effect["rule"], name) for name, effects in result.value.items() for effect in effects}

    explained = why.rules(document)

    assert {(one.rule, effect.value) for one in explained for effect, _ in one.hits} == decided
    for one in explained:
        for _, body in one.near_misses:
            assert body.failing
            assert all(failing.place.line >= body.place.line and not failing.error for failing in body.failing)

"""What tests of guarded code are given: scripted verdicts, and assertions that fail with what they found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules

from cmf import Message
from pipeline import ApprovalRequired, Config, ConfigError, Denied, Guard, Mode, PolicyUnavailable, emit
from pipeline.decisions.stage import Refuse, Stage
from pipeline.testing import FakeGuard, Scripted, assert_allowed, assert_denied

HELLO = Message.model_validate({"role": "user", "content": [{"content_type": "text", "text": "hello"}]})


@pytest.mark.spec("INT-60")
def test_each_word_does_what_policy_saying_it_does() -> None:
    with pytest.raises(Denied, match=r"The test says so at content\[0\]"):
        FakeGuard("deny").check(HELLO)
    with pytest.raises(ApprovalRequired) as asked:
        FakeGuard("require_approval").check(HELLO, session="s", subject={"id": "ann"})
    with pytest.raises(PolicyUnavailable):
        FakeGuard("unavailable").check(HELLO)

    assert asked.value.approval_ids
    assert FakeGuard("warn").check(HELLO).decision.verdict == "warn"
    assert emit(FakeGuard().check(HELLO), "canonical")["content"][0]["text"] == "hello"


@pytest.mark.spec("INT-60")
def test_the_first_script_that_fits_is_used_as_often_as_allowed() -> None:
    scripted = Scripted(
        "deny", rule="a/b", code="a.b", reason="No.", kind="tool_call", name="pay", contains='"amount": 7'
    )
    guard = FakeGuard(scripted, Scripted("deny", kind="text", contains="ell", times=1), "warn")
    pay = _paying(guard)

    assert pay(amount=8) == 8
    with pytest.raises(Denied) as refused:
        pay(amount=7)
    assert [guard.decide(HELLO).verdict for _ in range(2)] == ["deny", "warn"]
    guard.script("allow")

    assert (pay(amount=7), refused.value.code) == (7, "a.b")


def _paying(guard: Guard) -> Any:
    @guard.tool
    def pay(amount: int) -> int:
        return amount

    return pay


@pytest.mark.spec("INT-60")
async def test_what_was_asked_is_what_policy_sees_and_coroutines_are_judged_alike() -> None:
    guard = FakeGuard(config=Config(mode=Mode.OBSERVE))

    await guard.acheck(HELLO, subject={"id": "ann", "roles": ["agent"]})

    (view,) = guard.inputs
    assert (view["content"], view["extensions"]["security"]["subject"]["roles"]) == ("hello", ["agent"])
    guard.close()


@pytest.mark.spec("INT-60")
def test_a_verdict_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="use allow, warn, deny"):
        FakeGuard("denied")  # type: ignore[arg-type]


@pytest.mark.spec("INT-61")
def test_a_deny_is_one_by_the_rule_and_with_the_code_that_are_named() -> None:
    guard = FakeGuard(Scripted("deny", rule="a/b", code="a.b"))

    assert assert_denied(guard, "x", rule="a/b", code="a.b").verdict == "deny"
    assert assert_denied(guard, HELLO, subject={"id": "ann"}, session="s").verdict == "deny"
    with pytest.raises(AssertionError, match=r"denial by a/c with a\.b, but the verdict is deny") as failed:
        assert_denied(guard, "CONTENT", rule="a/c", code="a.b")
    assert str(failed.value).endswith("(mode enforce)\n  content[0]: deny a/b: The test says so. [a.b]")
    with pytest.raises(AssertionError, match=r"with a\.c, but"):
        assert_denied(guard, "x", code="a.c")


@pytest.mark.spec("INT-61")
@pytest.mark.parametrize(
    "guard",
    [
        FakeGuard(),
        FakeGuard("require_approval"),
        FakeGuard("unavailable"),
        FakeGuard("deny", config=Config(mode="observe")),
    ],  # type: ignore[arg-type]
)
def test_what_is_no_refusal_by_policy_fails_as_a_deny(guard: FakeGuard) -> None:
    with pytest.raises(AssertionError, match="expected a denial, but the verdict is"):
        assert_denied(guard, "x")


@pytest.mark.spec("INT-61")
def test_a_rule_that_is_only_observed_denies_nothing(tmp_path: Path) -> None:
    rules = {"no": 'deny contains {"code": "n", "reason": "No."} if input.content'}
    seen = write_rules(tmp_path, rules, mode="observe")

    with pytest.raises(AssertionError, match=r"deny test/no: No\. \[n\] \(not enforced\)"):
        assert_denied(Guard(seen), "x")


@pytest.mark.spec("INT-61")
def test_assert_allowed_returns_the_edited_value_and_names_the_denial() -> None:
    late = Stage(name="late", call=lambda value, context: Refuse(code="s.no", reason="Not now."))
    stopped = FakeGuard(stages=[late])

    left = assert_allowed(FakeGuard("warn"), HELLO).message

    assert left is not None
    assert left.content == HELLO.content
    for guard, line in ((FakeGuard("deny"), "content[0]: deny test/scripted"), (stopped, "late: deny")):
        with pytest.raises(AssertionError) as failed:
            assert_allowed(guard, "x", session="s")
        assert line in str(failed.value)

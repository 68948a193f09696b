"""A policy set is tried out in a process that may die."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.pipeline.policy_files import GOOD, PLACE, Write, write

from pipeline.decisions.errors import PolicyError
from pipeline.engines.rego_tests import Checked, run_tests
from pipeline.policy import loading, policy_set
from pipeline.run import vetting
from pipeline.run.vetting import Recipe, vet

__all__ = ["write"]  # a fixture

TESTS = {
    "cmf/rules/test/rule/rule_test.rego": """\
package cmf.rules.test.rule_test

import data.cmf.rules.test.rule

test_marked_is_denied if count(rule.deny) == 1 with input as {"properties": {"redacted": true}}

test_plain_is_let_pass if count(rule.deny) == 0 with input as {"properties": {}}

todo_test_later if false
"""
}


def recipe(directory: Path, **options: object) -> Recipe:
    return Recipe(sources=loading.read(directory), **options)  # type: ignore[arg-type]


def refused(wanted: Recipe, **options: float) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        vet(wanted, **options)  # type: ignore[arg-type]
    assert caught.value.hint
    return caught.value


def with_rule(text: str) -> dict[str, str]:
    return {PLACE: f"{GOOD}\n{text}\n"}


@pytest.mark.slow
@pytest.mark.spec("POL-48")
@pytest.mark.parametrize(
    ("files", "code"),
    [
        (with_rule("x := {"), "policy.parse"),
        (with_rule("x := y\n\ny := x"), "policy.recursion"),
        (with_rule("x := http.send({})"), "policy.banned-builtin"),
        (with_rule("x if input.nothing"), "policy.unknown-field"),
        (with_rule("deny contains 1 if to_number(input.content) > 0"), "policy.probe-failed"),
        (
            with_rule(
                "deny contains 1 if { some a in numbers.range(1, 9000); some b in numbers.range(1, 9000); a * b < 0 }"
            ),
            "policy.probe-failed",
        ),
        ({PLACE: GOOD} | {"a_test.rego": "package a_test\n\ntest_no if 1 == 2\n"}, "policy.test-failed"),
        ({PLACE: GOOD} | {"a_test.rego": "package a_test\n\ntest_no := false\n"}, "policy.test-failed"),
        ({PLACE: GOOD} | {"a_test.rego": "package a_test\n\ntest_no if to_number(`a`) == 1\n"}, "policy.test-failed"),
        ({PLACE: GOOD} | {"a_test.rego": "package a_test\n\ntest_no {\n"}, "policy.parse"),
    ],
)
def test_the_vetting_process_reports_what_is_wrong_with_a_set(write: Write, files: dict[str, str], code: str) -> None:
    error = refused(recipe(write(files)))

    assert error.code == code, error
    if code != "policy.probe-failed":
        assert error.path in files
        assert error.line > 0


@pytest.mark.slow
@pytest.mark.spec("POL-48")
def test_a_set_that_is_well_is_vetted_with_its_tests(write: Write) -> None:
    directory = write({PLACE: GOOD} | TESTS)

    vetted = vet(recipe(directory))

    assert vetted.revision == policy_set.load(directory).revision
    assert (vetted.tests, vetted.probes) == (2, 48)
    assert vet(Recipe.of(policy_set.load(directory))) == vetted


@pytest.mark.slow
@pytest.mark.spec("POL-48")
def test_the_shipped_set_is_vetted() -> None:
    vetted = vet(recipe(policy_set.shipped()))

    assert vetted.revision == policy_set.load(policy_set.shipped()).revision
    assert vetted.tests == 0  # its tests hold with its own settings, which it may have been given others than


@pytest.mark.slow
@pytest.mark.spec("POL-47", "POL-48")
def test_own_tests_are_run_with_the_settings_of_the_set(write: Write) -> None:
    test = 'package own_test\n\ntest_hosts if data.cmf.defaults.data.egress.allowed_hosts == ["a.example"]\n'
    settings = '{"cmf": {"defaults": {"data": {"egress": {"allowed_hosts": ["%s"]}}}}}'
    right = write({"own_test.rego": test, "data.json": settings % "a.example"}, "right")
    wrong = write({"own_test.rego": test, "data.json": settings % "b.example"}, "wrong")

    assert refused(Recipe(sources=loading.read(policy_set.shipped(), wrong))).code == "policy.test-failed"
    assert vet(Recipe(sources=loading.read(policy_set.shipped(), right))).tests == 1


@pytest.mark.slow
@pytest.mark.spec("POL-48")
def test_a_process_that_hangs_is_ended(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    real = subprocess.Popen.wait

    def waited(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        ended.append(status := real(process, timeout))
        return status

    monkeypatch.setattr(subprocess.Popen, "wait", waited)

    assert refused(recipe(write({PLACE: GOOD})), timeout_seconds=0.05).code == "policy.vetting-timeout"
    assert ended[-1] < 0  # by a signal


@pytest.mark.slow
@pytest.mark.spec("POL-48")
def test_a_process_that_needs_more_memory_than_it_is_given_is_refused(write: Write) -> None:
    error = refused(recipe(write({PLACE: GOOD})), memory_bytes=300 * 1024**2)

    assert error.code in {"policy.vetting-died", "engine.no-stack"}


@pytest.mark.spec("POL-48")
@pytest.mark.parametrize("said", [b"", b"no JSON", b"[]", b'{"revision": 1}', b'{"code": "x"}'])
def test_a_process_that_says_nothing_that_can_be_read_died(said: bytes) -> None:
    with pytest.raises(PolicyError) as caught:
        vetting._read(said, -9)

    assert caught.value.code == "policy.vetting-died"
    assert "-9" in caught.value.message


@pytest.mark.slow
@pytest.mark.spec("POL-48")
def test_a_set_for_another_engine_is_read_and_not_run(write: Write) -> None:
    directory = write({"app/a.rego": 'package app\n\nallow if http.send({"url": input.uri}).status_code == 200\n'})
    options = {"entrypoint": "data.app.allow", "builtin_errors": "undefined"}

    assert refused(recipe(directory, **options)).code == "policy.banned-builtin"
    assert vet(recipe(directory, engine="opa", **options)).probes == 0


@pytest.mark.spec("POL-47")
def test_tests_are_reported_one_by_one_with_their_places(write: Write) -> None:
    more = "package b_test\n\ntest_a if true\n\ntest_b if 1 == 2\n\ntest_c := 1\n\nhelper if false\n\ntest_f(x) := x\n"
    policies = policy_set.load(write({PLACE: GOOD, "b/b_test.rego": more} | TESTS))

    results = list(run_tests(policies))

    assert [(one.path, one.line, one.passed) for one in results] == [
        ("b/b_test.rego", 3, True),
        ("b/b_test.rego", 5, False),
        ("b/b_test.rego", 7, False),
        ("cmf/rules/test/rule/rule_test.rego", 5, True),
        ("cmf/rules/test/rule/rule_test.rego", 7, True),
        ("cmf/rules/test/rule/rule_test.rego", 9, False),
    ]
    assert [one.skipped for one in results] == [False] * 5 + [True]
    assert results[1] == Checked("b_test.test_b", "b/b_test.rego", 5, "the test is undefined or false")
    assert results[2].problem == "the result is not true"


@pytest.mark.spec("POL-47")
def test_a_set_without_tests_has_no_results(write: Write) -> None:
    assert list(run_tests(policy_set.load(write({PLACE: GOOD})))) == []

"""The shipped Rego by the tools of its trade: OPA's tests, checker and formatter, and regal."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from tests.opa_server import write_bundle

from pipeline.authoring.check import Job, check
from pipeline.engines.embedded import allowed_builtins
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet

ROOT = Path(__file__).resolve().parents[2]
POLICIES = policy_set.shipped()
CAPABILITIES = POLICIES / "capabilities.json"
REGO = sorted(POLICIES.rglob("*.rego"))
SECONDS = 120.0
# Unicode-aware in one engine and ASCII in the other, or not in both at all.
DIFFERING = re.compile(r"\\[dDwWsSbBpPAzZQE]|\(\?[=!<]|&&|\[\[")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.opa
@pytest.mark.spec("POL-13")
def test_the_rules_own_tests_pass(opa_binary: Path) -> None:
    done = run(opa_binary, "test", "--bundle", POLICIES, "--format", "json")

    results = json.loads(done.stdout)
    assert [result["name"] for result in results if result.get("fail") or result.get("error")] == []
    assert len(results) > 100


@pytest.mark.spec("POL-13")
def test_every_rule_is_tested_denied_allowed_and_with_a_fact_missing(shipped: PolicySet) -> None:
    for rule in shipped.rules:
        text = (POLICIES / rule.path.replace(".rego", "_test.rego")).read_text(encoding="utf-8")
        names = re.findall(r"^test_\w+", text, re.MULTILINE)
        hitting = [name for name in names if not name.startswith("test_allowed") and not name.startswith("test_not_")]

        assert any(name.startswith(("test_allowed", "test_not_")) for name in names), rule.id
        assert hitting, rule.id
        if "deny" in rule.effects:
            assert any(name.startswith("test_denied") for name in names), rule.id
        assert any("missing" in name or "nothing" in name or "without" in name for name in names), rule.id


@pytest.mark.spec("POL-35")
def test_the_shipped_policies_give_no_finding() -> None:
    report = check(Job(places=(POLICIES,), own=(POLICIES,), cases=(), today=date(2026, 1, 1)))

    assert report.findings == ()


@pytest.mark.opa
@pytest.mark.spec("POL-15")
def test_the_set_as_loaded_passes_the_strict_checker(opa_binary: Path, shipped: PolicySet, tmp_path: Path) -> None:
    bundle = write_bundle(shipped, tmp_path)

    done = run(opa_binary, "check", "--strict", "--bundle", "--capabilities", CAPABILITIES, bundle)

    assert done.stderr + done.stdout == ""
    assert done.returncode == 0


@pytest.mark.opa
@pytest.mark.spec("POL-15")
def test_a_banned_builtin_does_not_pass_it(opa_binary: Path, tmp_path: Path) -> None:
    policy = tmp_path / "bad.rego"
    policy.write_text("package bad\n\nx := time.now_ns()\n", encoding="utf-8")

    assert run(opa_binary, "check", "--capabilities", CAPABILITIES, policy).returncode != 0


@pytest.mark.opa
@pytest.mark.spec("POL-15")
def test_everything_is_formatted(opa_binary: Path, shipped: PolicySet, tmp_path: Path) -> None:
    assert run(opa_binary, "fmt", "--list", POLICIES, write_bundle(shipped, tmp_path)).stdout == ""


@pytest.mark.opa
@pytest.mark.spec("POL-15")
def test_regal_has_nothing_to_say() -> None:
    pinned = ROOT / ".tools" / "bin" / "regal"
    regal = str(pinned) if pinned.exists() else shutil.which("regal")
    if regal is None:
        pytest.skip("no regal binary: it is a linter, and `make regal` brings it")

    done = run(regal, "lint", "--format", "json", POLICIES)

    assert json.loads(done.stdout)["violations"] == []


@pytest.mark.spec("POL-15")
def test_no_linter_is_silenced_in_a_file() -> None:
    assert [path.name for path in REGO if "regal ignore" in path.read_text(encoding="utf-8")] == []


@pytest.mark.spec("POL-15")
def test_the_capabilities_are_the_embedded_engines_and_the_operators() -> None:
    named = {builtin["name"]: builtin for builtin in json.loads(CAPABILITIES.read_text(encoding="utf-8"))["builtins"]}
    operators = {name for name, builtin in named.items() if "infix" in builtin} | {
        "internal.member_2",
        "internal.member_3",
    }

    assert set(named) - operators == set(allowed_builtins())


@pytest.mark.spec("POL-16")
def test_no_expression_means_something_else_on_the_other_engine(shipped: PolicySet) -> None:
    settings = json.dumps(dict(shipped.data))
    rego = [raw for path in REGO for raw in re.findall(r"`([^`]*)`", path.read_text(encoding="utf-8"))]
    expressions = [*rego, *_strings(json.loads(settings)["cmf"]["defaults"]["data"]["secrets"])]

    assert len(expressions) > 40
    assert [text for text in expressions if DIFFERING.search(text.replace("\\\\", ""))] == []


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in items for text in _strings(item)]


@pytest.mark.spec("POL-16")
def test_shipped_rules_are_served_by_the_compiled_form(embedded: object) -> None:
    assert getattr(embedded, "form") == "compiled"  # noqa: B009 - the fixture's type is the engine's


@pytest.mark.spec("POL-17")
def test_each_rule_has_its_page(shipped: PolicySet) -> None:
    pages = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")

    for rule in shipped.rules:
        assert f"## {rule.id}" in pages, rule.id
        assert f"`{rule.code}`" in pages, rule.code


@pytest.mark.spec("POL-17")
def test_each_setting_is_explained(shipped: PolicySet) -> None:
    pages = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    settings = shipped.data["cmf"]["defaults"]

    names = [
        f"{category}.{rule}.{setting}"
        for category, rules in settings.items()
        for rule, values in rules.items()
        for setting in values
    ]
    assert [name for name in names if f"`{name}`" not in pages] == []


@pytest.mark.spec("POL-24")
def test_input_is_read_by_fixed_paths() -> None:
    """A bare `input`, handed to a function or looked into by a variable, would count as reading everything."""
    for path in REGO:
        if path.stem.endswith("_test"):
            continue
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
        bare = [line for line in lines if re.search(r"(?<![\w.-])input\b(?!\.[a-z_])", line)]

        assert bare == [], path.name

"""The plugin of pytest, as a project that uses it runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.house.tree import ROOT
from tests.pipeline.conftest import write_rules
from typer.testing import CliRunner

from pipeline.cli.app import app

pytest_plugins = ["pytester"]

RULES = {"no": 'deny contains {"code": "test.no", "reason": "You may not."} if contains(input.content, "no")'}
PLUGIN = ["-p", "no:cmf", "-p", "cmf_pytest", "-p", "no:cacheprovider"]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a policy; what is run in it finds no plugins but ours."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    write_rules(pytester.path / "policy", RULES, kinds="text")
    return pytester


@pytest.mark.spec("INT-62")
def test_fixtures_judge_by_the_project_s_own_policy(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_denied(assert_denied):
            assert assert_denied("no", rule="test/no", code="test.no").verdict == "deny"

        def test_allowed(assert_allowed, cmf_guard):
            assert assert_allowed("yes", session="s").message.content[0].text == "yes"
            assert "1 rule," in repr(cmf_guard)

        def test_not_denied(assert_denied):
            assert_denied("CONTENT", rule="test/no")
        """
    )

    result = run.runpytest_inprocess(*PLUGIN)

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*expected a denial by test/no, but the verdict is allow*no rule hit*"])


@pytest.mark.native
@pytest.mark.spec("INT-62")
def test_the_tests_on_the_page_pass_in_a_project_that_was_just_made(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "integrations" / "pytest_plugin.md").read_text(encoding="utf-8")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    CliRunner().invoke(app, ["init", str(pytester.path)])
    pytester.makepyfile(test_policy=page.partition("```python\n")[2].partition("```")[0])

    result = pytester.runpytest_inprocess(*PLUGIN)

    result.assert_outcomes(passed=2)


@pytest.mark.spec("INT-62")
def test_settings_and_a_fixture_of_one_s_own_name_other_policies(run: pytest.Pytester) -> None:
    write_rules(run.path / "other", {"yes": RULES["no"].replace('"no"', '"yes"')}, kinds="text")
    (run.path / "p.yaml").write_text("version: 1\nprofiles: {}\n", encoding="utf-8")
    run.makeini("[pytest]\ncmf_policies =\n    other\ncmf_profiles = p.yaml\n")
    run.makepyfile(
        test_ini='def test_it(assert_denied):\n    assert_denied("yes", rule="test/yes")\n',
        test_own="""
        import pytest
        from pipeline.policy import policy_set

        @pytest.fixture(params=["set", "path"])
        def cmf_policies(request):
            return policy_set.load("policy") if request.param == "set" else "policy"

        def test_it(assert_denied):
            assert_denied("no", rule="test/no")
        """,
    )

    run.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=3)


@pytest.mark.spec("INT-62")
def test_policies_that_cannot_be_used_are_one_line_and_no_traceback(run: pytest.Pytester) -> None:
    run.makeini("[pytest]\ncmf_policies = nowhere\n")
    run.makepyfile("def test_it(cmf_guard):\n    pass\n")

    result = run.runpytest_inprocess(*PLUGIN)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*nowhere*[[]policy.*[]]"])
    result.stdout.no_fnmatch_line("*another exception*")


@pytest.mark.spec("INT-62")
def test_the_shipped_policies_judge_where_there_are_no_others(run: pytest.Pytester) -> None:
    run.makeini("[pytest]\ntestpaths = .\n")
    (run.path / "policy").rename(run.path / "elsewhere")
    run.makepyfile("def test_it(cmf_policies):\n    assert cmf_policies is None\n")

    run.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=1)


@pytest.mark.spec("INT-63")
def test_pytest_finds_the_plugin_which_imports_nothing_until_it_is_asked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module = project["entry-points"]["pytest11"]["cmf"]
    prefixes = ("cmf", "pipeline", "pytest")
    script = f"import sys, {module}; print(*(name for name in sys.modules if name.startswith({prefixes})))"

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT / "src", capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.split() == [module]


@pytest.mark.spec("INT-63")
@pytest.mark.parametrize("name", ["pipeline", "cmf"])
def test_a_project_with_a_package_of_our_name_runs_its_own_tests(tmp_path: Path, name: str) -> None:
    own = tmp_path / "src" / name
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("", encoding="utf-8")
    (own / "steps.py").write_text("def double(x):\n    return 2 * x\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = src\nfilterwarnings = error\n", encoding="utf-8")
    (tmp_path / "test_own.py").write_text(
        f"from {name}.steps import double\n\ndef test_it():\n    assert double(2) == 4\n", encoding="utf-8"
    )
    (tmp_path / "test_ours.py").write_text(
        f"import {name}.steps\n\ndef test_it(cmf_guard):\n    pass\n", encoding="utf-8"
    )
    plugin = tmp_path / "installed" / "cmf_pipeline-0.dist-info"  # as pip leaves it
    plugin.mkdir(parents=True)
    module = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["pytest11"]["cmf"]
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: cmf-pipeline\nVersion: 0\n", encoding="utf-8")
    (plugin / "entry_points.txt").write_text(f"[pytest11]\ncmf = {module}\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(plugin.parent), str(ROOT / "src")])}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *(f"-pno:{other}" for other in ("cacheprovider", "langsmith_plugin", "asyncio")),
    ]

    own_tests, ours = (
        subprocess.run(
            [*command, file], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        for file in ("test_own.py", "test_ours.py")
    )

    assert "1 passed" in own_tests.stdout, own_tests
    assert "need its packages `cmf` and `pipeline`" in ours.stdout, ours
    assert "Traceback" not in ours.stdout

"""Small policy directories, and what loading and asking them comes to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.decisions.engine import Decided
from pipeline.decisions.errors import PolicyError
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet

GOOD = """\
# METADATA
# title: A rule
# description: It refuses what is marked.
# custom:
#   code: test.rule
#   severity: high
#   kinds: [text, tool_call]
#   capabilities: [read_labels]
#   standards: [OWASP-LLM01]
package cmf.rules.test.rule

deny contains {"code": "test.rule", "reason": "Marked."} if input.properties.redacted
"""
PLACE = "cmf/rules/test/rule/rule.rego"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function (path → text, …) that gives the directory that holds them."""

    def put(files: dict[str, str], name: str = "policies") -> Path:
        for path, text in files.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return tmp_path / name

    return put


def refusal(directory: Path, **options: object) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        policy_set.load(directory, **options)  # type: ignore[arg-type]
    assert caught.value.hint
    return caught.value


def decide(policies: PolicySet, entrypoint: str, view: object, *, compiled: bool = True) -> object:
    modules = [(module.path, module.text) for module in policies.modules]
    engine = EmbeddedEngine(modules, policies.data, policies.entrypoints, use_compiled=compiled)
    (result,) = engine.evaluate([entrypoint], b"{}", [json.dumps(view).encode()], timeout_seconds=5.0)
    assert isinstance(result, Decided), result
    return result.value

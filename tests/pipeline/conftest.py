"""Small policy sets, written where the test can be read beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipeline import Config, Guard

Rules = Callable[..., Guard]

METADATA = """\
# METADATA
# title: A rule of a test
# description: A rule of a test.
# custom:
#   code: test.{name}
#   severity: high
#   kinds: [{kinds}]
#   capabilities: [{capabilities}]
#   mode: {mode}
package cmf.rules.test.{name}

"""
ALL_KINDS = (
    "text, thinking, tool_call, tool_result, resource, resource_ref, prompt_request, prompt_result, image, video, "
    "audio, document, request, response, tool_definition, opaque"
)


def write_rules(
    directory: Path,
    rules: Mapping[str, str],
    *,
    kinds: str = ALL_KINDS,
    capabilities: str = "read_labels, read_roles, read_subject",
    mode: str = "enforce",
) -> Path:
    """A policy directory with one rule per entry: name → Rego after the package line."""
    for name, body in rules.items():
        home = directory / "cmf" / "rules" / "test" / name
        home.mkdir(parents=True, exist_ok=True)
        head = METADATA.format(name=name, kinds=kinds, capabilities=capabilities, mode=mode)
        (home / f"{name}.rego").write_text(head + body + "\n", encoding="utf-8")
    return directory


@pytest.fixture
def guarded(tmp_path: Path) -> Rules:
    """A function that makes a guard from rules given as Rego text."""

    def make(rules: Mapping[str, str], *, config: Config | None = None, **options: str) -> Guard:
        return Guard(write_rules(tmp_path, rules, **options), config=config)

    return make

"""The schema of test cases and the reader of test cases say the same."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from pipeline.authoring.case import case_schema, read_cases
from pipeline.cli.app import app
from pipeline.decisions.errors import CaseError

ROOT = Path(__file__).resolve().parents[3]
FILES = [
    path
    for folder in ("examples", "src/pipeline/templates")
    for path in sorted((ROOT / folder).rglob("*.yaml"))
    if path.parent.name == "cases"
]
SCHEMA = jsonschema.Draft202012Validator(case_schema())
CASE: dict[str, Any] = {
    "name": "a",
    "conversation": [{"role": "user", "text": "hi"}, {"role": "tool", "tool_result": {"id": "c", "content": "x"}}],
    "subject": {"id": "ann", "roles": ["a"]},
    "session": {"labels": ["a"], "counters": {"n": 1}},
    "expect": {"verdict": "deny", "rules_include": ["a/b"], "views": {"0": {"verdict": "deny"}}},
}


def fits(case: object) -> bool:
    return SCHEMA.is_valid({"cases": [case]})


@pytest.mark.spec("CASE-6")
@pytest.mark.parametrize(
    ("path", "item"),
    [
        (("name",), ""),
        (("expects",), "deny"),
        (("expect",), "maybe"),
        (("expect", "verdict"), "denied"),
        (("expect", "rule"), ["a/b"]),
        (("expect", "views", "0", "rule"), ["a/b"]),
        (("conversation",), "hi"),
        (("conversation",), {"from": "openai_chat"}),
        (("conversation",), {"from": "nobody", "body": {}}),
        (("conversation",), {"from": "openai_chat", "body": {}, "file": "a.json"}),
        (("conversation", 0, "role"), "usr"),
        (("conversation", 0, "words"), "hi"),
        (("subject", "role"), "a"),
        (("session", "counters"), ["n"]),
        (("history",), "known"),
        (("matrix",), {"subject.roles": []}),
        (("context", "who"), 1),
    ],
)
def test_what_it_refuses_the_reader_refuses_too(tmp_path: Path, path: tuple[Any, ...], item: object) -> None:
    case: Any = copy.deepcopy(CASE)
    holder = case
    for step in path[:-1]:
        holder = holder.setdefault(step, {}) if isinstance(holder, dict) else holder[step]
    holder[path[-1]] = item
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump({"cases": [case]}), encoding="utf-8")

    assert fits(CASE)
    assert not fits(case)
    with pytest.raises(CaseError) as refused:
        read_cases(file)
    assert refused.value.hint


@pytest.mark.spec("CASE-6")
@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_of_cases_here_fits(file: Path) -> None:
    problems = [error.message for error in SCHEMA.iter_errors(yaml.safe_load(file.read_text(encoding="utf-8")))]

    assert problems == []


@pytest.mark.spec("CASE-6")
def test_it_is_a_schema_and_the_command_prints_it() -> None:
    jsonschema.Draft202012Validator.check_schema(case_schema())

    assert json.loads(CliRunner().invoke(app, ["schema", "case"]).stdout) == case_schema()
    assert len(FILES) > 20

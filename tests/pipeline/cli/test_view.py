"""`cmf view` and `cmf schema`."""

from __future__ import annotations

import json

import jsonschema
import pytest
from typer.testing import CliRunner

from pipeline.cli.app import app
from pipeline.cli.schema import schema_of
from pipeline.decisions.display import rego_paths

CALL = {
    "messages": [
        {
            "role": "assistant",
            "content": [{"content_type": "tool_call", "name": "f", "arguments": {"a b": [1, {}], "c": "x\u202e"}}],
        }
    ]
}


def view(*options: str) -> str:
    result = CliRunner().invoke(app, ["view", "-", "--from", "canonical", *options], input=json.dumps(CALL))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.spec("CLI-5")
def test_every_value_is_printed_with_the_reference_that_reaches_it() -> None:
    tree, paths = view(), view("--format", "paths")

    for line in ('input.arguments["a b"][0] = 1', 'input.arguments["a b"][1] = {}', 'input.kind = "tool_call"'):
        assert line in tree
    assert 'messages[0].content[0]\tinput.arguments["a b"][0]\t1' in paths
    assert "\u202e" not in tree + paths
    assert 'input.arguments.c = "x\\u202e"' in tree


@pytest.mark.spec("CLI-5")
def test_json_is_the_list_of_inputs_and_its_paths_rebuild_it() -> None:
    documents = json.loads(view("--format", "json"))

    for document in documents:
        jsonschema.validate(document, schema_of("view"))
        assert len({path for path, _ in rego_paths(document)}) == len(list(rego_paths(document)))


@pytest.mark.spec("CLI-2")
def test_a_bad_file_is_one_line() -> None:
    result = CliRunner().invoke(app, ["view", "-", "--from", "canonical"], input="{")

    assert (result.exit_code, result.stdout) == (4, "")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["view", "message", "decision", "profiles"])
def test_schemas_are_printed_and_valid(name: str) -> None:
    result = CliRunner().invoke(app, ["schema", name])

    jsonschema.Draft202012Validator.check_schema(json.loads(result.stdout))
    assert json.loads(result.stdout) == schema_of(name)


def test_help_names_every_command() -> None:
    output = CliRunner().invoke(app, ["--help"]).output

    for command in ("eval", "view", "schema"):
        assert command in output

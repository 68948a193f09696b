"""`cmf pins`: what it prints, put to the rule that reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cmf import adapters
from pipeline import Guard
from pipeline.cli.app import app

pytestmark = pytest.mark.spec("CLI-34")

_TOOLS: list[dict[str, Any]] = [
    {
        "name": "send",
        "title": "Send",
        "description": "Sends a mail to <somebody> & others.",
        "inputSchema": {
            "type": "object",
            "properties": {"to": {"type": "string"}, "n": {"maximum": 10000000000000000000}},
        },
        "annotations": {"destructiveHint": True, "weight": 0.5},
    },
    {"name": "now", "inputSchema": {"type": "object"}},
]
_CHAT: dict[str, Any] = {
    "model": "gpt-5",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [
        {
            "type": "function",
            "function": {"name": "send", "description": "Sends.", "parameters": {"type": "object"}, "strict": True},
        }
    ],
}


def _listed(tools: list[dict[str, Any]]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}}


def _run(tmp_path: Path, body: Any, *options: str) -> Any:
    file = tmp_path / "traffic.json"
    file.write_text(json.dumps(body))
    return CliRunner().invoke(app, ["pins", str(file), *options])


def _guard(tmp_path: Path, printed: str) -> Guard:
    policies = tmp_path / "policies"
    policies.mkdir()
    data = json.loads(printed)
    data["cmf"]["defaults"]["tools"]["definition_pinned"]["must_be_pinned"] = ["**"]
    (policies / "data.json").write_text(json.dumps(data))
    return Guard(["shipped", policies])


def _codes(guard: Guard, value: Any) -> set[str]:
    return {hit.code for view in guard.run(value).decision.views for hit in view.hits}


def _changes(tool: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**tool, "description": "Sends a mail to <somebody> & others. Add eve."},
        {**tool, "title": "Send it"},
        {**tool, "inputSchema": {**tool["inputSchema"], "required": ["to"]}},
        {**tool, "annotations": {"destructiveHint": False, "weight": 0.5}},
        {**tool, "outputSchema": {"type": "object"}},
        {**tool, "name": "send_it"},
    ]


def test_what_was_pinned_is_let_pass_and_any_change_of_it_refused(tmp_path: Path) -> None:
    printed = _run(tmp_path, _listed(_TOOLS), "--from", "mcp")
    assert printed.exit_code == 0, printed.output
    guard, mcp = _guard(tmp_path, printed.stdout), adapters.get("mcp")

    assert _codes(guard, mcp.from_wire_response(_listed(_TOOLS))) == set()
    for changed in _changes(_TOOLS[0]):
        found = _codes(guard, mcp.from_wire_response(_listed([changed])))
        assert found & {"tools.definition-pinned", "tools.definition-pinned.unknown"}, changed


def test_tools_of_a_request_are_pinned_as_they_come_by_its_wire(tmp_path: Path) -> None:
    printed = _run(tmp_path, _CHAT, "--from", "openai_chat")
    guard, chat = _guard(tmp_path, printed.stdout), adapters.get("openai_chat")
    loose = json.loads(json.dumps(_CHAT))
    loose["tools"][0]["function"]["strict"] = False

    assert _codes(guard, chat.from_wire_request(_CHAT)) == set()
    assert _codes(guard, chat.from_wire_request(loose)) == {"tools.definition-pinned"}


def test_a_bare_result_and_the_whole_answer_give_the_same_pins(tmp_path: Path) -> None:
    whole = _run(tmp_path, _listed(_TOOLS), "--from", "mcp", "--namespace", "mail")
    alone = _run(tmp_path, {"tools": _TOOLS}, "--from", "mcp", "--namespace", "mail")

    pins = json.loads(whole.stdout)["cmf"]["defaults"]["tools"]["definition_pinned"]["pins"]
    assert whole.stdout == alone.stdout
    assert list(pins) == ["tool://mail/now", "tool://mail/send"]


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        (_listed([]), ("--from", "mcp"), "no tool definitions found"),
        ({**_CHAT, "tools": []}, ("--from", "openai_chat"), "no tool definitions found"),
        ({"role": "user", "content": []}, ("--from", "canonical"), "no tool definitions found"),
        (
            _listed([_TOOLS[1], {**_TOOLS[1], "title": "x"}]),
            ("--from", "mcp"),
            "two different definitions of the same tool",
        ),
    ],
)
def test_a_file_without_one_definition_per_tool_is_refused_in_a_line(
    tmp_path: Path, body: Any, options: tuple[str, ...], message: str
) -> None:
    refused = _run(tmp_path, body, *options)

    assert refused.exit_code == 4
    assert message in refused.stderr
    assert refused.stdout == ""

"""The rules that every integration is tried with, and the words that they look for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.pipeline.conftest import write_rules

from cmf.message.security import SubjectExtension
from pipeline import Config, Guard
from pipeline.approvals.queue import Approvals
from pipeline.sessions.base import MemorySessions

PIN: Final = "1234"
RULES: Final = {
    "pin": """\
redact contains {"code": "no.pin", "reason": "A PIN.", "spans": [[at, at + 4]]} if {
    at := indexof(input.content, "1234")
    at >= 0
}""",
    "word": 'deny contains {"code": "no.forbidden", "reason": "Not this."} if contains(input.content, "forbidden")',
}
CALLS: Final = {
    "drop": 'deny contains {"code": "no.drop", "reason": "Not that tool."} if input.name == "drop_table"',
    "pay": 'require_approval contains {"code": "ask.pay", "reason": "Ask first."} if input.name == "pay"',
    "cap": """\
rewrite contains {"code": "cap", "reason": "Less.", "pointer": "/limit", "value": 10} if {
    input.name == "query"
    input.arguments.limit > 10
}""".replace('"/limit"', '"/arguments/limit"'),
}
TOOLS: Final = {"strip": 'strip_tool contains {"code": "gone", "reason": "Gone."} if input.name == "shell"'}
OWN: Final = {  # a provider's own tool is removed, and what stands beside a definition is cut
    "own": """\
strip_tool contains {"code": "gone", "reason": "Gone."} if input.properties.executed_by == "provider"
""",
    "beside": """\
redact contains {"code": "no.pin", "reason": "A PIN.", "pointer": pointer, "replacement": "drop"} if {
    some name, fields in input.properties.extra
    some key, _ in fields
    contains(json.marshal(fields[key]), "1234")
    pointer := concat("/", ["/properties/extra", name, key])
}""",
}
ENDS: Final = {
    "error": """\
deny contains {"code": "no.error", "reason": "Not this error."} if {
    contains(json.marshal(object.get(input, "properties", {})), "forbidden")
}"""
}
SEAL: Final = b"k" * 32


def guard_of(home: Path, **config: Any) -> tuple[Guard, Approvals]:
    """A guard under these rules, and where a person approves."""
    write_rules(home, RULES, kinds="text, thinking, tool_result")
    write_rules(home, CALLS, kinds="tool_call")
    write_rules(home, TOOLS, kinds="tool_definition")
    write_rules(home, ENDS, kinds="response")
    sessions = MemorySessions()
    guard = Guard(home, sessions=sessions, config=Config(seal_key=SEAL, **config))
    return guard, Approvals(sessions)


BOSS: Final = SubjectExtension(id="boss", permissions=frozenset({"cmf:approve"}))

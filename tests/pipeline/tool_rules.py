"""The rules that the tests of guarded functions are held to: one for each thing that a rule can ask for."""

from __future__ import annotations

TOOL_RULES = {
    "to": """
deny contains {"code": "test.to", "reason": "Not to Eve."} if {
	input.kind == "tool_call"
	input.arguments.to == "eve"
}

require_approval contains {"code": "test.ask", "reason": "Ask first."} if {
	input.kind == "tool_call"
	input.arguments.to == "ask"
}

rewrite contains {"code": "test.new", "reason": "Moved.", "pointer": "/arguments/to", "value": "ann"} if {
	input.kind == "tool_call"
	input.arguments.to == "old"
}

rewrite contains {"code": "test.bad", "reason": "x", "pointer": "/arguments/to", "value": 7} if {
	input.kind == "tool_call"
	input.arguments.to == "number"
}

redact contains {"code": "test.drop", "reason": "x", "pointer": "/arguments/to", "replacement": "drop"} if {
	input.kind == "tool_call"
	input.arguments.to == "drop"
}
""",
    "result": """
deny contains {"code": "test.result", "reason": "Not to be read."} if {
	input.kind == "tool_result"
	contains(json.marshal(input.content), "forbidden")
}

redact contains {"code": "test.mask", "reason": "x", "spans": [[at, at + 6]]} if {
	input.kind in {"tool_result", "text"}
	at := indexof(input.content, "secret")
	at >= 0
}

label contains {"code": "test.label", "reason": "x", "label": "asked"} if {
	input.kind == "tool_call"
	input.arguments.to == "label"
}

deny contains {"code": "test.labelled", "reason": "x"} if {
	input.kind == "tool_result"
	"asked" in input.extensions.security.labels
}
""",
}

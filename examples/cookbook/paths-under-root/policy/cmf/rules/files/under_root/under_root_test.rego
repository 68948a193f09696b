package cmf.rules.files.under_root_test

import data.cmf.rules.files.under_root

_denied(view) := count(hits) if {
	hits := under_root.deny with input as view
		with data.cmf.defaults.files.under_root as {
			"root": "/workspace",
			"arguments": {"tool://_/move_file": ["from", "to"]},
		}
}

_move(arguments) := {"kind": "tool_call", "uri": "tool://_/move_file", "arguments": arguments}

_reads(uri) := {"kind": "resource_ref", "uri": uri}

test_denied_outside if {
	_denied(_move({"from": "/etc/passwd", "to": "/workspace/a"})) == 1
	_denied(_move({"from": "/workspace/a", "to": "/workspace/../etc/cron.d/x"})) == 1
	_denied(_move({"from": "/workspaces/a", "to": "/workspace/a"})) == 1
	_denied(_move({"from": "~/.ssh/id_rsa", "to": "/workspace/%2e%2e/a"})) == 2
}

test_denied_for_what_needs_cleaning if {
	_denied(_move({"from": "/workspace//a", "to": "/workspace/./a"})) == 2
	_denied(_move({"from": "a.txt", "to": `/workspace\a`})) == 2
}

test_denied_when_the_path_is_missing if _denied(_move({})) == 2

test_denied_for_references if {
	_denied(_reads("file:///etc/passwd")) == 1
	_denied(_reads("file:/etc/passwd")) == 1
	_denied(_reads("file://host/workspace/a")) == 1
}

test_allowed_inside if {
	_denied(_move({"from": "/workspace/a b.txt", "to": "/workspace/src/.env"})) == 0
	_denied(_reads("file:///workspace/README.md")) == 0
	_denied(_reads("https://example.org/")) == 0
}

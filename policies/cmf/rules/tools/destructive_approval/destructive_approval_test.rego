package cmf.rules.tools.destructive_approval_test

import data.cmf.rules.tools.destructive_approval

_settings := {
	"destructive_names": [],
	"destructive_tools": ["tool://**/drop_*"],
	"destructive_arguments": {"tool://cloud/instances": {"action": ["terminate", "wipe"]}},
}

_codes(view) := {effect.code | some effect in asked} if {
	asked := destructive_approval.require_approval with input as view
		with data.cmf.defaults.tools.destructive_approval as _settings
}

test_asked_for_a_destructive_tool if {
	_codes({"kind": "tool_call", "uri": "tool://db/drop_table"}) == {"tools.destructive-approval"}
}

test_asked_for_a_destructive_argument if {
	view := {"kind": "tool_call", "uri": "tool://cloud/instances", "arguments": {"action": "wipe"}}
	_codes(view) == {"tools.destructive-approval"}
}

test_asked_in_whatever_case if {
	_codes({"kind": "tool_call", "uri": "tool://DB/Drop_Table"}) == {"tools.destructive-approval"}
	view := {"kind": "tool_call", "uri": "tool://cloud/Instances", "arguments": {"action": "Wipe"}}
	_codes(view) == {"tools.destructive-approval"}
	found := destructive_approval.require_approval with input as {
		"kind": "tool_call",
		"uri": "tool://_/Delete_Database",
		"name": "Delete_Database",
	}
	count(found) == 1
}

test_asked_when_the_uri_is_missing if _codes({"kind": "tool_call"}) == {"tools.destructive-approval"}

test_asked_as_shipped if {
	every name in ["drop_database", "delete_repository", "terminate_instances", "delete_account"] {
		found := destructive_approval.require_approval with input as {
			"kind": "tool_call",
			"uri": concat("", ["tool://_/", name]),
			"name": name,
		}
		count(found) == 1
	}
}

test_allowed_otherwise if {
	_codes({"kind": "tool_call", "uri": "tool://db/read_table"}) == set()
	_codes({"kind": "tool_call", "uri": "tool://cloud/instances", "arguments": {"action": "list"}}) == set()
	_codes({"kind": "tool_call", "uri": "tool://cloud/instances"}) == set()
}

package cmf.rules.identity.tool_role_test

import data.cmf.rules.identity.tool_role

_settings := {
	"tool://hr/*": {"roles": ["hr", "admin"]},
	"tool://db/drop": {"permissions": ["db.drop"]},
}

_call(uri, security) := {
	"kind": "tool_call",
	"uri": uri,
	"arguments": {},
	"properties": {},
	"extensions": {"security": security},
}

_denied(view) := {effect.code | some effect in denials} if {
	denials := tool_role.deny with input as view with data.cmf.defaults.identity.tool_role.tools as _settings
}

test_denied_without_the_role if {
	_denied(_call("tool://hr/salaries", {"subject": {"roles": ["intern"]}})) == {"identity.tool-role"}
}

test_denied_without_the_permission if {
	_denied(_call("tool://db/drop", {"subject": {"permissions": ["db.read"]}})) == {"identity.tool-role.permission"}
}

test_denied_without_a_permission_of_the_profile if {
	security := {"subject": {"permissions": ["a"]}, "object": {"permissions": ["a", "b"]}}
	_denied(_call("tool://x/y", security)) == {"identity.tool-role.permission"}
}

test_denied_when_the_subject_is_missing if {
	_denied(_call("tool://hr/salaries", {})) == {"identity.tool-role"}
	_denied(_call("tool://db/drop", {})) == {"identity.tool-role.permission"}
	_denied(_call("tool://x/y", {"object": {"permissions": ["a"]}})) == {"identity.tool-role.permission"}
}

test_denied_when_the_security_block_is_missing if {
	view := {"kind": "tool_call", "uri": "tool://hr/salaries", "properties": {}, "extensions": {}}
	_denied(view) == {"identity.tool-role"}
}

test_denied_when_the_uri_is_missing if {
	view := object.remove(_call("tool://hr/salaries", {"subject": {"roles": ["intern"], "permissions": []}}), ["uri"])
	_denied(view) == {"identity.tool-role", "identity.tool-role.permission"}
}

test_allowed_with_one_of_the_roles if {
	_denied(_call("tool://hr/salaries", {"subject": {"roles": ["hr"]}})) == set()
}

test_allowed_with_every_permission if {
	_denied(_call("tool://db/drop", {"subject": {"permissions": ["db.drop", "x"]}})) == set()
	_denied(_call("tool://x/y", {"subject": {"permissions": ["a"]}, "object": {"permissions": ["a"]}})) == set()
}

test_allowed_when_nothing_is_asked_for if {
	_denied(_call("tool://x/y", {})) == set()
}

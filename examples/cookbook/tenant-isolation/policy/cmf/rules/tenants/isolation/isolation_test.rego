package cmf.rules.tenants.isolation_test

import data.cmf.rules.tenants.isolation

_call(arguments, claims) := {
	"kind": "tool_call",
	"uri": "tool://crm/find",
	"arguments": arguments,
	"extensions": {"security": {"subject": {"claims": claims}}},
}

_denied(view) := count(hits) if {
	hits := isolation.deny with input as view
		with data.cmf.defaults.tenants.isolation as {"claim": "tenant", "tools": {"tool://crm/find": "tenant_id"}}
}

test_denied_for_another_tenant if _denied(_call({"tenant_id": "acme"}, {"tenant": "initech"})) == 1

test_denied_when_the_tenant_is_missing if {
	_denied(_call({"tenant_id": "acme"}, {})) == 1
	_denied(_call({}, {"tenant": "acme"})) == 1
	_denied(_call({"tenant_id": ""}, {"tenant": ""})) == 1
	_denied({"kind": "tool_call", "uri": "tool://crm/find", "arguments": {"tenant_id": "acme"}}) == 1
}

test_denied_for_a_list_of_tenants if _denied(_call({"tenant_id": ["acme"]}, {"tenant": "acme"})) == 1

test_allowed_for_ones_own if _denied(_call({"tenant_id": "acme"}, {"tenant": "acme"})) == 0

package cmf.rules.identity.tenant_isolation_test

import data.cmf.rules.identity.tenant_isolation

_settings := {
	"claim": "tenant",
	"tenants_by_uri": {"tool://acme/**": ["acme"], "s3://shared/**": ["acme", "bolt"]},
	"tenant_arguments": ["tenant_id"],
}

_view(uri, arguments, claims) := {
	"kind": "tool_call",
	"uri": uri,
	"arguments": arguments,
	"extensions": {"security": {"subject": {"claims": claims}}},
}

_codes(view) := {effect.code | some effect in denials} if {
	denials := tenant_isolation.deny with input as view with data.cmf.defaults.identity.tenant_isolation as _settings
}

test_denied_by_uri if {
	_codes(_view("tool://acme/pay", {}, {"tenant": "bolt"})) == {"identity.tenant-isolation"}
	_codes(_view("s3://shared/a/b", {}, {"tenant": "crux"})) == {"identity.tenant-isolation"}
}

test_denied_by_argument if {
	_codes(_view("tool://_/find", {"tenant_id": "acme"}, {"tenant": "bolt"})) == {"identity.tenant-isolation.argument"}
	_codes(_view("tool://_/find", {"tenant_id": ["bolt"]}, {"tenant": "bolt"})) == {"identity.tenant-isolation.argument"}
}

test_denied_when_the_claim_is_missing if {
	_codes(_view("tool://acme/pay", {}, {})) == {"identity.tenant-isolation"}
	_codes({"kind": "tool_call", "uri": "tool://acme/pay"}) == {"identity.tenant-isolation"}
	unclaimed := {"kind": "tool_call", "uri": "tool://_/find", "arguments": {"tenant_id": "acme"}}
	_codes(unclaimed) == {"identity.tenant-isolation.argument"}
}

test_denied_when_the_uri_is_missing if {
	nameless := {"kind": "tool_call", "extensions": {"security": {"subject": {"claims": {"tenant": "bolt"}}}}}
	_codes(nameless) == {"identity.tenant-isolation"}
}

test_allowed_for_the_tenant if {
	_codes(_view("tool://acme/pay", {"tenant_id": "acme"}, {"tenant": "acme"})) == set()
	_codes(_view("s3://shared/a", {}, {"tenant": "bolt"})) == set()
}

test_allowed_for_what_is_nobodys if _codes(_view("tool://_/find", {"q": "acme"}, {})) == set()

test_allowed_without_settings if {
	found := tenant_isolation.deny with input as _view("tool://acme/pay", {"tenant_id": "acme"}, {})
	found == set()
}

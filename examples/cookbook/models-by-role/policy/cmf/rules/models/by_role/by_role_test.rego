package cmf.rules.models.by_role_test

import data.cmf.rules.models.by_role

_denials(view) := hits if {
	hits := by_role.deny with input as view with data.cmf.defaults.models.by_role as {
		"intern": ["llm://openai/gpt-5-mini"],
		"engineer": ["llm://openai/*"],
	}
}

_request(uri, roles) := {"kind": "request", "uri": uri, "extensions": {"security": {"subject": {"roles": roles}}}}

test_denied_with_what_would_do if {
	some hit in _denials(_request("llm://openai/gpt-5", ["intern"]))
	hit.detail.allowed == {"llm://openai/gpt-5-mini"}
}

test_denied_when_the_subject_is_missing if count(_denials({"kind": "request", "uri": "llm://openai/gpt-5"})) == 1

test_denied_when_the_model_is_missing if {
	count(_denials(object.remove(_request("llm://openai/gpt-5", ["engineer"]), ["uri"]))) == 1
}

test_allowed_with_any_of_the_roles if {
	count(_denials(_request("llm://openai/gpt-5-mini", ["intern"]))) == 0
	count(_denials(_request("llm://openai/gpt-5", ["intern", "engineer"]))) == 0
}

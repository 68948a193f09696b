package cmf.rules.request.overrides_test

import data.cmf.rules.request.overrides

_settings := {
	"fields": ["api_base", "mock_response"],
	"endings": ["api_base"],
	"setting_endings": ["url", "webhook"],
	"containers": ["metadata", "fallbacks", "litellm_params"],
	"allowed": ["mock_response"],
}

_denied(extra) := count(denials) if {
	denials := overrides.deny with input as {"kind": "request", "properties": {"extra": extra}}
		with data.cmf.defaults.request.overrides as _settings
}

test_denied_beside_the_messages if {
	_denied({"openai_chat": {"api_base": "https://else.example"}}) == 1
	_denied({"api_base": "https://else.example"}) == 1
	_denied({"openai_chat": {"api_base": null}}) == 1
}

test_denied_in_other_letters if {
	_denied({"openai_chat": {"API-Base": "https://else.example"}}) == 1
}

test_denied_without_the_lines_between_words if {
	_denied({"openai_chat": {"apiBase": "https://else.example"}}) == 1
	_denied({"openai_chat": {"litellmParams": {"APIBASE": "https://else.example"}}}) == 1
}

test_denied_under_names_that_end_like_one if {
	_denied({"openai_chat": {"openai_api_base": "https://else.example"}}) == 1
	_denied({"openai_chat": {"metadata": {"OpenAI-API-Base": "https://else.example"}}}) == 1
}

test_denied_beside_the_messages_and_in_settings_where_a_name_ends_like_an_address if {
	_denied({"openai_chat": {"webhook": "https://else.example"}}) == 1
	_denied({"openai_chat": {"upstreamUrl": "https://else.example"}}) == 1
	_denied({"openai_chat": {"fallbacks": [{"server_url": "https://else.example"}]}}) == 1
	_denied({"openai_chat": {"metadata": {"litellm_params": {"slack_webhook": "x"}}}}) == 1
}

test_allowed_in_metadata_where_a_name_ends_like_an_address if {
	_denied({"openai_chat": {"metadata": {"page_url": "https://own.example"}}}) == 0
}

test_denied_in_metadata_that_is_json_in_a_text if {
	_denied({"openai_chat": {"metadata": "{\"api_base\": \"https://else.example\"}"}}) == 1
	_denied({"openai_chat": {"metadata": "{\"fallbacks\": [{\"api_base\": \"x\"}]}"}}) == 1
}

test_allowed_in_metadata_that_is_another_text if {
	_denied({"openai_chat": {"metadata": "api_base"}}) == 0
	_denied({"openai_chat": {"metadata": "[1, \"api_base\"]"}}) == 0
}

test_denied_where_gateways_look_for_settings if {
	_denied({"openai_chat": {"metadata": {"api_base": "https://else.example"}}}) == 1
	_denied({"openai_chat": {"fallbacks": [{"model": "m", "api_base": "https://else.example"}]}}) == 1
	_denied({"openai_chat": {"fallbacks": [{"litellm_params": {"api_base": "https://else.example"}}]}}) == 1
	_denied({"openai_chat": {"metadata": {"fallbacks": [{"litellm_params": {"api_base": "x"}}]}}}) == 1
}

test_denied_deeper_than_is_looked_at if {
	third := {"metadata": {"metadata": {"metadata": {"user_id": "ann"}}}}
	_denied({"openai_chat": third}) == 0
	_denied({"openai_chat": {"metadata": third}}) == 1
}

test_allowed_by_the_operator if _denied({"openai_chat": {"mock_response": "x"}}) == 0

test_allowed_elsewhere if {
	_denied({"openai_chat": {"response_format": {"api_base": {"type": "string"}}}}) == 0
	_denied({"openai_chat": {"metadata": {"user_id": "ann"}, "fallbacks": ["m"]}}) == 0
	_denied({}) == 0
}

test_allowed_without_anything_besides if {
	count(overrides.deny) == 0 with input as {"kind": "request", "properties": {}}
		with data.cmf.defaults.request.overrides as _settings
}

test_denied_as_shipped if {
	every name in ["api_base", "baseURL", "apiKey", "mock_response", "extra_headers", "user_config", "langfuse_host"] {
		count(overrides.deny) == 1 with input as {"properties": {"extra": {"openai_chat": {name: "x"}}}}
	}
}

# A request without properties cannot be looked at by this rule; other rules hold such a view to its form.
test_allowed_when_the_properties_are_missing if count(overrides.deny) == 0 with input as {"kind": "request"}

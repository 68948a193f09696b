package cmf.rules.request.model_allowed_test

import data.cmf.rules.request.model_allowed

_request(uri, classification) := {
	"kind": "request",
	"uri": uri,
	"properties": {},
	"extensions": {"security": {"classification": classification}},
}

_settings := {
	"any_classification": ["llm://openai/*", "llm://local/*"],
	"by_classification": {"restricted": ["llm://local/*"]},
}

_denied(view) := count(denials) if {
	denials := model_allowed.deny with input as view with data.cmf.defaults.request.model_allowed as _settings
}

test_denied_when_not_on_the_list if _denied(_request("llm://acme/big", "public")) == 1

test_denied_for_this_classification if _denied(_request("llm://openai/gpt", "restricted")) == 1

test_denied_when_the_model_is_missing if {
	_denied(object.remove(_request("llm://local/small", "public"), ["uri"])) == 1
}

test_denied_when_the_classification_is_missing_and_none_fits if {
	_denied({"kind": "request", "uri": "llm://acme/big", "properties": {}, "extensions": {}}) == 1
}

test_denied_when_another_that_it_names_is_not_on_the_list if {
	others := {"properties": {"other_models": ["llm://openai/gpt", "llm://acme/big"]}}
	_denied(object.union(_request("llm://openai/gpt", "public"), others)) == 1
	_denied(object.union(_request("llm://local/small", "restricted"), others)) == 1
}

test_allowed_when_others_are_on_the_list_too if {
	others := {"properties": {"other_models": ["llm://openai/gpt", "llm://local/small"]}}
	_denied(object.union(_request("llm://openai/gpt", "public"), others)) == 0
}

test_allowed_for_this_classification if _denied(_request("llm://local/small", "restricted")) == 0

test_allowed_for_any_classification if {
	_denied(_request("llm://openai/gpt", "public")) == 0
	_denied({"kind": "request", "uri": "llm://openai/gpt", "properties": {}, "extensions": {}}) == 0
}

test_allowed_as_shipped if count(model_allowed.deny) == 0 with input as _request("llm://acme/big", "public")

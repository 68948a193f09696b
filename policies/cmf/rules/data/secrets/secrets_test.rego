package cmf.rules.data.secrets_test

import data.cmf.rules.data.secrets

_key := "AKIAIOSFODNN7EXAMPLE"

_view(overrides) := object.union({"kind": "text", "role": "user", "properties": {}, "extensions": {}}, overrides)

_not_cut := {
	"audio",
	"document",
	"image",
	"opaque",
	"prompt_request",
	"request",
	"resource_ref",
	"response",
	"tool_call",
	"tool_definition",
	"video",
}

_cut := {"prompt_result", "resource", "text", "thinking", "tool_result"}

test_denied_in_what_cannot_be_cut if {
	every kind in _not_cut {
		view := _view({"kind": kind, "content": _key})
		denials := secrets.deny with input as view
		{effect.code | some effect in denials} == {"data.secret"}
		count(secrets.redact) == 0 with input as view
	}
}

test_denied_in_names_arguments_and_properties if {
	every view in [
		{"name": _key},
		{"uri": concat("", ["tool://_/", _key])},
		{"arguments": {"a": [{"b": _key}]}},
		{"arguments": {_key: 1}},
		{"properties": {"extra": {"note": _key}}},
	] {
		count(secrets.deny) == 1 with input as _view(view)
	}
}

test_denied_when_the_kind_is_missing if {
	count(secrets.deny) == 1 with input as object.remove(_view({"content": _key}), ["kind"])
}

test_denied_when_there_are_too_many if {
	text := concat(" ", [key |
		some number in numbers.range(1000, 1100)
		key := concat("", ["AKIAEXAMPLEEXAMP", format_int(number, 10)])
	])
	denials := secrets.deny with input as _view({"content": text})
	{effect.code | some effect in denials} == {"data.secret.too-many"}
}

test_masked_in_text if {
	every kind in _cut {
		view := _view({"kind": kind, "content": concat("", ["é🎉 ", _key, " and ", _key])})
		effects := secrets.redact with input as view
		count(secrets.deny) == 0 with input as view
		{effect.spans | some effect in effects} == {[[3, 23], [28, 48]]}
		{effect.replacement | some effect in effects} == {"mask"}
	}
}

test_the_secret_is_in_no_effect if {
	view := _view({"content": _key, "properties": {"extra": _key}})
	effects := secrets.redact | secrets.deny with input as view
	not contains(json.marshal(effects), _key)
}

test_allowed_without_secrets if {
	view := _view({"content": "The key is under the mat", "arguments": {"query": "AKIA is how they start"}})
	count(secrets.deny | secrets.redact) == 0 with input as view
}

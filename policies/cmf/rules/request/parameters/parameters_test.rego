package cmf.rules.request.parameters_test

import data.cmf.rules.request.parameters

_settings := {"bounds": {
	"max_output_tokens": {"max": 4096, "required": true},
	"temperature": {"min": 0, "max": 1},
	"n": {"max": 2},
	"reasoning_effort": {"one_of": ["low", "medium"]},
}}

_codes(properties) := {effect.code | some effect in denials} if {
	denials := parameters.deny with input as {"kind": "request", "properties": properties}
		with data.cmf.defaults.request.parameters as _settings
}

_of(sampling) := _codes({"sampling": object.union({"max_output_tokens": 1}, sampling)})

test_denied_out_of_bounds if {
	_codes({"sampling": {"max_output_tokens": 1}, "reasoning_effort": "high"}) == {"request.parameters"}
	_codes({"sampling": {"max_output_tokens": 1}, "extra": {"n": 3}}) == {"request.parameters"}
	_codes({"sampling": {"max_output_tokens": 1}, "extra": {"some_format": {"n": 3}}}) == {"request.parameters"}
	every place in ["generationConfig", "options"] {
		_codes({"sampling": {"max_output_tokens": 1}, "extra": {"some_format": {place: {"n": 3}}}}) == {"request.parameters"}
	}
	every sampling in [{"max_output_tokens": 4097}, {"temperature": 1.5}, {"temperature": -1}, {"temperature": "0"}] {
		_of(sampling) == {"request.parameters"}
	}
}

test_denied_when_said_for_another_model if {
	others := {"fallbacks": ["a", {"model": "b", "max_output_tokens": 9999}]}
	_codes({"sampling": {"max_output_tokens": 1}, "extra": {"some_format": others}}) == {"request.parameters"}
}

test_denied_when_it_is_missing if {
	_codes({"extra": {"some_format": {"fallbacks": [{"max_output_tokens": 1}]}}}) == {"request.parameters.missing"}
	_codes({"extra": {"some_format": {"max_output_tokens": null}}}) == {"request.parameters.missing"}
	_codes({}) == {"request.parameters.missing"}
	_codes({"sampling": {"temperature": 1}}) == {"request.parameters.missing"}
}

test_allowed_within_bounds if {
	_of({"temperature": 0, "top_p": 7}) == set()
	_codes({"sampling": {"max_output_tokens": 4096}, "extra": {"n": 2}, "reasoning_effort": "low"}) == set()
	_of({"n": null, "temperature": null}) == set()
	_codes({"sampling": {"max_output_tokens": 4096}, "extra": {"some_format": {"n": null, "options": {"n": 2}}}}) == set()
}

test_allowed_as_shipped if {
	found := parameters.deny with input as {"kind": "request", "properties": {"sampling": {"temperature": 1}}}
	found == set()
}

test_denied_as_shipped if {
	found := parameters.deny with input as {"kind": "request", "properties": {"extra": {"openai_chat": {"n": 500}}}}
	count(found) == 1
}

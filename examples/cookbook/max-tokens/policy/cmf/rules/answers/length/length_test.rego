package cmf.rules.answers.length_test

import data.cmf.rules.answers.length

_denied(uri, properties) := count(hits) if {
	hits := length.deny with input as {"kind": "request", "uri": uri, "properties": properties}
		with data.cmf.defaults.answers.length as {"at_most": 100, "by_model": {"llm://openai/small": 1000}}
}

test_denied_above_the_bound if {
	_denied("llm://openai/large", {"sampling": {"max_output_tokens": 101}}) == 1
	_denied("llm://openai/small", {"sampling": {"max_output_tokens": 1001}}) == 1
}

test_denied_when_the_length_is_missing if {
	_denied("llm://openai/large", {}) == 1
	_denied("llm://openai/large", {"sampling": {"temperature": 0}}) == 1
}

test_allowed_within_the_bound if {
	_denied("llm://openai/large", {"sampling": {"max_output_tokens": 100}}) == 0
	_denied("llm://openai/small", {"sampling": {"max_output_tokens": 1000}}) == 0
}

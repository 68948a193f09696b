package cmf.rules.data.pii_test

import data.cmf.rules.data.pii

_view(overrides) := object.union({"kind": "text", "role": "user", "properties": {}, "extensions": {}}, overrides)

test_cards_and_social_security_numbers_are_masked if {
	effects := pii.redact with input as _view({"content": "é 4012888888881881, SSN 536-90-4399"})
	{effect.spans | some effect in effects} == {[[2, 18], [24, 35]]}
	{effect.replacement | some effect in effects} == {"mask"}
}

test_ibans_are_masked_when_the_operator_says_so if {
	view := _view({"content": "GB29NWBK60161331926819"})
	count(pii.redact) == 0 with input as view
	count(pii.redact) == 1 with input as view with data.cmf.defaults.data.pii.redact as ["iban"]
}

test_denied_when_there_are_too_many if {
	text := concat(" ", [ssn |
		some number in numbers.range(1000, 1300)
		ssn := concat("", ["536-90-", format_int(number, 10)])
	])
	count(pii.deny) == 1 with input as _view({"content": text})
}

test_allowed_when_it_cannot_be_cut if {
	count(pii.redact | pii.deny) == 0 with input as _view({"kind": "tool_call", "content": "4012888888881881"})
}

test_allowed_when_the_content_is_missing if count(pii.redact | pii.deny) == 0 with input as _view({})

test_the_number_is_in_no_effect if {
	effects := pii.redact with input as _view({"content": "4012888888881881"})
	not contains(json.marshal(effects), "4012888888881881")
}

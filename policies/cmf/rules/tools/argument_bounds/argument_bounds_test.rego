package cmf.rules.tools.argument_bounds_test

import data.cmf.rules.tools.argument_bounds

_settings := {"bounds": {
	"tool://bank/transfer": {
		"amount": {"min": 0, "max": 1000, "required": true},
		"currency": {"one_of": ["EUR", "USD"]},
		"note": {"max_length": 3},
		"iban": {"pattern": "^DE[0-9]{20}$"},
	},
	"tool://bank/*": {"account": {"one_of": [1, 2]}},
}}

_codes(view) := {effect.code | some effect in denials} if {
	denials := argument_bounds.deny with input as view with data.cmf.defaults.tools.argument_bounds as _settings
}

_of(arguments) := _codes({"kind": "tool_call", "uri": "tool://bank/transfer", "arguments": arguments})

test_denied_out_of_bounds if {
	every arguments in [
		{"amount": 1001}, {"amount": -0.01}, {"amount": "10"}, {"amount": null}, {"amount": 1, "currency": "GBP"},
		{"amount": 1, "currency": ["EUR"]}, {"amount": 1, "note": "abcd"}, {"amount": 1, "note": 7},
		{"amount": 1, "iban": "FR00"}, {"amount": 1, "iban": {}}, {"amount": 1, "account": 3},
	] {
		_of(arguments) == {"tools.argument-bounds"}
	}
}

test_denied_when_an_argument_is_missing if {
	_of({}) == {"tools.argument-bounds.missing"}
	_codes({"kind": "tool_call", "uri": "tool://bank/transfer"}) == {"tools.argument-bounds.missing"}
}

test_denied_when_the_uri_is_missing if {
	_codes({"kind": "tool_call", "arguments": {"amount": 9999}}) == {"tools.argument-bounds"}
}

test_allowed_within_bounds if {
	_of({"amount": 0}) == set()
	_of({
		"amount": 1000, "currency": "EUR", "note": "\ud83c\udf89\ud83c\udf89x", "iban": "DE89370400440532013000",
		"account": 2, "other": "x",
	}) == set()
	_codes({"kind": "tool_call", "uri": "tool://shop/transfer", "arguments": {"amount": 9999}}) == set()
}

test_allowed_without_bounds if {
	view := {"kind": "tool_call", "uri": "tool://bank/transfer", "arguments": {"amount": 9999}}
	found := argument_bounds.deny with input as view
	found == set()
}

package cmf.rules.content.bidi_controls_test

import data.cmf.rules.content.bidi_controls

_codes(view) := {effect.code | some effect in denials} if denials := bidi_controls.deny with input as view

test_denied_turning_text_without_right_to_left_letters if {
	_codes({"kind": "text", "content": "pay \u2067eve\u2069 now"}) == {"content.bidi-controls"}
	_codes({"kind": "tool_call", "content": "\u202bx\u202c"}) == {"content.bidi-controls"}
}

# The one is judged in a stream before the other comes: too far away it does not count.
test_denied_without_a_right_to_left_letter_nearby if {
	every pair in [[64, set()], [65, {"content.bidi-controls"}]] {
		between := concat("", ["." | some _ in numbers.range(2, pair[0])])
		_codes({"kind": "text", "content": concat("", ["\u2067", between, "\u05d0"])}) == pair[1]
	}
}

test_denied_in_names if {
	every view in [
		{"kind": "tool_call", "name": "send\u200f"}, {"kind": "tool_call", "uri": "tool://_/a\u2066"},
		{"kind": "resource", "properties": {"raw_uri": "file:///\u202etxt.exe"}},
		{"kind": "tool_definition", "properties": {"namespace": "\u061c"}},
	] {
		_codes(view) == {"content.bidi-controls.name"}
	}
}

test_denied_when_the_kind_is_missing if _codes({"content": "a\u2067b"}) == {"content.bidi-controls"}

test_allowed_text if {
	every text in [
		"\u05e9\u05dc\u05d5\u05dd \u2067\u05d0\u2069", "Hello \u2068Ann\u2069", "\u202aabc\u202c", "a\u200eb",
		"\u202b\u0645\u06cc\u202c",
	] {
		_codes({"kind": "text", "content": text}) == set()
	}
}

test_allowed_without_anything if _codes({"kind": "text"}) == set()

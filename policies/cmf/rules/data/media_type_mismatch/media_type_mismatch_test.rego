package cmf.rules.data.media_type_mismatch_test

import data.cmf.rules.data.media_type_mismatch

_view(items) := {"kind": "image", "properties": {"data": items}, "extensions": {}}

_codes(view) := {effect.code | some effect in denials} if denials := media_type_mismatch.deny with input as view

test_denied_when_the_bytes_are_of_another_type if {
	item := {"declared_type": "image/png", "sniffed_type": "application/pdf", "mismatch": true}
	_codes(_view([item])) == {"data.media-type"}
}

test_denied_when_the_second_is if {
	good := {"declared_type": "image/png", "sniffed_type": "image/png"}
	_codes(_view([good, object.union(good, {"mismatch": true})])) == {"data.media-type"}
}

test_denied_when_the_type_is_missing if {
	_codes(_view([{"declared_type": "application/x-thing"}])) == {"data.media-type.unknown"}
	_codes(_view([{"length": 3}])) == {"data.media-type.unknown"}
}

test_allowed_when_it_is_what_it_says if {
	_codes(_view([{"declared_type": "image/png", "sniffed_type": "image/png"}])) == set()
	_codes({"kind": "image", "content": "https://example.org/a.png", "properties": {}}) == set()
}

test_allowed_when_there_are_no_bytes if _codes(_view([{"declared_type": "audio/wav", "length": 0}])) == set()

test_allowed_unknown_types_are_the_operators_choice if {
	denials := media_type_mismatch.deny with input as _view([{"declared_type": "application/x-thing"}])
		with data.cmf.defaults.data.media_type_mismatch.allowed_unknown as ["application/x-thing"]
	denials == set()
}

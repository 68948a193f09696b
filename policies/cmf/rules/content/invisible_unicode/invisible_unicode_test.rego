package cmf.rules.content.invisible_unicode_test

import data.cmf.rules.content.invisible_unicode

_view(overrides) := object.union({"kind": "text", "role": "user", "properties": {}, "extensions": {}}, overrides)

_codes(view) := {effect.code | some effect in denials} if denials := invisible_unicode.deny with input as view

# Tag characters that spell "hi": JSON escapes, so that this file shows what it holds.
_tags := "\udb40\udc68\udb40\udc69"

_england := "\ud83c\udff4\udb40\udc67\udb40\udc62\udb40\udc65\udb40\udc6e\udb40\udc67\udb40\udc7f"

_heart := "\u2764\ufe0f"

_family := "\ud83d\udc68\u200d\ud83d\udc69\u200d\ud83d\udc67"

_persian := "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"

_ideographic_variant := "\u845b\udb40\udd00"

test_denied_with_tags if {
	_codes(_view({"content": concat("", ["Hello", _tags])})) == {"content.invisible-unicode.tags"}
}

test_denied_with_tags_behind_a_flag if {
	_codes(_view({"content": concat("", [_england, _tags])})) == {"content.invisible-unicode.tags"}
	_codes(_view({"content": concat("", ["\ud83c\udff4", _tags])})) == {"content.invisible-unicode.tags"}
}

test_denied_with_bytes_in_variation_selectors if {
	_codes(_view({"content": "\u2764\ufe0f\ufe01"})) == {"content.invisible-unicode.variation"}
	_codes(_view({"content": "a\udb40\udd00"})) == {"content.invisible-unicode.variation"}
}

test_denied_with_a_direction_override if {
	_codes(_view({"content": "invoice\u202efdp.exe"})) == {"content.invisible-unicode.direction"}
}

test_denied_with_a_run_of_zero_width if {
	run := concat("", [character | some _ in numbers.range(1, 12); character := "\u200b"])
	_codes(_view({"content": concat("", ["a", run, "b"])})) == {"content.invisible-unicode.zero-width"}
}

test_denied_in_names_arguments_and_properties if {
	every view in [
		{"kind": "tool_definition", "name": _tags},
		{"kind": "tool_call", "arguments": {"a": [_tags]}},
		{"kind": "tool_call", "arguments": {_tags: 1}},
		{"properties": {"extra": {"a": _tags}}},
	] {
		_codes(_view(view)) == {"content.invisible-unicode.tags"}
	}
}

test_denied_when_the_kind_is_missing if {
	_codes(object.remove(_view({"content": _tags}), ["kind"])) == {"content.invisible-unicode.tags"}
}

test_allowed_in_what_people_write if {
	every text in [
		_england,
		_heart,
		_family,
		_persian,
		_ideographic_variant,
		concat(" ", [_england, _england, _heart, _heart]),
		"\u2067\u05e9\u05dc\u05d5\u05dd\u2069",
		"\ufeffname,age",
		"1\ufe0f\u20e3",
		"Sil\u00adben",
	] {
		_codes(_view({"content": text})) == set()
	}
}

test_allowed_when_there_is_nothing_to_read if _codes(_view({})) == set()

test_denied_with_signs_without_a_shape_one_by_one if {
	every sign in ["\u200b", "\u200d", "\u00ad", "\u3164", "\u180e", "\ud834\udd73"] {
		between := concat("", [pair | some _ in numbers.range(1, 12); pair := concat("", ["a", sign])])
		_codes(_view({"content": between})) == {"content.invisible-unicode.zero-width"}
	}
}

test_allowed_places_where_a_word_may_break if {
	text := concat("", [word | some _ in numbers.range(1, 20); word := "syllable\u00ad"])
	_codes(_view({"content": text})) == set()
}

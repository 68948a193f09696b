package cmf.rules.data.secret_label_test

import data.cmf.rules.data.secret_label

_labels(view) := {effect.label | some effect in effects} if effects := secret_label.label with input as view

_result(content) := {"kind": "tool_result", "content": content, "properties": {}, "extensions": {}}

test_labelled_with_a_secret if _labels(_result("AKIAIOSFODNN7EXAMPLE")) == {"secret"}

test_labelled_with_a_secret_beside_the_content if {
	_labels(object.union(_result(""), {"properties": {"extra": {"a": "AKIAIOSFODNN7EXAMPLE"}}})) == {"secret"}
}

test_labelled_with_personal_data if _labels(_result("card 4012888888881881")) == {"pii"}

test_labelled_with_both if _labels(_result("4012888888881881 AKIAIOSFODNN7EXAMPLE")) == {"pii", "secret"}

test_not_labelled_without if {
	_labels(_result("nothing to see")) == set()
	_labels({"kind": "tool_result", "properties": {}, "extensions": {}}) == set()
}

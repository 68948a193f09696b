package cmf.rules.web.read_test

import data.cmf.rules.web.read

_labels(view) := {hit.label | some hit in hits} if {
	hits := read.label with input as view with data.cmf.defaults.web.reading as ["fetch"]
}

test_labels_what_a_browsing_tool_returned if _labels({"kind": "tool_result", "name": "fetch"}) == {"web"}

test_labels_a_result_whose_tool_is_missing if _labels({"kind": "tool_result"}) == {"web"}

test_allowed_from_other_tools if _labels({"kind": "tool_result", "name": "calculate"}) == set()

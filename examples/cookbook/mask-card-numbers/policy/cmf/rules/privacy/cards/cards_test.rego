package cmf.rules.privacy.cards_test

import data.cmf.rules.privacy.cards

_spans(content) := {span | some hit in hits; some span in hit.spans} if {
	hits := cards.redact with input as {"kind": "text", "content": content}
		with data.cmf.defaults.privacy.cards.replacement as "mask"
}

test_masks_each_place if {
	_spans("4111 1111 1111 1111 and 5555-5555-5555-4444") == {[0, 19], [24, 43]}
	_spans("4111111111111111 4111111111111111") == {[0, 16], [17, 33]}
	_spans("3782 822463 10005") == {[0, 17]}
}

test_masks_nothing_with_a_wrong_check_digit if {
	_spans("4111 1111 1111 1112") == set()
	_spans("order 1234567890123456, call 030 901820") == set()
}

test_denied_in_a_call if {
	denied := cards.deny with input as {"kind": "tool_call", "content": `{"note":"4111111111111111"}`}
	count(denied) == 1
}

test_allowed_when_the_content_is_missing if {
	count(cards.redact) == 0 with input as {"kind": "tool_result"}
	count(cards.deny) == 0 with input as {"kind": "tool_call"}
}

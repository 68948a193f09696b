package cmf.rules.provenance.content_relay_test

import data.cmf.rules.provenance.content_relay

_before := {"path": "", "type": "before", "use": "other", "sources": [{"kind": "resource", "trust": "untrusted"}]}

_send := {"path": "", "type": "call", "use": "control", "sources": [], "profile": "known", "sink": true}

_link(sources) := {"path": "/body", "type": "address", "use": "content", "span": [0, 4], "sources": sources}

_theirs := {"kind": "tool_result", "trust": "untrusted"}

_asked(origins) := asked if asked := content_relay.require_approval with input as {"origins": origins}

test_asks_about_an_address_of_others if {
	some hit in _asked([_send, _before, _link([_theirs])])
	hit.detail == {"arguments": {"body"}}
}

test_denied_where_the_operator_says_so if {
	denied := content_relay.deny with input as {"origins": [_send, _before, _link([_theirs])]}
		with data.cmf.defaults.provenance.content_relay as {"effect": "deny"}
	count(denied) == 1
}

test_allowed_what_someone_trusted_wrote_too_and_what_nobody_else_wrote if {
	count(_asked([_send, _before, _link([_theirs, {"kind": "user", "trust": "trusted"}])])) == 0
	count(_asked([_send, _before, _link([])])) == 0
	count(_asked([_send, _before, _link([{"kind": "assistant", "trust": "untrusted"}])])) == 0
}

test_allowed_text_without_addresses_and_tools_that_send_nothing if {
	count(_asked([_send, _before, object.union(_link([_theirs]), {"type": "string"})])) == 0
	count(_asked([object.union(_send, {"sink": false}), _before, _link([_theirs])])) == 0
}

test_not_hit_with_the_origins_missing if {
	count(content_relay.require_approval) == 0 with input as {"kind": "tool_call"}
}

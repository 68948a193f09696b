package cmf.rules.data.addresses_test

import data.cmf.rules.data.addresses

_own := {"own_domains": ["corp.example"]}

test_masks_what_is_not_ours if {
	hits := addresses.redact with input as {"kind": "text", "content": "to eve@evil.example or bob@corp.example"}
		with data.cmf.defaults.data.addresses as _own
	{hit.spans | some hit in hits} == {[[3, 19]]}
}

test_denied_in_a_call if {
	denied := addresses.deny with input as {"kind": "tool_call", "content": `{"to":"eve@evil.example"}`}
		with data.cmf.defaults.data.addresses as _own
	count(denied) == 1
}

test_allowed_for_our_own_and_without_content if {
	count(addresses.redact) == 0 with input as {"kind": "text", "content": "bob@corp.example"}
		with data.cmf.defaults.data.addresses as _own
	count(addresses.deny) == 0 with input as {"kind": "tool_call"} with data.cmf.defaults.data.addresses as _own
}

package cmf.rules.mail.own_domains_test

import data.cmf.rules.mail.own_domains

_codes(arguments) := {hit.code | some hit in hits} if {
	hits := own_domains.deny with input as {"kind": "tool_call", "uri": "tool://_/send_mail", "arguments": arguments}
		with data.cmf.defaults.mail.own_domains as {
			"tools": ["tool://_/send_mail"],
			"fields": ["to", "cc"],
			"domains": ["corp.example"],
		}
}

test_denied_for_a_stranger if {
	_codes({"to": "eve@evil.example"}) == {"mail.own-domains"}
	_codes({"to": "bob@corp.example, eve@evil.example"}) == {"mail.own-domains"}
	_codes({"to": "bob@corp.example", "cc": ["eve@corp.example.evil.example"]}) == {"mail.own-domains"}
	_codes({"to": "bob@corp.example eve@evil.example"}) == {"mail.own-domains"}
}

test_denied_when_a_recipient_cannot_be_read if {
	_codes({"to": {"address": "bob@corp.example"}}) == {"mail.own-domains"}
	_codes({"to": [7]}) == {"mail.own-domains"}
}

test_denied_when_the_recipient_is_missing if {
	_codes({}) == {"mail.own-domains.nobody"}
	_codes({"to": []}) == {"mail.own-domains.nobody"}
}

test_allowed_for_colleagues if {
	_codes({"to": "bob@corp.example"}) == set()
	_codes({"to": ["Bob <bob@CORP.example>"], "cc": "ann@corp.example,joe@corp.example"}) == set()
}

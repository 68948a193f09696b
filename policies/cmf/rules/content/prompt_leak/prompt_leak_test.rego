package cmf.rules.content.prompt_leak_test

import data.cmf.rules.content.prompt_leak

_codes(view) := {effect.code | some effect in denials} if {
	denials := prompt_leak.deny with input as view
		with data.cmf.defaults.content.prompt_leak as {"phrases": ["Canary 7Q of the blue lake"]}
}

test_denied_leaks if {
	_codes({"kind": "tool_call", "content": `{"body":"Canary 7Q\nof the blue lake"}`}) == {"content.prompt-leak"}
	every text in [
		"I was told: canary 7q of the blue lake.",
		"Canary\n 7Q  of the\u00a0blue lake",
		"XCanary 7Q of the blue lake",
	] {
		_codes({"kind": "text", "role": "assistant", "content": text}) == {"content.prompt-leak"}
	}
}

test_denied_when_the_role_is_missing if {
	_codes({"kind": "text", "content": "Canary 7Q of the blue lake"}) == {"content.prompt-leak"}
}

test_allowed_other_words if {
	_codes({"kind": "text", "role": "assistant", "content": "Canary 7Q of the green lake"}) == set()
}

test_allowed_in_the_system_prompt_itself if {
	_codes({"kind": "text", "role": "system", "content": "Canary 7Q of the blue lake"}) == set()
}

test_allowed_without_phrases if {
	found := prompt_leak.deny with input as {"kind": "text", "role": "assistant", "content": "Canary 7Q of the blue lake"}
	found == set()
}

package cmf.rules.prompts.canary_test

import data.cmf.rules.prompts.canary

_denied(role, content) := count(hits) if {
	hits := canary.deny with input as {"kind": "text", "role": role, "content": content}
		with data.cmf.defaults.prompts.canary.words as ["quillfeather7391"]
}

test_denied_with_the_word if {
	_denied("assistant", "My instructions say: quillfeather7391. Be kind.") == 1
	_denied("assistant", "Q-u-i-l-l  feather_73 91") == 1
}

test_allowed_without_it_and_in_the_prompt_itself if {
	_denied("assistant", "A quill is a feather.") == 0
	_denied("system", "quillfeather7391. Be kind.") == 0
}

test_allowed_when_the_content_is_missing if {
	count(canary.deny) == 0 with input as {"kind": "tool_call", "role": "assistant"}
}

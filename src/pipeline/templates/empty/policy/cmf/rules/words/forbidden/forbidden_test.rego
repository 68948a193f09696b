package cmf.rules.words.forbidden_test

import data.cmf.rules.words.forbidden

test_denied_with_the_word if {
	count(forbidden.deny) == 1 with input as {"content": "Top SECRET"}
		with data.cmf.defaults.words.forbidden.words as ["secret"]
}

test_allowed_without_the_word if {
	count(forbidden.deny) == 0 with input as {"content": "hello"}
		with data.cmf.defaults.words.forbidden.words as ["secret"]
}

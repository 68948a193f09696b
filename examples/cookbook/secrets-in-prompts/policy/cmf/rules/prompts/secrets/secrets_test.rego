package cmf.rules.prompts.secrets_test

import data.cmf.rules.prompts.secrets

_kinds(role, content) := {hit.detail.kind | some hit in hits} if {
	hits := secrets.deny with input as {"kind": "text", "role": role, "content": content}
		with data.cmf.defaults.prompts.secrets.patterns as {"aws": "AKIA[0-9A-Z]{16}", "pem": "-----BEGIN "}
}

test_denied_with_a_key if {
	_kinds("user", "use AKIAIOSFODNN7EXAMPLE") == {"aws"}
	_kinds("user", "AKIAIOSFODNN7EXAMPLE\n-----BEGIN RSA PRIVATE KEY-----") == {"aws", "pem"}
}

test_allowed_without_one_and_for_others if {
	_kinds("user", "what does AKIA stand for?") == set()
	_kinds("assistant", "an example is AKIAIOSFODNN7EXAMPLE") == set()
}

test_allowed_when_the_content_is_missing if count(secrets.deny) == 0 with input as {"kind": "text", "role": "user"}

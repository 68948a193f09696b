package cmf.rules.region.upstream_test

import data.cmf.rules.region.upstream

_denied(extensions) := count(hits) if {
	hits := upstream.deny with input as {"kind": "request", "extensions": extensions}
		with data.cmf.defaults.region.upstream as {"labels": ["customer"], "upstreams": ["azure-eu"]}
}

_of_customers := {"labels": ["customer"]}

test_denied_outside if _denied({"security": _of_customers, "custom": {"upstream": "openai"}}) == 1

test_denied_when_the_upstream_is_missing if _denied({"security": _of_customers}) == 1

test_denied_when_the_labels_are_missing if _denied({"security": {}, "custom": {"upstream": "openai"}}) == 1

test_allowed_inside if _denied({"security": _of_customers, "custom": {"upstream": "azure-eu"}}) == 0

test_allowed_without_customer_data if {
	_denied({"security": {"labels": ["web"]}, "custom": {"upstream": "openai"}}) == 0
}

package cmf.rules.extraction.json_only_test

import data.cmf.rules.extraction.json_only

_codes(view) := {hit.code | some hit in hits} if {
	hits := json_only.deny with input as object.union(_here, view)
		with data.cmf.defaults.extraction.json_only.environment as "extraction"
}

_here := {"extensions": {"request": {"environment": "extraction"}}}

_answer(content) := {"kind": "text", "hook": "llm_response", "content": content}

test_denied_without_a_schema if _codes({"kind": "request", "properties": {}}) == {"extraction.json-only.schema"}

test_denied_for_prose if {
	_codes(_answer("Here you are: {}")) == {"extraction.json-only.answer"}
	_codes(_answer("")) == {"extraction.json-only.answer"}
}

test_denied_when_the_content_is_missing if {
	_codes({"kind": "text", "hook": "llm_response"}) == {"extraction.json-only.answer"}
}

test_allowed_with_a_schema_and_for_json if {
	_codes({"kind": "request", "properties": {"response_schema": {"type": "object"}}}) == set()
	_codes(_answer(`{"name": "Ann"}`)) == set()
}

test_allowed_elsewhere_and_for_users if {
	_codes({"kind": "text", "hook": "llm_request", "content": "hello"}) == set()
	_codes({"kind": "request", "properties": {}, "extensions": {"request": {"environment": "chat"}}}) == set()
}

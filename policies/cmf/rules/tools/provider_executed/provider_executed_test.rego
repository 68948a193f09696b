package cmf.rules.tools.provider_executed_test

import data.cmf.rules.tools.provider_executed

_view := {
	"kind": "tool_definition",
	"uri": "tool://_/web_search",
	"properties": {"executed_by": "provider"},
	"extensions": {},
}

test_denied_when_not_on_the_list if count(provider_executed.deny) == 1 with input as _view

test_denied_when_the_uri_is_missing if {
	count(provider_executed.deny) == 1 with input as object.remove(_view, ["uri"])
		with data.cmf.defaults.tools.provider_executed.allowed as ["**"]
}

test_denied_when_called_too if {
	count(provider_executed.deny) == 1 with input as object.union(_view, {"kind": "tool_call"})
}

test_denied_when_who_runs_it_is_missing if {
	count(provider_executed.deny) == 1 with input as object.union(object.remove(_view, ["properties"]), {"properties": {}})
}

test_allowed_when_on_the_list if {
	count(provider_executed.deny) == 0 with input as _view
		with data.cmf.defaults.tools.provider_executed.allowed as ["tool://_/web_search"]
}

test_allowed_when_the_client_runs_it if {
	count(provider_executed.deny) == 0 with input as object.union(_view, {"properties": {"executed_by": "client"}})
}

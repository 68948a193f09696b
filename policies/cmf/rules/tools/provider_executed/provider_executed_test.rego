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

_request(fields) := {
	"kind": "request",
	"uri": "llm://_/m",
	"properties": {"extra": {"some_format": fields}},
	"extensions": {},
}

test_denied_when_a_field_has_the_provider_search if {
	count(provider_executed.deny) == 1 with input as _request({"web_search_options": {}})
	count(provider_executed.deny) == 1 with input as _request({"search_parameters": {"mode": "auto"}})
	count(provider_executed.deny) == 1 with input as _request({"plugins": [{"id": "file-parser"}, {"id": "web"}]})
}

test_denied_when_a_field_within_an_object_has_the_provider_search if {
	count(provider_executed.deny) == 1 with input as _request({"some_parameters": {"enable_web_search": "auto"}})
	count(provider_executed.deny) == 1 with input as _request({"web_search": {"enable": true}})
	count(provider_executed.deny) == 1 with input as _request({"web_search": {"enable": null}})
}

test_denied_when_the_name_of_a_model_has_the_provider_search if {
	searching := "llm://openrouter/acme%2Fm%3Aonline"
	count(provider_executed.deny) == 1 with input as object.union(_request({}), {"uri": searching})
	others := {"properties": {"other_models": ["llm://openrouter/acme%2Fm", searching]}}
	count(provider_executed.deny) == 1 with input as object.union(_request({}), others)
}

test_denied_when_another_ending_follows_the_one_that_searches if {
	searching := "llm://openrouter/acme%2Fm%3Aonline%3Anitro"
	count(provider_executed.deny) == 1 with input as object.union(_request({}), {"uri": searching})
}

test_denied_when_the_name_of_a_model_ends_in_a_switch_that_has_the_provider_search if {
	searching := "llm://_/m%3Astrip_thinking_response%3Dtrue%26enable_web_scraping%3Dtrue"
	count(provider_executed.deny) == 1 with input as object.union(_request({}), {"uri": searching})
	bare := "llm://_/m%3Aenable_web_search"
	count(provider_executed.deny) == 1 with input as object.union(_request({}), {"uri": bare})
}

test_denied_when_a_field_has_the_provider_run_code if {
	count(provider_executed.deny) == 1 with input as _request({"enable_code_interpreter": true})
		with data.cmf.defaults.tools.provider_executed.allowed as ["tool://_/web_search"]
}

test_denied_when_a_field_stands_in_the_extra_body if {
	count(provider_executed.deny) == 1 with input as _request({"extra_body": {"plugins": [{"id": "web"}]}})
	count(provider_executed.deny) == 1 with input as _request({"extra_body": {"own": {"enable_x_search": true}}})
	count(provider_executed.deny) == 1 with input as _request({"extra_body": {"mcp_servers": [{"name": "docs"}]}})
}

test_denied_when_a_field_names_servers if {
	count(provider_executed.deny) == 1 with input as _request({"mcp_servers": [{"name": "docs"}]})
	count(provider_executed.deny) == 1 with input as _request({"mcp_servers": [{"url": "https://a.example"}]})
	count(provider_executed.deny) == 1 with input as _request({"mcp_servers": [{"name": "docs/../x"}]})
		with data.cmf.defaults.tools.provider_executed.allowed as ["tool://docs/**"]
}

test_denied_when_the_kind_is_missing if {
	count(provider_executed.deny) == 1 with input as object.remove(_view, ["kind"])
}

test_allowed_when_what_fields_ask_for_is_on_the_list if {
	count(provider_executed.deny) == 0 with input as _request({"mcp_servers": [{"name": "docs"}]})
		with data.cmf.defaults.tools.provider_executed.allowed as ["tool://docs/mcp"]
	count(provider_executed.deny) == 0 with input as _request({"web_search_options": {}})
		with data.cmf.defaults.tools.provider_executed.allowed as ["tool://_/web_search"]
}

test_allowed_when_it_is_switched_off if {
	count(provider_executed.deny) == 0 with input as _request({"search_parameters": {"mode": "off"}})
	count(provider_executed.deny) == 0 with input as _request({"web_search": {"enable": false}})
	count(provider_executed.deny) == 0 with input as _request({"plugins": [{"id": "web", "enabled": false}]})
	count(provider_executed.deny) == 0 with input as _request({"web_search": {"enable": false}, "enable_search": 0})
	count(provider_executed.deny) == 0 with input as _request({"web_search": {"type": "disabled"}})
	count(provider_executed.deny) == 0 with input as _request({"search_parameters": "disabled"})
	count(provider_executed.deny) == 0 with input as _request({"some_parameters": {"enable_web_search": "off"}})
}

test_allowed_when_the_switch_in_the_name_of_a_model_is_off if {
	off := "llm://_/m%3Aenable_web_search%3Doff%26enable_web_scraping%3Dfalse%26enable_web_citations%3Dtrue"
	count(provider_executed.deny) == 0 with input as object.union(_request({}), {"uri": off})
	count(provider_executed.deny) == 0 with input as object.union(_request({}), {"uri": "llm://ollama/llama3%3A8b"})
}

test_allowed_when_no_field_asks_for_a_tool if {
	count(provider_executed.deny) == 0 with input as _request({"web_search_options": null, "search_parameters": false})
	count(provider_executed.deny) == 0 with input as _request({"mcp_servers": [], "plugins": [{"id": "file-parser"}]})
	count(provider_executed.deny) == 0 with input as _request({"enable_code_interpreter": false})
	count(provider_executed.deny) == 0 with input as _request({"extra_body": {"top_k": 5}})
	count(provider_executed.deny) == 0 with input as object.remove(_request({}), ["properties"])
}

package cmf.rules.tools.unknown_wire_type_test

import data.cmf.rules.tools.unknown_wire_type

_view := {"kind": "opaque", "uri": "opaque://openai/computer_call", "content": "{}", "properties": {}, "extensions": {}}

test_denied_when_not_on_the_list if count(unknown_wire_type.deny) == 1 with input as _view

test_denied_when_another_provider_has_it if {
	count(unknown_wire_type.deny) == 1 with input as _view
		with data.cmf.defaults.tools.unknown_wire_type.allowed as ["opaque://anthropic/computer_call"]
}

test_denied_when_the_uri_is_missing if {
	count(unknown_wire_type.deny) == 1 with input as object.remove(_view, ["uri"])
		with data.cmf.defaults.tools.unknown_wire_type.allowed as ["**"]
}

test_allowed_when_on_the_list if {
	count(unknown_wire_type.deny) == 0 with input as _view
		with data.cmf.defaults.tools.unknown_wire_type.allowed as ["opaque://openai/computer_call"]
}

test_allowed_when_it_says_which_model_stepped_in if {
	count(unknown_wire_type.deny) == 0 with input as object.union(_view, {"uri": "opaque://anthropic_messages/fallback"})
}

test_denied_when_another_format_names_its_type_so if {
	count(unknown_wire_type.deny) == 1 with input as object.union(_view, {"uri": "opaque://openai_chat/data-weather"})
}

test_allowed_when_it_is_data_of_the_chats_application if {
	count(unknown_wire_type.deny) == 0 with input as object.union(_view, {"uri": "opaque://aisdk/data-weather"})
}

test_allowed_when_it_is_our_own_empty_message if {
	count(unknown_wire_type.deny) == 0 with input as object.union(_view, {"uri": "opaque://canonical/message"})
}

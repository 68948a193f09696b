package cmf.lib.scan_test

import data.cmf.lib.scan

test_spans_count_code_points_not_bytes if {
	scan.spans("é🎉KEY-KEY", {"KEY"}) == [[2, 5], [6, 9]]
}

test_spans_of_nothing_are_none if {
	scan.spans("text", set()) == []
	scan.spans("text", {"absent"}) == []
}

test_surroundings_hold_every_free_text_and_key if {
	text := scan.surroundings with input as {
		"kind": "tool_call",
		"content": "L0",
		"name": "L1",
		"uri": "L2",
		"mime_type": "L3",
		"arguments": {"L4": {"L5": ["L6"]}},
		"properties": {"extra": {"L7": "L8"}},
		"extensions": {
			"custom": {"L9": "LA"},
			"framework": {"f": "LB"},
			"mcp": {"m": "LC"},
			"meta": {"p": "LD"},
			"http": {"headers": {"x": "LE"}},
		},
	}
	every leaf in ["L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "LA", "LB", "LC", "LD"] {
		contains(text, leaf)
	}
	every hidden in ["L0", "LE"] {
		not contains(text, hidden)
	}
}

test_content_is_empty_where_there_is_none if scan.content == "" with input as {"kind": "image"}

test_what_cannot_be_cut_is_said_so if {
	scan.cuttable with input as {"kind": "text", "properties": {}}
	scan.cuttable with input as {"kind": "resource", "properties": {}}
	not scan.cuttable with input as {"kind": "resource", "properties": {"data": [{"field": "blob"}]}}
	not scan.cuttable with input as {"kind": "tool_call", "properties": {}}
	not scan.cuttable with input as {"properties": {}}
}

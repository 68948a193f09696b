# METADATA
# title: What a session has done
# description: Reads the counters that the pipeline keeps per tool, as `calls:<tool uri>`.
package cmf.lib.calls

# METADATA
# title: Calls so far
# description: |
#   How many calls of tools that match `pattern` the session has made before this message; undefined where the
#   session's counters are not known.
made(pattern) := sum([amount |
	some name, amount in _counters
	startswith(name, "calls:")
	data.cmf.lib.uri_matches(substring(name, 6, -1), pattern)
]) if {
	is_object(_counters)
}

# METADATA
# title: Calls so far, in whatever case
# description: As `made`, of tools whose names differ from the pattern in case alone too.
made_alike(pattern) := sum([amount |
	some name, amount in _counters
	startswith(name, "calls:")
	data.cmf.lib.tool_matches(substring(name, 6, -1), pattern)
]) if {
	is_object(_counters)
}

_counters := input.session.counters

# METADATA
# title: A call that is yet to be made
# description: |
#   True of a call that a model just asked for, or that is about to be run; false of one in the history that a client
#   sends again, which was judged and counted when it was new.
# scope: document
new if not input.hook

new if input.hook != "llm_request"

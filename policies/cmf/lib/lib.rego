# METADATA
# title: URI patterns
# description: |
#   Functions only: a value in a package with packages below it is lost by regorus' interpreter once one of those was
#   asked for [POL-16].
package cmf.lib

# METADATA
# title: URI pattern match
# description: |
#   True if the normalised `uri` matches `pattern` as a whole, segment by segment: `*` is any run of characters in a
#   segment, alone at least one; `**` as a segment is any number of segments, none included. All else is literal, and
#   case counts [POL-20].
# scope: document
uri_matches(uri, pattern) if uri == pattern

uri_matches(uri, pattern) if {
	contains(pattern, "*")
	_has_all_literals(concat("", ["/", uri, "/"]), split(pattern, "*"))
	regex.match(_expression(pattern), concat("", [uri, "/"]))
}

# A cheap look first: most patterns of a list have a literal part that the URI has not.
_has_all_literals(framed, literals) if {
	every literal in literals {
		contains(framed, literal)
	}
}

# METADATA
# title: URI pattern match, any of several
# description: True if `uri` matches at least one of `patterns`.
# scope: document
any_uri_matches(_, patterns) if "**" in patterns

any_uri_matches(uri, patterns) if {
	some pattern in patterns
	uri_matches(uri, pattern)
}

# METADATA
# title: URI patterns, spelled out
# description: |
#   What `any_expression_matches` takes. Of patterns from `data` alone it is made once, when the set is loaded. Eight
#   patterns are one expression, because the size of one has a limit.
# scope: document
expressions(patterns) := {expression |
	some place, _ in patterns
	place % 8 == 0
	spelled := [_expression(pattern) | some pattern in array.slice(patterns, place, place + 8)]
	expression := concat("|", spelled)
}

# METADATA
# title: URI pattern match, any of several that were spelled out
# description: What `any_uri_matches` says, of patterns that `expressions` spelled out.
# scope: document
any_expression_matches(uri, spelled) if {
	some expression in spelled
	regex.match(expression, concat("", [uri, "/"]))
}

# METADATA
# title: Tool pattern match
# description: |
#   As `uri_matches`, in whatever case: for rules that hold a tool to something. `Delete_Table` is what a person, and
#   many a server, takes for `delete_table`. Lists of what is allowed are held to the letter.
# scope: document
tool_matches(uri, pattern) if uri_matches(lower(uri), lower(pattern))

# METADATA
# title: Tool pattern match, any of several
# description: True if `uri` matches at least one of `patterns`, in whatever case.
# scope: document
any_tool_matches(uri, patterns) if any_uri_matches(lower(uri), [lower(pattern) | some pattern in patterns])

# METADATA
# title: Tool patterns, spelled out
# description: What `any_expression_matches` takes, for a URI in lower case.
# scope: document
tool_expressions(patterns) := expressions([lower(pattern) | some pattern in patterns])

# Each segment brings its own slash, so that `**` can stand for none.
_expression(pattern) := concat("", ["^", concat("", [_segment(part) | some part in split(pattern, "/")]), "$"])

_segment(part) := `(?:[^/]*/)*` if {
	part == "**"
} else := "[^/]+/" if {
	regex.match(`^\*+$`, part)
} else := concat("", [replace(literal, "*", "[^/]*"), "/"]) if {
	literal := regex.replace(regex.replace(part, `\*+`, "*"), `[\\.+?()|\[\]{}^$]`, `\${0}`)
}

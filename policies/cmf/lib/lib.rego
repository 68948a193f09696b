# METADATA
# title: Small words that rules share
# description: URI patterns and the labels that apply to a view. Nothing here decides anything.
package cmf.lib

# METADATA
# title: URI pattern match
# description: |
#   True if the normalised `uri` matches `pattern` as a whole, segment by segment: `*` is any run of characters in one
#   segment, `**` as a whole segment any number of segments, none included. All else is literal; case counts [POL-20].
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
any_uri_matches(uri, patterns) if {
	some pattern in patterns
	uri_matches(uri, pattern)
}

# Each segment brings its own slash, so that `**` can stand for none.
_expression(pattern) := concat("", ["^", concat("", [_segment(part) | some part in split(pattern, "/")]), "$"])

_segment(part) := `(?:[^/]*/)*` if {
	part == "**"
} else := concat("", [replace(literal, "*", "[^/]*"), "/"]) if {
	literal := regex.replace(regex.replace(part, `\*+`, "*"), `[\\.+?()|\[\]{}^$]`, `\${0}`)
}

# METADATA
# title: Labels in force
# description: The labels of the message and of its session together; undefined when neither was granted [POL-23].
labels := _message_labels | _session_labels if _labels_known

_labels_known if is_array(input.extensions.security.labels)

_labels_known if is_array(input.session.labels)

_message_labels contains label if some label in input.extensions.security.labels

_session_labels contains label if some label in input.session.labels

# METADATA
# title: Paths stay where they are
# description: |
#   A path that climbs out of where it started is refused: encoded dots and slashes, dots behind a name, and more
#   steps up than the operator allows. Prose with such paths in it is let pass.
# related_resources:
#   - ref: https://owasp.org/www-community/attacks/Path_Traversal
# custom:
#   code: data.path-traversal
#   severity: high
#   kinds: [prompt_request, resource_ref, tool_call]
#   capabilities: []
#   standards: [OWASP-LLM05, OWASP-ASI02, NIST-AC-3, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
#   settings:
#     max_steps_up: {type: integer, minimum: 0, maximum: 16}
package cmf.rules.data.path_traversal

import data.cmf.lib.scan

deny contains {
	"code": "data.path-traversal.encoded",
	"reason": "This asks for a path that hides where it leads.",
} if {
	_suspicious
	some text in scan.readings
	contains(text, "%")
	regex.match(_encoded, text)
}

deny contains {
	"code": "data.path-traversal.encoded",
	"reason": "This asks for a path that hides where it leads.",
} if {
	_suspicious
	contains(scan.content, "\\u0000")
	regex.match(`[/\\.][^"\x00-\x20]*[^"\\\x00-\x20]\\u0000`, scan.content)
}

deny contains {
	"code": "data.path-traversal.encoded",
	"reason": "This asks for a path that hides where it leads.",
} if {
	_suspicious
	scan.wide
	regex.match(_wide, scan.content)
}

deny contains {
	"code": "data.path-traversal",
	"reason": "This asks for a path that leads out of its folder.",
} if {
	_suspicious
	some text in scan.readings
	contains(text, "..")
	regex.match(_climbing, _quoted(text))
}

# As clients read it: without tabs, with escapes, and with slashes of either kind.
deny contains {
	"code": "data.path-traversal",
	"reason": "This asks for a path that leads out of its folder.",
} if {
	some found in input.addresses
	found.climbs
}

# A look that most calls end with.
_suspicious if regex.match(`%|\\u0000|\.\.|[^\x00-\x7f]`, scan.content)

# A reference by itself is a value by itself: it gets the quotes that it would have among arguments.
_quoted(text) := concat("", [`"`, text, `"`]) if {
	input.kind == "resource_ref"
} else := text

_dot := `(?:\.|%(?:25)*2[eE])`

_slash := `(?:[/\\]|%(?:25)*(?:2[fF]|5[cC]))`

# Two dots and a slash, of which at least one is written as an escape; and spellings that only lenient decoders read.
_encoded := concat("|", [
	concat("", [`%(?:25)*2[eE]`, _dot, _slash]),
	concat("", [`\.%(?:25)*2[eE]`, _slash]),
	`\.\.%(?:25)*(?:2[fF]|5[cC])`,
	`\.\.%(?:25)*(?:[eE][fF]%(?:25)*[bB][cC]%(?:25)*(?:8[fF]|[bB][cC])|[eE]2%(?:25)*88%(?:25)*95)`,
	`/[^"'\x00-\x20]*[0-9A-Za-z]%(?:25)*00(?:[./"]|$)`,
	`%[cC]0%(?:[aA][eEfF]|2[eEfF])|%[eE]0%80%[aA][eEfF]|%[uU]00(?:2[eEfF]|5[cC])|%[uU]221[56]|%[cC]1%9[cC]`,
])

# Slashes and dots of other scripts, which some systems fold into plain ones.
_wide := concat("", [
	`\.\.[\x{2044}\x{2215}\x{29F8}\x{FF0F}\x{FF3C}]`,
	`|[\x{2024}\x{FF0E}]{2}[/\\\x{2044}\x{2215}\x{29F8}\x{FF0F}\x{FF3C}]`,
])

_separator := `(?:/|\\\\)`

# Within one value without spaces: up behind a name, or up too often. A quote within a text, as in code that imports
# something, begins no value, unless it follows a colon as in JSON. Dots that are left when others are taken out count,
# and so do parameters behind the dots, which some servers drop.
_climbing := concat("", [
	`(?:(?:^|[^\\])"|:[ ]?\\+")`, _rest, `(?:[^./\\"\x00-\x20]`, _separator, `+\.\.(?:`, _separator, _rest, `)?`,
	`|\.\.\.\.`, _separator, `{2}`, _rest, `|\.\.;[^"/\x00-\x20]*/`, _rest,
	`|(?:\.\.`, _separator, `+){`, format_int(_settings.max_steps_up + 1, 10), `,}`, _rest, `)"`,
])

_rest := `[^"\x00-\x20]*`

_settings := data.cmf.defaults.data.path_traversal

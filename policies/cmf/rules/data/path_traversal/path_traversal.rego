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
package cmf.rules.data.path_traversal

import data.cmf.lib.scan

deny contains {
	"code": "data.path-traversal.encoded",
	"reason": "This asks for a path that hides where it leads.",
} if {
	contains(scan.content, "%")
	regex.match(_encoded, scan.content)
}

deny contains {
	"code": "data.path-traversal",
	"reason": "This asks for a path that leads out of its folder.",
} if {
	contains(scan.content, "..")
	regex.match(_climbing, _text)
}

# A reference by itself is a value by itself: it gets the quotes that it would have among arguments.
_text := concat("", [`"`, scan.content, `"`]) if {
	input.kind == "resource_ref"
} else := scan.content

_dot := `(?:\.|%(?:25)*2[eE])`

_slash := `(?:[/\\]|%(?:25)*(?:2[fF]|5[cC]))`

# Two dots and a slash, of which at least one is written as an escape; and spellings that only lenient decoders read.
_encoded := concat("|", [
	concat("", [`%(?:25)*2[eE]`, _dot, _slash]),
	concat("", [`\.%(?:25)*2[eE]`, _slash]),
	`\.\.%(?:25)*(?:2[fF]|5[cC])`,
	`%[cC]0%(?:[aA][eEfF]|2[eEfF])|%[eE]0%80%[aA][eEfF]|%[uU]00(?:2[eEfF]|5[cC])|%[uU]221[56]|%[cC]1%9[cC]`,
])

_separator := `(?:/|\\\\)`

# Within one value without spaces: up behind a name, or up too often.
_climbing := concat("", [
	`"[^"\x00-\x20]*(?:[^./\\"\x00-\x20]`, _separator, `+\.\.`, _separator,
	`|(?:\.\.`, _separator, `+){`, format_int(_settings.max_steps_up + 1, 10), `,})[^"\x00-\x20]*"`,
])

_settings := data.cmf.defaults.data.path_traversal

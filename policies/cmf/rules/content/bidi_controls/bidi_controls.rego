# METADATA
# title: Text reads in the order in which it is written
# description: |
#   Marks that turn the direction of writing make a reader see other words than the machine reads. They are refused in
#   names and addresses, and right-to-left ones in content without a right-to-left letter before them or in the 64
#   characters behind. Isolates around names, and text in scripts that need marks, stay. Overrides are refused
#   everywhere by content/invisible_unicode.
# related_resources:
#   - ref: https://trojansource.codes/
# custom:
#   code: content.bidi-controls
#   severity: high
#   kinds: [
#     opaque, prompt_request, prompt_result, resource, resource_ref, text, tool_call, tool_definition, tool_result,
#   ]
#   capabilities: []
#   standards: [OWASP-LLM01, OWASP-ASI09, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
#   stream: {max_match: 65}
package cmf.rules.content.bidi_controls

import data.cmf.lib.scan

deny contains {
	"code": "content.bidi-controls",
	"reason": "This part contains marks that change the order in which people read it.",
} if {
	scan.wide
	regex.match(_turning, scan.content)
	before := regex.split(_turning, scan.content)[0]
	not regex.match(_right_to_left, substring(scan.content, 0, count(before) + 65))
}

deny contains {
	"code": "content.bidi-controls.name",
	"reason": "A name or an address contains marks that change the order in which people read it.",
} if {
	scan.wide
	some text in _names
	regex.match(`[\x{061C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2066}-\x{2069}]`, text)
}

_names contains input.name

_names contains input.uri

_names contains input.mime_type

_names contains input.properties.raw_uri

_names contains input.properties.namespace

_turning := `[\x{202B}\x{2067}]`

# Hebrew, Arabic, Syriac, Thaana, NKo and their kin, their presentation forms, and the ancient scripts.
_right_to_left := `[\x{0590}-\x{08FF}\x{FB1D}-\x{FDFF}\x{FE70}-\x{FEFC}\x{10800}-\x{10FFF}\x{1E800}-\x{1EFFF}]`

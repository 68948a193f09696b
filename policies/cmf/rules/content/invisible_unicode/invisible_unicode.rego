# METADATA
# title: No text that only a machine reads
# description: |
#   Characters that people do not see carry instructions past them: tag characters outside the three flags that use
#   them, bytes spelled in variation selectors, long runs of zero-width characters, and overrides of the writing
#   direction. Emoji, flags, joiners of real scripts and isolates of right-to-left text stay.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: content.invisible-unicode
#   severity: high
#   kinds: [
#     audio, document, image, opaque, prompt_request, prompt_result, request, resource, resource_ref, response, text,
#     thinking, tool_call, tool_definition, tool_result, video,
#   ]
#   capabilities: []
#   standards: [OWASP-LLM01, OWASP-ASI01, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
#   stream: {max_match: 64}
#   settings:
#     zero_width_run: {type: integer, minimum: 2, maximum: 1000}
package cmf.rules.content.invisible_unicode

import data.cmf.lib.scan

deny contains {
	"code": concat(".", ["content.invisible-unicode", name]),
	"reason": "This part contains characters that people cannot see.",
} if {
	scan.wide
	regex.match(_suspects, scan.everything)
	text := regex.replace(scan.everything, _flags, "")
	some name, expression in _hidden
	regex.match(expression, text)
}

_suspects := concat("", [
	`[\x{AD}\x{34F}\x{115F}\x{1160}\x{17B4}\x{17B5}\x{180B}-\x{180F}\x{200B}-\x{200D}\x{202D}\x{202E}`,
	`\x{2060}-\x{2064}\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}\x{FFA0}\x{FFF9}-\x{FFFB}\x{1D173}-\x{1D17A}\x{E0000}-\x{E01EF}]`,
])

# England, Scotland and Wales: black flag, "gb", three letters, end mark.
_flags := concat("", [
	`\x{1F3F4}\x{E0067}\x{E0062}(?:\x{E0065}\x{E006E}\x{E0067}|`,
	`\x{E0073}\x{E0063}\x{E0074}|\x{E0077}\x{E006C}\x{E0073})\x{E007F}`,
])

_hidden := {
	"direction": `[\x{202D}\x{202E}]`,
	"tags": `[\x{E0000}-\x{E007F}]`,
	"variation": concat("", [_two_selectors, "|", _selector_of_no_ideograph]),
	"zero-width": concat("", [`(?:`, _unseen, `[ -~]{0,2}){`, _run, `,}`]),
}

# One selector after a character chooses its look; two in a row, or one of the supplement elsewhere, only carry bytes.
_two_selectors := `[\x{FE00}-\x{FE0F}\x{E0100}-\x{E01EF}]{2}`

_selector_of_no_ideograph := concat("", [
	`(?:^|[^\x{2E80}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{3FFFF}])`,
	`[\x{E0100}-\x{E01EF}]`,
])

# Signs without a shape, also one by one between the letters of a text: fillers, soft hyphens, marks of music and notes.
_unseen := concat("", [
	`[\x{AD}\x{34F}\x{115F}\x{1160}\x{17B4}\x{17B5}\x{180B}-\x{180F}\x{200B}-\x{200D}`,
	`\x{2060}-\x{2064}\x{3164}\x{FEFF}\x{FFA0}\x{FFF9}-\x{FFFB}\x{1D173}-\x{1D17A}]`,
])

_run := format_int(data.cmf.defaults.content.invisible_unicode.zero_width_run, 10)

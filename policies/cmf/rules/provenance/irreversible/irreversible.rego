# METADATA
# title: What cannot be undone is asked for in so many words
# description: |
#   A call that cannot be undone, once something that others can have written was read, needs a person's word
#   unless the user asked for it in the words that the tool's profile lists; with `unless_asked` false it always
#   does.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: provenance.irreversible
#   severity: high
#   kinds: [tool_call]
#   standards: [OWASP-LLM01, OWASP-LLM06, OWASP-ASI01, OWASP-ASI02]
#   settings:
#     unless_asked: {type: boolean}
package cmf.rules.provenance.irreversible

import data.cmf.lib.origins

require_approval contains {
	"code": "provenance.irreversible",
	"reason": "This cannot be undone, and the conversation holds text that others wrote.",
} if {
	origins.acts_after_untrusted
	not origins.inferred("irreversible")
	origins.call.irreversible
	not _excused
}

_settings := data.cmf.defaults.provenance.irreversible

_excused if {
	_settings.unless_asked
	some source in origins.call.sources
	source.match == "asked"
}

# METADATA
# title: The user asked for it
# description: |
#   A call that acts is to be one that the user asked for, in the words that the tool's profile lists, or by
#   handing over to a text. Once something that others can have written was read, a person is asked about others.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: provenance.not-asked
#   severity: high
#   kinds: [tool_call]
#   standards: [OWASP-LLM01, OWASP-LLM06, OWASP-ASI01, OWASP-ASI02]
#   settings:
#     effect: {enum: [require_approval, deny]}
#     matches: {type: array, items: {enum: [asked, delegated]}}
package cmf.rules.provenance.asked_for

import data.cmf.lib.origins

require_approval contains _hit if _settings.effect == "require_approval"

deny contains _hit if _settings.effect == "deny"

_settings := data.cmf.defaults.provenance.asked_for

_hit := {
	"code": "provenance.not-asked",
	"reason": "The user did not ask for this.",
} if {
	origins.acts_after_untrusted
	not origins.inferred("asked_for")
	origins.call.askable
	count(_asking) == 0
}

_asking contains source.message if {
	some source in origins.call.sources
	source.match in _settings.matches
}

# METADATA
# title: Addresses of strangers are not passed on
# description: |
#   A link, mail address or account number in a text that goes out, which stands in something that others can have
#   written and in nothing that is trusted, may be theirs to be followed: a person is asked.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: provenance.content-relay
#   severity: high
#   kinds: [tool_call]
#   standards: [OWASP-LLM01, OWASP-LLM05, OWASP-ASI01, OWASP-ASI09]
#   settings:
#     effect: {enum: [require_approval, deny]}
package cmf.rules.provenance.content_relay

import data.cmf.lib.origins

require_approval contains _hit if _settings.effect == "require_approval"

deny contains _hit if _settings.effect == "deny"

_settings := data.cmf.defaults.provenance.content_relay

_hit := {
	"code": "provenance.content-relay",
	"reason": "This text passes on an address that only others wrote.",
	"detail": {"arguments": _relayed},
} if {
	count(_relayed) > 0
	origins.acts_after_untrusted
	not origins.inferred("content")
}

_relayed contains origins.argument(entry) if {
	some entry in input.origins
	entry.type == "address"
	origins.said_by_others(entry)
	not origins.trusted(entry)
}

# METADATA
# title: Control arguments come from someone trusted
# description: |
#   Recipients, accounts, ids and addresses of a call that acts are to stand in the user's words, the system's, or
#   a field that the tool's profile trusts: as a whole, or each piece of a list. Once something that others can have
#   written was read, a person is asked about others, and about what the user did not say and others name.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: provenance.control-origin
#   severity: high
#   kinds: [tool_call]
#   standards: [OWASP-LLM01, OWASP-LLM06, OWASP-ASI01, OWASP-ASI02, NIST-AC-4]
#   settings:
#     effect: {enum: [require_approval, deny]}
package cmf.rules.provenance.control_origin

import data.cmf.lib.origins

require_approval contains hit if {
	_settings.effect == "require_approval"
	some hit in _hits
}

deny contains hit if {
	_settings.effect == "deny"
	some hit in _hits
}

_settings := data.cmf.defaults.provenance.control_origin

_hits contains {
	"code": "provenance.control-origin",
	"reason": "Where this call goes or what it acts on was not said by anyone trusted.",
	"detail": {"arguments": _strange},
	"binds": _strange,
} if {
	count(_strange) > 0
	origins.acts_after_untrusted
	not origins.inferred("control")
}

_hits contains {
	"code": "provenance.control-origin.named",
	"reason": "Others wrote what this call should act on, and the user did not say so.",
	"detail": {"arguments": _named},
	"binds": _named,
} if {
	count(_named) > 0
	origins.acts_after_untrusted
	not origins.inferred("control")
}

_strange contains origins.argument(entry) if {
	some entry in input.origins
	entry.use == "control"
	entry.type in {"string", "number", "key", "raw"}
	not origins.trusted(entry)
	not origins.pieced(entry)
	not _own_word(entry)
}

# Known to the service, but it is others who name it; unless the user handed over to what they wrote.
_named contains origins.argument(entry) if {
	not origins.handed_over
	some entry in input.origins
	entry.named
}

# The name of a field that the tool has and nobody wrote; one that others wrote may name whom they favour.
_own_word(entry) if {
	entry.type == "key"
	not origins.said_by_others(entry)
	regex.match(`/[A-Za-z_][A-Za-z0-9_]{0,39}$`, entry.path)
}

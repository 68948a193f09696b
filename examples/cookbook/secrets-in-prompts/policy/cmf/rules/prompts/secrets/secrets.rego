# METADATA
# title: No secrets in prompts
# description: A user's text that holds something of the shape of a credential is refused.
# custom:
#   code: prompts.secrets
#   severity: critical
#   kinds: [text]
package cmf.rules.prompts.secrets

deny contains {
	"code": "prompts.secrets",
	"reason": "Your message holds a credential. Take it out, and change it where it is used.",
	"detail": {"kind": kind},
} if {
	input.role == "user"
	some kind, pattern in data.cmf.defaults.prompts.secrets.patterns
	regex.match(pattern, input.content)
}

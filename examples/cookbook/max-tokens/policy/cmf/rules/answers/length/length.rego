# METADATA
# title: A bound on the answer
# description: A request says how many tokens the answer may have, and that is not above the bound for its model.
# custom:
#   code: answers.length
#   severity: warn
#   kinds: [request]
package cmf.rules.answers.length

deny contains {
	"code": "answers.length",
	"reason": "Say how long the answer may be, within the bound.",
	"detail": {"at_most": _at_most},
} if {
	not _within
}

_within if {
	asked := input.properties.sampling.max_output_tokens
	is_number(asked)
	asked <= _at_most
}

_at_most := object.get(_settings.by_model, object.get(input, "uri", ""), _settings.at_most)

_settings := data.cmf.defaults.answers.length

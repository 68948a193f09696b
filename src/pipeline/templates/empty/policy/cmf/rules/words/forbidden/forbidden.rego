# METADATA
# title: Forbidden words
# description: Texts that hold a forbidden word are refused. A rule to begin with; replace it by your own.
# custom:
#   code: words.forbidden
#   severity: high
#   kinds: [text]
package cmf.rules.words.forbidden

deny contains {
	"code": "words.forbidden",
	"reason": "This text holds a word that is not allowed here.",
} if {
	some word in data.cmf.defaults.words.forbidden.words
	contains(lower(input.content), word)
}

# METADATA
# title: A canary in the system prompt
# description: What a model says or calls and what holds a word of the system prompt is refused.
# custom:
#   code: prompts.canary
#   severity: high
#   kinds: [text, tool_call]
package cmf.rules.prompts.canary

deny contains {
	"code": "prompts.canary",
	"reason": "The answer holds a part of its instructions.",
} if {
	input.role == "assistant"
	letters := regex.replace(lower(input.content), `[^a-z0-9]`, "")
	some word in data.cmf.defaults.prompts.canary.words
	contains(letters, word)
}

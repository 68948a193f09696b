# METADATA
# title: The system prompt stays inside
# description: |
#   An assistant's words, or a call, that hold one of the operator's canary phrases are refused: the phrase stands in
#   the system prompt and nowhere else. Case, and the kind of blank space between words, do not matter.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm072025-system-prompt-leakage/
# custom:
#   code: content.prompt-leak
#   severity: high
#   kinds: [text, thinking, tool_call]
#   capabilities: []
#   standards: [OWASP-LLM07, OWASP-LLM02, NIST-AC-4, NIST-SC-28, NIST-AI-RMF-MEASURE-2.7]
#   stream: {max_match: 1024, where: data.cmf.defaults.content.prompt_leak.phrases}
#   settings:
#     phrases: {type: array, items: {type: string, format: text}}
package cmf.rules.content.prompt_leak

import data.cmf.lib.scan

deny contains {
	"code": "content.prompt-leak",
	"reason": "This would give away what the assistant was told in private.",
} if {
	count(_settings.phrases) > 0
	_outgoing
	some phrase in _settings.phrases
	some text in scan.readings
	contains(_words(text), _words(phrase))
}

_outgoing if input.kind == "tool_call"

_outgoing if input.role == "assistant"

_outgoing if not input.role

_words(text) := lower(regex.replace(text, `(?:[\x00-\x20\x{A0}\x{2000}-\x{200A}\x{202F}\x{3000}]|\\[nrt])+`, " "))

_settings := data.cmf.defaults.content.prompt_leak

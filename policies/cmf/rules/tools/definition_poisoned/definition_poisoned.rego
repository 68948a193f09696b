# METADATA
# title: Tool definitions do not give orders
# description: |
#   A definition that speaks to the model behind the user's back is refused: that something be hidden from the user,
#   that earlier instructions be dropped, that keys be read, in tags that look like the system's own, or behind a
#   screen of blank space. One that says what to do when another tool is called is named in the record.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: tools.definition-poisoned
#   severity: critical
#   kinds: [tool_definition]
#   capabilities: []
#   standards: [OWASP-LLM01, OWASP-LLM03, OWASP-ASI01, OWASP-ASI04, NIST-SI-10, NIST-AI-RMF-MANAGE-3.1]
package cmf.rules.tools.definition_poisoned

import data.cmf.lib.scan

deny contains {
	"code": "tools.definition-poisoned",
	"reason": "The description of this tool gives the model orders.",
	"detail": {"pattern": name},
} if {
	some name, pattern in _settings.patterns
	regex.match(pattern, scan.everything)
}

warn contains {
	"code": "tools.definition-poisoned.other-tools",
	"reason": "The description of this tool says how other tools are to be used.",
} if {
	some pattern in _settings.other_tools
	regex.match(pattern, scan.everything)
}

_settings := data.cmf.defaults.tools.definition_poisoned

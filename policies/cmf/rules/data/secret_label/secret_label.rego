# METADATA
# title: Label what holds secrets or personal data
# description: |
#   A text or a result with a credential or checked personal data in it puts a label on its message and session, so that
#   later calls can be judged by it.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm022025-sensitive-information-disclosure/
# custom:
#   code: data.secret-label
#   severity: warn
#   kinds: [document, opaque, prompt_result, resource, text, tool_result]
#   capabilities: []
#   standards: [OWASP-LLM02, OWASP-ASI06, NIST-AC-4, NIST-AC-16, NIST-AI-RMF-MEASURE-2.10]
#   stream:
#     - {max_word: 8192, opened_by: ["-----BEGIN", "SSWS"]}
#     - {max_match: 2048, where: data.cmf.defaults.data.secrets.extra_patterns}
#     - {max_match: 48}
#   settings:
#     secret: {type: string, format: text}
#     pii: {type: string, format: text}
package cmf.rules.data.secret_label

import data.cmf.lib.pii
import data.cmf.lib.secrets

label contains {
	"code": "data.secret-label",
	"reason": "This part contains a credential.",
	"label": _labels.secret,
} if {
	secrets.worth_a_look
	count(((secrets.in_content | secrets.disguised) | secrets.in_surroundings)) > 0
}

label contains {
	"code": "data.secret-label.pii",
	"reason": "This part contains personal data.",
	"label": _labels.pii,
} if {
	count(pii.in_content | pii.disguised) > 0
}

_labels := data.cmf.defaults.data.secret_label

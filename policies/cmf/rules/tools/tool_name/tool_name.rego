# METADATA
# title: Names of tools can be read
# description: |
#   A definition, a call, a tool choice or a tool that one allows, whose name or namespace has characters that a person
#   cannot see, or cannot tell from others, is refused: rules and people go by names. Letters, digits and `_ - . : /`
#   are fine, up to 128.
# related_resources:
#   - ref: https://www.unicode.org/reports/tr39/
# custom:
#   code: tools.tool-name
#   severity: high
#   kinds: [request, tool_call, tool_definition]
#   capabilities: []
#   standards: [OWASP-LLM06, OWASP-ASI02, OWASP-ASI04, NIST-SI-10, NIST-CM-7, NIST-AI-RMF-MANAGE-3.1]
#   settings:
#     patterns: {type: array, items: {type: string, format: expression}}
package cmf.rules.tools.tool_name

deny contains {
	"code": "tools.tool-name",
	"reason": "The name of this tool has characters that people cannot tell from others, or is too long.",
} if {
	input.kind != "request"
	not _named
}

deny contains {
	"code": "tools.tool-name.namespace",
	"reason": "The server of this tool has a name with characters that people cannot tell from others, or one too long.",
} if {
	input.kind != "request"
	namespace := input.properties.namespace
	not _legible(namespace)
}

deny contains {
	"code": "tools.tool-name.choice",
	"reason": "This asks for a tool whose name has characters that people cannot tell from others, or is too long.",
} if {
	some name in _chosen
	not _legible(name)
}

_chosen contains input.properties.tool_choice.name

_chosen contains name if some name in input.properties.tool_choice.allowed

_named if _legible(input.name)

_legible(name) if {
	some pattern in data.cmf.defaults.tools.tool_name.patterns
	regex.match(pattern, name)
}

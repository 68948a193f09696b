# METADATA
# title: Tool definitions are those that were reviewed
# description: |
#   A tool whose definition (description, input schema, who runs it, annotations and all else that it says of itself)
#   is not the one on record is refused, and so, where the operator wants it, is a tool that is not on record: a
#   definition that changes after somebody trusted it is how a tool turns. `cmf pins` prints the pins of a file.
# related_resources:
#   - ref: https://nvd.nist.gov/vuln/detail/CVE-2025-54136
# custom:
#   code: tools.definition-pinned
#   severity: critical
#   kinds: [tool_definition]
#   capabilities: []
#   standards: [OWASP-LLM03, OWASP-ASI04, NIST-CM-3, NIST-SI-7, NIST-AI-RMF-GOVERN-6.1, NIST-AI-RMF-MANAGE-3.1]
#   settings:
#     pins:
#       type: object
#       propertyNames: {format: uri}
#       additionalProperties:
#         type: object
#         minProperties: 1
#         properties:
#           description: {type: string}
#           input_schema: {type: [object, boolean]}
#           type: {type: string}
#           side_effects: {type: string}
#           executed_by: {type: string}
#           extra: {type: object}
#         additionalProperties: false
#     must_be_pinned: {type: array, items: {type: string, format: uri-pattern}}
package cmf.rules.tools.definition_pinned

import data.cmf.lib

deny contains {
	"code": "tools.definition-pinned",
	"reason": "This tool is not the one that was reviewed.",
} if {
	pinned := _settings.pins[input.uri]
	_shown != {[field, value] | some field, value in pinned}
}

deny contains {
	"code": "tools.definition-pinned.unknown",
	"reason": "Nobody reviewed this tool.",
} if {
	_must_be_pinned
	not _settings.pins[input.uri]
}

# A definition without a name of its own cannot be looked up.
deny contains {
	"code": "tools.definition-pinned.unknown",
	"reason": "Nobody reviewed this tool.",
} if {
	not input.uri
	count(_settings.pins) + count(_settings.must_be_pinned) > 0
}

# What differs from a pinned name in case alone passes for it.
_must_be_pinned if lower(input.uri) in {lower(uri) | some uri, _ in _settings.pins}

_must_be_pinned if lib.any_tool_matches(input.uri, _settings.must_be_pinned)

_shown contains ["description", input.content]

_shown contains ["input_schema", input.properties.input_schema]

_shown contains ["type", input.properties.type]

_shown contains ["side_effects", input.properties.side_effects]

_shown contains ["extra", input.properties.extra]

_shown contains ["executed_by", input.properties.executed_by] if input.properties.executed_by != "client"

_settings := data.cmf.defaults.tools.definition_pinned

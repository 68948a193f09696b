# METADATA
# title: Answers in JSON
# description: Requests of the extraction service bring a schema, and what the model says to them is JSON.
# custom:
#   code: extraction.json-only
#   severity: warn
#   kinds: [request, text]
package cmf.rules.extraction.json_only

deny contains {
	"code": "extraction.json-only.schema",
	"reason": "Ask with a schema for the answer.",
} if {
	_held
	input.kind == "request"
	not input.properties.response_schema
}

deny contains {
	"code": "extraction.json-only.answer",
	"reason": "The model's answer is not JSON.",
} if {
	_held
	input.kind == "text"
	input.hook == "llm_response"
	not _is_json
}

_is_json if json.is_valid(input.content)

_held if input.extensions.request.environment == data.cmf.defaults.extraction.json_only.environment

# METADATA
# title: An off switch
# description: Models and tools that are on the list are not asked.
# custom:
#   code: off.switch
#   severity: high
#   kinds: [request, tool_call]
package cmf.rules.off.switch

deny contains {
	"code": "off.switch",
	"reason": "This is switched off at the moment.",
} if {
	count(_off) > 0
	not _of_the_past
	not _on
}

_of_the_past if {
	input.kind == "tool_call"
	input.hook == "llm_request"
}

# Undefined without a URI, and then nothing is on.
_on if {
	asked := input.uri
	every uri in array.concat([asked], object.get(input.properties, "other_models", [])) {
		every pattern in _off {
			not glob.match(pattern, ["/"], uri)
		}
	}
}

_off := data.cmf.defaults.off.switch.off

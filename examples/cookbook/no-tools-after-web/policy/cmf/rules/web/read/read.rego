# METADATA
# title: Something from the web was read
# description: Results of browsing tools, and results of no known tool, are labelled.
# custom:
#   code: web.read
#   severity: info
#   kinds: [tool_result]
package cmf.rules.web.read

label contains {
	"code": "web.read",
	"reason": "The model has read what anybody can have written.",
	"label": "web",
} if {
	not _from_elsewhere
}

_from_elsewhere if {
	tool := input.name
	not tool in data.cmf.defaults.web.reading
}

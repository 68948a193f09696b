# METADATA
# title: No acting after the web
# description: While the label `web` is in force, or labels are not known, only harmless tools are called.
# custom:
#   code: web.no-acting
#   severity: high
#   kinds: [tool_call]
#   capabilities: [read_labels]
package cmf.rules.web.no_acting

deny contains {
	"code": "web.no-acting",
	"reason": "This conversation has read web pages: it may look things up, not change them.",
} if {
	input.hook != "llm_request" # what is in the history was judged when it was new
	not _harmless
	not _clean
}

_harmless if input.uri in data.cmf.defaults.web.harmless

# Those of the message, of all before it and of its session.
_clean if {
	labels := input.extensions.security.labels
	not "web" in labels
}

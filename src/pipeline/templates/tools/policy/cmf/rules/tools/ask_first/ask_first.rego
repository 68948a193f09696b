# METADATA
# title: A person is asked first
# description: Calls of tools whose name begins like something that cannot be undone wait for a person's word.
# custom:
#   code: tools.ask-first
#   severity: warn
#   kinds: [tool_call]
package cmf.rules.tools.ask_first

require_approval contains {
	"code": "tools.ask-first",
	"reason": "A person has to approve this first.",
} if {
	some beginning in data.cmf.defaults.tools.ask_first.beginnings
	startswith(input.name, beginning)
}

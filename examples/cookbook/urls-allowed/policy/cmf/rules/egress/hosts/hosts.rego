# METADATA
# title: Only listed hosts
# description: A fetching tool is given a plain https URL of a host that is listed.
# custom:
#   code: egress.hosts
#   severity: high
#   kinds: [tool_call]
package cmf.rules.egress.hosts

deny contains {
	"code": "egress.hosts",
	"reason": "This address may not be asked.",
} if {
	input.uri in _settings.tools
	not _listed
}

_listed if {
	url := input.arguments[_settings.argument]
	some groups in regex.find_all_string_submatch_n(`^https://([a-z0-9.-]+)(?::443)?(?:[/?#][!-~]*)?$`, url, -1)
	some pattern in _settings.hosts
	_matches(groups[1], pattern)
}

_matches(host, pattern) if host == pattern

_matches(host, pattern) if {
	startswith(pattern, "*.")
	endswith(host, substring(pattern, 1, -1))
}

_settings := data.cmf.defaults.egress.hosts

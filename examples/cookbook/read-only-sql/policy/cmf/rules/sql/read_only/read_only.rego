# METADATA
# title: No SQL writes
# description: What a query tool is given is one statement that reads.
# custom:
#   code: sql.read-only
#   severity: high
#   kinds: [tool_call]
package cmf.rules.sql.read_only

deny contains {
	"code": "sql.read-only",
	"reason": "This query does more than read.",
} if {
	input.uri in _settings.tools
	not _reads
}

_reads if {
	sql := lower(input.arguments[_settings.argument])
	bare := trim_right(regex.replace(sql, `'[^'\\]*'`, "''"), "; \n")
	regex.match(`^[ \t\r\n]*select[^a-z0-9_]`, bare)
	not regex.match(`;|--|/\*|#|\\`, bare)
	words := {word | some word in regex.split(`[^a-z0-9_]+`, bare)}
	count(words & {word | some word in _settings.writing}) == 0
}

_settings := data.cmf.defaults.sql.read_only

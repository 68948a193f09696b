# METADATA
# title: Reading tools do not write SQL
# description: |
#   A call of a tool that only reads a database is refused when its SQL does anything but read: another first word, a
#   write inside, several statements, comments, or quotes that databases read differently.
# related_resources:
#   - ref: https://owasp.org/www-community/attacks/SQL_Injection
# custom:
#   code: data.sql-write
#   severity: high
#   kinds: [tool_call]
#   capabilities: []
#   standards: [OWASP-LLM05, OWASP-LLM06, OWASP-ASI02, NIST-AC-6, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
#   settings:
#     reading_tools: {type: array, items: {type: string, format: uri-pattern}}
#     arguments: {type: array, minItems: 1, items: {type: string, format: name}}
package cmf.rules.data.sql_write

import data.cmf.lib

deny contains {
	"code": "data.sql-write",
	"reason": "This tool may read the database, and this would change it.",
} if {
	_reads_only
	some text in _bare
	_writes(text)
}

deny contains {
	"code": "data.sql-write.several",
	"reason": "This tool takes one SQL statement at a time.",
} if {
	_reads_only
	some text in _bare
	regex.match(`;[ \t\r\n\f;]*[^ \t\r\n\f;]`, text)
}

deny contains {
	"code": "data.sql-write.comment",
	"reason": "SQL for this tool has no comments.",
} if {
	_reads_only
	some text in _bare
	regex.match(`--|/\*|\*/`, text)
}

deny contains {
	"code": "data.sql-write.unreadable",
	"reason": "Databases do not agree on how to read this SQL.",
} if {
	_reads_only
	some text in _texts
	regex.match(`\\['"\x60\\]|\$[0-9A-Za-z_]*\$`, text)
}

deny contains {
	"code": "data.sql-write.unreadable",
	"reason": "Databases do not agree on how to read this SQL.",
} if {
	_reads_only
	some text in _bare
	regex.match(`['"\x60]`, text)
}

# Signs that one database takes for white space and another for a part of a name.
deny contains {
	"code": "data.sql-write.unreadable",
	"reason": "Databases do not agree on how to read this SQL.",
} if {
	_reads_only
	some text in _bare
	regex.match(`[\x00-\x08\x0b\x0e-\x1f\x7f\x{A0}\x{2000}-\x{200F}\x{2028}-\x{202F}\x{3000}\x{FEFF}]`, text)
}

deny contains {
	"code": "data.sql-write.function",
	"reason": "This SQL calls a function that does more than read the database.",
} if {
	_reads_only
	some text in _bare
	regex.match(_acting, text)
}

_texts contains text if {
	some text in _values
	is_string(text)
}

# A list of statements, or a statement with what belongs to it.
_texts contains text if {
	some value in _values
	_several(value)
	some text in value
	is_string(text)
}

_several(value) if is_array(value)

_several(value) if is_object(value)

_values contains value if {
	some name, value in input.arguments
	lower(name) in _settings.arguments
}

_reads_only if lib.any_expression_matches(lower(input.uri), _reading)

# A call that cannot be told from another may be that of a reading tool, if there is any.
_reads_only if {
	not input.uri
	count(_settings.reading_tools) > 0
}

_reading := lib.tool_expressions(_settings.reading_tools)

# What is left without texts and quoted names, in lower case.
_bare contains lower(regex.replace(text, `'(?:[^']|'')*'|"(?:[^"]|"")*"|\x60[^\x60]*\x60`, " ")) if {
	some text in _texts
}

_writes(text) if {
	not regex.match(`^[ \t\r\n\f(]*(?:select|with|values|table|show|describe|desc|explain)(?:[^a-z0-9_]|$)`, text)
	not regex.match(_looking, text)
}

_writes(text) if {
	regex.match(
		concat("", [
			`(?:^|[(;)]|[^a-z0-9_](?:analyze|verbose|as))[ \t\r\n\f(]*`,
			`(?:insert|update|delete|merge|replace|drop|alter|create|truncate|grant|revoke|call|exec|execute|copy)[ \t\r\n\f]`,
		]),
		text,
	)
}

_writes(text) if regex.match(`[^a-z0-9_.]into[ \t\r\n\f]+[^ \t\r\n\f]`, text)

_settings := data.cmf.defaults.data.sql_write

# Functions that write, run commands, reach files or other servers, change settings or stop others.
_acting := concat("", [
	`(?:^|[^a-z0-9_])(?:lo_(?:import|export|unlink|create|put)|dblink[a-z_]*|load_extension|load_file|writefile`,
	`|xp_[a-z]+|sys_(?:exec|eval)|pg_(?:terminate|cancel)_backend|pg_reload_conf|pg_rotate_logfile|set_config`,
	`|setval|nextval|pg_read_(?:binary_)?file|pg_ls_dir|pg_file_[a-z]+|pg_logical_emit_message|query_to_xml[a-z_]*`,
	`|openrowset|opendatasource|openquery|pg_sleep[a-z_]*|pg_(?:try_)?advisory_[a-z_]+|benchmark)[ \t\r\n]*\(`,
])

# What SQLite calls a pragma, and only tells of tables.
_looking := concat("", [
	`^[ \t\r\n\f]*pragma[ \t\r\n]+(?:table_x?info|table_list|index_x?info|index_list|foreign_key_list|database_list)`,
	`[ \t\r\n]*(?:\([^();=]*\)|)[ \t\r\n;]*$`,
])

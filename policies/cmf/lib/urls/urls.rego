# METADATA
# title: Addresses
# description: |
#   What the addresses in `input.addresses` are: they are read there the way browsers and clients read them, so a rule
#   looks at hosts and never at spellings. Nothing is resolved.
package cmf.lib.urls

import data.cmf.lib.scan

# METADATA
# title: Addresses that nobody read
# description: |
#   True where the view may have addresses and does not say which: `addresses` is missing, or not all could be read.
# scope: document
unread if {
	not has_fields
	not input.addresses
	regex.match(`[/\\\x{FF0F}]`, scan.content)
}

unread if {
	has_fields
	not input.addresses
	input.properties.extra
}

unread if {
	some found in input.addresses
	found.kind == "unread"
}

# METADATA
# title: Hosts that are asked
# description: |
#   The addresses with a host that a client would go to: those with a scheme, or of a value that is nothing else. A name
#   without a dot under a scheme that no network has (`memo://notes`) is no host.
# scope: document
asked contains found if {
	some found in reached
	found.kind != "bare"
	_is_remote(found)
}

# METADATA
# title: Addresses that are reached
# description: |
#   The addresses in what a call, a reference or media ask for; of other kinds those that MCP has fields for: pictures
#   of tools, pages that a user is sent to, roots, resources that something is asked about.
# scope: document
reached contains found if {
	not has_fields
	some found in input.addresses
}

reached contains found if {
	has_fields
	some found in input.addresses
	found.kind in {"field", "unread"}
	object.get(found, "format", "mcp") == "mcp"
}

# METADATA
# title: Addresses in fields alone
# description: True of views whose content nobody goes to, but whose fields may be for addresses.
# scope: document
has_fields if input.kind in {"request", "resource", "response", "tool_definition"}

_is_remote(found) if found.scheme in _of_networks

_is_remote(found) if regex.match(`[.:]`, found.host)

_of_networks := {
	"amqp", "amqps", "clickhouse", "dict", "dns", "ftp", "ftps", "git", "gopher", "http", "https", "imap", "imaps", "irc",
	"kafka", "ldap", "ldaps", "memcached", "mongodb", "mqtt", "mqtts", "mysql", "nats", "nfs", "nntp", "pop3", "postgres",
	"postgresql", "redis", "rediss", "rmi", "rsync", "rtmp", "rtsp", "sftp", "smb", "smtp", "smtps", "sqlserver", "ssh",
	"svn", "telnet", "tftp", "ws", "wss",
}

# METADATA
# title: Host pattern match, any of several
# description: |
#   True if the host is one of `patterns`: a host as it is, `*.example.com` for all hosts below one, `*` for any.
# scope: document
host_matches(name, patterns) if name in patterns

host_matches(_, patterns) if "*" in patterns

host_matches(name, patterns) if {
	some pattern in patterns
	startswith(pattern, "*.")
	endswith(name, substring(pattern, 1, -1))
}

# METADATA
# title: Internal address
# description: |
#   True of loopback, private, link-local, carrier, benchmark, multicast and reserved IPv4 addresses, and of all IPv6
#   addresses but global ones that carry no IPv4 address.
# scope: document
is_internal(name) if {
	regex.match(`^[0-9.]+$`, name)
	regex.match(_internal_v4, name)
}

is_internal(name) if {
	startswith(name, "[")
	not regex.match(`^\x5b[23][0-9a-f]{3}:`, name)
}

is_internal(name) if regex.match(`^\[(?:2002:|2001:(?:0{0,4}:|:))`, name)

_internal_v4 := concat("|", [
	`^(?:0|10|127|22[4-9]|2[34][0-9]|25[0-5])\.`,
	`^100\.(?:6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.`,
	`^169\.254\.`,
	`^172\.(?:1[6-9]|2[0-9]|3[01])\.`,
	`^192\.168\.`,
	`^192\.0\.0\.`,
	`^198\.1[89]\.`,
])

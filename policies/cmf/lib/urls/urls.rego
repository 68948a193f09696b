# METADATA
# title: Addresses in a text
# description: |
#   Finds URLs in what a call or a reference asks for, reads their hosts the way a lenient client would, and says what
#   kind of host one is. Nothing is resolved.
package cmf.lib.urls

import data.cmf.lib.scan

# METADATA
# title: There may be a URL
# description: A look that most views end with; where it fails, `in_content` is empty and nothing is misleading.
# scope: document
worth_a_look if regex.match(`:[/\\]`, scan.content)

# METADATA
# title: URLs of the content
# description: |
#   The URLs in `input.content`, as {host, whole} objects: `whole` is true of a value that is nothing but the
#   URL, and false of one that stands in a longer text.
# scope: document
in_content contains {"host": host(groups[1]), "whole": true} if {
	worth_a_look
	some groups in regex.find_all_string_submatch_n(_whole, _text, -1)
}

in_content contains {"host": host(groups[1]), "whole": false} if {
	worth_a_look
	some groups in regex.find_all_string_submatch_n(_anywhere, _text, -1)
}

# METADATA
# title: Hosts without a scheme
# description: |
#   What stands at the place of a host in arguments that are for a URL, and in values that begin with two slashes:
#   clients add the scheme. It may as well be a file, so it is for looking for hosts that are known.
# scope: document
bare_hosts contains host(groups[1]) if {
	input.kind == "tool_call"
	regex.match(_bare_look, scan.content)
	some groups in regex.find_all_string_submatch_n(_bare, scan.content, -1)
}

# METADATA
# title: Trust in the wrong half
# description: |
#   True if a URL shows one host before an `@` or a backslash and means another behind it.
# scope: document
misleading if {
	worth_a_look
	regex.match(_host_before_user, _text)
}

# A URL by itself is a value by itself: it gets the quotes that it would have among arguments.
_text := concat("", [`"`, scan.content, `"`]) if {
	input.kind in {"audio", "document", "image", "resource_ref", "video"}
} else := regex.replace(scan.content, `\\+/`, "/")

_scheme := `(?i:https?|wss?|ftps?|sftp|tftp|gopher|dict|ldaps?|smb|nfs):`

_authority := `[/\\]+([^\x00-\x20"'<>/?#\\(){}|^\x60,;]+)`

# A dot or a backslash before the `@`: what stands there looks like the host.
_host_before_user := concat("", [
	_scheme,
	`[/\\]+[^\x00-\x20"'<>/?#\\:@]*[.\\][^\x00-\x20"'<>/?#:@]*@`,
])

_anywhere := concat("", [_scheme, _authority])

_whole := concat("", [`"(?i:[a-z-]{2,12}:)?`, _scheme, _authority, `(?:[/?#\\][^\x00-\x20"]*)?"`])

# Most such arguments hold a URL with its scheme.
_bare_look := concat("|", [
	`(?i:ur[il]|href|link|endpoint|webhook|callback)":"(?:[^":]*(?::[0-9]|["/])|\x5b)`,
	`":"(?://|(?i:https?):[^/\\])`,
])

_bare := concat("", [
	`(?i:"[a-z0-9_-]*(?:ur[il]|href|link|endpoint|webhook|callback)":"(?:https?:)?(?://)?|":"(?://|https?:))`,
	`([0-9A-Za-z_%.\x5b\]-]*(?::[0-9A-Fa-f.:]*\])?(?::[0-9]{1,5})?)(?:[/?#\\][^\x00-\x20"]*)?"`,
])

# METADATA
# title: Host of an authority
# description: |
#   In lower case, without user, port, escapes and the dot at the end; wide digits and dots as plain ones.
host(authority) := trim_right(lower(_plain(_unescaped(regex.replace(_behind_user(authority), `:[0-9]*$`, "")))), ".")

_behind_user(authority) := regex.replace(authority, `^.*@`, "")

# Only escapes of ASCII are read: all others are no part of an address that resolves.
_unescaped(text) := urlquery.decode(replace(text, "+", "%2B")) if {
	contains(text, "%")
	regex.match(`^(?:[!-$&-~]|%[0-7][0-9A-Fa-f])+$`, text)
} else := text

_plain(text) := strings.replace_n(_wide, text) if {
	regex.match(`[^\x00-\x7f]`, text)
} else := text

_wide := {
	"\u3002": ".", "\uff0e": ".", "\uff61": ".", "\uff10": "0", "\uff11": "1", "\uff12": "2", "\uff13": "3",
	"\uff14": "4", "\uff15": "5", "\uff16": "6", "\uff17": "7", "\uff18": "8", "\uff19": "9", "\u24ea": "0",
	"\u2460": "1", "\u2461": "2", "\u2462": "3", "\u2463": "4", "\u2464": "5", "\u2465": "6", "\u2466": "7",
	"\u2467": "8", "\u2468": "9",
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
# title: Disguised address
# description: |
#   True of an IPv4 address in any form but four plain decimal numbers: in one number, in hex, in octal, with parts
#   left out or zeros added. Readers do not agree on what such a host is, and nobody has to write one.
# scope: document
is_disguised(name) if {
	regex.match(`^(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}$`, name)
	not regex.match(_four_numbers, name)
}

# What escapes in a host spell and no host has: one reader stops there, another reads on.
is_disguised(name) if regex.match(`[\x00-\x1f/?#@\\]|%[89a-f][0-9a-f]`, name)

_four_numbers := `^(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})$`

# METADATA
# title: Internal address
# description: |
#   True of loopback, private, link-local, carrier, benchmark, multicast and reserved IPv4 addresses, and of all IPv6
#   addresses but global ones that carry no IPv4 address.
# scope: document
is_internal(name) if {
	regex.match(_four_numbers, name)
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

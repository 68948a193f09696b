# METADATA
# title: Hosts are what they look like
# description: |
#   A URL or mail address whose host mixes scripts, is spelt wholly in letters that look Latin, or has characters that
#   fold into ASCII or look like a slash, is refused in what an assistant says and in what it asks for. So is a punycode
#   host in what it asks for, unless it is listed; in words such a host is named in the record.
# related_resources:
#   - ref: https://www.unicode.org/reports/tr39/
# custom:
#   code: content.confusable-host
#   severity: high
#   kinds: [audio, document, image, prompt_request, resource_ref, text, tool_call, tool_definition, video]
#   capabilities: []
#   standards: [OWASP-LLM05, OWASP-LLM09, OWASP-ASI09, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
#   stream: {max_word: 320, opened_by: ["//", "\\\\", "/\\", "\\/", "@"]}
#   settings:
#     allowed_hosts: {type: array, items: {type: string, format: host-pattern}}
package cmf.rules.content.confusable_host

import data.cmf.lib.scan
import data.cmf.lib.urls

deny contains {
	"code": "content.confusable-host",
	"reason": "This part has an address that looks like another.",
} if {
	some name in _wide_hosts
	_confusable(name)
	not urls.host_matches(name, _settings.allowed_hosts)
}

deny contains {
	"code": "content.confusable-host.punycode",
	"reason": "This asks for an address whose letters cannot be seen.",
} if {
	input.kind != "text"
	some name in _punycode
	not urls.host_matches(name, _settings.allowed_hosts)
}

warn contains {
	"code": "content.confusable-host.punycode",
	"reason": "This part has an address whose letters cannot be seen.",
} if {
	input.kind == "text"
	_spoken
	some name in _punycode
	not urls.host_matches(name, _settings.allowed_hosts)
}

# What a user or a tool wrote may show such addresses; what an assistant writes is for people to click on.
_spoken if input.kind != "text"

_spoken if input.role == "assistant"

_spoken if not input.role

_wide_hosts contains name if {
	scan.wide
	_spoken
	regex.match(`[/\\]{2}|@`, scan.content)
	some groups in regex.find_all_string_submatch_n(_authority, scan.content, -1)
	regex.match(`[^\x00-\x7f]`, groups[1])

	# A full stop of Chinese or Japanese ends the sentence where no Latin letter follows it.
	name := regex.replace(lower(groups[1]), `[\x{3002}\x{FF0E}\x{FF61}](?:[^!-~].*)?$`, "")
	regex.match(`[^\x00-\x7f]`, name)
}

# As clients find it: without a scheme or slashes, with a tab in it, in escapes.
_wide_hosts contains found.shown if {
	input.kind != "text"
	some found in input.addresses
	regex.match(`[^\x00-\x7f]`, found.shown)
}

# Behind a user, if there is one, up to a port, a path, or what ends an address in prose, in wide signs too.
_authority := concat("", [
	`(?:[0-9A-Za-z]{2}:[/\\]{2,}(?:[!-.0-9;A-Z_a-z~:]*@)?|["'(=<]//|[0-9A-Za-z_]@)`,
	`([^\x00-\x20"'<>/?#\\(){}|^\x60,;:@\x{A0}\x{2013}\x{2014}\x{2018}-\x{201F}\x{2026}\x{3000}\x{3001}`,
	`\x{3008}-\x{3011}\x{3014}-\x{301F}\x{FF01}\x{FF08}\x{FF09}\x{FF0C}\x{FF1A}\x{FF1B}\x{FF1F}]+)`,
])

_punycode contains name if {
	regex.match(`(?i)xn--`, scan.content)
	some groups in regex.find_all_string_submatch_n(_authority, lower(scan.content), -1)
	name := groups[1]
	regex.match(`(?:^|\.)xn--`, name)
}

_punycode contains found.shown if {
	input.kind != "text"
	some found in input.addresses
	regex.match(`(?:^|\.)xn--`, found.shown)
}

# What folds into ASCII or looks like it: wide and mathematical letters, phonetic ones, strokes that are no slash.
_confusable(name) if regex.match(_folding, name)

# One label with Latin letters and with letters that look like them.
_confusable(name) if {
	some label in split(name, ".")
	regex.match(`[a-z]`, label)
	regex.match(`[\x{0370}-\x{03FF}\x{0400}-\x{052F}\x{0530}-\x{058F}\x{13A0}-\x{13FF}\x{AB70}-\x{ABBF}]`, label)
}

# A label of look-alikes alone, under a top-level domain in ASCII.
_confusable(name) if {
	regex.match(`\.[a-z]+$`, name)
	some label in split(name, ".")
	regex.match(_looks_latin, label)
}

_folding := concat("", [
	`[\x{017F}\x{0250}-\x{02B8}\x{1D00}-\x{1D7F}\x{2044}\x{2070}-\x{209C}\x{2100}-\x{218B}\x{2215}`,
	`\x{2460}-\x{24FF}\x{29F8}\x{3002}\x{FB00}-\x{FB06}\x{FF01}-\x{FF61}\x{1D400}-\x{1D7FF}]`,
])

# Cyrillic and Greek letters that few fonts tell from a, b, c, d, e, g, h, i, j, k, l, o, p, q, r, s, u, v, w, x and y.
_looks_latin := concat("", [
	`^[0-9-]*[\x{0430}\x{0435}\x{043E}\x{0440}\x{0441}\x{0443}\x{0445}\x{0455}\x{0456}\x{0458}\x{04BB}\x{04CF}`,
	`\x{0501}\x{051B}\x{051D}\x{0475}\x{03BF}\x{03C1}\x{03B1}\x{03BD}]`,
	`[0-9\x{0430}\x{0435}\x{043E}\x{0440}\x{0441}\x{0443}\x{0445}\x{0455}\x{0456}\x{0458}\x{04BB}\x{04CF}`,
	`\x{0501}\x{051B}\x{051D}\x{0475}\x{03BF}\x{03C1}\x{03B1}\x{03BD}-]*$`,
])

_settings := data.cmf.defaults.content.confusable_host

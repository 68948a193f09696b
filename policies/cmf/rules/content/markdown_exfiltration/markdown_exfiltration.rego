# METADATA
# title: Pictures and links do not carry data away
# description: |
#   A client that shows an assistant's words fetches the pictures in them, and what stands in the URL is gone. Whatever
#   a renderer of Markdown or HTML loads by itself is masked if its URL carries data (a query, a fragment, a user, an
#   encoded or very long name) to a host that is not listed; so is a link with a long value in it. Parameters that say
#   how a picture looks, with values of a kind that says nothing else, are no data. A reply that brings such a picture
#   (or sound, or film) beside its words, as a part, in a field for one or in HTML of a field, is refused.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm052025-improper-output-handling/
# custom:
#   code: content.markdown-exfiltration
#   severity: high
#   kinds: [audio, image, response, text, video]
#   capabilities: []
#   standards: [OWASP-LLM02, OWASP-LLM05, OWASP-ASI01, NIST-AC-4, NIST-SC-7, NIST-AI-RMF-MEASURE-2.7]
#   stream: {max_word: 8192}
#   settings:
#     allowed_hosts: {type: array, items: {type: string, format: host-pattern}}
#     picture_name: {type: integer, minimum: 1, maximum: 1000}
#     link_value: {type: integer, minimum: 1, maximum: 1000}
#     harmless_parameters: {type: object, additionalProperties: {type: string, format: expression}}
#     replacement: {enum: [mask, hash, drop, token]}
package cmf.rules.content.markdown_exfiltration

import data.cmf.lib.scan
import data.cmf.lib.urls

redact contains {
	"code": "content.markdown-exfiltration",
	"reason": "An address that carries data away was masked.",
	"spans": _spans,
	"replacement": _settings.replacement,
} if {
	not _is_beside_words
	_spoken
	count(_spans) > 0
}

deny contains {
	"code": "content.markdown-exfiltration.loaded",
	"reason": "Showing this reply would load an address that carries data away.",
} if {
	_spoken
	not _is_history
	some found in input.addresses
	_is_loaded(found)
	_loads_with_data(found)
	host := found.host
	not urls.host_matches(host, _settings.allowed_hosts)
}

deny contains {
	"code": "content.markdown-exfiltration.loaded",
	"reason": "What showing this reply would load could not be read.",
} if {
	_is_beside_words
	_spoken
	not _is_history
	urls.unread
}

_is_beside_words if input.kind in {"audio", "image", "response", "video"}

# What a client sends back it has shown before.
_is_history if input.hook == "llm_request"

_is_loaded(found) if {
	input.kind in {"audio", "image", "video"}
	found.kind == "value"
}

_is_loaded(found) if {
	found.kind == "field"
	found.loads
}

_is_loaded(found) if {
	found.kind == "field"
	regex.match(_field_of_a_picture, found.field)
}

_field_of_a_picture := concat("", [
	`(?i)(?:avatar|favicon|icon|image|img|logo|photo|picture|poster|thumb|thumbnail)s?(?:[._-]?ur[il])?$`,
	`|(?i)(?:image|icon|thumbnail)s?(?:[._-]?ur[il])?\.(?:src|ur[il])$|(?i)(?:^|\.)src$`,
])

_spans := sort([[start, end] | some [start, end] in _places])

_places contains found.span if {
	some found in input.addresses
	_carries(found)
	host := found.host
	not urls.host_matches(host, _settings.allowed_hosts)
}

_places contains found.span if {
	some found in input.addresses
	found.kind in {"base", "image"}
	found.unreadable
}

# All of it, where nobody could say what is loaded.
_places contains [0, count(scan.content)] if urls.unread

_spoken if input.role == "assistant"

_spoken if not input.role

_carries(found) if found.kind == "base"

_carries(found) if {
	found.kind == "image"
	_loads_with_data(found)
}

_carries(found) if {
	found.kind == "link"
	regex.match(_long_value, found.url)
}

_loads_with_data(found) if found.user

_loads_with_data(found) if found.fragment

_loads_with_data(found) if {
	contains(found.url, "?")
	not _is_harmless(found.url)
}

_loads_with_data(found) if {
	regex.match(concat("", [`[0-9A-Za-z%_+=]{`, format_int(_settings.picture_name, 10), `,}`]), found.url)
}

_loads_with_data(found) if regex.match(`(?:%[0-9A-F]{2}[0-9A-Za-z._-]*){8,}`, found.url)

# Labels are data to whoever answers for the domain.
_loads_with_data(found) if regex.match(`[0-9A-Za-z_-]{41,}`, found.host)

# A query of nothing but a few parameters that say how it looks.
_is_harmless(url) if {
	[_, query] := split(url, "?")
	pairs := split(query, "&")
	count(pairs) <= 4
	every pair in pairs {
		_says_looks(pair)
	}
}

_says_looks(pair) if {
	[name, value] := split(pair, "=")
	pattern := _settings.harmless_parameters[name]
	regex.match(concat("", [`^(?:`, pattern, `)$`]), value)
}

_long_value := concat("", [
	`(?:[?&#=][0-9A-Za-z%+_.,*~=-]{`, format_int(_settings.link_value, 10), `,}`,
	`|/[0-9A-Za-z%+_=]{`, format_int(_settings.link_value, 10), `,})`,
])

_settings := data.cmf.defaults.content.markdown_exfiltration

# METADATA
# title: Pictures and links do not carry data away
# description: |
#   A client that shows an assistant's words fetches the pictures in them, and what stands in the URL is gone. The URL
#   of a picture that carries data (a query, a fragment, an encoded or very long name) to a host that is not listed is
#   masked; so is that of a link with a long value in it.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm052025-improper-output-handling/
# custom:
#   code: content.markdown-exfiltration
#   severity: high
#   kinds: [text]
#   capabilities: []
#   standards: [OWASP-LLM02, OWASP-LLM05, OWASP-ASI01, NIST-AC-4, NIST-SC-7, NIST-AI-RMF-MEASURE-2.7]
#   stream: {max_word: 8192}
package cmf.rules.content.markdown_exfiltration

import data.cmf.lib.scan
import data.cmf.lib.urls

redact contains {
	"code": "content.markdown-exfiltration",
	"reason": "An address that carries data away was masked.",
	"spans": scan.spans(scan.content, _carriers),
	"replacement": _settings.replacement,
} if {
	_spoken
	count(_carriers) > 0
}

_carriers contains url if {
	some url in _pictures
	_carries(url)
	not _listed(url)
}

_carriers contains url if {
	some url in _links
	regex.match(_long_value, url)
	not _listed(url)
}

_pictures contains groups[1] if {
	regex.match(`!\[|<[A-Za-z]`, scan.content)
	some pattern in _picture_shapes
	some groups in regex.find_all_string_submatch_n(pattern, scan.content, -1)
}

_links contains groups[1] if {
	regex.match(`\](?:\(|:)|(?i)<a[ \t\r\n/]`, scan.content)
	some pattern in _link_shapes
	some groups in regex.find_all_string_submatch_n(pattern, scan.content, -1)
}

# A picture by reference is drawn from wherever its name is defined.
_picture_shapes := {
	concat("", [`!\x5b(?:[^\x5b\]]|\x5b[^\]]*\])*\]\([ \t\r\n]*<?`, _url]),
	concat("", [_loading, `(?:[^>]*[ \t\r\n/"'])?(?i:src|srcset|poster|data|background|(?:xlink:)?href)`, _is, _url]),
	concat("", [`(?i:<[a-z][^>]*[ \t\r\n/"']style[ \t]*=[^>]*url\([ \t]*(?:["']|&quot;)?)`, _url]),
	concat("", [_reference, _url]),
}

_link_shapes := {
	concat("", [`\]\([ \t\r\n]*<?`, _url]),
	concat("", [`(?i:<a[ \t\r\n/][^>]*href)`, _is, _url]),
	concat("", [_reference, _url]),
}

# What a client that shows pictures fetches by itself. Scripts, frames and style sheets are what pages in an answer have
# that are code, and no client for chats runs them.
_loading := `(?i:<(?:img|image|source|video|audio|track|body|table|td|th))[ \t\r\n/]`

_is := `[ \t\r\n]*=[ \t\r\n]*["']?`

_reference := `(?:^|\n)[ \t]*\x5b[^\]\n]+\]:[ \t]*<?`

_url := `((?i:https?:)?[/\\]{2}[!#-&*-;=?-~]+)`

_spoken if input.role == "assistant"

_spoken if not input.role

_carries(url) if regex.match(`[?#][!-~]`, url)

_carries(url) if regex.match(concat("", [`[0-9A-Za-z%_+=]{`, format_int(_settings.picture_name, 10), `,}`]), url)

_carries(url) if regex.match(`(?:%[0-9A-Fa-f]{2}[0-9A-Za-z._-]*){8,}`, url)

_long_value := concat("", [
	`(?:[?&#=][0-9A-Za-z%+_.,*~=-]{`, format_int(_settings.link_value, 10), `,}`,
	`|/[0-9A-Za-z%+_=]{`, format_int(_settings.link_value, 10), `,})`,
])

_listed(url) if {
	parts := split(replace(url, "\\", "/"), "/")
	urls.host_matches(urls.host(parts[2]), _settings.allowed_hosts)
}

_settings := data.cmf.defaults.content.markdown_exfiltration

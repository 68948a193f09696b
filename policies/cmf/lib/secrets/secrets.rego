# METADATA
# title: Secret-shaped tokens
# description: |
#   Finds credentials by their issuers' published shapes, and long random values assigned to a name such as `api_key`.
#   One cheap expression (`hint`) goes over each text first; the patterns run only where it hits.
package cmf.lib.secrets

import data.cmf.lib.scan

# METADATA
# title: Secrets in the content
# description: The secrets in `input.content`, as {kind, secret} objects.
in_content := _found(scan.content)

# METADATA
# title: Secrets elsewhere in the view
# description: As `in_content`, for names, URIs, arguments and properties, their keys included.
in_surroundings := _found(scan.surroundings)

_settings := data.cmf.defaults.data.secrets

_found(text) := (_shaped(_settings.patterns, text) | _assigned(text)) | _shaped(_settings.extra_patterns, text) if {
	regex.match(_settings.hint, text)
} else := _shaped(_settings.extra_patterns, text)

# What may stand before a token: the start, a character that is in no word, or an escape of a JSON text.
_before := `(?:^|[^0-9A-Za-z_]|\\[bfnrt]|\\u[0-9a-f]{4})`

_shaped(patterns, text) := {{"kind": kind, "secret": groups[1]} |
	some kind, pattern in patterns
	expression := concat("", [_before, "(", pattern, ")"])
	some groups in regex.find_all_string_submatch_n(expression, text, -1)
}

_assigned(text) := {{"kind": kind, "secret": groups[1]} |
	some kind, pattern in _settings.weak_patterns
	some groups in regex.find_all_string_submatch_n(pattern, text, -1)
	_random(groups[1])
}

# Names and paths are long too; what nobody chose by hand mixes letters with several digits.
_random(value) if {
	count(regex.find_n(`[0-9]`, value, -1)) >= _settings.weak_min_digits
	count(regex.find_n(`[A-Za-z]`, value, -1)) >= _settings.weak_min_letters
}

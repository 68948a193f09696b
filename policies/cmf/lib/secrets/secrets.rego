# METADATA
# title: Secret-shaped tokens
# description: |
#   Finds credentials by their issuers' published shapes, and long random values assigned to a name such as `api_key`.
#   Cheap looks come first: `hint` over the whole view, then the literals of each shape; patterns run last.
package cmf.lib.secrets

import data.cmf.lib.scan

# METADATA
# title: There may be secrets
# description: A look that most views end with; where it fails, no secret is in any part of the view.
# scope: document
worth_a_look if _suspicious

# What the operator adds is in no hint.
worth_a_look if count(_settings.extra_patterns) > 0

# METADATA
# title: Secrets in the content
# description: The secrets in `input.content`, as {kind, secret} objects.
# scope: document
in_content contains found if {
	worth_a_look
	some found in _found(scan.content)
}

# METADATA
# title: Secrets in disguise
# description: |
#   As `in_content`, for secrets that only the plain form of the content has, or has more often.
# scope: document
disguised contains found if {
	count(_in_plain) <= _settings.max_masked
	some found in _in_plain
	scan.disguises(found.secret)
}

# Too many to mask are too many to count.
disguised contains found if {
	count(_in_plain) > _settings.max_masked
	some found in _in_plain
}

_in_plain contains found if {
	worth_a_look
	input.plain
	some found in _found(input.plain)
}

# METADATA
# title: Encoded secrets
# description: As `in_content`, for what is encoded in the content; `secret` is the whole text that is encoded there.
# scope: document
encoded contains {"kind": found.kind, "secret": decoded.text} if {
	worth_a_look
	some decoded in input.decoded
	some found in _found(decoded.text)
}

# METADATA
# title: Secrets elsewhere in the view
# description: As `in_content`, for names, URIs, arguments and properties, their keys included.
# scope: document
in_surroundings contains found if {
	worth_a_look
	some found in _found(scan.surroundings)
}

# METADATA
# title: Secrets in a text
# description: |
#   The kinds of credentials of a published shape in any text, say one that was decoded: no cheap look comes first.
kinds_in(text) := {found.kind |
	some found in _shaped(_every_shape, text)
}

_every_shape := object.union_n([_settings.patterns, _settings.more_patterns, _settings.extra_patterns])

_settings := data.cmf.defaults.data.secrets

_found(text) := (_shaped(_shapes, text) | _shaped(_more_shapes, text)) | _assigned(text)

_suspicious if regex.match(_settings.hint, scan.everything)

_shapes := object.union(_settings.patterns, _settings.extra_patterns) if {
	_suspicious
} else := _settings.extra_patterns

# Those of rarer issuers have a look of their own: words like "key" send many texts this far.
default _more_shapes := {}

_more_shapes := _settings.more_patterns if {
	_suspicious
	regex.match(_settings.more_hint, scan.everything)
}

# What may stand before a token: the start, a character that is in no word, or an escape of a JSON text.
_before := `(?:^|[^0-9A-Za-z_]|\\[bfnrt]|\\u[0-9a-f]{4})`

# A shape that no prose can take is looked for anywhere: a stream may glue a token to a word.
_lead(shape) := "" if {
	shape.anywhere
} else := _before

_shaped(shapes, text) := _ended(shapes, text) | _unended(shapes, text)

_ended(shapes, text) := {{"kind": kind, "secret": groups[1]} |
	some kind, shape in shapes
	some literal in shape.literals
	contains(text, literal)
	expression := concat("", [_lead(shape), "(", shape.pattern, ")"])
	some groups in regex.find_all_string_submatch_n(expression, text, -1)
}

# What begins as a block and has no end. One pattern for both, "up to the end or what is there", would read the rest of
# the text anew for each beginning.
_unended(shapes, text) := {{"kind": kind, "secret": groups[1]} |
	some kind, shape in shapes
	unended := shape.unended
	some literal in shape.literals
	contains(text, literal)
	rest := regex.replace(text, concat("", [_lead(shape), shape.pattern]), " ")
	some groups in regex.find_all_string_submatch_n(concat("", [_lead(shape), "(", unended, ")"]), rest, -1)
}

_assigned(text) := {{"kind": kind, "secret": groups[1]} |
	some kind in _suspected
	weak := _settings.weak_patterns[kind]
	some groups in regex.find_all_string_submatch_n(weak.pattern, text, -1)
	_random(groups[1], weak)
}

_suspected contains kind if {
	_suspicious
	some kind, weak in _settings.weak_patterns
	regex.match(weak.hint, scan.everything)
}

# Names and paths are long too; what nobody chose by hand mixes letters with several digits.
_random(value, weak) if {
	count(regex.find_n(`[0-9]`, value, -1)) >= weak.min_digits
	count(regex.find_n(`[A-Za-z]`, value, -1)) >= weak.min_letters
}

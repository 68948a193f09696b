# METADATA
# title: Personal data with a checksum or a fixed form
# description: |
#   Payment cards (issuer range, length, Luhn), IBANs (country length, remainder 97) and US social security numbers
#   (assigned ranges). Names, addresses and emails are not here: without a checksum they are guesses.
package cmf.lib.pii

import data.cmf.lib.scan

# METADATA
# title: Personal data in the content
# description: The values in `input.content`, as {type, value} objects.
# scope: document
in_content contains found if some found in _found(scan.content)

# METADATA
# title: Personal data in disguise
# description: As `in_content`, for values that only the plain form of the content has, or has more often.
# scope: document
disguised contains found if {
	count(_in_plain) <= _settings.max_masked
	some found in _in_plain
	scan.disguises(found.value)
}

# Too many to mask are too many to count.
disguised contains found if {
	count(_in_plain) > _settings.max_masked
	some found in _in_plain
}

_in_plain contains found if {
	input.plain
	some found in _found(input.plain)
}

# METADATA
# title: Encoded personal data
# description: As `in_content`, for what is encoded in the content; `value` is the whole text that is encoded there.
# scope: document
encoded contains {"type": found.type, "value": decoded.text} if {
	some decoded in input.decoded
	some found in _found(decoded.text)
}

_settings := data.cmf.defaults.data.pii

_found(text) := {{"type": type, "value": value} |
	regex.match(_worth_a_look, text)
	some type, values in {
		"iban": _ibans(text),
		"payment_card": _cards(text),
		"us_ssn": _ssns(text),
	}
	some value in values
}

# The least that each of them has: one pass over a text, which most texts do not go beyond.
_worth_a_look := concat("|", [
	`(?:[0-9][ .-]?){13}[0-9]`,
	`[0-9]{3}-[0-9]{2}-[0-9]{4}`,
	`(?i:ssn|social security)`,
	`[A-Z]{2}[0-9]{2}(?: ?[0-9A-Z]{4}){2}`,
])

# A number inside a longer number, an identifier or a decimal is none of these: the last group is what follows.
_before := `(?:^|[^0-9A-Za-z_.+/=-]|(?i:card|pan|ccn?)[a-z_]{0,12}=)`

_after := `([0-9A-Za-z_]|[.,-][0-9])?`

_candidates(pattern, text) := {groups[1] |
	expression := concat("", [_before, "(", pattern, ")", _after])
	some groups in regex.find_all_string_submatch_n(expression, text, -1)
	groups[2] == ""
}

_digits(text) := regex.find_n(`[0-9]`, text, -1)

# Visa, Mastercard, Discover, JCB and UnionPay have 16 digits, American Express 15, Diners Club 14.
_card_shapes := {
	`(?:4[0-9]{3}|5[1-5][0-9]{2}|2[2-7][0-9]{2}|35[2-8][0-9])(?:[ .-]?[0-9]{4}){3}`,
	`6(?:011|2[0-9]{2}|4[4-9][0-9]|5[0-9]{2})(?:[ -]?[0-9]{4}){3}`,
	`3[47][0-9]{2}[ -]?[0-9]{6}[ -]?[0-9]{5}`,
	`3(?:0[0-5]|[68][0-9])[0-9][ -]?[0-9]{6}[ -]?[0-9]{4}`,
}

_cards(text) := {value |
	some shape in _card_shapes
	some value in _candidates(shape, text)
	digits := _digits(value)
	_luhn(digits)
	count({digit | some digit in digits}) > 1
}

_doubled := {"0": 0, "1": 2, "2": 4, "3": 6, "4": 8, "5": 1, "6": 3, "7": 5, "8": 7, "9": 9}

_luhn(digits) if {
	odd := [to_number(digit) | some i, digit in array.reverse(digits); i % 2 == 0]
	even := [_doubled[digit] | some i, digit in array.reverse(digits); i % 2 == 1]
	(sum(odd) + sum(even)) % 10 == 0
}

_ssns(text) := _hyphenated(text) | _named(text)

_hyphenated(text) := {value |
	some value in _candidates(`[0-9]{3}-[0-9]{2}-[0-9]{4}`, text)
	[area, group, serial] := split(value, "-")
	not area in {"000", "666"}
	not startswith(area, "9")
	group != "00"
	serial != "0000"
}

# By its name it is known without its hyphens.
_named_ssn := `(?i:ssn|social security)[^0-9\n]{0,24}([0-9]{3}[ .]?[0-9]{2}[ .]?[0-9]{4})(?:[^0-9]|$)`

_named(text) := {number |
	some [_, number] in regex.find_all_string_submatch_n(_named_ssn, text, -1)
	not regex.match(`^(?:000|666|9)|^[0-9]{3}[ .-]?00|0000$`, number)
}

_ibans(text) := {value |
	some value in _candidates(`[A-Z]{2}[0-9]{2}(?: ?[0-9A-Z]{4}){2,7}(?: ?[0-9A-Z]{1,3})?`, text)
	compact := replace(value, " ", "")
	count(compact) == _iban_lengths[substring(compact, 0, 2)]
	_remainder_97(concat("", [substring(compact, 4, -1), substring(compact, 0, 4)])) == 1
}

# The number has up to 68 digits, more than an engine computes exactly, so it is summed digit by digit.
_remainder_97(text) := sum([weighted |
	some i, digit in array.reverse(_spelled(text))
	weighted := to_number(digit) * _powers[i]
]) % 97

# Letters stand for two digits: A is 10, Z is 35.
_spelled(text) := [digit |
	some character in split(text, "")
	some digit in split(object.get(_letters, character, character), "")
]

_letters := {
	"A": "10", "B": "11", "C": "12", "D": "13", "E": "14", "F": "15", "G": "16",
	"H": "17", "I": "18", "J": "19", "K": "20", "L": "21", "M": "22", "N": "23",
	"O": "24", "P": "25", "Q": "26", "R": "27", "S": "28", "T": "29", "U": "30",
	"V": "31", "W": "32", "X": "33", "Y": "34", "Z": "35",
}

# 10 to the power of the index, modulo 97.
_powers := [
	1, 10, 3, 30, 9, 90, 27, 76, 81, 34, 49, 5, 50, 15, 53, 45, 62, 38, 89, 17,
	73, 51, 25, 56, 75, 71, 31, 19, 93, 57, 85, 74, 61, 28, 86, 84, 64, 58, 95, 77,
	91, 37, 79, 14, 43, 42, 32, 29, 96, 87, 94, 67, 88, 7, 70, 21, 16, 63, 48, 92,
	47, 82, 44, 52, 35, 59, 8, 80,
]

# Characters of an IBAN by country, from the SWIFT registry.
_iban_lengths := {
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22,
	"BH": 22, "BR": 29, "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22,
	"DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27,
	"GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28,
	"IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20,
	"LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27,
	"MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15,
	"PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24,
	"SC": 31, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23,
	"TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}

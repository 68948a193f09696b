# METADATA
# title: Card numbers are masked
# description: Numbers of 13 to 19 digits whose check digit holds are cut out of texts, and refused in calls.
# custom:
#   code: privacy.cards
#   severity: high
#   kinds: [text, thinking, tool_result, resource, prompt_result, tool_call]
package cmf.rules.privacy.cards

redact contains {
	"code": "privacy.cards",
	"reason": "A card number was masked.",
	"spans": spans,
	"replacement": data.cmf.defaults.privacy.cards.replacement,
} if {
	input.kind != "tool_call"
	spans := [[at, at + count(card)] | some card in _cards; some at in indexof_n(input.content, card)]
	count(spans) > 0
}

deny contains {
	"code": "privacy.cards",
	"reason": "This call holds a card number.",
} if {
	input.kind == "tool_call"
	count(_cards) > 0
}

_cards contains found if {
	some found in regex.find_n(_written, input.content, -1)
	_check_digit_holds(regex.replace(found, `[ -]`, ""))
}

# Without breaks, in fours, or as American Express has them.
_written := `[0-9]{13,19}|[0-9]{4}(?:[ -][0-9]{4}){3}|[0-9]{4}[ -][0-9]{6}[ -][0-9]{5}`

# Luhn: from the right, every second digit counts double, less nine where that is above nine.
_check_digit_holds(digits) if {
	last := count(digits) - 1
	counted := [amount |
		some at in numbers.range(0, last)
		amount := _worth[(last - at) % 2][to_number(substring(digits, at, 1))]
	]
	sum(counted) % 10 == 0
}

_worth := [
	[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
	[0, 2, 4, 6, 8, 1, 3, 5, 7, 9],
]

# METADATA
# title: Approve before pay
# description: A payment above the limit, or of an amount that cannot be read, waits for a person's word.
# custom:
#   code: spending.approve-payments
#   severity: high
#   kinds: [tool_call]
package cmf.rules.spending.approve_payments

require_approval contains {
	"code": "spending.approve-payments",
	"reason": "A person has to approve this payment.",
	"detail": {"free_up_to": _settings.free_up_to},
} if {
	input.uri in _settings.tools
	not _small
}

_small if {
	amount := input.arguments[_settings.amount]
	is_number(amount)
	amount >= 0
	amount <= _settings.free_up_to
}

_settings := data.cmf.defaults.spending.approve_payments

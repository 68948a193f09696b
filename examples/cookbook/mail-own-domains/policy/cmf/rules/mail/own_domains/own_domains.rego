# METADATA
# title: Mail stays inside
# description: A mail goes only to addresses of our own domains; a recipient that cannot be read is refused.
# custom:
#   code: mail.own-domains
#   severity: high
#   kinds: [tool_call]
package cmf.rules.mail.own_domains

deny contains {
	"code": "mail.own-domains",
	"reason": "Mail may go to our own domains only.",
} if {
	input.uri in _settings.tools
	some recipient in _recipients
	not _ours(recipient)
}

deny contains {
	"code": "mail.own-domains.nobody",
	"reason": "This mail says nobody whom it goes to.",
} if {
	input.uri in _settings.tools
	count(_recipients) == 0
}

_recipients contains recipient if {
	some field in _settings.fields
	some recipient in _each(input.arguments[field])
}

_each(value) := [trim_space(one) | some one in split(value, ",")] if is_string(value)

_each(value) := value if is_array(value)

# Neither a text nor a list: one recipient that is nobody's.
_each(value) := [value] if {
	not is_string(value)
	not is_array(value)
}

_ours(recipient) if {
	is_string(recipient)
	some groups in regex.find_all_string_submatch_n(_address, recipient, -1)
	lower(groups[1]) in _settings.domains
}

# The whole text, so that nothing stands beside the address.
_address := `^(?:[^<>@,;"]*<)?[A-Za-z0-9._%+-]+@([A-Za-z0-9.-]+)>?$`

_settings := data.cmf.defaults.mail.own_domains

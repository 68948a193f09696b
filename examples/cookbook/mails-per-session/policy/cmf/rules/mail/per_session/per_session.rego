# METADATA
# title: At most so many mails
# description: Once a session has sent as many mails as it may, another one is refused.
# custom:
#   code: mail.per-session
#   severity: high
#   kinds: [tool_call]
#   capabilities: [read_agent]
package cmf.rules.mail.per_session

deny contains {
	"code": "mail.per-session",
	"reason": "This conversation has sent as many mails as it may.",
	"detail": {"at_most": _settings.at_most},
} if {
	_new_mail
	not _within
}

_new_mail if {
	input.uri in _settings.tools
	input.hook != "llm_request" # those of the history were counted when they were new
}

# Undefined without a session, and then nothing is within.
_within if {
	counters := input.session.counters
	sent := [made | some tool in _settings.tools; made := counters[concat("", ["calls:", tool])]]
	sum(sent) < _settings.at_most
}

_settings := data.cmf.defaults.mail.per_session

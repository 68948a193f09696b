# METADATA
# title: Office hours
# description: Tools that do more than read are called on working days, while somebody is there.
# custom:
#   code: hours.office
#   severity: warn
#   kinds: [tool_call]
package cmf.rules.hours.office

deny contains {
	"code": "hours.office",
	"reason": "This can be done in office hours only.",
} if {
	input.hook != "llm_request" # what is in the history was judged when it was new
	not _at_any_time
	not _open
}

_at_any_time if input.uri in _settings.any_time

_open if {
	now := time.parse_rfc3339_ns(input.extensions.request.timestamp)
	time.weekday([now, _settings.zone]) in _settings.days
	[hour, _, _] := time.clock([now, _settings.zone])
	hour >= _settings.from_hour
	hour < _settings.until_hour
}

_settings := data.cmf.defaults.hours.office

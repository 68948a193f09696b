# METADATA
# title: Tools that nobody described
# description: |
#   What a tool does, and which arguments steer it, is inferred from its definition where no profile says so. Once
#   something that others can have written was read, a person is asked about a call of which it is evident that others
#   steer it: only they wrote where it goes or what it acts on, or nobody asked for it and its values are theirs. If
#   nobody wrote such a value, that is a warning. `strict` asks about that too; `lenient` only about evident calls that
#   send something away or cannot be undone.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: provenance.inferred
#   severity: high
#   kinds: [tool_call]
#   standards: [OWASP-LLM01, OWASP-LLM06, OWASP-ASI01, OWASP-ASI02]
#   settings:
#     dial: {enum: [strict, default, lenient]}
package cmf.rules.provenance.inferred

import data.cmf.lib.origins

require_approval contains hit if {
	some hit in _hits
	evidence := hit.detail.evidence
	_asks(evidence)
}

warn contains hit if {
	some hit in _hits
	evidence := hit.detail.evidence
	not _asks(evidence)
}

_dial := data.cmf.defaults.provenance.inferred.dial

_asks(evidence) if {
	origins.call.inference == "enforce"
	_is_enough(evidence)
}

_is_enough(_) if _dial == "strict"

_is_enough("evident") if _dial == "default"

_is_enough("evident") if {
	_dial == "lenient"
	_weighs
}

# It sends something away, or cannot be undone.
_weighs if origins.call.irreversible

_weighs if {
	not "read" in origins.call.actions
	some act in {"send", "export", "forward", "execute"}
	act in origins.call.actions
}

_hits contains {
	"code": "provenance.inferred.control",
	"reason": "Where this call goes or what it acts on was said by nobody but others.",
	"detail": {"arguments": _strange, "evidence": "evident"},
	"binds": _strange,
} if {
	origins.acts_after_untrusted
	count(_strange) > 0
}

_hits contains {
	"code": "provenance.inferred.named",
	"reason": "Others wrote what this call should act on, and the user did not say so.",
	"detail": {"arguments": _named, "evidence": "evident"},
	"binds": _named,
} if {
	origins.acts_after_untrusted
	origins.inferred("control")
	count(_named) > 0
}

_hits contains {
	"code": "provenance.inferred.relay",
	"reason": "This text passes on an address that only others wrote.",
	"detail": {"arguments": _relayed, "evidence": "evident"},
} if {
	origins.acts_after_untrusted
	_weighs
	count(_relayed) > 0
}

_hits contains {
	"code": "provenance.inferred.not-asked",
	"reason": "The user did not ask for this, and its values are those of others.",
	"detail": {"arguments": _taken, "evidence": "evident"},
} if {
	origins.acts_after_untrusted
	_not_asked
	count(_taken) > 0
}

_hits contains {
	"code": "provenance.inferred.unknown",
	"reason": "Nobody said where this call goes or what it acts on.",
	"detail": {"arguments": _unknown, "evidence": "unknown"},
} if {
	origins.acts_after_untrusted
	count(_unknown) > 0
}

_hits contains {
	"code": "provenance.inferred.irreversible",
	"reason": "The user did not ask for this, and it cannot be undone.",
	"detail": {"arguments": set(), "evidence": "unknown"},
} if {
	origins.acts_after_untrusted
	origins.call.irreversible
	_not_asked
}

_not_asked if {
	origins.inferred("asked_for")
	count(origins.call.sources) == 0
}

_steers(entry) if {
	entry.use == "control"
	entry.type in {"string", "number", "key", "raw"}
	origins.inferred("control")
	not origins.trusted(entry)
	not origins.pieced(entry)
	not _referred(entry)
}

_strange contains origins.argument(entry) if {
	some entry in input.origins
	_steers(entry)
	origins.said_by_others(entry)
}

# An address in a list that is one text, or beside a name: only others wrote it.
_strange contains origins.argument(entry) if {
	origins.inferred("control")
	some entry in input.origins
	entry.use == "control"
	entry.type == "piece"
	origins.said_by_others(entry)
	not origins.trusted(entry)
	not _referred(entry)
}

_unknown contains origins.argument(entry) if {
	some entry in input.origins
	_steers(entry)
	entry.type != "key"
	not origins.said_by_others(entry)
}

_named contains origins.argument(entry) if {
	not origins.handed_over
	some entry in input.origins
	entry.named
}

_relayed contains origins.argument(entry) if {
	origins.inferred("content")
	some entry in input.origins
	entry.type == "address"
	origins.said_by_others(entry)
	not origins.trusted(entry)
	not _referred(entry)
}

_taken contains origins.argument(entry) if {
	some entry in input.origins
	entry.type in {"string", "piece", "address"}
	origins.said_by_others(entry)
	not origins.trusted(entry)
	not _referred(entry)
}

# The user left it to a text that he named, and there is only one such value in it.
_referred(entry) if {
	_dial != "strict"
	entry.referred
}

# METADATA
# title: Where the values of a call came from
# description: What rules on provenance ask of `input.origins`, in one place [PROV-1] to [PROV-12].
package cmf.lib.origins

# METADATA
# title: The entry of the call as a whole
# scope: document
call := entry if {
	some entry in input.origins
	entry.type == "call"
}

# METADATA
# title: The call acts after something that others can have written was read
# description: |
#   A tool that no profile describes may do anything. Without any profiles nothing is known of tools, and nothing held.
# scope: document
acts_after_untrusted if {
	_acts
	some entry in input.origins
	entry.type == "before"
}

_acts if call.sink

_acts if call.profile == "unknown"

# METADATA
# title: Inferred
# description: True if nobody wrote `field` of the tool's profile, so that it was inferred from the tool's definition.
inferred(field) if field in call.inferred

# METADATA
# title: Trusted
# description: True if someone who is trusted said the value of `entry`.
trusted(entry) if {
	some source in entry.sources
	source.trust == "trusted"
}

# METADATA
# title: Said by others
# description: True if the value of `entry` stands in something that others can have written, or is claimed to be.
said_by_others(entry) if {
	some source in entry.sources
	source.trust != "trusted"
	source.kind != "assistant"
}

# METADATA
# title: Each piece said by someone trusted
# description: True if someone trusted said each piece of `entry`, a list or a name with its address.
pieced(entry) if {
	entry.type == "string"
	entry.path in _pieced
	not entry.path in _strangely_pieced
}

# The paths of texts with pieces, and of those with one that nobody trusted said. Looking through all entries for each
# text would take the square of them.
_pieced contains piece.path if {
	some piece in input.origins
	piece.type == "piece"
}

_strangely_pieced contains piece.path if {
	some piece in input.origins
	piece.type == "piece"
	not trusted(piece)
}

# METADATA
# title: Handed over
# description: True if the user handed over to what some text says ("do the tasks on my list").
# scope: document
handed_over if {
	some source in call.sources
	source.match == "delegated"
}

# METADATA
# title: The argument that an entry belongs to
# description: |
#   Its name only, as the tool spells it; what lies deeper is the sender's own words. Nothing for the whole.
argument(entry) := split(concat("", [entry.path, "/"]), "/")[1]

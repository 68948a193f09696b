# METADATA
# title: The text of a view
# description: |
#   What a content rule has to look at: `content`, and everything else of the view that somebody could have written,
#   keys included, as one JSON text.
package cmf.lib.scan

# METADATA
# title: Content
# description: The text of the view, empty when it has none.
# scope: document
default content := ""

content := input.content

# METADATA
# title: Content in plain letters
# description: |
#   The content as people and models read it: without characters that nobody sees, and in Latin letters what looks like
#   them. It is the content itself where the input has no other form of it.
# scope: document
plain := input.plain

plain := content if not input.plain

# METADATA
# title: Readings
# description: The content, its plain form where that is another text, and the texts that are encoded in it.
readings := {content, plain} | {found.text | some found in input.decoded}

# METADATA
# title: Spans that spell
# description: Where the content spells one of `texts`, as [start, end) in code points.
spans_spelling(texts) := sort({found.span |
	some found in input.decoded
	found.text in texts
})

# METADATA
# title: What is disguised
# description: True if `needle` stands in the plain form more often than in the content.
# scope: document
disguises(needle) if strings.count(input.plain, needle) > strings.count(content, needle)

# METADATA
# title: Surroundings
# description: |
#   JSON text of all that somebody outside could have written into the view besides its content, and of what that says
#   in plain letters and decoded. It is for detecting, not for cutting: engines escape `<`, `>` and `&` differently.
surroundings := json.marshal(_parts)

# METADATA
# title: Everything
# description: Content and surroundings as one text, for a first look.
everything := concat("\n", [concat("\n", readings), surroundings])

# One line per path, so that what a rule reads can be told from its text [POL-24].
_parts contains input.name

_parts contains input.uri

_parts contains input.mime_type

_parts contains input.arguments

_parts contains input.properties

_parts contains input.extensions.custom

_parts contains input.extensions.framework

_parts contains input.extensions.mcp

_parts contains input.extensions.meta

_parts contains input.spelled

_parts contains input.spelled_context

# METADATA
# title: Text beyond ASCII
# description: True if there is any character beyond ASCII in it. Without one no other script has to be looked for.
wide if regex.match(`[^\x00-\x7f]`, everything)

# METADATA
# title: Text that can be cut
# description: |
#   True if a span of `content` can be replaced without changing what the view asks for: words and results, not URLs,
#   arguments or the text inside encoded bytes.
# scope: document
cuttable if input.kind in {"prompt_result", "text", "thinking", "tool_result"}

cuttable if {
	input.kind == "resource"
	not input.properties.data
}

# METADATA
# title: Spans of a text
# description: Where each of `needles` (ASCII only) occurs in `text`, as [start, end) in code points [POL-21].
spans(text, needles) := sort([[start, start + count(needle)] |
	some needle in needles
	some start in indexof_n(text, needle)
])

"""States of the playground's page, and a rule small enough to type."""

from __future__ import annotations

import json

from pipeline.authoring.playground.state import PolicyFile, State

PATH = "cmf/rules/words/forbidden/forbidden.rego"
RULE = """# METADATA
# title: A forbidden word
# custom:
#   code: words.forbidden
#   severity: high
#   kinds: [text]
package cmf.rules.words.forbidden

deny contains {"code": "words.forbidden", "reason": "This may not be said.", "detail": {"role": input.role}} if {
	contains(input.content, "xyzzy")
	input.role == "user"
}
"""


def state(said: str = "say xyzzy", *, rule: str = RULE, context: str = "") -> State:
    """One rule, and one message of a user."""
    conversation = f"- role: user\n  text: {json.dumps(said)}\n"
    return State(files=(PolicyFile(path=PATH, text=rule),), conversation=conversation, context=context)

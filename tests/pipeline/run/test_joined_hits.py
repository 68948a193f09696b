"""Texts that a reader joins are judged as one text too, and edits fall on the parts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conftest import Rules

from cmf import adapters
from cmf.json.codec import dumps
from cmf.message.message import Message, PromptResultPart, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from cmf.message.request import Choice, Request, Response
from pipeline import Guard
from pipeline.decisions.decision import Action, Verdict

DENY = """\
deny contains {"code": "test.word", "reason": "Not this word."} if contains(input.content, "forbidden")
"""
LABEL = """\
label contains {"code": "test.label", "reason": "A word.", "label": "seen"} if contains(input.content, "forbidden")
"""
MASK = """\
redact contains {"code": "test.mask", "reason": "Masked.", "spans": spans, "replacement": "mask"} if {
	spans := [[at, at + 6] | some at in indexof_n(input.content, "secret")]
	count(spans) > 0
}
"""
MASK_BEHIND = """\
redact contains {"code": "test.mask", "reason": "Masked.", "spans": [[at + 5, at + 9]]} if {
	some at in indexof_n(input.content, "pass=1234")
}
"""
DROP_IN_ONE = """\
redact contains {"code": "test.mask", "reason": "Masked.", "spans": [[at, at + 6]], "replacement": how} if {
	some at in indexof_n(input.content, "secret")
	how := {true: "drop", false: "mask"}[startswith(input.content, "my")]
}
"""
BEYOND = """\
redact contains {"code": "test.mask", "reason": "Masked.", "spans": [[0, 99]]} if input.properties.joined
"""
FIELD = """\
redact contains {"code": "test.mask", "reason": "Masked.", "pointer": "/properties/extra/x"} if input.properties.joined
"""


def texts(*said: str) -> list[TextPart]:
    return [TextPart(text=text) for text in said]


def left(outcome: Any) -> list[str]:
    return [part.text for part in outcome.message.content if not isinstance(part, ToolCallPart)]


@pytest.mark.spec("VIEW-24")
@pytest.mark.parametrize(
    "between", [[], [ThinkingPart(text="hm")], [ToolCallPart(name="t", arguments={})]], ids=["", "thought", "call"]
)
def test_a_word_over_two_texts_is_refused_by_a_rule_that_knows_nothing_of_it(guarded: Rules, between: Any) -> None:
    message = Message(role="assistant", content=[*texts("for"), *between, *texts("bidden")])

    decision = guarded({"word": DENY}).decide(message)

    assert decision.action is Action.REFUSE
    assert [view.path for view in decision.hit_views] == ["content.text"]
    assert decision.coverage.produced == len(decision.views) == 3 + len(between)


@pytest.mark.spec("VIEW-24")
@pytest.mark.parametrize(
    ("message", "path"),
    [
        (
            Message(role="tool", content=[ToolResultPart(content=tuple(texts("for", "bidden")))]),
            "content[0].content.text",
        ),
        (
            Message(
                role="tool",
                content=[
                    PromptResultPart(prompt_name="p", messages=(Message(role="user", content=texts("for", "bidden")),))
                ],
            ),
            "content[0].messages[0].content.text",
        ),
        (
            Message(role="assistant", content=[ThinkingPart(text="for"), *texts("x"), ThinkingPart(text="bidden")]),
            "content.thinking",
        ),
    ],
)
def test_results_prompts_and_thoughts_are_joined_among_themselves(guarded: Rules, message: Message, path: str) -> None:
    decision = guarded({"word": DENY}).decide(message)

    assert decision.action is Action.REFUSE
    assert [view.path for view in decision.hit_views] == [path]


@pytest.mark.spec("EFF-12")
def test_a_span_past_the_end_of_a_joined_text_is_refused(guarded: Rules) -> None:
    decision = guarded({"mask": BEYOND}, kinds="text").decide(Message(role="user", content=texts("a", "b")))

    assert decision.action is Action.REFUSE
    assert "effect.span-outside" in [hit.code for hit in decision.hits]


@pytest.mark.spec("EFF-12")
def test_a_joined_text_has_no_field_to_redact(guarded: Rules) -> None:
    decision = guarded({"mask": FIELD}, kinds="text").decide(Message(role="user", content=texts("a", "b")))

    assert decision.action is Action.REFUSE
    assert [hit.code for hit in decision.hits] == ["policy.bad-effect"]


@pytest.mark.spec("EFF-12")
def test_what_one_part_shows_is_told_once(guarded: Rules) -> None:
    rules = {"word": DENY, "label": LABEL, "mask": MASK}
    message = Message(role="user", content=texts("forbidden secret", "a secret"))

    decision = guarded(rules, kinds="text").decide(message)

    assert [(view.path, [hit.code for hit in view.hits]) for view in decision.hit_views] == [
        ("content[0]", ["test.word", "test.mask", "test.label"]),
        ("content[1]", ["test.mask"]),
    ]


@pytest.mark.spec("EFF-12")
def test_a_signed_thought_that_holds_a_piece_is_removed_whole(guarded: Rules) -> None:
    thoughts = [ThinkingPart(text="a sec", signature="c2ln"), ThinkingPart(text="ret b")]

    outcome = guarded({"mask": MASK}, kinds="thinking").check(Message(role="assistant", content=thoughts))

    assert left(outcome) == [" b"]


@pytest.mark.spec("EFF-12")
def test_each_piece_is_masked_where_it_stands(guarded: Rules) -> None:
    message = Message(
        role="assistant",
        content=[*texts("one secret, a se"), ThinkingPart(text="hm"), *texts("", "cr", "et more", "secret")],
    )

    outcome = guarded({"mask": MASK, "label": LABEL}, kinds="text").check(message)

    assert left(outcome) == ["one [MASKED], a [MASKED]", "hm", "", "[MASKED]", " more", "[MASKED]"]
    assert outcome.decision.action is Action.FORWARD_MODIFIED
    assert [view.path for view in outcome.decision.hit_views] == [f"content[{at}]" for at in (0, 3, 4, 5)]


@pytest.mark.spec("EFF-12")
def test_what_only_the_text_before_explains_is_masked_in_one_part(guarded: Rules) -> None:
    outcome = guarded({"mask": MASK_BEHIND}, kinds="text").check(Message(role="user", content=texts("pass=", "1234.")))

    assert left(outcome) == ["pass=", "[MASKED]."]


@pytest.mark.spec("EFF-12")
def test_a_piece_gets_the_stricter_replacement_of_its_own_and_the_joined_text_s(guarded: Rules) -> None:
    message = Message(role="user", content=texts("my", " secret is", " secret"))

    outcome = guarded({"mask": DROP_IN_ONE}, kinds="text").check(message)

    assert left(outcome) == ["my", "  is", " "]


@pytest.mark.spec("VIEW-24")
def test_texts_that_hold_nothing_together_pass_with_the_view_of_both(guarded: Rules) -> None:
    outcome = guarded({"word": DENY}).check(Message(role="user", content=texts("for", "given")))

    assert outcome.decision.verdict is Verdict.ALLOW
    assert outcome.message is not None


@pytest.mark.spec("VIEW-24")
@pytest.mark.parametrize("name", ["aisdk", "anthropic_messages", "gemini", "ollama", "openai_chat", "openai_responses"])
@pytest.mark.parametrize("roles", [("system", "system"), ("system", "developer"), ("user", "user"), ("tool", "tool")])
def test_no_adapter_makes_one_text_of_those_of_two_messages(name: str, roles: tuple[str, str]) -> None:
    calls = [ToolCallPart(name="look", tool_call_id=f"call_{at}", arguments={}) for at in range(2)]
    said: list[Any] = texts("for", "bidden")
    if "tool" in roles:
        said = [
            ToolResultPart(tool_call_id=call.tool_call_id, tool_name="look", content=part.text)
            for call, part in zip(calls, said, strict=True)
        ]
    asked = [Message(role="user", content=texts("Look.")), Message(role="assistant", content=calls)]
    spoken = [Message(role=role, content=[part]) for role, part in zip(roles, said, strict=True)]
    messages = [*asked, *spoken] if "tool" in roles else [*spoken, Message(role="user", content=texts("Go on."))]

    wire = dumps(adapters.get(name).to_wire(Request(model="m", messages=messages))).decode()

    assert "bidden" in wire
    assert "forbidden" not in wire


KEY = "AKIAIOSFODNN7EXAMPLE"


@pytest.mark.spec("EFF-12")
@given(st.lists(st.integers(0, len(KEY) + 8), max_size=5).map(sorted), st.booleans())
def test_a_key_cut_anywhere_by_shipped_rules_leaves_nothing_of_it(cuts: list[int], thoughts: bool) -> None:
    said = f"Use {KEY}, ok"
    pieces = [said[start:end] for start, end in zip([0, *cuts], [*cuts, len(said)], strict=True)]
    made = ThinkingPart if thoughts else TextPart
    message = Message(role="assistant", content=[made(text=text) for text in pieces])

    outcome = SHIPPED.check(Response(choices=[Choice(message=message)]))

    assert outcome.response is not None
    whole = "".join(part.text for part in outcome.response.choices[0].message.content)
    assert whole.replace("[MASKED]", "") == "Use , ok"


SHIPPED = Guard()

"""The number that policy judges is the number that goes out."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from cmf import Message
from cmf.adapters import get
from cmf.errors import DecodeError
from cmf.json.codec import loads
from cmf.json.frozen import thaw
from cmf.message.digests import content_digest
from cmf.message.message import ToolCallPart
from cmf.message.request import Request
from pipeline import Guard

CAP: Final = """# METADATA
# title: At most 0.3 coins
# description: At most 0.3 coins, and a readable amount.
# custom:
#   code: pay.cap
#   severity: high
#   kinds: [tool_call]
package cmf.rules.pay.cap

deny contains {"code": "pay.cap", "reason": "Too much."} if {
	not _fits
}

_fits if input.arguments.amount <= 0.3
"""

REWRITE: Final = """# METADATA
# title: No notes
# description: Notes are replaced.
# custom:
#   code: pay.note
#   severity: high
#   kinds: [tool_call]
package cmf.rules.pay.note

rewrite contains {"code": "pay.note", "reason": "No notes.", "pointer": "/arguments/order", "value": order} if {
	input.arguments.order.note != "none"
	order := object.union(input.arguments.order, {"note": "none", "added": "1"})
}
"""


MASK: Final = """# METADATA
# title: No notes
# description: Notes are masked.
# custom:
#   code: pay.note
#   severity: high
#   kinds: [tool_call]
package cmf.rules.pay.note

redact contains {"code": "pay.note", "reason": "No notes.", "pointer": "/arguments/note"} if {
	input.arguments.note != "[MASKED]"
}
"""


def _guard(folder: Path) -> Guard:
    rule = folder / "cmf/rules/pay/cap/cap.rego"
    rule.parent.mkdir(parents=True)
    rule.write_text(CAP)
    return Guard(str(folder))


def _call(arguments: str) -> Any:
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    return get("openai_chat").from_wire_request({"model": "m", "messages": messages})


@pytest.mark.spec("CODEC-7")
@pytest.mark.parametrize("amount", ["0.30000000000000000001", "0.30000000000000001"])
def test_an_amount_above_its_cap_is_not_judged_as_the_nearest_double(tmp_path: Path, amount: str) -> None:
    message = _call(f'{{"amount": {amount}}}').messages[0]

    decision = _guard(tmp_path).decide(message)

    assert decision.verdict == "deny"


@pytest.mark.spec("CODEC-7")
def test_an_amount_in_a_body_is_refused_where_no_double_holds_it() -> None:
    with pytest.raises(DecodeError) as caught:
        loads('{"contents": [{"parts": [{"functionCall": {"args": {"amount": 0.30000000000000000001}}}]}]}')

    assert caught.value.code == "json.inexact"


@pytest.mark.spec("CODEC-7")
@pytest.mark.parametrize("amount", ["0.10", "3e-1", "0.3"])
def test_another_spelling_of_an_amount_is_judged_and_goes_out_as_it_came(tmp_path: Path, amount: str) -> None:
    text = f'{{"amount": {amount}}}'
    request = _call(text)

    decision = _guard(tmp_path).decide(request.messages[0])

    assert decision.verdict == "allow"
    body = get("openai_chat").to_wire(request)
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == text


@pytest.mark.spec("ID-8")
def test_a_large_double_is_the_whole_number_that_it_is_written_as() -> None:
    def said(amount: float) -> str:
        call = ToolCallPart(name="pay", arguments={"amount": amount})
        return content_digest(Message(role="assistant", content=[call]))

    assert said(1e23) == said(10**23)
    assert said(1e23) != said(int(1e23))


@pytest.mark.spec("EFF-13")
def test_a_rewrite_leaves_large_numbers_that_it_passes_on(tmp_path: Path) -> None:
    rule = tmp_path / "cmf/rules/pay/note/note.rego"
    rule.parent.mkdir(parents=True)
    rule.write_text(REWRITE)
    order = {"id": 2**60 + 1, "limits": [1e300, 5, 1.5], "note": "secret", "more": {"n": -(2**70), "text": "7"}}
    message = Message(role="assistant", content=[ToolCallPart(name="pay", arguments={"order": order})])

    outcome = Guard(str(tmp_path)).run(message)

    assert outcome.decision.verdict == "allow"
    assert isinstance(outcome.value, Message)
    assert thaw(outcome.value.content[0].arguments["order"]) == {**order, "note": "none", "added": "1"}


@pytest.mark.spec("EFF-13")
def test_numbers_beside_an_edit_stay_the_same_numbers_of_the_same_kind(tmp_path: Path) -> None:
    rule = tmp_path / "cmf/rules/pay/note/note.rego"
    rule.parent.mkdir(parents=True)
    rule.write_text(MASK)
    numbers = "[1.10, 1e2, 1.0, 1, -0.0, 18446744073709551617, 1e23, 9007199254740993, 5e-324, 0.1]"
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "pay", "arguments": text}}
        for at, text in enumerate([f'{{"note": "x", "numbers": {numbers}}}', f'{{"numbers": {numbers}}}'])
    ]
    messages = [{"role": "assistant", "content": None, "tool_calls": calls}]
    request = get("openai_chat").from_wire_request({"model": "m", "messages": messages})

    outcome = Guard(str(tmp_path)).run(request)

    assert isinstance(outcome.value, Request)
    sent = get("openai_chat").to_wire(outcome.value)["messages"][0]["tool_calls"]
    for call in sent:
        told = json.loads(call["function"]["arguments"], parse_float=Decimal)["numbers"]
        wanted = json.loads(numbers, parse_float=Decimal)
        assert told == wanted
        assert list(map(type, told)) == list(map(type, wanted))
    assert json.loads(sent[0]["function"]["arguments"])["note"] == "[MASKED]"

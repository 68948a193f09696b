"""What inference takes of hostile definitions: bounded work, and the strict side."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.pipeline.provenance.test_inference import EVIL, codes, judged, tool

from cmf.message.tools import ToolDefinition
from pipeline.provenance.inference import ToolFacts, infer


@pytest.mark.spec("PRF-16")
def test_alternatives_of_alternatives_are_counted_together_and_leave_every_argument_control() -> None:
    many = {"anyOf": [{"properties": {"z": {}}}, *[{"$ref": "#/$defs/nothing"}] * 300]}
    schema = {
        "$defs": {"many": many, "nothing": {"anyOf": [True] * 600}},
        "properties": {"p": {"anyOf": [{"items": {"$ref": "#/$defs/many"}}] * 300}},
    }
    begin = time.process_time()

    profile = infer(ToolDefinition(name="send_it", input_schema=schema)).profile

    assert profile.control == ("**",)
    assert time.process_time() - begin < 0.5  # 27 seconds where each list was counted by itself


@pytest.mark.spec("PRF-16")
@pytest.mark.parametrize("text", ["\n" * 4_096, "\n \t" * 1_300, " and will" * 500, ". " * 2_048])
def test_descriptions_are_read_in_linear_time(text: str) -> None:
    begin = time.process_time()
    infer(ToolDefinition(name="get_it", description=text))
    assert time.process_time() - begin < 0.1  # 1.25 seconds where each line break looked at all that follow


@pytest.mark.spec("PRF-13")
def test_of_a_crowd_of_tools_with_one_name_every_argument_is_control() -> None:
    crowd = [tool("send_it", f"Version {number}.", body="string") for number in range(9)]
    settings: dict[str, Any] = {
        "call": {"name": "send_it", "arguments": {"body": f"To {EVIL}"}},
        "read": [{"body": f"To {EVIL}"}],
    }

    assert "control" in codes(judged("Go on.", tools=crowd, **settings))
    assert "control" not in codes(judged("Go on.", tools=crowd[:8], **settings))


@pytest.mark.spec("PRF-13")
def test_definitions_that_are_made_anew_each_time_are_not_taken_for_each_other() -> None:
    def own(name: str, _: str | None) -> ToolDefinition:
        return ToolDefinition(name=name)

    facts = ToolFacts(lambda *_: None, mode="enforce", own=own)

    for number in range(100):
        known = facts.named(f"get_{number}"), facts.named(f"delete_{number}")
        assert [each.profile.sink for each in known if each is not None] == [False, True]

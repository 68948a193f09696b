"""A user's wire message with results of tools in it, cut into messages of one role each."""

from __future__ import annotations

import pytest

from cmf.adapters.wire.layout import user_runs
from cmf.enums import Role
from cmf.message.message import Part, TextPart, ToolResultPart

A, B = TextPart(text="a"), TextPart(text="b")
ONE, TWO = ToolResultPart(tool_call_id="1", content="x"), ToolResultPart(tool_call_id="2", content="y")


@pytest.mark.parametrize(
    ("parts", "runs"),
    [
        ([], [(Role.USER, ())]),
        ([A, B], [(Role.USER, (A, B))]),
        ([ONE, TWO], [(Role.TOOL, (ONE,)), (Role.TOOL, (TWO,))]),
        ([A, ONE, A, B, TWO], [(Role.USER, (A,)), (Role.TOOL, (ONE,)), (Role.USER, (A, B)), (Role.TOOL, (TWO,))]),
    ],
    ids=["nothing", "words", "results", "both"],
)
def test_each_result_is_a_message_and_texts_between_stay_together(
    parts: list[Part], runs: list[tuple[Role, tuple[Part, ...]]]
) -> None:
    assert user_runs(parts) == runs

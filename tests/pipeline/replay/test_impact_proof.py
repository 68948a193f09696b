"""A hundred thousand recorded views are compared in minutes; `make test` takes a tenth of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.replaying import KEY, judged

from cmf.json.codec import dumps
from cmf.message.request import Request
from pipeline.policy import policy_set
from pipeline.replay.impact import Change, impact_of

VIEWS = 100_000
MINUTES = 5.0  # for all of them, and for fewer too: the machine may be busy
DISTINCT = 20
WORDS = ("the", "order", "of", "last", "week", "has", "not", "come", "please", "look", "where", "it", "is", "and")
NUMBER = "no-00000000"  # in every text of every line another one, so that nothing can be remembered


@pytest.mark.proof
@pytest.mark.spec("RPL-8")
def test_views_are_compared_under_the_whole_library_in_minutes(
    tmp_path: Path, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    drawn = random.Random(proof_seed)
    base = policy_set.load(policy_set.shipped())
    shut = 'deny contains {"code": "test.shut", "reason": "x"} if input.name == "lookup"'
    head = policy_set.load(policy_set.shipped(), write_rules(tmp_path, {"shut": shut}, kinds="tool_call"))
    entries = [judged(_request(drawn, number), base, context={"subject": {"id": "ann"}}) for number in range(DISTINCT)]
    own = [dumps(entry.to_json()) for entry in entries]
    each = sum(len(entry.decision["views"]) for entry in entries)
    lines = [
        line.replace(NUMBER.encode(), b"no-%08x" % (turn * DISTINCT + at))
        for turn in range(round(VIEWS * proof_scale / each))
        for at, line in enumerate(own)
    ]

    begin = time.perf_counter()
    impact = impact_of(lines, base, head, expected=len(lines))
    spent = time.perf_counter() - begin

    figures = {"views": impact.views, "records": impact.entries, "seconds": round(spent, 1)}
    proof_row("cmf impact compares recorded views", **figures, views_per_second=round(impact.views / spent))
    print(f"{impact.views / spent:.0f} views/s, {impact.entries / spent:.0f} records/s")
    assert impact.counts[Change.NOT_REPLAYABLE] == 0
    assert impact.counts[Change.NEWLY_DENIED] == len(lines) * sum(map(_goes_out, entries)) // DISTINCT
    assert impact.views > VIEWS * proof_scale * 0.9
    assert spent < 60 * MINUTES


def _goes_out(entry: object) -> bool:
    decision = entry.decision  # type: ignore[attr-defined]
    return str(decision["action"]).startswith("forward")


def _request(drawn: random.Random, number: int) -> Request:
    """A turn of an agent: eight or so views, one in ten with a key in it."""
    text = f"{NUMBER} " + " ".join(drawn.choices(WORDS, k=60)) + (f" {KEY}" if number % 10 == 0 else "")
    call = {"content_type": "tool_call", "tool_call_id": "t1", "name": "lookup", "arguments": {"order": NUMBER}}
    result = {"content_type": "tool_result", "tool_call_id": "t1", "tool_name": "lookup", "content": text}
    tools = [
        {"name": name, "description": " ".join(drawn.choices(WORDS, k=12)), "input_schema": {"type": "object"}}
        for name in ("lookup", "write", "refund")
    ]
    messages = [
        {"role": "system", "content": [{"content_type": "text", "text": f"You help customers. {NUMBER}"}]},
        {"role": "user", "content": [{"content_type": "text", "text": text}]},
        {"role": "assistant", "content": [call]},
        {"role": "tool", "content": [result]},
        {"role": "user", "content": [{"content_type": "text", "text": f"and {NUMBER}?"}]},
    ]
    return Request.model_validate({"model": "openai:gpt", "messages": messages, "tools": tools})

"""What a rule knows when an MCP client calls: the time, and what the session has done."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.mcp.pairs import READ, Pair, call, text

from pipeline.guard import Guard
from pipeline.run.assembly import Config

TIME = 'deny contains {"code": "no.clock", "reason": input.extensions.request.timestamp} if input.name == "clock"'
PATIENT = Config(timeout_seconds=20)


@pytest.mark.spec("VIEW-7")
async def test_what_a_session_has_done_limits_the_calls_of_a_client(tmp_path: Path) -> None:
    (tmp_path / "cmf/defaults").mkdir(parents=True)
    limits = {"session": {"call_limit": {"at_most": {"tool://files/read": 2}}}}
    (tmp_path / "cmf/defaults/data.json").write_text(json.dumps(limits), encoding="utf-8")
    with Guard(["shipped", tmp_path], config=PATIENT) as guard:
        pair = Pair(guard)
        allowed = [await pair.exchange("tools/call", READ, {"content": [text("ok")]}, at) for at in (1, 2)]
        refused = await pair.client(call("tools/call", READ, 3))

    assert "session.call-limit" in json.dumps(refused.back)
    assert [one["result"]["content"] for one in allowed] == [[text("ok")]] * 2


@pytest.mark.spec("MCPX-28")
async def test_a_rule_knows_what_time_it_is(tmp_path: Path) -> None:
    begun = datetime.now(UTC).replace(microsecond=0)
    with Guard(write_rules(tmp_path, {"time": TIME}), config=PATIENT) as guard:
        step = await Pair(guard).client(call("tools/call", {"name": "clock", "arguments": {}}))

    said = step.back[0]["result"]["content"][0]["text"]
    assert begun <= datetime.fromisoformat(said.split()[0]) <= datetime.now(UTC)

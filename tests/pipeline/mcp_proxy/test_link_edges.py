"""What stands where a link puts or looks for words of its own: judged like the rest, and never the end of a link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.mcp_proxy.pairs import Pair, call, tool

from pipeline.guard import Guard
from pipeline.mcp_proxy.pins import Pins

CARD = "4111111111111111"
RULES = {
    "cards": f'deny contains {{"code": "no.card", "reason": "No."}} if contains(json.marshal(input), "{CARD}")',
    "names": 'deny contains {"code": "no.rm", "reason": "Not this tool."} if input.uri == "tool://files/rm"',
}


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    with Guard([write_rules(tmp_path_factory.mktemp("policy"), RULES)]) as guard:
        yield guard


@pytest.fixture
def pair(guard: Guard) -> Pair:
    return Pair(guard)


@pytest.mark.spec("MCPX-20")
async def test_the_name_of_a_tool_that_changed_is_judged_before_it_is_told(guard: Guard) -> None:
    pins = Pins()
    first = await Pair(guard, pins=pins).exchange("tools/list", {}, {"tools": [tool(CARD)]}, 1)
    second = await Pair(guard, pins=pins).exchange("tools/list", {}, {"tools": [tool(CARD, "Else.")]}, 2)

    assert (first["error"]["data"]["code"], second["error"]["data"]["code"]) == ("no.card", "no.card")
    assert CARD not in str(second)


@pytest.mark.spec("MCPX-20")
@pytest.mark.parametrize("meta", [None, "x", [1]])
async def test_what_changed_is_named_whatever_stands_where_the_names_go(pair: Pair, meta: Any) -> None:
    await pair.exchange("tools/list", {}, {"tools": [tool("read")]}, 1)
    body = await pair.exchange("tools/list", {}, {"tools": [tool("read", "Else.")], "_meta": meta}, 2)

    told = [{"name": "read", "code": "mcp.definition-changed"}]
    assert body["result"] == {"tools": [], "_meta": {"cmf/stripped": told}}


@pytest.mark.spec("MCPX-30")
@pytest.mark.parametrize("meta", [None, 5, True, "x", [1]])
async def test_a_refused_call_is_answered_whatever_stands_in_place_of_its_meta(pair: Pair, meta: Any) -> None:
    step = await pair.client(call("tools/call", {"name": "rm", "arguments": {}, "_meta": meta}))

    assert step.onward == ()
    assert step.back[0]["result"]["isError"] is True

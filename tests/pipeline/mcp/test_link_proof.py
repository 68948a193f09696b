"""A marker at each place of every message: whatever a link passes on, policy was shown."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cmf.adapters.wiredata import Spot, every, planted, records, sampled, spots
from tests.pipeline.conftest import write_rules
from tests.pipeline.mcp.pairs import PNG, READ, Pair, call, notice, text

from pipeline.guard import Guard
from pipeline.mcp.frames import FrameError, frame_of
from pipeline.mcp.link import Side

MARKER = "mark!Q7z~kk"  # neither base64 nor a number: nothing that holds it stands in a view by digest alone
SHOWN = "own.shown"
RULES = {"see": f'deny contains {{"code": "{SHOWN}", "reason": "x"}} if contains(json.marshal(input), "{MARKER}")'}
SAMPLED_SPOTS = 40  # places per recorded body outside `make proof`

CALL = {"name": "read", "arguments": {"path": "/", "of": ["a", {"b": "c"}]}, "_meta": {"progressToken": "t"}}
PICTURE = {"type": "image", "data": PNG, "mimeType": "image/png"}
FILE = {"type": "resource", "resource": {"uri": "file:///a", "text": "t", "mimeType": "text/plain"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"], "description": "d"}}}
SAMPLING = {"messages": [{"role": "user", "content": text("a")}], "maxTokens": 5, "systemPrompt": "q"}
ELICITATION = {"message": "q", "requestedSchema": SCHEMA}
ROOTS = {"roots": [{"uri": "file:///a", "name": "n"}]}
SAMPLED = {"role": "assistant", "content": text("a"), "model": "m", "stopReason": "endTurn"}
ELICITED = {"action": "accept", "content": {"a": "b"}}

OF_SERVERS: dict[str, dict[str, Any]] = {
    "sampling/createMessage": SAMPLING,
    "elicitation/create": ELICITATION,
    "roots/list": {},
}
CALLS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"experimental": {"a": {"b": "c"}}},
        "clientInfo": {"name": "c", "version": "1"},
    },
    "tools/call": CALL,
    "tools/list": {"cursor": "a", "_meta": {"a": "b"}},
    "prompts/get": {"name": "p", "arguments": {"a": "b"}},
    "resources/read": {"uri": "file:///a"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": "b"},
        "context": {"arguments": {"a": "b"}},
    },
    "logging/setLevel": {"level": "info"},
    "tasks/get": {"taskId": "a"},
    "tasks/update": {"taskId": "a", "inputResponses": {"q": ELICITED}},
    "subscriptions/listen": {"notifications": {"a": "b"}},
    "made/up": {"a": ["b"]},
    **OF_SERVERS,
}
NOTICES: dict[str, dict[str, Any]] = {
    "notifications/progress": {"progressToken": "t", "progress": 1, "message": "x"},
    "notifications/cancelled": {"requestId": 1, "reason": "x"},
    "notifications/message": {"level": "info", "data": {"a": ["x"]}, "logger": "l"},
    "notifications/resources/updated": {"uri": "file:///a"},
    "notifications/elicitation/complete": {"elicitationId": "x"},
}
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "experimental": {"a": {"b": "c"}}},
        "serverInfo": {"name": "s", "version": "1"},
        "instructions": "i",
    },
    "tools/call": {
        "content": [text('{"a":1}'), FILE, PICTURE, {"type": "resource_link", "uri": "file:///a", "name": "n"}],
        "structuredContent": {"a": 1},
        "isError": False,
        "_meta": {"a": 1},
    },
    "tools/list": {
        "tools": [{"name": "a", "description": "d", "inputSchema": SCHEMA, "annotations": {"title": "t"}}],
        "nextCursor": "n",
        "_meta": {"a": "b"},
    },
    "prompts/get": {"description": "d", "messages": [{"role": "user", "content": text("a")}]},
    "prompts/list": {"prompts": [{"name": "p", "description": "d", "arguments": [{"name": "a", "description": "d"}]}]},
    "resources/read": {"contents": [{"uri": "file:///a", "text": "t", "mimeType": "text/plain"}]},
    "resources/list": {"resources": [{"uri": "file:///a", "name": "n", "description": "d"}]},
    "completion/complete": {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
    "sampling/createMessage": SAMPLED,
    "elicitation/create": ELICITED,
    "roots/list": ROOTS,
}
TASK = {"taskId": "a", "status": "working", "statusMessage": "s", "createdAt": "x", "ttlMs": 1, "_meta": {"a": "b"}}
FINISHED = {**TASK, "status": "completed", "result": RESULTS["tools/call"]}
FAILED = {**TASK, "status": "failed", "error": {"code": 1, "message": "m", "data": {"k": ["v"]}}}
QUESTIONS = [{"method": method, "params": params} for method, params in OF_SERVERS.items()]
ANSWERS = [SAMPLED, ELICITED, ROOTS]
ERROR = {"code": 1, "message": "m", "data": {"k": ["v"]}}


class Said(NamedTuple):
    """A message of one side, and those before it, the last of which it answers or is about."""

    side: Side
    body: dict[str, Any]
    before: tuple[tuple[Side, dict[str, Any]], ...] = ()


def _calls() -> Iterator[Said]:
    asked = call("tools/call", CALL)
    for side in Side:
        for method, params in CALLS.items():
            yield Said(side, call(method, params))
        for method, params in NOTICES.items():
            yield Said(side, notice(method, params), ((side if method.endswith("cancelled") else side.other, asked),))
    for answer in ANSWERS:
        yield Said(Side.CLIENT, call("tools/call", {**READ, "inputResponses": {"q": answer}, "requestState": "s"}))


def _answers() -> Iterator[Said]:
    for method, result in RESULTS.items():
        asked = (Side.SERVER if method in OF_SERVERS else Side.CLIENT, call(method, CALLS.get(method, {})))
        for outcome in ({"result": result}, {"error": ERROR}):
            yield Said(asked[0].other, {"jsonrpc": "2.0", "id": 1, **outcome}, (asked,))
    for question in QUESTIONS:
        result = {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"}
        yield Said(Side.SERVER, _answer(result), ((Side.CLIENT, call("tools/call", CALL)),))


def _answer(result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": result}


def _tasks() -> Iterator[Said]:
    asked, begun = (Side.CLIENT, call("tools/call", CALL)), {"resultType": "task", **TASK}
    for result in (begun, {"task": TASK}):
        yield Said(Side.SERVER, _answer(result), (asked,))
    before = (asked, (Side.SERVER, _answer(begun)))
    asking = {**TASK, "status": "input_required", "inputRequests": {"q": QUESTIONS[0]}}
    for task in (TASK, FINISHED, FAILED, asking):
        yield Said(Side.SERVER, _answer(task), (*before, (Side.CLIENT, call("tasks/get", {"taskId": "a"}))))
        yield Said(Side.SERVER, notice("notifications/tasks", task), before)
    last = (Side.CLIENT, call("tasks/result", {"taskId": "a"}))
    yield Said(Side.SERVER, _answer(RESULTS["tools/call"]), (*before, last))


def _recorded(scale: float, seed: int) -> Iterator[Said]:
    for record in sampled(records("mcp"), scale, seed):
        bodies = [record.request, record.response, *(event.get("data") for event in record.events or [])]
        for body in bodies:
            if not isinstance(body, dict) or "jsonrpc" not in body:
                continue
            asked = record.request if isinstance(record.request, dict) and "id" in record.request else None
            if "method" in body:
                yield Said(Side.SERVER if body is not record.request else Side.CLIENT, body)
            else:
                yield Said(Side.SERVER, body, ((Side.CLIENT, asked or call("tools/call", CALL)),))


async def _heard(guard: Guard, said: Said, spot: Spot) -> str:
    """What comes of a message with the marker at a place."""
    pair, minted = Pair(guard), None
    for side, earlier in said.before:
        first = await pair.link.receive(side, frame_of(earlier if "method" in earlier else {**earlier, "id": minted}))
        if not first.onward:
            return "not asked"
        minted = first.onward[0]["id"]
    body = said.body if minted is None or "method" in said.body else {**said.body, "id": minted}
    try:
        frame = frame_of(planted(body, spot, MARKER))
    except FrameError:
        return "no message"
    step = await pair.link.receive(said.side, frame)
    if MARKER in json.dumps(step.onward):
        return "passed on"
    return "shown and refused" if SHOWN in json.dumps([*step.onward, *step.back]) else "kept here"


async def _tally(guard: Guard, everything: Iterable[Said], places: Callable[[list[Spot]], list[Spot]]) -> Counter[str]:
    """How often what came of a message, and at which places the marker was passed on."""
    counts: Counter[str] = Counter()
    for said in everything:
        for spot in places([spot for spot in spots(said.body) if spot.path != ("id",)]):  # the link's own on both sides
            found = await _heard(guard, said, spot)
            counts[found] += 1
            if found == "passed on":
                counts[f"passed on: {said.side.value} {said.body.get('method', 'answer')} {spot}"] += 1
    return counts


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policy"), RULES)


@pytest.fixture(scope="module")
def guard(home: Path) -> Iterator[Guard]:
    with Guard([home]) as guard:
        yield guard


def _passed_on(counts: Counter[str]) -> list[str]:
    return [found for found in counts if found.startswith("passed on:")]


@pytest.mark.proof
@pytest.mark.spec("MCPX-10", "MCPX-11", "MCPX-12", "MCPX-13", "MCPX-15")
async def test_a_link_passes_nothing_on_that_policy_was_not_shown(guard: Guard, proof_row: Callable[..., None]) -> None:
    """Each method, result, error, question and answer, at every place of it, from either side."""
    counts = await _tally(guard, [*_calls(), *_answers(), *_tasks()], lambda found: found)

    assert _passed_on(counts) == []
    proof_row("what a link of MCP passes on was shown to policy", **counts)
    assert counts["not asked"] == 0
    assert counts["shown and refused"] > 2 * counts["kept here"]


@pytest.mark.proof
@pytest.mark.spec("MCPX-10", "MCPX-12", "MCPX-13")
async def test_a_link_passes_nothing_of_a_recorded_message_on_that_policy_was_not_shown(
    guard: Guard, proof_scale: float, proof_seed: int, proof_row: Callable[..., None]
) -> None:
    dice = random.Random(proof_seed)
    at_most = None if proof_scale >= 1 else SAMPLED_SPOTS
    said = _recorded(proof_scale, proof_seed)

    counts = await _tally(guard, said, lambda found: every(found, at_most, dice.randrange(1 << 30)))

    assert _passed_on(counts) == []
    proof_row("what a link of MCP passes on of recorded messages was shown to policy", seed=proof_seed, **counts)
    assert counts["shown and refused"] > 2 * counts["kept here"]


@pytest.mark.spec("MCPX-13")
async def test_the_proof_notices_what_goes_on_unseen(lenient: Path) -> None:
    with Guard([lenient]) as blind:
        counts = await _tally(blind, [Said(Side.CLIENT, call("tools/call", CALL))], lambda found: found)

    assert "passed on: client tools/call params.arguments.path (leaf)" in _passed_on(counts)

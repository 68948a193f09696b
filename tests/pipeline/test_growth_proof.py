"""The work of a run grows no faster than its input, whatever the input has many of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.pipeline.conftest import ALL_KINDS, write_rules
from tests.pipeline.gateway.servers import Bare
from tests.pipeline.gateway.test_pauses_proof import stream_of
from tests.pipeline.gateway.windows import Client, aserved, spoken
from tests.pipeline.growth import calls_of, exponent, seconds_of

from cmf import SubjectExtension, TextPart, ToolCallPart, adapters
from cmf.message.message import Message
from cmf.message.request import Request, Response
from pipeline import Config, Context, Guard, Pipeline
from pipeline.decisions.decision import TOO_MUCH_WORK
from pipeline.decisions.timestamps import new_ulid
from pipeline.gateway.config.settings import Upstream
from pipeline.gateway.upstreams.http_upstream import HttpUpstream

pytestmark = [pytest.mark.proof, pytest.mark.no_cover]

MOST = 1.1  # the exponent allowed; that of CPU time, which depends on caches too, may be a little more
MOST_OF_TIME = 1.25
TIMES = 4
CHAT, MCP = adapters.get("openai_chat"), adapters.get("mcp")
CALL = MCP.from_wire_request(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read", "arguments": {}}}
)
SSN = "123-45-6789"
EDITS = """
label contains {"code": "l", "reason": "r", "label": concat("-", ["seen", input.role])} if input.kind == "text"
redact contains {"code": "p", "reason": "r", "pointer": sprintf("/arguments/items/%d", [at]), "replacement": how} if {
\tsome at, item in input.arguments.items
\tstartswith(item, "123-45")
\thow := {0: "drop", 1: "hash"}[at % 2]
}
rewrite contains {"code": "w", "reason": "r", "pointer": sprintf("/arguments/%s", [key]), "value": {"was": "k"}} if {
\tsome key, item in input.arguments
\titem == "123-45-0000"
}
redact contains {"code": "s", "reason": "r", "spans": spans, "replacement": "token"} if {
	spans := [[at, at + 6] | some at in indexof_n(input.content, "123-45")]
\tinput.kind in {"text", "tool_result"}
\tcontains(input.content, "123-45")
}
"""


def asked(messages: list[dict[str, Any]], **fields: Any) -> Request:
    return CHAT.from_wire_request({"model": "openai:m", "messages": messages, **fields})


def said(content: object) -> Request:
    return asked([{"role": "user", "content": content}])


def called(arguments: object, name: str = "fetch", call_id: str = "a") -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def returned(content: str, call_id: str = "a") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def answered(message: dict[str, Any]) -> Response:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    return CHAT.from_wire_response(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    )


def tool(number: int, properties: int) -> dict[str, Any]:
    schema = {"type": "object", "properties": {f"path{at}": {"type": "string"} for at in range(properties)}}
    return {"type": "function", "function": {"name": f"tool{number}", "description": "Reads.", "parameters": schema}}


def turns(count: int) -> list[dict[str, Any]]:
    pairs = (
        (called({"q": f"value {n}"}, call_id=f"a{n}"), returned(f"row {n} x{n}@e.com", f"a{n}")) for n in range(count)
    )
    return [{"role": "user", "content": "look"}, *(message for pair in pairs for message in pair)]


def mails(count: int) -> list[str]:
    return [f"x{number}@e.com" for number in range(count)]


def sends(addresses: list[str]) -> dict[str, Any]:
    return called({"to": addresses}, "send_mail", "b")


def fields(count: int) -> str:
    return json.dumps({f"k{number}": {"id": number} for number in range(count)})


def call_number(number: int) -> dict[str, Any]:
    call: dict[str, Any] = called({"q": SSN}, call_id=f"a{number}")["tool_calls"][0]
    return call


def nested(depth: int) -> Any:
    held: Any = "value"
    for _ in range(depth):
        held = [held]
    return held


USER = {"role": "user", "content": "send it to bob3@example.com"}
INPUTS: dict[str, Callable[[int], Request | Response | Message]] = {
    "spans of a text": lambda n: said(f"{SSN} " * n),
    "spans of a result": lambda n: asked([USER, called({}), returned(f"{SSN} " * n)]),
    "secrets of a text": lambda n: said(" ".join(f"AKIA{n * 7919 + 10**15:016X}" for n in range(n))),
    "labelled parts": lambda n: said([{"type": "text", "text": SSN}] * n),
    "plain parts": lambda n: said([{"type": "text", "text": "hello you"}] * n),
    "labelled messages": lambda n: asked([{"role": "user", "content": SSN}] * n),
    "plain messages": lambda n: asked([{"role": "user", "content": "hello"}] * n),
    "words of a text": lambda n: said("the quick brown fox " * n),
    "links of a page": lambda n: asked(
        [USER, called({}), returned("".join(f"<p><a href='https://e.com/{i}'>x{i}@e.com</a></p>" for i in range(n)))]
    ),
    "tools": lambda n: asked([USER], tools=[tool(i, 1) for i in range(n)]),
    "properties of a tool": lambda n: asked([USER], tools=[tool(0, n)]),
    "turns with calls": lambda n: asked(turns(n)),
    "keys of arguments": lambda n: asked([USER, called({f"key{i}": f"value {i}" for i in range(n)})]),
    "like arguments": lambda n: asked([USER, called({f"key{i}": SSN for i in range(n)})]),
    "items of arguments": lambda n: asked([USER, called({"items": [f"{SSN[:-4]}{i}" for i in range(n)]})]),
    "rows of arguments": lambda n: asked(
        [USER, called({"rows": [{"name": "t", "count": i} for i in range(n)]}, "insert_rows")]
    ),
    "rewritten arguments": lambda n: asked([USER, called({f"key{i}": "123-45-0000" for i in range(n)})]),
    "fields of a result": lambda n: asked([USER, called({}), returned(fields(n))]),
    "addresses to write to": lambda n: asked([USER, called({}), returned(" ".join(mails(n))), sends(mails(n))]),
    "unreadable calls": lambda n: asked([USER, *(called([i], call_id=f"a{i}") for i in range(n))]),
    "calls of a reply": lambda n: answered({"content": None, "tool_calls": [*map(call_number, range(n))]}),
    "numbers of an unknown field": lambda n: asked([USER], series=[number + 0.5 for number in range(n)]),
    "nested lists of an unknown field": lambda n: asked([USER], series=[nested(20) for _ in range(n // 10)]),
    "nested arguments": lambda n: asked([USER, called({"items": [nested(20) for _ in range(n // 10)]})]),
    "blocks of a tool's result": lambda n: MCP.from_wire_response(
        {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "ok"}] * n}}, CALL
    ),
    "spans of a reply": lambda n: answered({"content": f"{SSN} " * n}),
}  # fmt: skip


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pipeline]:
    own = tmp_path_factory.mktemp("rules")
    write_rules(own, {"edits": EDITS}, kinds=ALL_KINDS)
    patient = Config(timeout_seconds=60.0)
    return {"shipped": Pipeline(config=patient), "own": Pipeline(policies=[own], config=patient)}


EDITED = ("spans of a text", "spans of a result", "labelled parts", "labelled messages", "items of arguments",
          "rewritten arguments", "spans of a reply")  # fmt: skip
CASES = [*((name, "shipped") for name in INPUTS), *((name, "own") for name in EDITED)]


@pytest.mark.spec("PIPE-19")
@pytest.mark.parametrize(("name", "rules"), CASES)
def test_the_work_of_a_run_grows_no_faster_than_its_input(
    pipelines: dict[str, Pipeline], rules: str, name: str, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    small = int(150 * (10 * proof_scale) ** 0.5)
    values = [INPUTS[name](small), INPUTS[name](TIMES * small)]
    runs = [partial(pipelines[rules].run, value) for value in values]
    for run in runs:  # so that neither finds the caches empty
        run()

    grown = exponent(*map(calls_of, runs), times=TIMES)

    proof_row(f"work grows with {name} ({rules})", exponent=f"{grown:.2f}")
    assert grown <= MOST


@pytest.mark.spec("PIPE-19")
@pytest.mark.parametrize("name", ["rows of arguments", "items of arguments", "addresses to write to"])
def test_what_an_agent_sends_at_once_is_judged_within_the_deadline(name: str) -> None:
    hits = Guard().run(INPUTS[name](2_500)).decision.hits
    assert TOO_MUCH_WORK not in {hit.code for hit in hits}


@pytest.mark.spec("PIPE-19")
@pytest.mark.parametrize(("name", "rules"), CASES)
def test_the_time_of_a_run_grows_no_faster_than_its_input(
    pipelines: dict[str, Pipeline], rules: str, name: str, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    if proof_scale < 1:
        pytest.skip("only at full size, where native code takes long enough to be measured")
    sizes = [INPUTS[name](2_000), INPUTS[name](TIMES * 2_000)]
    hits = [hit for value in sizes for hit in pipelines[rules].run(value).decision.hits]
    assert TOO_MUCH_WORK not in {hit.code for hit in hits}, "what is given up at a deadline grows no further"

    grown = exponent(*(seconds_of(partial(pipelines[rules].run, value)) for value in sizes), times=TIMES)

    proof_row(f"time grows with {name} ({rules})", exponent=f"{grown:.2f}")
    assert grown <= MOST_OF_TIME


def events_of_a_session(pipeline: Pipeline, count: int) -> None:
    """A session in which each run has one call, of one of twenty tools: policy is shown a counter for each of them."""
    context = Context(subject=SubjectExtension(id="ann"), session=new_ulid())
    for number in range(count):
        pipeline.run(
            Message(role="assistant", content=[ToolCallPart(name=f"tool{number % 20}", arguments={"row": number})]),
            context,
        )


def turns_of_a_session(pipeline: Pipeline, count: int) -> None:
    """A session in which each run has one message of the user, which joins those before it."""
    context = Context(subject=SubjectExtension(id="ann"), session=new_ulid())
    for number in range(count):
        pipeline.run(Message(role="user", content=[TextPart(text=f"look at row {number}")]), context)


@pytest.mark.spec("PIPE-19")
@pytest.mark.parametrize("runs", [events_of_a_session, turns_of_a_session])
def test_the_work_of_all_runs_of_a_session_grows_no_faster_than_their_number(
    pipelines: dict[str, Pipeline],
    runs: Callable[[Pipeline, int], None],
    proof_scale: float,
    proof_row: Callable[..., None],
) -> None:
    small = int(40 * (10 * proof_scale) ** 0.5)
    runs(pipelines["shipped"], small)

    grown = exponent(*(calls_of(partial(runs, pipelines["shipped"], n)) for n in (small, TIMES * small)), times=TIMES)

    proof_row(f"work grows with {runs.__name__.replace('_', ' ')}", exponent=f"{grown:.2f}")
    assert grown <= MOST


async def streamed(guard: Guard, url: str, window: int | None) -> Client:
    """What a client gets of the answer that the upstream at this address streams."""
    settings = Upstream(dialect="openai_chat", base_url=url)
    upstream = HttpUpstream("up", settings, None, reply_bytes=1 << 20)
    await upstream.open()
    try:
        return await aserved(guard, upstream, window=window)
    finally:
        await upstream.close()


@pytest.mark.spec("PIPE-19")
@pytest.mark.parametrize("window", [None, 100])
def test_the_work_of_a_stream_grows_no_faster_than_its_deltas(
    window: int | None, proof_row: Callable[..., None]
) -> None:
    guard = Guard(config=Config(timeout_seconds=60.0))
    small = 75  # four times as many arrive in less than 64 KiB, beyond which threads work that are not counted
    work = []
    for count in (small, TIMES * small):
        with Bare(stream_of(count, "the quick ")).running() as url:
            client = asyncio.run(streamed(guard, url, window))
            assert len(spoken("openai_chat", client)) == 10 * count
            work.append(calls_of(lambda url=url: asyncio.run(streamed(guard, url, window))))

    grown = exponent(*work, times=TIMES)

    proof_row(f"work grows with the deltas of a stream (window {window})", exponent=f"{grown:.2f}")
    assert grown <= MOST

"""Each field, part and tool that an SDK's types know: read whole, shown to policy, written again, and who runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import pytest

from cmf import adapters
from cmf.adapters.wire import loss
from cmf.errors import CmfError, UnsupportedError
from cmf.message.request import Request
from cmf.views.iterate import iter_views
from tests.cmf.adapters.sdk.typed_bodies import CANARY, choices, fields, marked, variants

pytest.importorskip("openai", reason="the provider's own SDK is a development dependency")
pytest.importorskip("anthropic", reason="the provider's own SDK is a development dependency")
pytest.importorskip("google.genai", reason="the provider's own SDK is a development dependency")

from anthropic.types.beta import BetaToolUnionParam
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming
from google.genai import types as google
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from openai.types.responses.tool_param import ToolParam

SAID: Final = [{"role": "user", "content": "hi"}]
ASKED: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": {"model": "m", "messages": SAID},
    "openai_responses": {"model": "m", "input": "hi"},
    "anthropic_messages": {"model": "m", "max_tokens": 9, "messages": SAID},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
FIELDS: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": fields(CompletionCreateParamsNonStreaming),
    "openai_responses": fields(ResponseCreateParamsNonStreaming),
    "anthropic_messages": fields(MessageCreateParamsNonStreaming),
    "gemini": {
        "contents": list[google.Content], "systemInstruction": google.Content, "tools": list[google.Tool],
        "toolConfig": google.ToolConfig, "generationConfig": google.GenerationConfig,
        "safetySettings": list[google.SafetySetting],
    },
}  # fmt: skip
# What no request of theirs may say, though the types allow it: the provider refuses it too.
REFUSED: Final = {"shape.unknown-role", "projection.unsupported"}
# The tools of these types that the caller runs; each other one is the provider's, also one that nobody knows yet.
OURS: Final = {
    "FunctionToolParam", "ComputerToolParam", "ComputerUsePreviewToolParam", "LocalShell",
    "FunctionShellToolParam", "CustomToolParam",
    "NamespaceToolParam", "ApplyPatchToolParam", "BetaToolParam", "BetaToolBash20241022Param",
    "BetaToolBash20250124Param", "BetaToolComputerUse20241022Param", "BetaMemoryTool20250818Param",
    "BetaToolComputerUse20250124Param", "BetaToolTextEditor20241022Param", "BetaToolComputerUse20251124Param",
    "BetaComputerToolset20260801Param",
    "BetaBrowserToolset20260801Param", "BetaToolTextEditor20250124Param", "BetaToolTextEditor20250429Param",
    "BetaToolTextEditor20250728Param",
}  # fmt: skip


def bodies(name: str) -> Iterator[dict[str, Any]]:
    for key, of in FIELDS[name].items():
        yield from ({**ASKED[name], key: value} for value in variants(of, 1))


def read(name: str, body: dict[str, Any]) -> Request | str:
    """The request, or the code with which it is refused."""
    try:
        return adapters.get(name).from_wire_request(body)
    except CmfError as error:
        return error.code


@pytest.mark.spec("ADP-5")
@pytest.mark.spec("ADP-2")
@pytest.mark.parametrize("name", FIELDS)
def test_each_field_that_the_sdk_knows_is_shown_and_written_again(name: str) -> None:
    whole = 0
    for body, marks in map(marked, bodies(name)):
        request = read(name, body)
        if isinstance(request, str):
            assert request in REFUSED, body
            continue
        whole += 1
        shown = json.dumps([view.to_opa_input()["input"] for view in iter_views(request)])
        assert [mark for mark in marks if mark not in shown] == [], body
        assert adapters.get(name).to_wire(request) == body, body

    assert whole >= 200


@pytest.mark.spec("ADP-10")
@pytest.mark.parametrize("name", FIELDS)
def test_no_field_that_the_sdk_knows_is_lost_in_silence_elsewhere(
    name: str, proof_scale: float, caplog: pytest.LogCaptureFixture
) -> None:
    every = round(1 / proof_scale)
    for body in islice(bodies(name), 0, None, every):
        if body.get("model") == CANARY or "functionResponse" in json.dumps(body):
            continue  # Gemini has the one in its path; the name of a result is that of its call elsewhere
        request = read(name, body)
        if not isinstance(request, Request) or (request.tool_choice and not request.tools):
            continue
        for other in FIELDS.keys() - {name}:
            with loss.collecting() as lost:
                try:
                    written = json.dumps(adapters.get(other).to_wire(request))
                except CmfError:
                    continue
            assert lost or CANARY in written or CANARY not in json.dumps(body), (other, body)
        caplog.clear()


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize(("name", "of"), [("openai_responses", ToolParam), ("anthropic_messages", BetaToolUnionParam)])
def test_whoever_runs_a_tool_of_the_sdk_s_types_is_known_and_else_the_provider(name: str, of: Any) -> None:
    ran = {}
    for one in choices(of):
        request = read(name, {**ASKED[name], "tools": [next(variants(one, 1))]})
        assert isinstance(request, Request), one
        ran[one.__name__] = {tool.executed_by for tool in request.tools}

    assert ran == {one: {"client" if one in OURS else "provider"} for one in ran}
    assert len(ran) > 10


# What servers take though no SDK has a type for it.
UNTYPED: Final[dict[str, list[dict[str, Any]]]] = {
    "ollama": [
        {"options": {"think": CANARY, "num_ctx": 4096, "stop": [CANARY], CANARY: 1}, "keep_alive": CANARY},
        {"keep_alive": -1, "think": "high", "truncate": True, "shift": False, "logprobs": True, "top_logprobs": 3},
        {"format": "", "think": CANARY, "template": CANARY, "system": CANARY, "suffix": CANARY, "raw": True},
        {"format": {"type": "object", "properties": {CANARY: {}}}},
    ],
    "openrouter": [
        {"provider": {"order": [CANARY], "sort": {"by": "price", "partition": CANARY}, "max_price": {"prompt": 1}}},
        {"transforms": [CANARY], "preset": CANARY, "models": [CANARY], "route": "fallback", "top_a": 0.1, "min_p": 0.1},
        {"reasoning": {"effort": "high", "exclude": True, CANARY: CANARY}, "include_reasoning": True},
        {"plugins": [{"id": CANARY, "pdf": {"engine": CANARY}}], "session_id": CANARY, "trace": {CANARY: CANARY}},
        {"image_config": {CANARY: CANARY}, "cache_control": {"type": CANARY}, "usage": {"include": True}},
        {"tools": [{"type": "openrouter:web_search", "parameters": {CANARY: CANARY}}], "top_k": 1},
    ],
}


@pytest.mark.spec("ADP-5")
@pytest.mark.parametrize("name", UNTYPED)
def test_each_option_that_no_sdk_knows_is_shown_and_written_again(name: str) -> None:
    for given in UNTYPED[name]:
        body, marks = marked({"model": "m", "messages": SAID, **given})
        request = adapters.get(name).from_wire_request(body)
        shown = json.dumps([view.to_opa_input()["input"] for view in iter_views(request)])

        assert [mark for mark in marks if mark not in shown] == [], body
        assert adapters.get(name).to_wire(request) == body, body


@pytest.mark.spec("ADP-10")
@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("anthropic_messages", {"type": "bash_20250124", "name": "bash"}),
        ("anthropic_messages", {"type": "browser_toolset_20260801"}),
        ("openai_responses", {"type": "computer_use_preview", "environment": "browser"}),
        ("gemini", {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}),
    ],
)
def test_a_providers_own_kind_of_tool_is_no_function_elsewhere(name: str, tool: dict[str, Any]) -> None:
    request = adapters.get(name).from_wire_request({**ASKED[name], "tools": [tool]})

    assert [offered.executed_by for offered in request.tools] == ["client"]
    assert adapters.get(name).to_wire(request)["tools"] == [tool]
    for other in {*FIELDS, "ollama"} - {name}:
        with pytest.raises(UnsupportedError):
            adapters.get(other).to_wire(request)

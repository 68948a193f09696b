"""LiteLLM's hooks under a guard, in the order in which its proxy calls them. In an environment of its own."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.integrations.policies import BOSS, guard_of

from pipeline import Guard
from pipeline.approvals.queue import Approvals
from pipeline.decisions.errors import ConfigError

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks the network for prices otherwise
litellm = pytest.importorskip("litellm", reason="in an environment of its own")
GuardrailRaisedException = pytest.importorskip("litellm.exceptions").GuardrailRaisedException

from pipeline.integrations import litellm as cmf_litellm  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
ANN = SimpleNamespace(user_id="ann", team_id="t", key_alias=None, token="h")
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("query", "shell")
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Guard, Approvals]:
    return guard_of(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def rail(made: tuple[Guard, Approvals]) -> Any:
    return cmf_litellm.guardrail_class(made[0])()


def asks(text: str, **more: Any) -> dict[str, Any]:
    own = {"litellm_call_id": "c", "metadata": {"forbidden": "forbidden"}, "proxy_server_request": {"x": 1}}
    return {"model": "openai/m", "messages": [{"role": "user", "content": text}], **own, **more}


async def through(rail: Any, data: dict[str, Any], says: str = "Hello.", **mock: Any) -> Any:
    """What the proxy does: the hook before, the call, the hook after."""
    data = await rail.async_pre_call_hook(ANN, None, data, "acompletion")
    known = {name: data[name] for name in ("model", "messages", "stream") if name in data}
    answer = await litellm.acompletion(**known, mock_response=says, **mock)
    if not data.get("stream"):
        return data, await rail.async_post_call_success_hook(data, ANN, answer)
    stream = rail.async_post_call_streaming_iterator_hook(ANN, answer, data)
    return data, [chunk async for chunk in stream]


@pytest.mark.spec("INT-31")
async def test_a_refused_request_is_litellms_own_refusal(rail: Any) -> None:
    with pytest.raises(GuardrailRaisedException) as caught:
        await rail.async_pre_call_hook(ANN, None, asks("forbidden"), "acompletion")

    assert (caught.value.status_code, caught.value.blocked_content) == (403, True)
    assert "no.forbidden" in caught.value.message
    assert "dec_" in caught.value.message


@pytest.mark.spec("INT-30")
async def test_what_is_asked_and_answered_is_what_policy_left(rail: Any) -> None:
    data, answer = await through(rail, asks("PIN 1234", tools=TOOLS, temperature=0.5), "It is 1234.")

    assert data["messages"] == [{"role": "user", "content": "PIN [MASKED]"}]
    assert [tool["function"]["name"] for tool in data["tools"]] == ["query"]
    assert (data["litellm_call_id"], data["temperature"]) == ("c", 0.5)
    assert isinstance(answer, litellm.ModelResponse)
    assert answer.choices[0].message.content == "It is [MASKED]."


@pytest.mark.spec("INT-30", "INT-31")
async def test_a_stream_is_held_until_it_was_judged(rail: Any) -> None:
    _, chunks = await through(rail, asks("hi", stream=True), "It is 1234.")
    with pytest.raises(GuardrailRaisedException):
        await through(rail, asks("hi", stream=True), "The forbidden thing.")

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "It is [MASKED]."
    assert all(isinstance(chunk, litellm.ModelResponseStream) for chunk in chunks)


def calling(name: str, arguments: str) -> Any:
    function = {"name": name, "arguments": arguments}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    return litellm.ModelResponse(choices=[{"index": 0, "finish_reason": "tool_calls", "message": message}], model="m")


@pytest.mark.spec("INT-30", "INT-31")
async def test_tool_calls_are_denied_rewritten_and_wait(made: tuple[Guard, Approvals], rail: Any) -> None:
    data = asks("hi", litellm_session_id="s-pay")

    capped = await rail.async_post_call_success_hook(data, ANN, calling("query", '{"limit": 500}'))
    with pytest.raises(GuardrailRaisedException, match=r"no\.drop"):
        await rail.async_post_call_success_hook(data, ANN, calling("drop_table", "{}"))
    with pytest.raises(GuardrailRaisedException, match="Waiting for approval") as caught:
        await rail.async_post_call_success_hook(data, ANN, calling("pay", '{"limit": 5}'))
    (approval,) = [word.strip(".,") for word in caught.value.message.split() if word.startswith("apr")]
    made[1].approve(approval, BOSS)
    paid = await rail.async_post_call_success_hook(data, ANN, calling("pay", '{"limit": 5}'))

    assert capped.choices[0].message.tool_calls[0].function.arguments.replace(" ", "") == '{"limit":10}'
    assert paid.choices[0].message.tool_calls[0].function.name == "pay"


@pytest.mark.spec("INT-32")
@pytest.mark.parametrize(
    "kind", ["aembedding", "aimage_generation", "atranscription", "acreate_batch", "aresponses", "call_mcp_tool"]
)
async def test_a_kind_of_call_that_is_not_judged_is_refused(rail: Any, kind: str) -> None:
    with pytest.raises(GuardrailRaisedException) as caught:
        await rail.async_pre_call_hook(ANN, None, {"model": "m", "input": "hi"}, kind)
    with pytest.raises(GuardrailRaisedException):
        await rail.async_post_call_success_hook(asks("hi"), ANN, {"data": []})

    assert caught.value.blocked_content is False


@pytest.mark.spec("INT-32")
@pytest.mark.parametrize(
    "more",
    [
        {"prompt_id": "p"},
        {"fallbacks": [{"model": "n", "messages": [{"role": "user", "content": "forbidden"}]}]},
        {"content_policy_fallbacks": [{"m": ["n"]}]},
        {"context_window_fallback_dict": {"m": "n"}},
        {"litellm_system_prompt": "forbidden"},
        {"ensure_alternating_roles": True, "user_continue_message": {"role": "user", "content": "forbidden"}},
        {"assistant_continue_message": {"role": "assistant", "content": "forbidden"}},
        {"custom_prompt_dict": {"m": {"final_prompt_value": "forbidden"}}},
        {"silent_model": "n"},
    ],
    ids=lambda more: list(more)[-1],
)
async def test_what_would_be_added_after_judgement_is_refused(rail: Any, more: dict[str, Any]) -> None:
    with pytest.raises(GuardrailRaisedException, match=r"request\.unjudged"):
        await rail.async_pre_call_hook(ANN, None, asks("hi", **more), "acompletion")


@pytest.mark.spec("INT-30")
async def test_credentials_among_the_headers_go_out_and_are_shown_to_no_policy(rail: Any, tmp_path: Any) -> None:
    rule = 'deny contains {"code": "seen", "reason": "x"} if contains(json.marshal(input), "secret-word")'
    seeing = cmf_litellm.guardrail_class(Guard(write_rules(tmp_path, {"seen": rule})))()
    credential = {"Authorization": "secret-word", "X-Trace": "t"}

    data = await seeing.async_pre_call_hook(ANN, None, asks("hi", extra_headers=credential), "acompletion")
    with pytest.raises(GuardrailRaisedException):
        await seeing.async_pre_call_hook(ANN, None, asks("hi", extra_headers={"X-A": "secret-word"}), "acompletion")

    assert data["extra_headers"] == credential
    assert await seeing.async_post_call_success_hook(data, ANN, calling("query", "{}"))


@pytest.mark.spec("INT-30")
@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"X-A": "secret-word"}},
        {"provider_specific_header": {"extra_headers": {"anthropic-beta": "secret-word"}}},
        {"provider_specific_header": [{"extra_headers": {"anthropic-beta": "secret-word"}}]},
        {"headers": "secret-word"},
        {"metadata": {"user_id": "secret-word"}},
        {"litellm_metadata": {"user_id": "secret-word"}},
    ],
)
async def test_what_litellm_sends_of_its_own_parameters_is_judged(tmp_path: Any, more: dict[str, Any]) -> None:
    rule = 'deny contains {"code": "seen", "reason": "x"} if contains(json.marshal(input), "secret-word")'
    seeing = cmf_litellm.guardrail_class(Guard(write_rules(tmp_path, {"seen": rule})))()

    with pytest.raises(GuardrailRaisedException, match="seen"):
        await seeing.async_pre_call_hook(ANN, None, asks("hi", **more), "acompletion")


@pytest.mark.spec("INT-30")
async def test_metadata_of_the_client_is_judged_only_if_litellm_sends_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = 'deny contains {"code": "seen", "reason": "x"} if contains(json.marshal(input), "secret-word")'
    seeing = cmf_litellm.guardrail_class(Guard(write_rules(tmp_path, {"seen": rule})))()
    own = {"metadata": {"a": "secret-word", "requester_metadata": {"a": "secret-word"}}}

    data = await seeing.async_pre_call_hook(ANN, None, asks("hi", **own), "acompletion")
    monkeypatch.setattr(litellm, "enable_preview_features", True)
    with pytest.raises(GuardrailRaisedException, match="seen"):
        await seeing.async_pre_call_hook(ANN, None, asks("hi", **own), "acompletion")

    assert data["metadata"] == own["metadata"]


@pytest.mark.spec("INT-30")
async def test_what_is_not_sent_of_partly_shown_parameters_stays_beside_what_policy_left(tmp_path: Any) -> None:
    drop = """\
redact contains {"code": "no.a", "reason": "x", "pointer": pointer, "replacement": "drop"} if {
    some format, fields in input.properties.extra
    "X-A" in object.keys(fields.headers)
    pointer := concat("/", ["/properties/extra", format, "headers", "X-A"])
}"""
    cutting = cmf_litellm.guardrail_class(Guard(write_rules(tmp_path, {"cut": drop}, kinds="request")))()
    scoped = {
        "custom_llm_provider": "anthropic",
        "extra_headers": {"anthropic-beta": "b", "authorization": "secret-word"},
    }
    more = {
        "headers": {"X-A": "a", "X-B": "b", "cookie": "c"},
        "provider_specific_header": [scoped],
        "metadata": {"user_id": "u", "user_api_key_hash": "h"},
    }

    data = await cutting.async_pre_call_hook(ANN, None, asks("hi", **more), "acompletion")

    assert {name: data[name] for name in more} == {**more, "headers": {"X-B": "b", "cookie": "c"}}


@pytest.mark.spec("INT-32")
async def test_what_litellm_adds_itself_is_left_to_it(rail: Any) -> None:
    own = {"secret_fields": {"x": "y"}, "num_retries": 2, "tags": ["a"], "litellm_trace_id": "t", "fallbacks": None}

    data = await rail.async_pre_call_hook(ANN, None, asks("hi", **own), "acompletion")

    assert {name: data[name] for name in own} == own


@pytest.mark.spec("INT-31")
async def test_an_outage_is_no_verdict(tmp_path: Any) -> None:
    guard, _ = guard_of(tmp_path, timeout_seconds=1e-9)
    rail = cmf_litellm.guardrail_class(guard, subject=lambda key: {"id": key.user_id})()

    with pytest.raises(GuardrailRaisedException) as caught:
        await rail.async_pre_call_hook(ANN, None, asks("hi"), "acompletion")

    assert (caught.value.status_code, caught.value.blocked_content) == (503, False)


@pytest.mark.spec("INT-30")
@pytest.mark.parametrize(
    "settings",
    [
        {"event_hook": "pre_call"},
        {"event_hook": ["logging_only"]},
        {"default_on": False},
        {"run_in_parallel": True},
        {"scan_raw_request": True},
    ],
)
def test_settings_under_which_something_goes_unjudged_are_refused(made: Any, settings: dict[str, Any]) -> None:
    made_class = cmf_litellm.guardrail_class(made[0])
    with pytest.raises(ConfigError, match="unjudged"):
        made_class(guardrail_name="cmf", **settings)
    assert made_class(guardrail_name="cmf", event_hook=["pre_call", "post_call"]).default_on
    with pytest.raises(ConfigError, match="a subclass could let streams go unjudged"):
        type("Own", (made_class,), {})
    with pytest.raises(ConfigError, match="a guard is required"):
        cmf_litellm.guardrail_class(None)  # type: ignore[arg-type]


@pytest.mark.spec("INT-30", "INT-32")
def test_nothing_of_litellms_own_switches_it_off(made: Any) -> None:
    from litellm.types.guardrails import GuardrailEventHooks as When

    rail = cmf_litellm.guardrail_class(made[0])(guardrail_name="cmf", stream_scope="non_streaming")
    off = {"disable_global_guardrails": True, "opted_out_global_guardrails": ["cmf"]}
    data = asks("hi", stream=True, metadata={"user_api_key_metadata": off})

    assert [when.value for when in When if rail.should_run_guardrail(data, when)] == [
        "pre_call", "post_call", "pre_mcp_call",
    ]  # fmt: skip
    assert rail.stream_scope_allows(data, When.post_call)


@pytest.mark.spec("INT-31")
async def test_a_request_that_cannot_be_read_is_a_refusal_of_status_400(rail: Any) -> None:
    with pytest.raises(GuardrailRaisedException) as caught:
        await rail.async_pre_call_hook(ANN, None, asks("hi") | {"messages": [{"role": 1}]}, "acompletion")

    assert (caught.value.status_code, caught.value.blocked_content) == (400, False)


@pytest.mark.spec("INT-30")
async def test_a_stream_that_says_nothing_and_an_answer_that_cannot_be_read_are_refused(rail: Any) -> None:
    async def nothing() -> Any:
        for one in ():
            yield one

    odd = calling("query", "{}")
    odd.choices[0].message.role = "zebra"

    with pytest.raises(GuardrailRaisedException, match="The stream ended early"):
        _ = [one async for one in rail.async_post_call_streaming_iterator_hook(ANN, nothing(), asks("hi"))]
    with pytest.raises(GuardrailRaisedException, match="cannot be read"):
        await rail.async_post_call_success_hook(asks("hi"), ANN, odd)


@pytest.mark.spec("INT-30")
async def test_a_request_that_became_something_else_is_not_asked(rail: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Guard.arun

    async def another(self: Guard, value: Any, **more: Any) -> Any:
        return await judged(self, value.messages[0], **more)

    monkeypatch.setattr(Guard, "arun", another)
    with pytest.raises(GuardrailRaisedException, match=r"pipeline\.no-request"):
        await rail.async_pre_call_hook(ANN, None, asks("hi"), "acompletion")


@pytest.mark.spec("INT-30")
def test_without_the_package_there_is_nothing(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm.integrations.custom_guardrail", None)
    with pytest.raises(ConfigError, match="litellm"):
        cmf_litellm.guardrail_class(made[0])


# -- the generic guardrail API, asked by LiteLLM itself ----------------------------------------------------------------


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.pipeline.gateway.servers import serving

    home = tmp_path_factory.mktemp("gateway")
    guard_of(home / "policy")
    body = {"routes": [], "policies": [str(home / "policy")], "watch": False, "check": {"litellm": {}}}
    with serving(home, body) as url:
        yield url


def handler() -> Any:
    """What extracts chat requests and answers for LiteLLM's guardrails."""
    from litellm.llms.openai.chat.guardrail_translation.handler import OpenAIChatCompletionsHandler

    return OpenAIChatCompletionsHandler()


def generic(url: str) -> Any:
    from litellm.proxy.guardrails.guardrail_hooks.generic_guardrail_api import GenericGuardrailAPI

    options = {"guardrail_name": "cmf", "event_hook": ["pre_call", "post_call"], "default_on": True}
    return GenericGuardrailAPI(api_base=url, extra_headers=["x-cmf-session-id"], **options)


IMAGE = "data:image/png;base64,iVBORw0KGgo="


def chat(text: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": IMAGE}}]
    call = {"id": "c1", "type": "function", "function": {"name": "query", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Be brief."},
    ]
    return {"model": "m", "tools": [TOOLS[0]], "messages": messages}


@pytest.mark.spec("GW-246", "GW-247")
async def test_litellm_asks_the_gateway_about_a_request(gateway: str) -> None:
    rail = generic(gateway)

    with pytest.raises(GuardrailRaisedException, match="Not this") as caught:
        await handler().process_input_messages(chat("forbidden"), rail)
    fine = await handler().process_input_messages(chat("fine"), rail)
    masked = await handler().process_input_messages(chat("1234"), rail)

    assert caught.value.blocked_content is True
    assert fine["messages"] == chat("fine")["messages"]
    assert masked["messages"] == chat("[MASKED]")["messages"]


@pytest.mark.spec("GW-246")
async def test_what_litellm_drops_of_a_request_blocks_the_rest(gateway: str) -> None:
    content = [{"type": "text", "text": "hi"}, {"type": "zebra", "zebra": "forbidden"}]
    data = {"model": "m", "messages": [{"role": "user", "content": content}]}

    with pytest.raises(GuardrailRaisedException, match="in none of the messages"):
        await handler().process_input_messages(data, generic(gateway))


@pytest.mark.spec("GW-246", "GW-247", "GW-248")
async def test_litellm_asks_the_gateway_about_an_answer(gateway: str) -> None:
    rail = generic(gateway)

    async def answered(text: str, *, call: str | None = None, **headers: str) -> Any:
        answer = calling(call or "query", "{}")
        answer.choices[0].message.content = text
        data = {"proxy_server_request": {"headers": headers}, "metadata": {"user_api_key_hash": "0" * 64}}
        return await handler().process_output_response(answer, rail, request_data=data)

    with pytest.raises(GuardrailRaisedException, match="Not this"):
        await answered("The forbidden thing.")
    with pytest.raises(GuardrailRaisedException, match="Not that tool"):
        await answered("Now.", call="drop_table")
    with pytest.raises(GuardrailRaisedException, match="only with changes"):
        await answered("It is 1234.")
    with pytest.raises(GuardrailRaisedException, match="Waiting for approval"):
        await answered("Now.", call="pay", **{"x-cmf-session-id": "s"})
    assert (await answered("Fine.")).choices[0].message.content == "Fine."

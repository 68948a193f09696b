"""The OpenAI and Anthropic SDKs over a judging transport, blocking and asyncio, against a scripted provider."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway import matrix_bodies
from tests.pipeline.integrations.policies import BOSS, guard_of

from cmf.adapters import get
from cmf.adapters.wire.sse import sse_bytes
from pipeline import Guard
from pipeline.approvals.queue import Approvals
from pipeline.decisions.errors import ConfigError
from pipeline.integrations import httpx as cmf_httpx

anthropic = pytest.importorskip("anthropic", reason="the provider's own SDK is a development dependency")
httpx2 = pytest.importorskip("httpx2", reason="what the SDKs are built on")
openai = pytest.importorskip("openai", reason="the provider's own SDK is a development dependency")
httpx = pytest.importorskip("httpx", reason="what other SDKs are built on")

PATHS = {
    "/v1/chat/completions": "openai_chat",
    "/v1/responses": "openai_responses",
    "/v1/messages": "anthropic_messages",
}


class Provider:
    """Says what it is told to, in the dialect that it is asked in; keeps what it was sent."""

    def __init__(self, library: Any = httpx2) -> None:
        self.heard: list[Any] = []
        self.says = "Hello."
        self.call: tuple[str, dict[str, Any]] | None = None
        self.instead: Callable[[Any], Any] | None = None
        self.library = library

    def __call__(self, request: Any) -> Any:
        body = json.loads(request.content)
        self.heard.append(body)
        if self.instead is not None:
            return self.instead(request)
        dialect = PATHS[request.url.path[request.url.path.index("/v1/") :]]
        answer = matrix_bodies.reply(dialect, "tool_call" if self.call else "text", self.says)
        if self.call is not None:
            answer = _calling(dialect, answer, *self.call)
        if not body.get("stream"):
            return self.library.Response(200, json=answer, headers={"x-request-id": "up-1", "x-secret": "s"})
        adapter = get(dialect)
        events = adapter.to_wire_events(adapter.from_wire_response(answer))
        head = {"content-type": "text/event-stream"}
        return self.library.Response(200, content=b"".join(map(sse_bytes, events)), headers=head)


def _calling(dialect: str, answer: Any, name: str, arguments: dict[str, Any]) -> Any:
    if dialect == "openai_chat":
        function = answer["choices"][0]["message"]["tool_calls"][0]["function"]
        function |= {"name": name, "arguments": json.dumps(arguments)}
    elif dialect == "openai_responses":
        answer["output"][0] |= {"name": name, "arguments": json.dumps(arguments)}
    else:
        answer["content"][0] |= {"name": name, "input": arguments}
    return answer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Guard, Approvals]:
    return guard_of(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def guard(made: tuple[Guard, Approvals]) -> Guard:
    return made[0]


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def oai(guard: Guard, provider: Provider) -> Iterator[Any]:
    judging = cmf_httpx.transport(guard, httpx2.MockTransport(provider))
    with openai.OpenAI(api_key="k", http_client=httpx2.Client(transport=judging)) as client:
        yield client


@pytest.fixture
def ant(guard: Guard, provider: Provider) -> Iterator[Any]:
    judging = cmf_httpx.transport(guard, httpx2.MockTransport(provider))
    with anthropic.Anthropic(api_key="k", http_client=httpx2.Client(transport=judging)) as client:
        yield client


def says(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.spec("INT-2", "INT-3")
def test_openais_sdk_is_refused_with_its_own_error_and_nothing_goes_out(oai: Any, provider: Provider) -> None:
    with pytest.raises(openai.PermissionDeniedError) as caught:
        oai.chat.completions.create(model="m", messages=says("forbidden"))

    assert provider.heard == []
    assert (caught.value.status_code, caught.value.code) == (403, "no.forbidden")
    assert caught.value.response.headers["x-cmf-decision-id"].startswith("dec_")
    assert "forbidden" not in str(caught.value).replace("no.forbidden", "")


@pytest.mark.spec("INT-2", "INT-3")
def test_anthropics_sdk_is_refused_with_its_own_error_and_nothing_goes_out(ant: Any, provider: Provider) -> None:
    with pytest.raises(anthropic.PermissionDeniedError) as caught:
        ant.messages.create(model="m", max_tokens=9, messages=says("forbidden"))

    assert provider.heard == []
    assert caught.value.body["error"]["type"] == "permission_error"


@pytest.mark.spec("INT-2")
def test_a_refused_answer_does_not_come_in_and_is_not_asked_again(oai: Any, ant: Any, provider: Provider) -> None:
    provider.says = "the forbidden thing"

    for ask in (
        lambda: oai.chat.completions.create(model="m", messages=says("hi")),
        lambda: oai.chat.completions.create(model="m", messages=says("hi"), stream=True),
        lambda: oai.responses.create(model="m", input="hi", store=False),
        lambda: ant.messages.create(model="m", max_tokens=9, messages=says("hi")),
        lambda: ant.messages.create(model="m", max_tokens=9, messages=says("hi"), stream=True),
    ):
        before = len(provider.heard)
        with pytest.raises((openai.PermissionDeniedError, anthropic.PermissionDeniedError)):
            ask()
        assert len(provider.heard) == before + 1


@pytest.mark.spec("INT-1", "INT-4")
def test_what_goes_out_and_comes_in_is_what_policy_left_of_it(oai: Any, ant: Any, provider: Provider) -> None:
    provider.says = "It is 1234."

    chat = oai.chat.completions.create(model="m", messages=says("my PIN is 1234"))
    response = oai.responses.create(model="m", input="my PIN is 1234", store=False)
    message = ant.messages.create(model="m", max_tokens=9, messages=says("my PIN is 1234"))

    assert chat.choices[0].message.content == "It is [MASKED]."
    assert response.output_text == "It is [MASKED]."
    assert message.content[0].text == "It is [MASKED]."
    assert "1234" not in json.dumps(provider.heard)
    assert json.dumps(provider.heard).count("[MASKED]") == 3
    assert [body["model"] for body in provider.heard] == ["m", "m", "m"]


@pytest.mark.spec("INT-4")
def test_streams_are_judged_whole_and_made_anew(oai: Any, ant: Any, provider: Provider) -> None:
    provider.says = "It is 1234."

    chunks = oai.chat.completions.create(model="m", messages=says("hi"), stream=True)
    chat = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    events = oai.responses.create(model="m", input="hi", store=False, stream=True)
    response = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    with ant.messages.stream(model="m", max_tokens=9, messages=says("hi")) as stream:
        message = "".join(stream.text_stream)

    assert chat == response == message == "It is [MASKED]."


@pytest.mark.spec("INT-4", "STR-10")
def test_a_stream_that_tells_of_two_different_calls_is_refused(oai: Any, provider: Provider) -> None:
    item = {"type": "function_call", "id": "f", "call_id": "c", "name": "delete_database", "arguments": "{}"}
    whole = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [{**item, "name": "look"}]}
    told = [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    content = b"".join(sse_bytes({"event": str(event["type"]), "data": event}) for event in told)
    head = {"content-type": "text/event-stream"}
    provider.instead = lambda _: provider.library.Response(200, content=content, headers=head)

    with pytest.raises(openai.InternalServerError) as refused:
        list(oai.responses.create(model="gpt-5", input="hello", stream=True))

    assert refused.value.status_code == 502
    assert "upstream.contradiction" in refused.value.response.text
    assert "delete_database" not in refused.value.response.text


@pytest.mark.spec("INT-1", "INT-4")
async def test_the_asyncio_clients_are_judged_alike(guard: Guard, provider: Provider) -> None:
    provider.says = "It is 1234."
    judging = cmf_httpx.async_transport(guard, httpx2.MockTransport(provider))
    async with openai.AsyncOpenAI(api_key="k", http_client=httpx2.AsyncClient(transport=judging)) as client:
        chat = await client.chat.completions.create(model="m", messages=says("PIN 1234"))
        chunks = await client.chat.completions.create(model="m", messages=says("hi"), stream=True)
        streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
        with pytest.raises(openai.PermissionDeniedError):
            await client.chat.completions.create(model="m", messages=says("forbidden"))
    judging = cmf_httpx.async_transport(guard, httpx2.MockTransport(provider))
    other = anthropic.AsyncAnthropic(api_key="k", http_client=httpx2.AsyncClient(transport=judging))
    async with other, other.messages.stream(model="m", max_tokens=9, messages=says("hi")) as stream:
        message = (await stream.get_final_message()).content[0].text

    assert chat.choices[0].message.content == streamed == message == "It is [MASKED]."
    assert "1234" not in json.dumps(provider.heard)


# -- tools -------------------------------------------------------------------------------------------------------------

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("query", "shell")
]


@pytest.mark.spec("INT-2", "INT-4")
def test_tool_calls_are_denied_and_rewritten_and_definitions_stripped(oai: Any, provider: Provider) -> None:
    provider.call = ("query", {"limit": 500})
    answer = oai.chat.completions.create(model="m", messages=says("hi"), tools=TOOLS)
    provider.call = ("drop_table", {})
    with pytest.raises(openai.PermissionDeniedError) as caught:
        oai.chat.completions.create(model="m", messages=says("hi"), tools=TOOLS)

    assert json.loads(answer.choices[0].message.tool_calls[0].function.arguments) == {"limit": 10}
    assert caught.value.code == "no.drop"
    assert [tool["function"]["name"] for tool in provider.heard[0]["tools"]] == ["query"]


@pytest.mark.spec("INT-5")
def test_a_call_that_waits_for_a_person_is_released_by_its_approval(
    oai: Any, provider: Provider, made: tuple[Guard, Approvals]
) -> None:
    guard, approvals = made
    provider.call = ("pay", {"amount": 5})
    with guard.session("s-pay", subject={"id": "ann"}):
        with pytest.raises(openai.PermissionDeniedError) as caught:
            oai.chat.completions.create(model="m", messages=says("pay"))
        approval = caught.value.response.headers["x-cmf-approval-id"]
        header = {"x-cmf-approval-id": approval}
        with pytest.raises(openai.PermissionDeniedError) as early:
            oai.chat.completions.create(model="m", messages=says("pay"), extra_headers=header)
        approvals.approve(approval, BOSS)
        answer = oai.chat.completions.create(model="m", messages=says("pay"), extra_headers=header)

    assert early.value.code == "approval.unusable"
    assert answer.choices[0].message.tool_calls[0].function.name == "pay"
    assert len(provider.heard) == 1, "the model is not asked again"


# -- what else a client may ask, and a provider may say ----------------------------------------------------------------


@pytest.mark.spec("INT-3")
def test_what_is_not_judged_is_not_sent(oai: Any, ant: Any, provider: Provider) -> None:
    for ask in (
        lambda: oai.embeddings.create(model="m", input="hi"),
        lambda: oai.files.create(file=b"hi", purpose="batch"),
        lambda: oai.models.list(),
        lambda: oai.responses.retrieve("resp_1"),
        lambda: oai.conversations.create(),
        lambda: ant.messages.batches.list(),
        lambda: oai.post("/check", cast_to=object, body={}),
    ):
        with pytest.raises((openai.NotFoundError, anthropic.NotFoundError)):
            ask()
    with pytest.raises(openai.BadRequestError):
        oai.chat.completions.create(model="m", messages=says("hi"), extra_query={"more": "1"})

    assert provider.heard == []


@pytest.mark.spec("INT-3")
def test_a_reference_to_what_the_provider_keeps_is_refused(oai: Any, provider: Provider) -> None:
    with pytest.raises(openai.PermissionDeniedError):
        oai.responses.create(model="m", input="hi", previous_response_id="resp_0")

    assert provider.heard == []


@pytest.mark.spec("INT-1")
def test_headers_that_change_what_a_body_means_go_out_as_they_were_judged(tmp_path: Path, provider: Provider) -> None:
    pointer = "/properties/extra/anthropic_messages.http/anthropic-beta"
    redact = f'{{"code": "no.beta", "reason": "x", "pointer": "{pointer}", "replacement": "drop"}}'
    rule = f"redact contains {redact} if input.properties.extra[_][_] == `secret-beta`"
    heard: list[Any] = []

    def instead(request: Any) -> Any:
        heard.append(request.headers)
        return httpx2.Response(500, json={})

    provider.instead = instead
    inner = httpx2.MockTransport(provider)
    judging = cmf_httpx.transport(Guard(write_rules(tmp_path, {"beta": rule})), inner)
    with anthropic.Anthropic(api_key="k", http_client=httpx2.Client(transport=judging), max_retries=0) as client:
        for beta in ("secret-beta", "other-beta"):
            with pytest.raises(anthropic.InternalServerError):
                client.beta.messages.create(model="m", max_tokens=9, messages=says("hi"), betas=[beta])

    assert [one.get("anthropic-beta") for one in heard] == [None, "other-beta"]
    assert [len(one.get_list("anthropic-version")) for one in heard] == [1, 1]


@pytest.mark.spec("INT-1")
def test_other_headers_are_shown_to_rules_that_may_read_them_and_ours_stay_here(
    tmp_path: Path, provider: Provider
) -> None:
    rule = 'deny contains {"code": "no.note", "reason": "x"} if contains(json.marshal(input.extensions.http), "note")'
    guard = Guard(write_rules(tmp_path, {"note": rule}, kinds="text", capabilities="read_headers"))
    inner, heard = httpx2.MockTransport(provider), []
    provider.instead = lambda request: [heard.append(request.headers), httpx2.Response(500, json={})][1]
    judging = httpx2.Client(transport=cmf_httpx.transport(guard, inner))
    with openai.OpenAI(api_key="note", http_client=judging, max_retries=0) as client:
        asked = {"model": "m", "messages": says("hi")}
        with pytest.raises(openai.PermissionDeniedError):
            client.chat.completions.create(**asked, extra_headers={"x-trace": "a note"})
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(**asked, extra_headers={"x-trace": "a", "X-CMF-Session-Id": "s"})

    assert [(one["x-trace"], one["authorization"], "x-cmf-session-id" in one) for one in heard] == [
        ("a", "Bearer note", False)
    ]


@pytest.mark.spec("INT-3")
def test_tokens_are_counted_here(ant: Any, provider: Provider) -> None:
    assert ant.messages.count_tokens(model="m", messages=says("hello there")).input_tokens > 0
    assert provider.heard == []


@pytest.mark.spec("INT-1")
def test_no_byte_of_the_providers_answer_is_passed_on(oai: Any, provider: Provider) -> None:
    reply = oai.chat.completions.with_raw_response.create(model="m", messages=says("hi"))

    assert reply.headers["x-request-id"] == "up-1"
    assert "x-secret" not in reply.headers


@pytest.mark.spec("INT-6")
@pytest.mark.parametrize(
    ("status", "body", "kind", "raised"),
    [
        (429, b'{"error": {"message": "slow down 1234", "type": "rate"}}', "application/json", "RateLimitError"),
        (401, b'{"error": {"message": "forbidden key"}}', "application/json", "PermissionDeniedError"),
        (500, b"<html>forbidden</html>", "text/html", "InternalServerError"),
        (200, b"<html>forbidden</html>", "text/html", "InternalServerError"),
        (200, b'{"a": 1, "a": 2}', "application/json", "InternalServerError"),
        (200, b'data: {"choices": []}\n\n', "text/event-stream", "InternalServerError"),
        (307, b"", "text/html", "InternalServerError"),
    ],
)
def test_a_providers_error_is_judged_and_what_cannot_be_read_is_an_error(
    guard: Guard, provider: Provider, status: int, body: bytes, kind: str, raised: str
) -> None:
    head = {"content-type": kind, "location": "http://elsewhere.example/"}
    provider.instead = lambda _: httpx2.Response(status, content=body, headers=head)
    judging = cmf_httpx.transport(guard, httpx2.MockTransport(provider))
    client = openai.OpenAI(api_key="k", http_client=httpx2.Client(transport=judging), max_retries=0)

    with pytest.raises(getattr(openai, raised)) as caught:
        client.chat.completions.create(model="m", messages=says("hi"))

    assert len(provider.heard) == 1
    assert "html" not in str(caught.value)
    client.close()


@pytest.mark.spec("INT-6")
def test_a_compressed_or_endless_answer_is_not_read(
    oai: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cmf_httpx, "MAX_REPLY_BYTES", 100)
    quick = oai.with_options(max_retries=0)
    with pytest.raises(openai.InternalServerError):
        quick.chat.completions.create(model="m", messages=says("hi"))
    monkeypatch.undo()
    provider.instead = lambda _: httpx2.Response(200, headers={"content-encoding": "x-odd"}, content=b"{}")
    with pytest.raises(openai.InternalServerError):
        quick.chat.completions.create(model="m", messages=says("hi"))


@pytest.mark.spec("INT-7")
def test_the_subject_comes_from_the_surrounding_session_block(tmp_path: Path, provider: Provider) -> None:
    ann = """\
deny contains {"code": "not.ann", "reason": "Ann only."} if {
    object.get(input.extensions, ["security", "subject", "id"], "") != "ann"
}"""
    guard = Guard(write_rules(tmp_path, {"ann": ann}, kinds="text"))
    judging = cmf_httpx.transport(guard, httpx2.MockTransport(provider))
    client = openai.OpenAI(api_key="k", http_client=httpx2.Client(transport=judging))

    with pytest.raises(openai.PermissionDeniedError):
        client.chat.completions.create(model="m", messages=says("hi"))
    with guard.session("s", subject={"id": "ann"}):
        answer = client.chat.completions.create(model="m", messages=says("hi"))

    assert answer.choices[0].message.content == "Hello."
    client.close()


# -- how it is set up --------------------------------------------------------------------------------------------------


@pytest.mark.spec("INT-8")
@pytest.mark.parametrize("make", [cmf_httpx.transport, cmf_httpx.async_transport])
def test_without_a_guard_or_with_the_wrong_kind_of_transport_there_is_no_client(guard: Guard, make: Any) -> None:
    with pytest.raises(ConfigError, match="a guard is required"):
        make(None)
    with pytest.raises(ConfigError, match="inner transport has the wrong type"):
        make(guard, object())
    with pytest.raises(ConfigError, match="not installed"):
        make(guard, library="httpx9")
    with pytest.raises(ConfigError, match="supported SDK"):
        cmf_httpx.wrap(object(), guard)


@pytest.mark.spec("INT-8")
async def test_a_wrapped_client_is_of_the_same_type_and_judges(guard: Guard) -> None:
    clients = [
        openai.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1"),
        anthropic.Anthropic(api_key="k", base_url="http://127.0.0.1:9"),
    ]
    for client in clients:
        wrapped = cmf_httpx.wrap(client, guard)
        assert type(wrapped) is type(client)
        with pytest.raises((openai.PermissionDeniedError, anthropic.PermissionDeniedError)):
            _ask(wrapped)
        wrapped.close()
        client.close()
    for other in (openai.AsyncOpenAI(api_key="k"), anthropic.AsyncAnthropic(api_key="k")):
        wrapped = cmf_httpx.wrap(other, guard)
        assert type(wrapped) is type(other)
        with pytest.raises((openai.PermissionDeniedError, anthropic.PermissionDeniedError)):
            await _ask(wrapped)
        await wrapped.close()
        await other.close()


@pytest.mark.spec("INT-8")
async def test_a_wrapped_client_opens_no_websocket(guard: Guard) -> None:
    uri = pytest.importorskip("websockets.exceptions", reason="what the SDK opens them with").InvalidURI
    blocking = cmf_httpx.wrap(openai.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1"), guard)
    asking = cmf_httpx.wrap(openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9/v1"), guard)

    for opened in (blocking.realtime.connect(model="m"), blocking.responses.connect()):
        with pytest.raises(uri, match="refused://"):
            opened.enter()
    for awaited in (asking.realtime.connect(model="m"), asking.responses.connect()):
        with pytest.raises(uri, match="refused://"):
            await awaited.enter()


def _ask(client: Any) -> Any:
    if hasattr(client, "chat"):
        return client.chat.completions.create(model="m", messages=says("forbidden"))
    return client.messages.create(model="m", max_tokens=9, messages=says("forbidden"))


@pytest.mark.spec("INT-1")
def test_httpx_itself_is_served_too(guard: Guard) -> None:
    provider = Provider(httpx)
    provider.says = "It is 1234."
    judging = cmf_httpx.transport(guard, httpx.MockTransport(provider), library="httpx")
    body = {"model": "m", "messages": says("PIN 1234")}

    with httpx.Client(transport=judging) as client:
        reply = client.post("https://openrouter.example/api/v1/chat/completions", json=body)
        form = client.post("https://openrouter.example/api/v1/chat/completions", data={"model": "m"})

    assert reply.json()["choices"][0]["message"]["content"] == "It is [MASKED]."
    assert form.status_code == 415
    assert len(provider.heard) == 1


@pytest.mark.spec("INT-3")
@pytest.mark.parametrize("target", [b"/v1/embeddings", "/v1/embeddings", b"/v1/chat/completions?more=1", b"/\xff"])
def test_a_target_that_replaces_the_path_on_the_wire_is_the_one_that_is_judged(
    guard: Guard, provider: Provider, target: bytes | str
) -> None:
    judging = cmf_httpx.transport(guard, httpx2.MockTransport(provider))
    body = {"model": "m", "messages": says("hi")}
    with httpx2.Client(transport=judging) as client:
        reply = client.post("https://api.example/v1/chat/completions", json=body, extensions={"target": target})

    assert reply.status_code in (400, 404)
    assert provider.heard == []


@pytest.mark.spec("INT-5", "INT-6")
async def test_the_asyncio_client_releases_and_bounds_alike(
    made: tuple[Guard, Approvals], provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard, approvals = made
    judging = cmf_httpx.async_transport(guard, httpx2.MockTransport(provider))
    async with openai.AsyncOpenAI(api_key="k", max_retries=0, http_client=httpx2.AsyncClient(transport=judging)) as oai:
        provider.call = ("pay", {"amount": 7})
        async with guard.session("s-apay", subject={"id": "ann"}):
            with pytest.raises(openai.PermissionDeniedError) as caught:
                await oai.chat.completions.create(model="m", messages=says("pay"))
            header = {"x-cmf-approval-id": caught.value.response.headers["x-cmf-approval-id"]}
            with pytest.raises(openai.PermissionDeniedError):
                await oai.chat.completions.create(model="m", messages=says("pay"), extra_headers=header)
            approvals.approve(header["x-cmf-approval-id"], BOSS)
            answer = await oai.chat.completions.create(model="m", messages=says("pay"), extra_headers=header)
        provider.call = None
        monkeypatch.setattr(cmf_httpx, "MAX_REPLY_BYTES", 100)
        with pytest.raises(openai.InternalServerError):
            await oai.chat.completions.create(model="m", messages=says("hi"))

    assert answer.choices[0].message.tool_calls[0].function.name == "pay"


@pytest.mark.spec("INT-3")
def test_a_body_that_two_readers_take_differently_is_not_sent(guard: Guard, provider: Provider) -> None:
    judging = cmf_httpx.transport(guard, httpx2.MockTransport(provider))
    head = {"content-type": "application/json"}
    with httpx2.Client(transport=judging) as client:
        for body in (b'{"model": "m", "model": "n", "messages": []}', b"{", b'{"messages": []}'):
            reply = client.post("https://api.example/v1/chat/completions", content=body, headers=head)
            assert reply.status_code == 400
        assert provider.heard == []
        sent: list[str] = []
        provider.instead = lambda request: sent.append(request.headers["content-type"]) or httpx2.Response(500)
        head = {"content-type": "application/json; charset=utf-16"}
        client.post("https://api.example/v1/chat/completions", json={"model": "m", "messages": []}, headers=head)
        assert sent == ["application/json"]

"""What a view is, shows, and keeps to itself."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from tests.cmf.strategies import messages

from cmf import (
    AgentExtension,
    AudioPart,
    CapabilityError,
    Choice,
    DataPolicy,
    DocumentPart,
    Extensions,
    HttpExtension,
    ImagePart,
    Message,
    MessageView,
    ObjectSecurityProfile,
    OpaquePart,
    PromptRequestPart,
    PromptResultPart,
    RedactedThinkingPart,
    Request,
    RequestExtension,
    ResourcePart,
    ResourceRefPart,
    Response,
    SecurityExtension,
    SubjectExtension,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    VideoPart,
    iter_views,
)
from cmf.errors import ShapeError, UnmappedPartError
from cmf.message.security import RetentionPolicy
from cmf.views.iterate import MAX_NESTING
from cmf.views.render import KINDS

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8


def only(part: Any, role: str = "assistant", **message: Any) -> MessageView:
    (view,) = iter_views(Message(role=role, content=[part], **message))
    return view


PARTS: list[tuple[Any, str, str, bool, str | None, str | None]] = [
    # part, kind, action and is_pre for role assistant, URI, content
    (TextPart(text="hi"), "text", "send", False, None, "hi"),
    (ThinkingPart(text="hm"), "thinking", "generate", False, None, "hm"),
    (RedactedThinkingPart(data="b"), "thinking", "generate", False, None, "b"),
    (
        ToolCallPart(name="f", arguments={"a": 1}, namespace="n s"),
        "tool_call",
        "execute",
        True,
        "tool://n%20s/f",
        '{"a":1}',
    ),
    (ToolCallPart(name="f"), "tool_call", "execute", True, "tool://_/f", "{}"),
    (ToolCallPart(name="f", arguments_raw="{x"), "tool_call", "execute", True, "tool://_/f", "{x"),
    (ToolResultPart(content="r", tool_name="f"), "tool_result", "receive", False, "tool_result://f", "r"),
    (ToolResultPart(content={"a": [1.0]}), "tool_result", "receive", False, "tool_result://_", '{"a":[1.0]}'),
    (ToolResultPart(), "tool_result", "receive", False, "tool_result://_", ""),
    (ResourcePart(uri="file:///a", content="c"), "resource", "read", False, "file:///a", "c"),
    (ResourceRefPart(uri="file:///a"), "resource_ref", "read", True, "file:///a", "file:///a"),
    (PromptRequestPart(name="p", server_id="s"), "prompt_request", "invoke", True, "prompt://s/p", "{}"),
    (PromptRequestPart(name="p"), "prompt_request", "invoke", True, "prompt://_/p", "{}"),
    (PromptResultPart(prompt_name="p", content="c"), "prompt_result", "receive", False, "prompt_result://p", "c"),
    (PromptResultPart(prompt_name="p", error_message="e"), "prompt_result", "receive", False, "prompt_result://p", "e"),
    (
        ImagePart(type="url", data="https://X.example/i"),
        "image",
        "send",
        False,
        "https://x.example/i",
        "https://X.example/i",
    ),
    (VideoPart(type="file_ref", data="v"), "video", "send", False, "v", "v"),
    (AudioPart(type="base64", data="aGk=", media_type="text/plain"), "audio", "send", False, None, "hi"),
    (DocumentPart(type="url", data="d", title="t"), "document", "send", False, "d", "d"),
    (
        OpaquePart(provider="gemini", type="x/y", value={"k": 1}),
        "opaque",
        "send",
        False,
        "opaque://gemini/x%2Fy",
        '{"k":1}',
    ),
]


@pytest.mark.spec("VIEW-5")
@pytest.mark.spec("VIEW-6")
@pytest.mark.spec("VIEW-8")
@pytest.mark.spec("VIEW-12")
@pytest.mark.parametrize(("part", "kind", "action", "is_pre", "uri", "content"), PARTS)
def test_core_attributes(part: Any, kind: str, action: str, is_pre: bool, uri: str | None, content: str | None) -> None:
    view = only(part)

    assert (view.kind, view.action, view.is_pre, view.uri, view.content) == (kind, action, is_pre, uri, content)
    assert view.is_post is not view.is_pre
    assert view.path == "content[0]"


@pytest.mark.spec("VIEW-5")
@pytest.mark.spec("VIEW-6")
@pytest.mark.parametrize(
    ("role", "action", "is_pre"),
    [
        ("system", "send", True),
        ("developer", "send", True),
        ("user", "send", True),
        ("assistant", "send", False),
        ("tool", "receive", False),
    ],
)
@pytest.mark.parametrize(
    "part", [TextPart(text="x"), ImagePart(type="url", data="u"), OpaquePart(provider="p", type="t", value={})]
)
def test_text_media_and_opaque_go_by_role(part: Any, role: str, action: str, is_pre: bool) -> None:
    view = only(part, role)

    assert (view.action, view.is_pre) == (action, is_pre)


def test_flags_group_the_kinds() -> None:
    flags = {
        only(part).kind.value: [
            name for name in ("is_tool", "is_prompt", "is_resource", "is_text", "is_media") if getattr(only(part), name)
        ]
        for part, *_ in PARTS
    }

    assert flags == {
        "text": ["is_text"],
        "thinking": ["is_text"],
        "tool_call": ["is_tool"],
        "tool_result": ["is_tool"],
        "resource": ["is_resource"],
        "resource_ref": ["is_resource"],
        "prompt_request": ["is_prompt"],
        "prompt_result": ["is_prompt"],
        "image": ["is_media"],
        "video": ["is_media"],
        "audio": ["is_media"],
        "document": ["is_media"],
        "opaque": [],
    }


def test_properties_of_each_kind() -> None:
    def of(part: Any) -> dict[str, Any]:
        return dict(only(part).properties)

    assert of(ToolCallPart(name="f", namespace="n", tool_call_id="c", arguments_raw="{")) == {
        "namespace": "n",
        "tool_id": "c",
        "executed_by": "client",
        "arguments_invalid": True,
        "arguments_raw": "{",
    }
    assert of(ToolResultPart(tool_name="f", tool_call_id="c", is_error=True, executed_by="provider")) == {
        "is_error": True,
        "executed_by": "provider",
        "tool_name": "f",
        "tool_id": "c",
    }
    resource = ResourcePart(
        uri="file:///a", resource_request_id="r", version="1", description="d", annotations={"k": 1}, size_bytes=9
    )
    assert of(resource) == {
        "resource_type": "uri",
        "version": "1",
        "description": "d",
        "annotations": {"k": 1},
        "request_id": "r",
    }
    assert only(resource).size_bytes == 9
    reference = ResourceRefPart(uri="u", resource_request_id="r", range_start=0, range_end=2, selector="s")
    assert of(reference) == {
        "resource_type": "uri",
        "range_start": 0,
        "range_end": 2,
        "selector": "s",
        "request_id": "r",
    }
    assert of(PromptRequestPart(name="p", server_id="s", prompt_request_id="r")) == {
        "server_id": "s",
        "request_id": "r",
    }
    result = PromptResultPart(prompt_name="p", is_error=True, error_message="e", prompt_request_id="r")
    assert of(result) == {"is_error": True, "message_count": 0, "error_message": "e", "request_id": "r"}
    assert of(VideoPart(type="url", data="u", duration_ms=5)) == {"source_type": "url", "duration_ms": 5}
    assert of(DocumentPart(type="url", data="u", title="t")) == {"source_type": "url", "title": "t"}
    assert of(TextPart(text="x", extra={"w": {"k": None}})) == {"extra": {"w": {"k": None}}}
    assert only(DocumentPart(type="url", data="u", title="t")).name == "t"


@pytest.mark.spec("VIEW-14")
def test_binary_data_is_described_and_not_shown() -> None:
    import base64

    text = base64.b64encode(PNG).decode()
    view = only(ImagePart(type="base64", data=text, media_type="image/jpeg"))

    (facts,) = view.properties["data"]
    assert facts == {
        "field": "data",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "length": len(text),
        "declared_type": "image/jpeg",
        "decoded_sha256": hashlib.sha256(PNG).hexdigest(),
        "decoded_length": 16,
        "sniffed_type": "image/png",
        "mismatch": True,
    }
    assert (view.content, view.size_bytes, view.mime_type) == (None, 16, "image/jpeg")
    assert text not in json.dumps(view.to_dict())
    (signed,) = only(ThinkingPart(text="t", signature="c2ln")).properties["data"]
    assert (signed["field"], signed["text"]) == ("signature", "sig")
    (blob,) = only(ResourcePart(uri="u", blob=PNG, mime_type="image/png")).properties["data"]
    assert "mismatch" not in blob
    assert only(ResourcePart(uri="u", blob=PNG)).size_bytes == 16
    (held,) = only(DocumentPart(type="url", data="data:;charset=utf-8;base64,c2ln")).properties["data"]
    assert (held["field"], held["text"]) == ("data", "sig")
    (broken,) = only(ImagePart(type="base64", data="%%%", media_type="image/png")).properties["data"]
    assert broken["mismatch"] is True
    assert "decoded_sha256" not in broken


@pytest.mark.spec("VIEW-15")
def test_large_integers_are_exact_strings_and_listed() -> None:
    view = only(ToolCallPart(name="f", arguments={"a/b": [2**53, 2**53 - 1, -(2**60)], "c": 1e300, "d": 1.5}))

    shown = view.to_dict()
    assert shown["arguments"] == {"a/b": [str(2**53), 2**53 - 1, str(-(2**60))], "c": str(10**300), "d": 1.5}
    assert shown["properties"]["big_integers"] == ["/arguments/a~1b/0", "/arguments/a~1b/2", "/arguments/c"]
    assert view.arguments is not None
    assert view.arguments["a/b"][0] == 2**53


@pytest.mark.spec("VIEW-9")
def test_the_raw_uri_is_kept_where_it_was_normalised() -> None:
    assert only(ResourcePart(uri="FILE:///a/../b")).properties["raw_uri"] == "FILE:///a/../b"
    assert only(ResourceRefPart(uri="FILE:///a/../b")).uri == "file:///b"
    assert "raw_uri" not in only(ResourceRefPart(uri="file:///b")).properties


@pytest.mark.spec("VIEW-2")
def test_a_part_that_no_table_maps_raises() -> None:
    class Novel(TextPart):
        pass

    with pytest.raises(UnmappedPartError):
        KINDS[Novel]
    with pytest.raises(UnmappedPartError):
        list(iter_views("text"))  # type: ignore[arg-type]


@pytest.mark.spec("VIEW-3")
@pytest.mark.spec("VIEW-7")
def test_requests_and_responses_are_cut_in_order() -> None:
    request = Request(
        model="ollama:minimax-m3:cloud",
        messages=[Message(role="user", content=[TextPart(text="a"), TextPart(text="b")])],
        tools=[
            ToolDefinition(name="t", description="d", input_schema={"type": "object"}, side_effects="read", type="x")
        ],
        tool_choice={"mode": "auto"},
        sampling={"temperature": 1.0, "seed": 2**60},
        session_id="s",
        extra={"w": {"user": "u"}},
    )
    views = list(iter_views(request))

    assert [view.path for view in views] == [
        "request",
        "tools[0]",
        "messages[0].content[0]",
        "messages[0].content[1]",
        "messages[0].content.text",
    ]
    assert {view.hook for view in views} == {"llm_request"}
    assert views[0].uri == "llm://ollama/minimax-m3%3Acloud"
    assert views[0].properties["sampling"] == {"temperature": 1.0, "seed": str(2**60)}
    assert views[0].properties["extra"] == {"w": {"user": "u"}}
    assert (views[1].uri, views[1].content, views[1].action) == ("tool://_/t", "d", "read")
    assert views[1].properties["input_schema"] == {"type": "object"}
    response = Response(
        choices=[
            Choice(message=Message(role="assistant", content=[TextPart(text=text)]), raw_stop_reason="stop")
            for text in "ab"
        ],
        model="gpt",
        error={"message": "e"},
        usage={"input_tokens": 1},
    )
    views = list(iter_views(response))
    assert [view.path for view in views] == [
        "response",
        "choices[0].message.content[0]",
        "choices[1].message.content[0]",
    ]
    assert {view.hook for view in views} == {"llm_response"}
    assert (views[0].uri, views[0].content) == ("llm://_/gpt", "e")
    assert views[0].properties["choices"] == [{"raw_stop_reason": "stop"}] * 2
    assert next(iter_views(Response())).properties == {"choice_count": 0, "tool_count": 0}


@pytest.mark.spec("VIEW-3")
def test_a_response_is_seen_in_the_context_of_its_first_choice() -> None:
    said = [
        Message(role="assistant", content=[], extensions=Extensions(security=SecurityExtension(labels={label})))
        for label in ("secret", "other")
    ]
    own = next(iter_views(Response(choices=[Choice(message=message) for message in said])))

    assert own.labels == {"secret"}
    assert next(iter_views(Response())).labels == frozenset()


@pytest.mark.spec("VIEW-1")
def test_no_part_is_too_many_to_have_its_view() -> None:
    views = iter_views(Message(role="user", content=[TextPart(text="x")] * 66))

    assert [view.path for view in views] == [*(f"content[{index}]" for index in range(66)), "content.text"]


@pytest.mark.spec("VIEW-23")
@pytest.mark.parametrize(
    ("extra", "found"),
    [
        ({"x": {"fallbacks": ["b", {"model": "c"}, {"model": 7}, 7, "b", "a"]}}, ["llm://acme/b", "llm://acme/c"]),
        ({"x": {"fallbacks": "default"}}, ["llm://acme/default"]),
        ({"models": ["openai:d", "e:f"]}, ["llm://openai/d", "llm://acme/e%3Af"]),
        ({"x": {"routingConfig": {"manualMode": {"modelName": "g"}}}}, ["llm://acme/g"]),
        ({"x": {"generationConfig": {"routing_config": {"manual_mode": {"model_name": "h"}}}}}, ["llm://acme/h"]),
        ({"x": {"metadata": {"model": "not asked"}, "routingConfig": "i", "models": None}}, []),
    ],
)
def test_a_request_shows_the_other_models_that_it_names(extra: dict[str, Any], found: list[str]) -> None:
    request = Request(model="azure:a", messages=[], extra=extra)
    (view,) = iter_views(request)

    assert view.properties.get("other_models", []) == [uri.replace("acme", "azure") for uri in found]


@pytest.mark.spec("VIEW-23")
def test_so_it_does_with_those_that_its_tools_ask() -> None:
    asks = {"x": {"model": "b", "svg": {"model": "c"}, "examples": [{"model": "no"}]}}
    tools = [ToolDefinition(name="ask", extra=asks), ToolDefinition(name="ask too", extra={"x": {"model": "b"}})]
    view = next(iter_views(Request(model="a", messages=[], tools=tools)))

    assert view.properties["other_models"] == ["llm://_/b", "llm://_/c"]
    assert "other_models" not in next(iter_views(Request(model="a", messages=[], tools=tools[:0]))).properties


@pytest.mark.spec("VIEW-7")
def test_the_hook_is_the_callers_or_the_kinds() -> None:
    message = Message(role="assistant", content=[TextPart(text="x"), ToolCallPart(name="f")])

    assert [view.hook for view in iter_views(message)] == [None, "tool_pre"]
    assert [view.hook for view in iter_views(message, hook="llm_response")] == ["llm_response"] * 2
    assert "hook" not in next(message.iter_views()).to_dict()


def _hooks_of_mcp(*methods: str, batch: bool = False) -> set[str | None]:
    entries = [{"envelope": {"method": method}} for method in methods]
    asked = Message(role="assistant", content=[ToolCallPart(name="pay")])
    request = Request(messages=[asked], extra={"mcp": {"batch": entries} if batch else entries[0]})
    return {view.hook for view in iter_views(request) if view.kind == "tool_call"}


@pytest.mark.spec("VIEW-7")
def test_a_call_of_mcp_is_yet_to_run_and_what_a_model_is_told_of_is_not() -> None:
    assert _hooks_of_mcp("tools/call") == {"tool_pre"}
    assert _hooks_of_mcp("sampling/createMessage", "tools/call", batch=True) == {"tool_pre"}
    assert _hooks_of_mcp("sampling/createMessage") == {"llm_request"}
    assert _hooks_of_mcp("sampling/createMessage", "sampling/createMessage", batch=True) == {"llm_request"}
    texts = Request(messages=[Message(role="user", content=[TextPart(text="a")])], extra={"mcp": {}})
    assert {view.hook for view in iter_views(texts)} == {"llm_request"}


@pytest.mark.spec("VIEW-7")
@pytest.mark.parametrize("own", ["tools/call", {"envelope": 7}, {"batch": 7}, {"batch": [7]}])
def test_what_mcp_says_elsewhere_does_not_matter(own: Any) -> None:
    asked = Message(role="assistant", content=[ToolCallPart(name="pay")])
    calls = [view for view in iter_views(Request(messages=[asked], extra={"mcp": own})) if view.kind == "tool_call"]

    assert calls[0].hook == ("tool_pre" if isinstance(own, dict) else "llm_request")


@pytest.mark.spec("VIEW-4")
def test_nested_parts_have_views_of_their_own() -> None:
    inner = Message(role="user", content=[TextPart(text="deep")], id="m", extensions=Extensions(custom={"k": "hidden"}))
    prompt = PromptResultPart(prompt_name="p", messages=[inner, Message(role="assistant", content=[])])
    result = ToolResultPart(tool_name="f", content=(TextPart(text="a"), prompt))

    views = list(iter_views(Message(role="tool", content=[result])))

    assert [view.path for view in views] == [
        "content[0]",
        "content[0].content[0]",
        "content[0].content[1]",
        "content[0].content[1].messages[0].content[0]",
        "content[0].content[1].messages[0].content[1]",
        "content[0].content[1].messages[1]",
    ]
    assert {(view.action, view.is_post) for view in views[1:]} == {("receive", True)}
    assert [view.properties.get("container") for view in views[1:]] == [
        "tool_result://f",
        "tool_result://f",
        "prompt_result://p",
        "prompt_result://p",
        "prompt_result://p",
    ]
    assert "hidden" in (views[4].content or "")
    assert [view.role.value for view in views] == ["tool", "tool", "tool", "user", "user", "assistant"]


@pytest.mark.spec("VIEW-4")
def test_nesting_is_bounded_by_refusing() -> None:
    deep: Any = TextPart(text="x")
    for _ in range(MAX_NESTING):
        deep = ToolResultPart(content=(deep,))
    assert len(list(iter_views(Message(role="tool", content=[deep])))) == MAX_NESTING + 1

    with pytest.raises(ShapeError) as caught:
        list(iter_views(Message(role="tool", content=[ToolResultPart(content=(deep,))])))
    assert caught.value.code == "view.too-deep"


@pytest.mark.spec("VIEW-1")
def test_a_message_without_parts_has_a_view() -> None:
    (view,) = iter_views(
        Message(role="assistant", content=[], extra={"w": {"refusal": "no"}}, id="m", status="partial")
    )

    assert (view.kind, view.uri, view.path) == ("opaque", "opaque://canonical/message", "message")
    assert view.properties["message"] == {"id": "m", "status": "partial", "extra": {"w": {"refusal": "no"}}}
    (inside,) = (
        view for view in iter_views(Request(messages=[Message(role="user", content=[])])) if view.kind == "opaque"
    )
    assert inside.path == "messages[0]"


EXTENSIONS = Extensions(
    request=RequestExtension(environment="prod", request_id="r"),
    agent=AgentExtension(input="do", session_id="s", conversation_id="c", turn=2, agent_id="a", parent_agent_id="p"),
    http=HttpExtension(headers={"AUTHORIZATION": "Bearer x", "X-Trace": "t", "set-COOKIE": "c", "X_Api-Key": "k"}),
    security=SecurityExtension(
        labels={"pii"},
        classification="internal",
        subject=SubjectExtension(
            id="ann", type="user", roles={"r"}, permissions={"p"}, teams={"t"}, claims={"iss": "x"}
        ),
        objects={"f": ObjectSecurityProfile(permissions=("run",)), "n/g": ObjectSecurityProfile(permissions=("walk",))},
        data={"f": DataPolicy(denied_actions=("export",))},
    ),
)


def gated(*capabilities: str, part: Any = None) -> MessageView:
    message = Message(role="assistant", content=[part or ToolCallPart(name="f")], extensions=EXTENSIONS)
    return next(iter_views(message, capabilities=capabilities))


ACCESSORS = [
    ("read_subject", {"subject": SubjectExtension(id="ann", type="user")}),
    ("read_roles", {"roles": {"r"}, "subject": SubjectExtension(roles={"r"})}),
    ("read_permissions", {"permissions": {"p"}}),
    ("read_teams", {"teams": {"t"}}),
    ("read_headers", {"headers": EXTENSIONS.http and EXTENSIONS.http.headers}),
    ("write_headers", {"headers": EXTENSIONS.http and EXTENSIONS.http.headers}),
    ("read_labels", {"labels": {"pii"}}),
    (
        "read_agent",
        {
            "agent_input": "do",
            "session_id": "s",
            "conversation_id": "c",
            "turn": 2,
            "agent_id": "a",
            "parent_agent_id": "p",
        },
    ),
    ("read_objects", {"object": ObjectSecurityProfile(permissions=("run",))}),
    ("read_data", {"data_policy": DataPolicy(denied_actions=("export",))}),
]


@pytest.mark.spec("VIEW-16")
@pytest.mark.spec("VIEW-17")
@pytest.mark.parametrize(("capability", "expected"), ACCESSORS)
def test_an_accessor_is_none_until_it_is_granted(capability: str, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        assert getattr(gated(), name) is None
        assert getattr(gated(capability), name) == value


def test_the_request_slot_needs_no_capability() -> None:
    view = gated()

    assert (view.environment, view.request_id) == ("prod", "r")
    assert view.to_dict()["extensions"] == {"request": {"environment": "prod", "request_id": "r"}}
    bare = only(TextPart(text="x"))
    assert (bare.environment, bare.request_id, bare.turn, bare.subject, bare.roles) == (None, None, None, None, None)


@pytest.mark.spec("VIEW-16")
def test_helpers_raise_where_nothing_was_granted() -> None:
    view = gated()
    for helper, argument in (
        ("has_role", "r"),
        ("has_permission", "p"),
        ("has_label", "pii"),
        ("has_header", "X-Trace"),
    ):
        with pytest.raises(CapabilityError):
            getattr(view, helper)(argument)
    with pytest.raises(CapabilityError):
        view.get_header("X-Trace")


def test_helpers_answer_what_was_granted() -> None:
    view = gated("read_roles", "read_permissions", "read_labels", "read_headers")

    assert (view.has_role("r"), view.has_role("x")) == (True, False)
    assert (view.has_permission("p"), view.has_permission("x")) == (True, False)
    assert (view.has_label("pii"), view.has_label("x")) == (True, False)
    assert (view.get_header("x-TRACE"), view.has_header("authorization"), view.has_header("x")) == ("t", True, False)
    call = only(ToolCallPart(name="f", arguments={"a": None}))
    assert (call.has_arg("a"), call.has_arg("b"), call.get_arg("b", 7), call.get_arg("a", 7)) == (True, False, 7, None)
    text = only(TextPart(text=""))
    assert (text.get_arg("a"), text.has_arg("a"), text.has_content(), text.args) == (None, False, False, None)
    assert call.matches_uri_pattern("tool://*/f")
    assert not text.matches_uri_pattern("**")
    assert call.get_property("executed_by") == "client"
    assert call.get_property("nothing", 3) == 3
    assert not only(TextPart(text="x"), extensions=Extensions()).has_label("x")


@pytest.mark.spec("VIEW-16")
def test_granted_and_empty_is_empty() -> None:
    (view,) = iter_views(Message(role="user", content=[TextPart(text="x")]), capabilities=["read_labels"])

    assert view.labels == frozenset()
    assert view.to_dict()["extensions"] == {"security": {"labels": []}}


@pytest.mark.spec("VIEW-18")
def test_sensitive_headers_never_leave() -> None:
    view = gated("read_headers")

    shown = json.dumps([view.to_dict(), view.to_opa_input()]) + repr(view) + str(view.properties)
    for secret in ("Bearer", "AUTHORIZATION", "set-COOKIE", "X_Api-Key"):
        assert secret not in shown
    assert view.to_dict()["extensions"]["http"] == {"headers": {"X-Trace": "t"}}
    assert view.headers is not None
    assert view.headers["AUTHORIZATION"] is None
    assert view.get_header("authorization") == "Bearer x"


@pytest.mark.spec("VIEW-19")
@pytest.mark.parametrize(
    ("part", "permissions"),
    [
        (ToolCallPart(name="f"), ("run",)),
        (ToolCallPart(name="f", namespace="m"), ("run",)),
        (ToolCallPart(name="g", namespace="n"), ("walk",)),
        (ToolCallPart(name="g"), None),
        (ToolResultPart(tool_name="f"), ("run",)),
        (TextPart(text="f"), None),
    ],
)
def test_an_entity_has_its_own_profile(part: Any, permissions: tuple[str, ...] | None) -> None:
    profile = gated("read_objects", part=part).object

    assert (profile and profile.permissions) == permissions


@pytest.mark.spec("VIEW-19")
def test_a_bare_name_is_no_key_where_a_namespaced_one_could_be_meant() -> None:
    def profile(part: Any, **objects: ObjectSecurityProfile) -> ObjectSecurityProfile | None:
        security = SecurityExtension(objects={key.replace("__", "/"): item for key, item in objects.items()})
        return only(part, extensions=Extensions(security=security)).object

    one, two = ObjectSecurityProfile(permissions=("1",)), ObjectSecurityProfile(permissions=("2",))
    assert profile(ToolCallPart(name="f"), f=one, n__f=two) is None
    assert profile(ToolCallPart(name="f", namespace="n"), f=one, n__f=two) == two
    by_uri = SecurityExtension(objects={"tool://_/f": two, "f": one})
    assert only(ToolCallPart(name="f"), extensions=Extensions(security=by_uri)).object == two
    resource = ResourcePart(resource_request_id="r", uri="file:///a", resource_type="file", content="x")
    both = SecurityExtension(objects={"file:///a": one, "tool_result://f": two})
    result = ToolResultPart(tool_name="f", content=(resource, TextPart(text="x")))
    message = Message(role="tool", content=[result], extensions=Extensions(security=both))
    assert [view.object for view in list(iter_views(message))[1:]] == [one, two]  # its own before its container's
    assert only(ToolCallPart(name="f"), extensions=Extensions(security=by_uri)).to_dict()["extensions"]["security"][
        "object"
    ]


@pytest.mark.spec("VIEW-19")
def test_profiles_are_whole_in_the_input_and_what_is_not_given_is_absent() -> None:
    security = SecurityExtension(
        objects={"f": ObjectSecurityProfile()},
        data={"f": DataPolicy(retention=RetentionPolicy(max_age_seconds=60)), "g": DataPolicy(allowed_actions=())},
    )
    view = only(ToolCallPart(name="f"), extensions=Extensions(security=security))

    shown = view.to_opa_input()["input"]["extensions"]["security"]

    assert shown["object"] == {"managed_by": "host", "permissions": [], "data_scope": []}
    assert shown["data_policy"] == {
        "apply_labels": [],
        "denied_actions": [],
        "retention": {"max_age_seconds": 60, "policy": "persistent"},
    }
    assert json.loads(view.to_bytes())["extensions"]["security"]["object"] == shown["object"]
    assert (view.object, view.data_policy) == (security.objects["f"], security.data["f"])
    other = only(ToolCallPart(name="g"), extensions=Extensions(security=security)).to_dict()["extensions"]["security"]
    assert other["data_policy"] == {"apply_labels": [], "allowed_actions": [], "denied_actions": []}
    assert "object" not in other


@pytest.mark.spec("VIEW-20")
def test_nothing_that_a_view_hands_out_can_be_changed() -> None:
    view = gated("read_headers", "read_agent", part=ToolCallPart(name="f", arguments={"a": [1]}))
    before = view.to_opa_input()

    with pytest.raises(AttributeError):
        view.kind = "text"  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        view.uri = "x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del view.path
    with pytest.raises(TypeError):
        view.headers["Authorization"] = "x"  # type: ignore[index]
    with pytest.raises(TypeError):
        view.properties["x"] = 1
    with pytest.raises(TypeError):
        view.arguments["a"].append(2)  # type: ignore[index]
    handed_out = view.to_opa_input()
    handed_out["input"]["extensions"]["agent"]["turn"] = 99
    handed_out["input"]["properties"]["executed_by"] = "x"
    assert view.to_opa_input() == before


@pytest.mark.spec("VIEW-13")
@pytest.mark.spec("VIEW-21")
def test_dictionaries_leave_out_what_is_not_asked_for() -> None:
    view = gated(part=ToolCallPart(name="f", arguments={"secret": "x"}, extra={"w": {"k": "secret"}}))

    bare = view.to_dict(include_content=False, include_context=False)
    assert "secret" not in json.dumps(bare)
    assert "extensions" not in bare
    assert bare["properties"] == {"executed_by": "client"}
    assert None not in view.to_dict().values()
    text = only(TextPart(text="x")).to_dict()
    assert "uri" not in text
    assert (text["properties"], text["extensions"]) == ({}, {"security": {"labels": []}})


@pytest.mark.spec("VIEW-22")
@given(messages)
def test_splitting_a_message_changes_no_view(message: Message) -> None:
    bundled = [view.to_dict() for view in iter_views(message) if view.path not in ("content.text", "content.thinking")]
    if not message.content:
        return
    split = [
        view.to_dict()
        for part in message.content
        for view in iter_views(message.model_copy(update={"content": (part,)}))
    ]

    def comparable(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for document in documents:
            document.pop("path")
            document["properties"].get("message", {}).pop("extra", None)
            if not document["properties"].get("message", True):
                document["properties"].pop("message")
        return documents

    assert comparable(bundled) == comparable(split)

"""Content blocks of the Messages format, read and written. Spec: docs/spec/adapters/anthropic_messages.md."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cmf.adapters.anthropic_messages.parts import encode_part
from cmf.adapters.wire.loss import collecting
from cmf.enums import Role
from cmf.errors import LossyProjectionError, ShapeError, UnmappedPartError, UnsupportedError
from cmf.json.codec import loads_object
from cmf.json.frozen import FrozenDict, freeze, same_spelling
from cmf.json.value import replace
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    Extensions,
    ImagePart,
    Message,
    MetaExtension,
    OpaquePart,
    Part,
    PromptRequestPart,
    RedactedThinkingPart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Request
from cmf.views.iterate import iter_views
from tests.cmf.adapters.messages_bodies import ADAPTER, ASK, TEXT, answered, asked, block, only_part, written


@pytest.mark.spec("ANT-10")
@pytest.mark.spec("ANT-11")
@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"type": "tool_use", "name": "f", "input": {}}, "id"),
        ({"type": "tool_use", "id": "a", "input": {}}, "name"),
        ({"type": "tool_use", "id": "a", "name": "f", "input": [1]}, "input"),
        ({"type": "tool_result", "content": "x"}, "tool_use_id"),
        ({"type": "tool_result", "tool_use_id": "a", "content": {"a": 1}}, "content"),
        ({"type": "tool_result", "tool_use_id": "a", "content": ["x"]}, "content[0]"),
    ],
)
def test_a_call_or_result_that_does_not_fit_is_refused(given: dict[str, Any], path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        ADAPTER.from_wire_request(asked(given))

    assert caught.value.path == f"$.messages[0].content[0].{path}"


@pytest.mark.spec("ANT-8")
@pytest.mark.parametrize(
    "beside", [{}, {"citations": None}, {"citations": []}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]
)
def test_a_text_keeps_what_stands_beside_it(beside: dict[str, Any]) -> None:
    part = only_part(asked({"type": "text", "text": "hi", **beside}))

    assert type(part) is TextPart
    assert part.text == "hi"


@pytest.mark.spec("ANT-8")
@pytest.mark.parametrize("content", ["", "hi", [{"type": "text", "text": "hi"}]])
def test_a_string_is_a_text_and_stays_a_string(content: Any) -> None:
    body = {**ASK, "messages": [{"role": "user", "content": content}]}

    assert type(only_part(body)) is TextPart


@pytest.mark.spec("ANT-8")
def test_adjacent_texts_stay_apart() -> None:
    body = asked({"type": "text", "text": "a"}, {"type": "text", "text": "b"})

    request = ADAPTER.from_wire_request(body)

    assert len(request.messages[0].content) == 2
    assert ADAPTER.to_wire(request) == body


@pytest.mark.spec("ANT-9")
@pytest.mark.parametrize(
    "given",
    [
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "thinking", "thinking": "hm"},
        {"type": "thinking", "thinking": "hm", "signature": None},
    ],
)
def test_thinking_keeps_its_signature(given: dict[str, Any]) -> None:
    part = only_part(asked(given, role="assistant"))

    assert type(part) is ThinkingPart
    assert (part.text, part.signature) == (given["thinking"], given.get("signature"))


@pytest.mark.spec("ANT-9")
def test_edited_thinking_is_not_sent() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    request = ADAPTER.from_wire_request(
        asked(thinking, {"type": "redacted_thinking", "data": "YQ=="}, TEXT, role="assistant")
    )
    (message,) = request.messages
    first, second, text = message.content

    with collecting() as losses:
        edited = replace(message, content=(first.edited(text="ha"), second.edited(data="Yg=="), text))
        body = ADAPTER.to_wire(replace(request, messages=(edited,)))

    assert body["messages"][0]["content"] == [TEXT]
    assert [loss.block_type for loss in losses] == ["thinking", "redacted_thinking"]


@pytest.mark.spec("ADP-11")
@pytest.mark.parametrize("part", [ThinkingPart(text="hm", signature="x"), RedactedThinkingPart(data="x")])
def test_what_is_critical_is_never_dropped(part: Part) -> None:
    meta = Extensions(meta=MetaExtension(properties=FrozenDict({"critical": True})))
    message = Message(role=Role.ASSISTANT, content=(part,), extensions=meta)

    with pytest.raises(LossyProjectionError):
        ADAPTER.to_wire(Request(model="m", messages=(message,)))


@pytest.mark.spec("ANT-10")
def test_a_call_keeps_its_caller() -> None:
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}

    part = only_part(
        asked({"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1.0}, "caller": caller}, role="assistant")
    )

    assert part == ToolCallPart(
        tool_call_id="a",
        name="f",
        arguments=FrozenDict({"x": 1.0}),
        extra=FrozenDict({"anthropic_messages": {"caller": caller}}),
    )


@pytest.mark.spec("ANT-10")
@pytest.mark.parametrize(
    ("given", "arguments", "raw"),
    [
        ({"input": '{"x": '}, None, '{"x": '), ({"input": ""}, None, ""),
        ({"input": None}, {}, None), ({"input": []}, {}, None), ({}, {}, None),
    ],
)  # fmt: skip
def test_an_input_that_is_no_object_is_kept_as_it_is(given: Any, arguments: Any, raw: str | None) -> None:
    body = asked({"type": "tool_use", "id": "a", "name": "f", **given}, role="assistant")
    part = only_part(body)

    assert (part.arguments, part.arguments_raw) == (arguments, raw)
    assert same_spelling(ADAPTER.to_wire(ADAPTER.from_wire_request(body)), body)


@pytest.mark.spec("ANT-11")
@pytest.mark.parametrize(
    ("beside", "content", "is_error"),
    [
        ({}, None, False),
        ({"content": None}, None, False),
        ({"content": ""}, "", False),
        ({"content": "x", "is_error": False}, "x", False),
        ({"content": [], "is_error": True}, [], True),
        ({"content": [TEXT], "is_error": None}, (TextPart(text="and now?"),), False),
        ({"content": "x", "is_error": "no"}, "x", False),
    ],
)
def test_a_result_keeps_the_form_of_its_content(beside: dict[str, Any], content: Any, is_error: bool) -> None:
    part = only_part(asked({"type": "tool_result", "tool_use_id": "a", **beside}))

    assert (part.content, part.is_error, part.executed_by) == (content, is_error, "client")


@pytest.mark.spec("ANT-11")
def test_a_result_of_blocks_has_a_part_for_each() -> None:
    blocks = [
        TEXT,
        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "search_result", "source": "s", "title": "t", "content": [TEXT]},
        {"type": "tool_reference", "tool_name": "f"},
    ]

    part = only_part(asked({"type": "tool_result", "tool_use_id": "a", "content": blocks}))

    assert [type(inner) for inner in part.content] == [TextPart, ImagePart, DocumentPart, ResourcePart, OpaquePart]


_FOUND = {"type": "search_result", "source": "https://kb.example/1", "title": "Opening hours"}


@pytest.mark.spec("ANT-28")
@pytest.mark.parametrize(
    ("texts", "content"),
    [
        ([TEXT], TEXT["text"]),
        ([TEXT, {"type": "text", "text": ""}, {"type": "text", "text": "two\nlines"}], f"{TEXT['text']}\n\ntwo\nlines"),
        ([{**TEXT, "cache_control": {"type": "ephemeral"}}], TEXT["text"]),
        ([{"type": "text", "text": ""}], ""),
    ],
)
@pytest.mark.parametrize("beside", [{}, {"citations": {"enabled": True}, "cache_control": {"type": "ephemeral"}}])
def test_a_search_result_is_a_resource_and_goes_back_as_it_came(texts: Any, content: str, beside: Any) -> None:
    body = asked({**_FOUND, "content": texts, **beside})

    part = only_part(body)

    assert isinstance(part, ResourcePart)
    assert (part.uri, part.name, part.content) == ("https://kb.example/1", "Opening hours", content)
    assert ADAPTER.to_wire(ADAPTER.from_wire_request(body))["messages"] == body["messages"]


@pytest.mark.spec("ANT-28", "ANT-15")
def test_an_edited_search_result_is_a_document() -> None:
    part: Any = only_part(asked({**_FOUND, "content": [TEXT, TEXT]}))

    assert block(part.edited(content="[MASKED]"), Role.USER) == {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "[MASKED]"},
        "title": "Opening hours",
    }


@pytest.mark.spec("ANT-14", "ANT-28")
@pytest.mark.parametrize(
    "odd",
    [
        {"source": 1},
        {"title": None},
        {"content": "x"},
        {"content": []},
        {"content": ["x"]},
        {"content": [TEXT, {"type": "image"}]},
        {"content": [{"type": "text", "text": 1}]},
    ],
)
def test_a_search_result_that_does_not_fit_is_opaque(odd: dict[str, Any]) -> None:
    assert type(only_part(asked({**_FOUND, "content": [TEXT], **odd}))) is OpaquePart


@pytest.mark.spec("ANT-28")
@pytest.mark.parametrize(
    "cuts",
    [
        [{"chars": 1}],
        [{"chars": 1}, {"chars": 2}],
        [{"chars": -1}],
        [{"chars": True}],
        [{}],
        ["x"],
        "x",
        [{"chars": 4}],
    ],
)
def test_cuts_that_do_not_fit_the_content_are_not_followed(cuts: Any) -> None:
    extra = freeze({"anthropic_messages": {"type": "search_result", "content": cuts}})

    written = block(ResourcePart(uri="u", name="n", content="abc", extra=extra), Role.USER)

    assert written["content"] == [{"type": "text", "text": "abc"}]


@pytest.mark.spec("ANT-11")
@pytest.mark.parametrize(
    ("content", "wire"), [({"a": 1}, '{"a":1}'), ([1, 2], "[1,2]"), ([], []), (3, "3"), (None, None), (True, "true")]
)
def test_a_foreign_result_is_written_as_text(content: Any, wire: Any) -> None:
    assert block(ToolResultPart(tool_call_id="a", content=content), Role.TOOL).get("content") == wire


@pytest.mark.spec("ANT-12")
def test_what_the_provider_ran_stays_in_its_message() -> None:
    blocks = [
        {
            "type": "server_tool_use",
            "id": "s1",
            "name": "web_search",
            "input": {"query": "x"},
            "caller": {"type": "direct"},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": [{"type": "web_search_result", "encrypted_content": "E"}],
        },
        {"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {"query": "y"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s2",
            "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
        },
        {"type": "mcp_tool_use", "id": "m1", "name": "echo", "server_name": "docs", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": True, "content": [TEXT]},
    ]

    response = ADAPTER.from_wire_response(answered(*blocks))

    parts: Any = response.message.content
    assert [part.executed_by for part in parts] == ["provider"] * 6
    assert [part.is_error for part in parts[1::2]] == [False, True, True]
    assert [part.tool_name for part in parts[1::2]] == ["web_search", "web_search", "echo"]
    assert parts[4].namespace == "docs"
    assert ADAPTER.to_wire_response(response) == answered(*blocks)


@pytest.mark.spec("ANT-12")
def test_what_another_provider_ran_or_was_edited_is_not_sent() -> None:
    own = only_part(
        asked({"type": "code_execution_tool_result", "tool_use_id": "s", "content": {"stdout": "x"}}, role="assistant")
    )

    with collecting() as losses:
        body = written(
            ToolCallPart(name="f", tool_call_id="a", executed_by="provider"),
            ToolResultPart(tool_call_id="a", content="x", executed_by="provider"),
            own.edited(content="gone"),
            role=Role.ASSISTANT,
        )

    assert body["messages"] == []
    assert [loss.block_type for loss in losses] == ["tool_call", "tool_result", "tool_result"]


@pytest.mark.spec("ANT-12")
@pytest.mark.parametrize(
    "given",
    [
        {"type": "mcp_tool_use", "id": "m1", "name": "echo", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "content": 1},
        {"type": "web_search_tool_result", "content": []},
        {"type": "thinking", "thinking": None},
        {"type": "redacted_thinking"},
        {"type": "text", "text": 1},
        {"type": "image", "source": {"type": "base64", "data": "AA=="}},
        {"type": "document", "source": {"type": "content", "content": ""}},
        {
            "type": "document",
            "source": {"type": "content", "content": [{"type": "text", "text": "x"}, {"type": "image"}]},
        },
        {"type": "document", "source": {"type": "content"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": ""}},
        {"type": "image", "source": {"type": "text", "media_type": "text/plain", "data": ""}},
        {"type": "brand_new", "a": {"b": None}},
    ],
)
@pytest.mark.spec("ANT-14")
def test_a_block_without_a_canonical_shape_is_opaque_and_whole(given: dict[str, Any]) -> None:
    part = only_part(asked(given, role="assistant"))

    assert part == OpaquePart(provider="anthropic_messages", type=given["type"], value=FrozenDict(given))


@pytest.mark.spec("ANT-13")
@pytest.mark.parametrize(
    ("source", "kind", "data"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "AA=="}, "base64", "AA=="),
        ({"type": "url", "url": "https://x.test/a.png"}, "url", "https://x.test/a.png"),
        ({"type": "url", "url": "data:image/png;base64,AA=="}, "url", "data:image/png;base64,AA=="),
        ({"type": "file", "file_id": "file_1"}, "file_ref", "file_1"),
        ({"type": "url", "url": "https://x.test/a.png", "more": None}, "url", "https://x.test/a.png"),
    ],
)
@pytest.mark.parametrize("what", ["image", "document"])
def test_a_source_of_media_is_read_and_written_alike(what: str, source: dict[str, Any], kind: str, data: str) -> None:
    part = only_part(asked({"type": what, "source": source, "cache_control": {"type": "ephemeral"}}))

    assert (part.content_type, part.type, part.data) == (what, kind, data)


@pytest.mark.spec("ANT-13")
def test_a_document_of_text_is_shown_as_the_text_it_is() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Grüße"}
    body = asked({"type": "document", "title": "T", "context": "C", "citations": {"enabled": True}, "source": source})

    part = only_part(body)

    assert (type(part), part.title) == (DocumentPart, "T")
    request = ADAPTER.from_wire_request(body)
    shown = next(iter_views(request.messages[0]))
    assert shown.content == "Grüße"


@pytest.mark.spec("ANT-13")
def test_text_that_looks_like_another_type_is_shown_whole() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "GIF89a is a format of pictures"}

    assert type(only_part(asked({"type": "document", "source": source}))) is OpaquePart


PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()
GREETING = base64.b64encode(b"hello").decode()


@pytest.mark.spec("ANT-13")
@pytest.mark.parametrize(
    ("part", "source"),
    [
        (ImagePart(type="base64", data=PNG), {"type": "base64", "media_type": "image/png", "data": PNG}),
        (
            ImagePart(type="url", data=f"data:image/png;base64,{PNG}"),
            {"type": "base64", "media_type": "image/png", "data": PNG},
        ),
        (ImagePart(type="url", data="https://x.test/a"), {"type": "url", "url": "https://x.test/a"}),
        (
            DocumentPart(type="base64", data=GREETING, media_type="text/csv"),
            {"type": "text", "media_type": "text/plain", "data": "hello"},
        ),
        (
            DocumentPart(type="base64", data="/w==", media_type="text/plain"),
            {"type": "base64", "media_type": "text/plain", "data": "/w=="},
        ),
        (
            DocumentPart(type="base64", data="JVBERi0=", media_type="application/pdf"),
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
        ),
    ],
)
def test_foreign_media_gets_the_source_that_fits(part: Part, source: dict[str, Any]) -> None:
    assert block(part)["source"] == source


@pytest.mark.spec("ANT-13")
@pytest.mark.spec("ANT-15")
@pytest.mark.parametrize(
    "part",
    [
        ImagePart(type="file_ref", data="file-of-another"),
        DocumentPart(type="base64", data="AAEC"),
        AudioPart(type="base64", data="AA==", media_type="audio/wav"),
        ResourcePart(uri="file:///x"),
    ],
)
def test_media_that_the_format_lacks_is_refused(part: Part) -> None:
    with pytest.raises(UnsupportedError):
        written(part)


@pytest.mark.spec("ANT-14")
@pytest.mark.spec("ANT-15")
@pytest.mark.parametrize(
    "part",
    [
        OpaquePart(provider="gemini", type="x", value=FrozenDict()),
        ResourceRefPart(uri="file:///x"),
        PromptRequestPart(name="p"),
    ],
)
def test_what_has_no_block_is_dropped_with_a_record(part: Part) -> None:
    with collecting() as losses:
        found = block(part)

    assert found is None
    assert [loss.adapter for loss in losses] == ["anthropic_messages"]


@pytest.mark.spec("ANT-15")
@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (
            ResourcePart(uri="file:///x", content="hello"),
            {
                "type": "document",
                "title": "file:///x",
                "source": {"type": "text", "media_type": "text/plain", "data": "hello"},
            },
        ),
        (
            ResourcePart(uri="file:///x", name="N", blob=b"%PDF-", mime_type="application/pdf"),
            {
                "type": "document",
                "title": "N",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            },
        ),
        (
            ResourcePart(uri="file:///x", blob=b"\x89PNG\r\n\x1a\n0000"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ),
    ],
)
def test_a_resource_is_written_as_what_it_holds(part: Part, wire: dict[str, Any]) -> None:
    assert block(part) == wire


SUMMARY = {"type": "compaction", "content": "They want a room with a view."}
NAMED = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "lookup"}}
DEFINED = {"type": "tool_addition", "tool": {"name": "lookup", "input_schema": {}, "description": "Obey."}}


@pytest.mark.spec("ANT-29")
@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"encrypted_content": None, "tool_changes": None},
        {"signature": "c2ln", "cache_control": {"type": "ephemeral"}, "tool_changes": []},
        {"tool_changes": [NAMED, {**NAMED, "type": "tool_removal"}]},
    ],
)
@pytest.mark.parametrize("role", ["assistant", "user"])
def test_a_summary_of_what_went_before_is_a_text_and_goes_back(role: str, beside: dict[str, Any]) -> None:
    part = only_part(asked({**SUMMARY, **beside}, role=role))

    assert isinstance(part, TextPart)
    assert part.text == SUMMARY["content"]
    assert block(part.edited(text="They want a room.")) == {"type": "text", "text": "They want a room."}


@pytest.mark.spec("ANT-29")
@pytest.mark.parametrize(
    "odd",
    [
        {"encrypted_content": "E"},
        {"content": None},
        {"tool_changes": [DEFINED]},
        {"tool_changes": [NAMED, "lookup"]},
        {"tool_changes": NAMED},
        {"tool_changes": [{**NAMED, "tool": {**NAMED["tool"], "description": "Obey."}}]},  # type: ignore[dict-item]
    ],
)
def test_a_summary_with_sealed_content_or_tools_is_opaque(odd: dict[str, Any]) -> None:
    part = only_part(asked({**SUMMARY, **odd}, role="assistant"))

    assert isinstance(part, OpaquePart)
    assert part.type == "compaction"


@pytest.mark.spec("ANT-29")
def test_a_streamed_summary_is_the_text_of_the_whole_and_streams_again() -> None:
    deltas = [{"type": "compaction_delta", "content": said} for said in ("They want ", "a room.")]
    body = answered({"type": "compaction", "content": "They want a room."}, TEXT, stop_reason="compaction")
    events = ADAPTER.to_wire_events(ADAPTER.from_wire_response(body))
    at = next(at for at, event in enumerate(events) if event["data"].get("delta", {}).get("type") == "compaction_delta")
    events[at : at + 1] = [{**events[at], "data": {**events[at]["data"], "delta": delta}} for delta in deltas]

    response = ADAPTER.from_wire_response(ADAPTER.fold_events(events))

    assert [part.text for part in response.message.content if isinstance(part, TextPart)] == [
        "They want a room.",
        TEXT["text"],
    ]
    assert ADAPTER.fold_events(ADAPTER.to_wire_events(response))["content"] == body["content"]


TABS = {
    "type": "browser_state",
    "tabs": [{"tab_id": "1", "title": 'Ignore "all" — now', "url": "https://a.example/é", "active": True}],
    "state_changes": [{"type": "download_completed", "download_id": "d", "url": "https://a.example", "size_bytes": 5}],
}


@pytest.mark.spec("ANT-30")
@pytest.mark.parametrize(
    "beside", [{}, {"cache_control": {"type": "ephemeral"}}, {"tabs": [{"title": 1.0}]}, {"tabs": []}]
)
def test_the_state_of_a_browser_is_a_text_of_the_result_and_goes_back(beside: dict[str, Any]) -> None:
    state = {**TABS, **beside}
    result = only_part(asked({"type": "tool_result", "tool_use_id": "a", "content": [TEXT, state]}))

    (text, tabs) = result.content
    assert isinstance(tabs, TextPart)
    assert loads_object(tabs.text) == {key: item for key, item in state.items() if key not in ("type", "cache_control")}
    masked = tabs.edited(text=tabs.text.replace("https", "[MASKED]"))
    (wire,) = written(ToolResultPart(tool_call_id="a", content=(text, masked)))["messages"]
    assert wire["content"][0]["content"][1] == {"type": "text", "text": masked.text}


@pytest.mark.spec("ANT-30")
def test_a_state_of_a_browser_that_spells_nothing_is_plain_text() -> None:
    part = TextPart(text="no JSON", extra=freeze({"anthropic_messages": {"type": "browser_state"}}))

    assert block(part) == {"type": "text", "text": "no JSON"}


@pytest.mark.spec("ANT-14")
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (NAMED, "tool_reference"),
        ({**NAMED, "type": "tool_removal", "cache_control": {"type": "ephemeral"}}, "tool_reference"),
        (DEFINED, "tool_addition"),
        ({"type": "tool_removal", "tool": "lookup"}, "tool_removal"),
    ],
)
def test_a_change_of_tools_that_only_names_one_is_a_name_of_a_tool(change: dict[str, Any], kind: str) -> None:
    part = only_part(asked(change, role="system"))

    assert isinstance(part, OpaquePart)
    assert part.type == kind


@pytest.mark.spec("ANT-16")
def test_calls_and_results_without_ids_are_paired_by_name_and_order() -> None:
    calls = Message(role=Role.ASSISTANT, content=tuple(ToolCallPart(name=name) for name in ("f", "g", "f")))
    results = [Message(role=Role.TOOL, content=(ToolResultPart(tool_name=name),)) for name in ("g", "f", "f", "h")]

    body = ADAPTER.to_wire(Request(model="m", messages=(calls, *results)))

    assert [each["id"] for each in body["messages"][0]["content"]] == ["call_1", "call_2", "call_3"]
    assert [each["tool_use_id"] for each in body["messages"][1]["content"]] == ["call_2", "call_1", "call_3", "call_4"]


def test_a_part_that_no_table_knows_is_a_programming_error() -> None:
    message = Message(role=Role.USER, content=())

    with pytest.raises(UnmappedPartError):
        encode_part(message, message)  # type: ignore[arg-type]


@pytest.mark.spec("ANT-13")
@pytest.mark.parametrize("part", [ImagePart(type="url", data="https://x.test/a"), ToolResultPart(tool_call_id="a")])
def test_what_only_users_say_is_refused_of_a_foreign_assistant(part: Part) -> None:
    with pytest.raises(UnsupportedError):
        written(part, role=Role.ASSISTANT)


@pytest.mark.spec("ANT-13")
@pytest.mark.parametrize(
    "given",
    [
        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
        {"type": "tool_result", "tool_use_id": "a", "content": "x"},
    ],
)
def test_what_only_users_say_goes_back_where_it_came_from(given: dict[str, Any]) -> None:
    assert type(only_part(asked(given, role="assistant"))) in (ImagePart, ToolResultPart)


@pytest.mark.spec("ANT-13")
@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ("closed on Mondays", "closed on Mondays"),
        ([{"type": "text", "text": "closed on Mondays"}], "closed on Mondays"),
        ([{"type": "text", "text": "closed"}, {"type": "text", "text": "on\nMondays", "cache_control": None}],
         "closed\non\nMondays"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("beside", [{}, {"title": "Hours", "context": "the shop", "citations": {"enabled": True}}])
def test_a_document_of_blocks_is_a_document_and_goes_back_as_it_came(
    blocks: Any, said: str, beside: dict[str, Any]
) -> None:
    body = asked({"type": "document", "source": {"type": "content", "content": blocks, "more": 1}, **beside})

    part = only_part(body)

    assert isinstance(part, DocumentPart)
    (view,) = [view for view in iter_views(ADAPTER.from_wire_request(body)) if view.kind == "document"]
    assert view.content == said
    assert ADAPTER.to_wire(ADAPTER.from_wire_request(body)) == body


@pytest.mark.spec("ANT-13")
def test_an_edited_document_of_blocks_is_one_text() -> None:
    source = {"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    part = only_part(asked({"type": "document", "source": source}))

    body = written(part.edited(data=base64.b64encode(b"c").decode()))

    assert body["messages"][0]["content"] == [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "c"}}
    ]

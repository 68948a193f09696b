"""Conversations as trees, and their agent-threads form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cmf.strategies import json_object, json_value, leaf_parts, messages, moment, name, text

from cmf import (
    DocumentPart,
    Extensions,
    ImagePart,
    LLMExtension,
    Message,
    OpaquePart,
    RedactedThinkingPart,
    ResourcePart,
    SecurityExtension,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
    iter_views,
)
from cmf.errors import CmfError, SchemaVersionError, ShapeError, UnsupportedError
from cmf.interop.agent_threads import children, from_agent_threads, leaves, linearise, path_to_root, to_agent_threads
from cmf.json.frozen import same_spelling
from cmf.message.message import Part


def said(id: str | None, parent: str | None = None) -> Message:
    return Message(role="user", content=[TextPart(text="x")], id=id, parent_id=parent)


TREE = [said("1"), said("2", "1"), said("3", "2"), said("3b", "2"), said("4", "3")]


def ids(branch: list[Message]) -> list[str | None]:
    return [message.id for message in branch]


# -- the tree ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("THR-2")
def test_a_branch_with_a_missing_parent_or_a_cycle_is_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        path_to_root([said("2", "1")], "2")
    assert caught.value.code == "threads.missing"
    with pytest.raises(ShapeError) as caught:
        path_to_root(TREE, "9")
    assert caught.value.code == "threads.missing"
    with pytest.raises(ShapeError) as caught:
        path_to_root([said("1", "2"), said("2", "1")], "2")
    assert caught.value.code == "threads.cycle"


@pytest.mark.spec("THR-3")
def test_a_line_cannot_be_drawn_without_a_root_or_in_a_circle() -> None:
    for lost in ([said("2", "1")], [said("1", "2"), said("2", "1")]):
        with pytest.raises(ShapeError) as caught:
            linearise(lost)
        assert caught.value.code == "threads.missing"
    with pytest.raises(ShapeError) as caught:
        linearise([said("1"), said("1", "1")])
    assert caught.value.code == "threads.cycle"
    with pytest.raises(ShapeError, match="no child"):
        linearise(TREE, {"2": "4"})


@pytest.mark.spec("THR-1")
@pytest.mark.spec("THR-2")
@pytest.mark.spec("THR-3")
def test_a_tree_is_read_from_its_ends() -> None:
    assert ids(children(TREE, None)) == ["1"]
    assert ids(children(TREE, "2")) == ["3", "3b"]
    assert ids(leaves(TREE)) == ["3b", "4"]
    assert ids(path_to_root(TREE, "4")) == ["1", "2", "3", "4"]
    assert ids(path_to_root(TREE, "3b")) == ["1", "2", "3b"]
    assert ids(linearise(TREE)) == ["1", "2", "3b"]
    assert ids(linearise(TREE, {"2": "3"})) == ["1", "2", "3", "4"]
    assert ids(linearise([said("1"), said("2")], {None: "1"})) == ["1"]
    assert linearise([]) == []
    assert ids(linearise([said(None)])) == [None]


@pytest.mark.spec("THR-1")
@pytest.mark.spec("THR-2")
@given(st.lists(st.integers(0, 100), max_size=12), st.randoms(use_true_random=False))
def test_every_branch_of_any_tree_leads_from_the_root_to_its_leaf(draws: list[int], shuffle: Any) -> None:
    parents = [None, *(str(draw % (index + 1)) for index, draw in enumerate(draws))]
    tree = [said(str(index), parent) for index, parent in enumerate(parents)]
    shuffle.shuffle(tree)

    covered: set[str | None] = set()
    for leaf in leaves(tree):
        branch = path_to_root(tree, str(leaf.id))
        assert branch[0].parent_id is None
        assert [message.parent_id for message in branch[1:]] == ids(branch[:-1])
        choose = {message.parent_id: str(message.id) for message in branch}
        assert linearise(tree, choose) == branch
        covered |= set(ids(branch))
    assert covered == set(ids(tree))


# -- the agent-threads form --------------------------------------------------------------------------------------------


def body(*parts: Any, role: str = "assistant", **fields: Any) -> dict[str, Any]:
    return {
        "id": "01J",
        "parentMessageId": None,
        "role": role,
        "parts": list(parts),
        "createdAt": "2026-05-08T09:00:00.000000Z",
        "metadata": {"schemaVersion": 1},
        **fields,
    }


@pytest.mark.spec("THR-5")
def test_a_newer_version_of_the_form_is_refused_with_both_numbers() -> None:
    with pytest.raises(SchemaVersionError, match="version 2 is newer than 1") as caught:
        from_agent_threads(body(metadata={"schemaVersion": 2}))
    assert caught.value.path == "$.metadata.schemaVersion"
    assert from_agent_threads(body()).schema_version == 2


@pytest.mark.spec("THR-4")
@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ("text", "$"),
        ({}, "$"),
        (body(metadata=None), "$.metadata.schemaVersion"),
        (body(metadata={"schemaVersion": "1"}), "$.metadata.schemaVersion"),
        (body(metadata={"schemaVersion": True}), "$.metadata.schemaVersion"),
        (body(role="developer"), "$.role"),
        (body(role=["user"]), "$.role"),
        (body(createdAt="yesterday"), "$.createdAt"),
        (body(createdAt=5), "$.createdAt"),
        (body(id=5), "$"),
        (body("text"), "$.parts[0]"),
        (body({"type": 5}), "$.parts[0]"),
        (body({"type": "text"}), "$.parts[0].text"),
        (body({"type": "text", "text": 5}), "$.parts[0]"),
        (body({"type": "tool-call", "toolCallId": "c", "toolName": "f"}), "$.parts[0].input"),
        (
            body({"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": 1, "isError": "no"}),
            "$.parts[0]",
        ),
        (
            body(
                {
                    "type": "tool-result",
                    "toolCallId": "c",
                    "toolName": "f",
                    "output": [{"content_type": "text"}],
                    "isError": False,
                }
            ),
            "$.parts[0].output",
        ),
        (body({"type": "file", "mimeType": 5, "url": "u"}), "$.parts[0]"),
    ],
)
def test_what_does_not_fit_the_form_is_refused_where_it_stands(wrong: Any, path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        from_agent_threads(wrong)
    assert caught.value.path == path


@pytest.mark.spec("THR-6")
@pytest.mark.parametrize(
    ("message", "path"),
    [
        (Message(role="developer", content=[]), "$.role"),
        *(
            (Message(role="assistant", content=[TextPart(text="x"), part]), "$.parts[1]")
            for part in (
                RedactedThinkingPart(data="x"),
                ResourcePart(uri="u"),
                ImagePart(type="base64", data="aGk=", media_type="image/png"),
                ImagePart(type="url", data="u"),
                ToolResultPart(content="x", tool_call_id="c"),
                ToolCallPart(name="f"),
                ToolCallPart(name="f", tool_call_id="c", arguments_raw="{"),
                OpaquePart(provider="gemini", type="t", value={}),
            )
        ),
    ],
)
def test_what_the_form_cannot_say_is_refused_not_dropped(message: Message, path: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        to_agent_threads(message)
    assert caught.value.path == path


@pytest.mark.spec("THR-4")
def test_each_part_becomes_ours_and_comes_back() -> None:
    given_parts: list[tuple[dict[str, Any], Any]] = [
        ({"type": "text", "text": "hi"}, TextPart(text="hi")),
        ({"type": "reasoning", "text": "hm"}, ThinkingPart(text="hm")),
        (
            {"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {"a": 1.0}},
            ToolCallPart(tool_call_id="c", name="f", arguments={"a": 1.0}),
        ),
        (
            {"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": [1]},
            ToolCallPart(tool_call_id="c", name="f", arguments_raw="[1]"),
        ),
        (
            {"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": {"a": [1]}, "isError": True},
            ToolResultPart(tool_call_id="c", tool_name="f", content={"a": [1]}, is_error=True),
        ),
        (
            {"type": "file", "mimeType": "image/png", "url": "https://x/i"},
            ImagePart(type="url", data="https://x/i", media_type="image/png"),
        ),
        (
            {"type": "file", "mimeType": "video/mp4", "url": "v"},
            VideoPart(type="url", data="v", media_type="video/mp4"),
        ),
        (
            {"type": "file", "mimeType": "application/pdf", "url": "d", "name": "report"},
            DocumentPart(type="url", data="d", media_type="application/pdf", title="report"),
        ),
        ({"type": "step-start", "n": 1}, OpaquePart(provider="agent_threads", type="step-start", value={
            "type": "step-start", "n": 1,
        })),
    ]  # fmt: skip

    message = from_agent_threads(body(*(part for part, _ in given_parts)))

    assert list(message.content) == [part for _, part in given_parts]
    assert to_agent_threads(message)["parts"] == [part for part, _ in given_parts]


@pytest.mark.spec("THR-4")
@pytest.mark.parametrize(
    "document",
    [
        body({"type": "text", "text": "x", "providerMetadata": {"k": "v"}, "cmf": {"theirs": 1}}),
        body(metadata={"schemaVersion": 1, "model": "m", "nested": {"a": [None]}}, annotations=["y"]),
        body(createdAt="2026-05-08T11:00:00+02:00"),
        body(createdAt="2026-05-08T11:00:00"),
        body(createdAt=None),
        {"role": "user", "parts": [], "metadata": {"schemaVersion": 1}},
        body({"type": "file", "mimeType": "image/png", "url": "u", "name": "n"}),
        body(
            {
                "type": "tool-result",
                "toolCallId": "c",
                "toolName": "f",
                "output": [{"content_type": "text", "text": "x", "extra": None}],
                "isError": False,
            }
        ),
        body(metadata={"schemaVersion": 1, "cmf": {"extra": {"agent_threads": {"k": 1}}}}),
        body(metadata={"schemaVersion": 0, "cmf": 5}),
        body({"type": "file", "mimeType": "text/plain", "url": "u", "name": None}),
        body({"type": "text", "text": "x", "cmf": {"extra": {}}}),
        body(metadata={"schemaVersion": 1, "cmf": {"channel": None}}),
    ],
)
def test_what_else_a_document_holds_comes_back(document: dict[str, Any]) -> None:
    message = from_agent_threads(document)

    assert to_agent_threads(message) == document
    assert to_agent_threads(Message.model_validate_json(message.model_dump_json())) == document


def test_a_changed_time_is_not_spelled_as_the_old_one() -> None:
    message = from_agent_threads(body(createdAt="2026-05-08T11:00:00+02:00"))

    moved = message.model_copy(update={"created_at": "2027-01-01T00:00:00Z"})

    assert to_agent_threads(moved)["createdAt"] == "2027-01-01T00:00:00.000000Z"


@pytest.mark.spec("THR-4")
def test_fields_that_the_format_lacks_are_kept_under_cmf() -> None:
    message = Message(
        role="assistant",
        content=[
            ThinkingPart(text="hm", signature="c2ln", extra={"anthropic_messages": {"k": "v"}}),
            ToolCallPart(tool_call_id="c", name="f", namespace="n", executed_by="provider"),
        ],
        session_id="s",
        channel="final",
        status="partial",
        extensions=Extensions(llm=LLMExtension(model_id="a:b"), security=SecurityExtension(labels={"pii"})),
    )

    document = to_agent_threads(message)
    again = from_agent_threads(json.loads(json.dumps(document)))

    assert document["metadata"]["cmf"]["channel"] == "final"
    assert document["parts"][0]["cmf"]["signature"] == "c2ln"
    assert [part.edited() for part in again.content] == [
        message.content[0].edited(),
        message.content[1].model_copy(update={"arguments": {}}),
    ]
    assert (again.session_id, again.channel, again.status, again.extensions) == (
        message.session_id,
        message.channel,
        message.status,
        message.extensions,
    )
    assert to_agent_threads(again) == document


wire_parts = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "reasoning"]), "text": text}, optional={"x": json_value}),
    st.fixed_dictionaries({"type": st.just("tool-call"), "toolCallId": text, "toolName": name, "input": json_value}),
    st.fixed_dictionaries(
        {
            "type": st.just("tool-result"),
            "toolCallId": text,
            "toolName": name,
            "output": json_value,
            "isError": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("file"), "mimeType": st.sampled_from(["image/png", "audio/wav", "a/b"]), "url": text},
        optional={"name": text},
    ),
    st.fixed_dictionaries({"type": st.just("data-novel")}, optional={"value": json_value}),
)
documents = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool"]),
        "parts": st.lists(wire_parts, max_size=3),
        "metadata": json_object.map(lambda more: {**more, "schemaVersion": 1}),
    },
    optional={
        "id": st.none() | name,
        "parentMessageId": st.none() | name,
        "createdAt": moment.map(lambda at: at.isoformat()),
        "title": json_value,
    },
)


@pytest.mark.spec("THR-4")
@given(documents)
def test_any_document_comes_back_to_the_letter_and_is_seen_whole(document: dict[str, Any]) -> None:
    message = from_agent_threads(document)

    assert same_spelling(to_agent_threads(message), document)
    assert same_spelling(to_agent_threads(Message.model_validate_json(message.model_dump_json())), document)
    shown = json.dumps([view.to_dict() for view in iter_views(message)], ensure_ascii=False)
    for part in document["parts"]:
        if part["type"] in ("text", "reasoning", "file"):
            assert json.dumps(part.get("text", part.get("url")), ensure_ascii=False)[1:-1] in shown


@pytest.mark.spec("THR-6")
@given(messages | leaf_parts.map(lambda part: Message(role="assistant", content=[part])))
def test_any_message_is_written_completely_or_refused(message: Message) -> None:
    try:
        document = to_agent_threads(message)
    except UnsupportedError:
        return
    again = from_agent_threads(json.loads(json.dumps(document)))

    assert to_agent_threads(again) == json.loads(json.dumps(document))
    assert again.role == message.role
    assert again.extensions == message.extensions
    assert [type(part) for part in again.content] == [type(part) for part in message.content]


@pytest.mark.spec("THR-6")
@pytest.mark.parametrize("part", [
    VideoPart(type="url", data="https://a.example/v", media_type="", duration_ms=0),
    DocumentPart(type="url", data="https://a.example/d", media_type="image/png"),
])  # fmt: skip
def test_media_that_would_be_read_as_another_kind_are_refused(part: Part) -> None:
    with pytest.raises(UnsupportedError, match="mimeType"):
        to_agent_threads(Message(role="user", content=[part]))


@given(json_value | st.fixed_dictionaries({"role": json_value, "parts": st.lists(json_value)}, optional={
    "metadata": st.just({"schemaVersion": 1}), "createdAt": json_value, "id": json_value,
}))  # fmt: skip
def test_any_json_is_a_message_or_an_error_of_ours(document: Any) -> None:
    try:
        from_agent_threads(document)
    except CmfError:
        return
    assert isinstance(document, dict)

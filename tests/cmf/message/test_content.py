"""The parts that a message is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from tests.cmf.strategies import json_object, leaf_parts

from cmf import (
    AudioPart,
    ContentType,
    DocumentPart,
    FrozenList,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    PromptResultPart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
    iter_views,
)
from cmf.errors import ShapeError
from cmf.message.message import ContentPart

CLASSES: tuple[type[Part], ...] = get_args(get_args(ContentPart)[0])


def read(part: Any, role: str = "user") -> Any:
    return Message.model_validate({"role": role, "content": [part]}).content[0]


def refused(part: Any, role: str = "user") -> ShapeError:
    with pytest.raises(ShapeError) as caught:
        read(part, role)
    return caught.value


@pytest.mark.spec("MSG-5")
def test_each_of_the_fourteen_content_types_has_one_class() -> None:
    types = {cls: cls.__dataclass_fields__["content_type"].default for cls in CLASSES}  # type: ignore[attr-defined]

    assert sorted(types.values()) == sorted(ContentType)
    assert len(types) == 14


@pytest.mark.spec("MSG-6")
@pytest.mark.parametrize(
    ("part", "path", "code"),
    [
        ({"content_type": "text"}, "$.content[0].text", "shape.missing"),
        ({"content_type": "text", "text": None}, "$.content[0].text", "shape.string-type"),
        ({"content_type": "text", "text": "x", "k": 1}, "$.content[0].k", "shape.unexpected-keyword-argument"),
        ({"content_type": "text", "content": {"text": "x"}}, "$.content[0].text", "shape.missing"),
        ({"content_type": "tool_call", "content": {"name": "f"}}, "$.content[0].name", "shape.missing"),
        ({"content_type": "tool_call", "name": "f", "arguments": "{}"}, "$.content[0].arguments", "shape.object-type"),
        (
            {"content_type": "tool_call", "name": "f", "executed_by": "me"},
            "$.content[0].executed_by", "shape.literal-error",
        ),
        ({"content_type": "tool_result", "is_error": "yes"}, "$.content[0].is_error", "shape.bool-type"),
        ({"content_type": "tool_result", "is_error": 1}, "$.content[0].is_error", "shape.bool-type"),
        (
            {"content_type": "video", "type": "url", "data": "u", "duration_ms": -1},
            "$.content[0].duration_ms", "shape.greater-than-equal",
        ),
        (
            {"content_type": "video", "type": "url", "data": "u", "duration_ms": "5"},
            "$.content[0].duration_ms", "shape.int-type",
        ),
        (
            {"content_type": "opaque", "provider": "p", "type": "t", "value": []},
            "$.content[0].value", "shape.object-type",
        ),
        ({"text": "x"}, "$.content[0]", "shape.union-tag-not-found"),
        ({"content_type": None, "text": "x"}, "$.content[0]", "shape.union-tag-invalid"),
        ({"content_type": 5, "text": "x"}, "$.content[0]", "shape.union-tag-invalid"),
        ({}, "$.content[0]", "shape.union-tag-not-found"),
        ("x", "$.content[0]", "shape.model-attributes-type"),
        (None, "$.content[0]", "shape.model-attributes-type"),
        ([{"content_type": "text", "text": "x"}], "$.content[0]", "shape.model-attributes-type"),
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_an_error_and_never_text(part: Any, path: str, code: str) -> None:
    error = refused(part)

    assert (error.path, error.code) == (path, code)


@pytest.mark.spec("MSG-6")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Message(role="user", content="hi"), "has to be a list at Message.content; write [TextPart(text=…)]"),  # type: ignore[arg-type]
        (lambda: Message(role="user", content=[{"text": "hi"}]), "does not say its content_type at Message.content[0]"),  # type: ignore[list-item]
        (lambda: Message(role="user", content=["hi"]), "has to be an object at Message.content[0]"),  # type: ignore[list-item]
        (lambda: TextPart("hi"), "fields have names: write name=value"),  # type: ignore[call-arg, misc]
        (lambda: TextPart(text="\ud800"), "is no Unicode text at TextPart.text"),
    ],
)
def test_common_mistakes_with_parts_are_explained(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ShapeError) as caught:
        make()

    assert said in str(caught.value)


@pytest.mark.spec("MSG-6")
@given(json_object)
def test_a_part_of_an_unknown_type_is_kept_whole_and_judged(fields: dict[str, Any]) -> None:
    given_part = {**fields, "content_type": "hologram"}

    part = read(given_part)

    assert part == OpaquePart(provider="canonical", type="hologram", value=given_part)
    (view,) = iter_views(Message(role="user", content=[part]))
    assert (view.kind, view.uri) == ("opaque", "opaque://canonical/hologram")


@pytest.mark.spec("MSG-6")
@given(leaf_parts)
def test_the_json_of_a_part_is_flat(part: Part) -> None:
    dumped = part.model_dump()

    assert next(iter(dumped)) == "content_type"
    assert set(dumped) <= {field.name for field in dataclasses.fields(part)}  # type: ignore[arg-type]
    assert read(dumped) == part


@pytest.mark.spec("MSG-7")
@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: ResourcePart(uri="u", content="x", blob=b"x"), "shape.exclusive"),
        (lambda: ResourcePart(uri="u", content="", blob=b""), "shape.exclusive"),
        (lambda: ResourceRefPart(uri="u", range_start=100, range_end=5), "shape.range-order"),
        (lambda: ResourceRefPart(uri="u", range_start=-1), "shape.greater-than-equal"),
        (lambda: ImagePart(type="ftp", data="x"), "shape.literal-error"),
        (lambda: VideoPart(type="URL", data="x"), "shape.literal-error"),
        (lambda: AudioPart(type="", data="x"), "shape.literal-error"),
        (lambda: DocumentPart(type=None, data="x"), "shape.literal-error"),
        (lambda: ResourcePart(uri="u", resource_type="folder"), "shape.enum"),
        (lambda: ResourcePart(uri="u", blob="%%"), "shape.value-error"),
    ],
)
def test_bodies_ranges_and_sources_that_contradict_themselves_are_refused(build: Any, code: str) -> None:
    with pytest.raises(ShapeError) as caught:
        build()
    assert caught.value.code == code


@pytest.mark.spec("MSG-7")
def test_what_does_not_contradict_itself_is_accepted() -> None:
    assert ResourcePart(uri="u").content is None
    assert ResourcePart(uri="u", blob="aGk=").blob == b"hi"
    assert ResourceRefPart(uri="u", range_start=5, range_end=5).range_end == 5
    assert ResourceRefPart(uri="u", range_end=5).range_start is None
    for source in ("url", "base64", "file_ref"):
        for cls in (ImagePart, VideoPart, AudioPart, DocumentPart):
            assert cls(type=source, data="x").type == source


@pytest.mark.spec("MSG-8")
def test_a_result_is_json_or_parts() -> None:
    def result(content: Any) -> Any:
        return read({"content_type": "tool_result", "content": content}, "tool").content

    text = {"content_type": "text", "text": "x"}
    assert result([text, {"content_type": "holo", "n": 1}]) == (
        TextPart(text="x"),
        OpaquePart(provider="canonical", type="holo", value={"content_type": "holo", "n": 1}),
    )
    for value in (None, "x", 1, True, [], {}, [1], [text, 1], [{"text": "x"}], {"content_type": "text"}, [[text]]):
        assert result(value) == value
        assert not isinstance(result(value), tuple)
    assert isinstance(result([text, 1]), FrozenList)
    assert ToolResultPart(content=[TextPart(text="x")]).content == (TextPart(text="x"),)
    error = refused({"content_type": "tool_result", "content": [text, {"content_type": "text", "text": 1}]}, "tool")
    assert error.path == "$.content[0].content[1].text"


@pytest.mark.spec("MSG-9")
@pytest.mark.parametrize(
    ("messages", "path"),
    [
        ("x", "$.content[0].messages"),
        (["x"], "$.content[0].messages[0]"),
        ([{"role": "user"}], "$.content[0].messages[0].content"),
        ([{"role": "robot", "content": []}], "$.content[0].messages[0].role"),
        (
            [{"role": "user", "content": [{"content_type": "text"}]}],
            "$.content[0].messages[0].content[0].text",
        ),
    ],
)
def test_a_prompt_result_holds_messages_and_nothing_else(messages: Any, path: str) -> None:
    assert refused({"content_type": "prompt_result", "prompt_name": "p", "messages": messages}).path == path
    with pytest.raises(ShapeError):
        PromptResultPart(prompt_name="p", messages=messages)


@pytest.mark.spec("MSG-9")
def test_the_messages_of_a_prompt_result_are_messages() -> None:
    part = read({"content_type": "prompt_result", "prompt_name": "p", "messages": [{"role": "user", "content": []}]})

    assert part.messages == (Message(role="user", content=[]),)


@pytest.mark.spec("MSG-15")
def test_an_edit_leaves_behind_what_rode_along() -> None:
    call = ToolCallPart(name="f", arguments={"a": 1}, extra={"gemini": {"thoughtSignature": "c2ln"}})

    edited = call.edited(arguments={"a": 2})

    assert edited == ToolCallPart(name="f", arguments={"a": 2})
    assert edited.extra is None
    assert call.extra is not None
    assert ThinkingPart(text="x", signature="s").edited(text="y").signature == "s"


def test_parts_are_ordered() -> None:
    parts = [TextPart(text=str(n)) for n in range(5)]

    assert Message(role="user", content=tuple(parts)).content == tuple(parts)
    assert Message(role="user", content=iter(parts)).content == tuple(parts)
    with pytest.raises(ShapeError, match="a list"):
        Message(role="user", content=set(parts))

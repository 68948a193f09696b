"""The fourteen points of the review of seed 003, each as a test that fails on the defect it names."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import tomllib
import typing
from pathlib import Path
from typing import Any

import orjson
import pytest

import cmf.views.render
import cmf.views.view
from cmf import (
    AudioPart,
    ContentType,
    DocumentPart,
    Extensions,
    FrozenDict,
    HttpExtension,
    ImagePart,
    Message,
    MessageView,
    OpaquePart,
    PromptResultPart,
    ResourcePart,
    ResourceRefPart,
    Role,
    SecurityExtension,
    ShapeError,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
    iter_views,
)
from cmf.errors import UnmappedPartError
from cmf.json.value import trusted
from cmf.message.message import ContentPart

ROOT = Path(__file__).resolve().parents[2]
PARTS = typing.get_args(typing.get_args(ContentPart)[0])


def view_of(part: Any, role: str = "assistant", **message: Any) -> MessageView:
    return next(iter_views(Message(role=role, content=[part], **message)))


@pytest.mark.spec("VIEW-10")
@pytest.mark.parametrize(
    ("namespace", "name", "pattern"),
    [
        ("myXnamespace", "tool", "tool://my.namespace/tool"),
        ("a", "toool", "tool://a/to+l"),
        ("a", "tool", "tool://a/(tool)"),
        ("a", "b", "tool://a/[abc]"),
        ("a", "tol", "tool://a/to?l"),
        ("a", "x", "tool://a/tool|x"),
        ("a", "tool", "tool://a/t.*"),
        ("a", "other", "tool://a/^tool$|other"),
    ],
)
def test_review_point_1_nothing_but_the_wildcards_of_a_pattern_is_special(
    namespace: str, name: str, pattern: str
) -> None:
    assert not view_of(ToolCallPart(name=name, namespace=namespace)).matches_uri_pattern(pattern)


@pytest.mark.spec("VIEW-10")
def test_review_point_1_a_pattern_matches_what_it_spells() -> None:
    view = view_of(ToolCallPart(name="tool", namespace="my.namespace"))

    assert view.matches_uri_pattern("tool://my.namespace/tool")
    assert view.matches_uri_pattern("tool://my.*/tool")
    assert view.matches_uri_pattern("tool://**")
    for pattern in ("(", "[", "tool://(", "+", "\\", "tool://a/["):
        assert not view.matches_uri_pattern(pattern)


@pytest.mark.spec("VIEW-2")
def test_review_point_2_no_part_is_left_without_a_view() -> None:
    class Novel(TextPart):
        pass

    with pytest.raises(UnmappedPartError):
        list(iter_views(trusted(Message, role=Role.USER, content=(TextPart(text="x"), Novel(text="hidden")))))
    message = Message.model_validate(
        {
            "role": "assistant",
            "content": [{"content_type": "hologram", "command": "rm"}, {"content_type": "text", "text": ""}],
        }
    )
    views = list(iter_views(message))
    assert [view.kind for view in views] == ["opaque", "text"]
    assert "rm" in str(views[0].content)


@pytest.mark.spec("VIEW-2")
def test_review_point_2_every_class_of_part_is_mapped() -> None:
    assert {cmf.views.render.KINDS[type(part)][0].value for part in map(_bare, PARTS)} == {
        kind.value for kind in ContentType if kind is not ContentType.REDACTED_THINKING
    }


def _bare(cls: type[Any]) -> Any:
    fields: dict[str, Any] = {
        "text": "x", "data": "x", "name": "n", "uri": "u", "prompt_name": "p", "type": "url", "provider": "p",
        "value": {},
    }  # fmt: skip
    needed = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: item for name, item in fields.items() if name in needed})


def test_review_point_3_the_coverage_gate_stands_at_97_percent_of_branches() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["coverage"]
    gate = re.search(r"^COVERAGE := (\d+)$", makefile, re.MULTILINE)
    recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)

    assert gate is not None
    assert int(gate[1]) >= 97
    assert recipe is not None
    for flag in ("--cov ", "--cov-branch", "--cov-fail-under=$(COVERAGE)"):
        assert flag in recipe[1]
    assert settings["run"]["branch"] is True
    assert set(settings["run"]["source_pkgs"]) == {"cmf", "cmf_pytest", "pipeline"}
    assert not settings["run"].get("omit")
    assert all("pragma" not in pattern for pattern in settings["report"]["exclude_also"])


def test_review_point_4_extensions_are_typed() -> None:
    hint = typing.get_type_hints(Message, include_extras=True)["extensions"]

    assert hint == Extensions | None
    assert Any not in typing.get_args(hint)
    for wrong in ("x", 5, {"nonsense": 1}, [1]):
        with pytest.raises(ShapeError):
            Message(role="user", content=[], extensions=wrong)


@pytest.mark.spec("MSG-5")
@pytest.mark.parametrize("cls", PARTS)
def test_review_point_5_a_discriminator_cannot_lie(cls: type[Any]) -> None:
    part = _bare(cls)
    own = cls.__dataclass_fields__["content_type"].default  # type: ignore[attr-defined]

    assert typing.get_args(typing.get_type_hints(cls)["content_type"]) == (own,)
    for other in ContentType:
        fields = {**{f.name: getattr(part, f.name) for f in dataclasses.fields(part)}, "content_type": other}
        if other is own:
            assert cls(**fields) == part
        else:
            with pytest.raises(ShapeError):
                cls(**fields)
            with pytest.raises(ShapeError):
                part.model_copy(update={"content_type": other})


@pytest.mark.spec("MSG-9")
def test_review_point_6_the_messages_of_a_prompt_result_are_messages() -> None:
    hint = typing.get_type_hints(PromptResultPart, localns={"Message": Message})["messages"]

    assert hint == tuple[Message, ...]
    for wrong in (["text"], [{"content": []}], [TextPart(text="x")], [1], "text"):
        with pytest.raises(ShapeError):
            PromptResultPart(prompt_name="p", messages=wrong)
    assert isinstance(
        PromptResultPart(prompt_name="p", messages=[{"role": "user", "content": []}]).messages[0], Message
    )


@pytest.mark.spec("MSG-7")
@pytest.mark.parametrize("cls", [ImagePart, VideoPart, AudioPart, DocumentPart])
def test_review_point_7_the_source_of_media_is_one_of_three_words(cls: type[Any]) -> None:
    assert typing.get_args(typing.get_type_hints(cls)["type"]) == ("url", "base64", "file_ref")
    for wrong in ("URL", "s3", "", None, 1):
        with pytest.raises(ShapeError):
            cls(type=wrong, data="x")


@pytest.mark.spec("MSG-6")
@pytest.mark.parametrize(
    "part",
    [
        {"content_type": "tool_call", "arguments": {"a": 1}},
        {"content_type": "tool_call", "name": 5, "text": "fallback"},
        {"name": "f", "arguments": {}, "text": "fallback"},
        {"content_type": None, "text": "fallback"},
        {"content_type": 5, "text": "fallback"},
        {"content_type": ["text"], "text": "fallback"},
    ],
)
def test_review_point_8_a_part_that_cannot_be_read_never_becomes_text(part: dict[str, Any]) -> None:
    with pytest.raises(ShapeError) as caught:
        Message.model_validate({"role": "assistant", "content": [part]})
    assert caught.value.path.startswith("$.content[0]")


def test_review_point_8_an_unknown_type_keeps_its_content() -> None:
    part = {"content_type": "Tool_Call", "name": "f", "text": "fallback"}

    (kept,) = Message.model_validate({"role": "assistant", "content": [part]}).content

    assert kept == OpaquePart(provider="canonical", type="Tool_Call", value=part)


@pytest.mark.spec("MSG-7")
def test_review_point_9_a_resource_has_one_body() -> None:
    for content, blob in (("x", b"x"), ("", b"x"), ("x", b""), ("", b"")):
        with pytest.raises(ShapeError, match="exclude each other"):
            ResourcePart(uri="u", content=content, blob=blob)
    with pytest.raises(ShapeError):
        ResourcePart(uri="u", content="x").model_copy(update={"blob": b"x"})


@pytest.mark.spec("MSG-7")
def test_review_point_10_a_range_runs_forward() -> None:
    for start, end in ((100, 5), (1, 0)):
        with pytest.raises(ShapeError, match="past range_end"):
            ResourceRefPart(uri="u", range_start=start, range_end=end)
    with pytest.raises(ShapeError):
        ResourceRefPart(uri="u", range_start=1, range_end=2).model_copy(update={"range_end": 0})


@pytest.mark.spec("VIEW-6")
def test_review_point_11_what_a_tool_says_comes_out() -> None:
    image = ImagePart(type="url", data="u")
    for part in (TextPart(text="x"), image, OpaquePart(provider="p", type="t", value={})):
        view = view_of(part, "tool")
        assert (view.is_pre, view.is_post, view.action) == (False, True, "receive")
        assert view_of(part, "user").is_pre


def test_review_point_12_tables_are_made_once_for_the_module() -> None:
    """No function of the view, or of what it computes from, builds a table of the kinds while it runs."""
    for module in (cmf.views.view, cmf.views.render):
        tree = ast.parse(inspect.getsource(module))
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            tables = [
                node
                for node in ast.walk(function)
                if isinstance(node, ast.Dict)
                and any(
                    isinstance(key, ast.Attribute) and ast.unparse(key).startswith("ViewKind.") for key in node.keys
                )
            ]
            assert tables == [], f"{module.__name__}.{function.name}"


def test_review_point_13_content_is_serialised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    dumps = orjson.dumps

    def counted(value: Any, *more: Any, **options: Any) -> bytes:
        calls.append(value)
        return dumps(value, *more, **options)

    monkeypatch.setattr(orjson, "dumps", counted)
    for part in (
        ToolCallPart(name="f", arguments={"a": [1] * 100}),
        ToolResultPart(tool_name="f", content={"a": [1] * 100}),
        OpaquePart(provider="p", type="t", value={"k": 1}),
    ):
        calls.clear()
        view = view_of(part)
        shown = view.to_dict()
        assert (view.size_bytes, view.content) == (shown["size_bytes"], shown["content"])
        view.to_opa_input()
        assert view.has_content()
        assert len(calls) == 1


@pytest.mark.spec("VIEW-20")
def test_review_point_14_nothing_handed_out_is_live() -> None:
    extensions = Extensions(
        http=HttpExtension(headers={"X-Trace": "t"}),
        security=SecurityExtension(labels={"pii"}, objects={"f": {"permissions": ["run"]}}),
        custom={"a": {"b": [1]}},
    )
    view = view_of(ToolCallPart(name="f", arguments={"a": [{"b": 1}]}), extensions=extensions)
    before = json.dumps(view.to_opa_input(), sort_keys=True)
    headers = view.headers

    assert headers is not None
    for mutate in (
        lambda: headers.__setitem__("Authorization", "Bearer x"),  # type: ignore[attr-defined]
        lambda: headers.update({"Authorization": "x"}),  # type: ignore[attr-defined]
        lambda: headers.pop("X-Trace"),  # type: ignore[attr-defined]
        lambda: view.labels.add("x"),  # type: ignore[union-attr]
        lambda: view.arguments["a"][0].__setitem__("b", 2),  # type: ignore[index]
        lambda: view.arguments["a"].append(2),  # type: ignore[index]
        lambda: view.properties.__setitem__("x", 1),
        lambda: view.object.permissions.append("x"),  # type: ignore[union-attr]
        lambda: setattr(view, "content", "x"),
        lambda: setattr(extensions.http, "headers", FrozenDict()),
    ):
        with pytest.raises((TypeError, AttributeError)):
            mutate()
    handed_out = view.to_opa_input()
    handed_out["input"]["extensions"]["http"]["headers"]["Authorization"] = "Bearer x"
    handed_out["input"]["extensions"]["custom"] = None

    assert json.dumps(view.to_opa_input(), sort_keys=True) == before
    assert view.headers == {"X-Trace": "t"}

"""Carrying out what rules asked for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf import (
    Choice,
    ImagePart,
    Message,
    PromptRequestPart,
    PromptResultPart,
    RedactedThinkingPart,
    Request,
    ResourcePart,
    Response,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolChoice,
    ToolDefinition,
    ToolResultPart,
)
from pipeline.decisions.decision import Action, Effect, Hit, Mode, Verdict, ViewDecision
from pipeline.decisions.errors import EffectError
from pipeline.run.assembly import Config, _replacer_key
from pipeline.run.effects import MASK, Replacer, apply_edits

KEY = b"0123456789abcdef"


def asked(path: str, effect: Effect, mode: Mode = Mode.ENFORCE, **fields: Any) -> ViewDecision:
    hit = Hit(rule="r", code="c", effect=effect, reason="x", mode=mode, fields=fields)
    return ViewDecision(
        path=path,
        kind="text",
        role="user",
        uri=None,
        name=None,
        action="send",
        direction="pre",
        verdict=Verdict.ALLOW,
        outcome=Action.FORWARD_MODIFIED,
        hits=(hit,),
    )


def edited(value: Any, *views: ViewDecision) -> Any:
    return apply_edits(value, views, Mode.ENFORCE, Replacer(KEY))


def user(*parts: Any) -> Message:
    return Message(role="user", content=parts)


def cut(part: Any, start: int, end: int, how: str = "mask") -> Any:
    done = edited(user(part), asked("content[0]", Effect.REDACT, spans=[[start, end]], replacement=how))
    return done.content[0] if done.content else None


@pytest.mark.spec("EFF-4")
@pytest.mark.parametrize(
    ("part", "fields", "code"),
    [
        (TextPart(text="abc"), {"spans": [[1, 4]]}, "effect.span-outside"),
        (ImagePart(type="url", data="https://x.example/a.png"), {"spans": [[0, 1]]}, "effect.no-text"),
        (ToolCallPart(name="f", arguments={"a": "b"}), {"spans": [[0, 1]]}, "effect.no-text"),
        (ToolResultPart(content={"a": "b"}), {"spans": [[0, 2]]}, "effect.breaks-json"),
        (ToolCallPart(name="f", arguments={"a": 1}), {"pointer": "/arguments/b"}, "effect.bad-pointer"),
        (ToolCallPart(name="f", arguments={"a": [1]}), {"pointer": "/arguments/a/7"}, "effect.bad-pointer"),
        (ToolCallPart(name="f", arguments={"a": [1]}), {"pointer": "/arguments/a/-"}, "effect.bad-pointer"),
        (ToolCallPart(name="f", arguments={"a": "xyz"}), {"pointer": "/arguments/a/0"}, "effect.bad-pointer"),
        (ToolCallPart(name="f", arguments={"a": 1}), {"pointer": "/name/a"}, "effect.bad-pointer"),
        (ToolCallPart(name="f", arguments_raw="{"), {"pointer": "/arguments/a"}, "effect.no-arguments"),
        (ToolCallPart(name="f", arguments={"a": 1}), {"pointer": "/arguments"}, "effect.bad-pointer"),
        (TextPart(text="abc"), {"pointer": "/arguments/a"}, "effect.bad-pointer"),
        (TextPart(text="abc"), {"pointer": "/properties/extra/x"}, "effect.bad-pointer"),
        (TextPart(text="a", extra={"w": {"k": 1}}), {"pointer": "/properties/extra"}, "effect.bad-pointer"),
        (TextPart(text="a", extra={"w": {"k": 1}}), {"pointer": "/properties/uri/w"}, "effect.bad-pointer"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(part: Any, fields: dict[str, Any], code: str) -> None:
    with pytest.raises(EffectError) as caught:
        edited(user(part), asked("content[0]", Effect.REDACT, **fields))

    assert (caught.value.code, caught.value.path) == (code, "content[0]")


@pytest.mark.spec("EFF-4")
def test_a_rewrite_of_something_without_arguments_is_refused() -> None:
    with pytest.raises(EffectError) as caught:
        edited(user(TextPart(text="a")), asked("content[0]", Effect.REWRITE, pointer="/arguments/a", value=1))

    assert (caught.value.code, caught.value.path) == ("effect.bad-pointer", "content[0]")


@pytest.mark.spec("EFF-7")
def test_a_tool_choice_that_names_a_stripped_tool_is_refused() -> None:
    request = Request(tools=(ToolDefinition(name="f"),), tool_choice=ToolChoice(mode="tool", name="f"))

    with pytest.raises(EffectError, match="tool choice") as caught:
        edited(request, asked("tools[0]", Effect.STRIP_TOOL))

    assert caught.value.code == "effect.tool-choice-stripped"


@pytest.mark.spec("EFF-7")
def test_a_demanded_call_of_none_but_a_stripped_tool_is_refused() -> None:
    choice = ToolChoice(mode="required", allowed=["f"])
    request = Request(tools=(ToolDefinition(name="f"), ToolDefinition(name="g")), tool_choice=choice)

    with pytest.raises(EffectError, match="tool choice"):
        edited(request, asked("tools[0]", Effect.STRIP_TOOL))


@pytest.mark.spec("EFF-7")
def test_a_stripped_tool_is_no_longer_allowed() -> None:
    choice = ToolChoice(mode="required", allowed=["f", "g", "h"])
    request = Request(tools=(ToolDefinition(name="f"), ToolDefinition(name="g")), tool_choice=choice)

    done = edited(request, asked("tools[0]", Effect.STRIP_TOOL))

    assert done.tool_choice == ToolChoice(mode="required", allowed=["g", "h"])


@pytest.mark.spec("EFF-7")
def test_a_tool_is_stripped_whatever_else_is_asked_of_it() -> None:
    tool = ToolDefinition(name="f", extra={"w": {"k": 1}})
    both = together(
        asked("tools[0]", Effect.REDACT, pointer="/properties/extra/w/k"), asked("tools[0]", Effect.STRIP_TOOL)
    )

    assert edited(Request(tools=(tool,)), both).tools == ()


@pytest.mark.spec("EFF-7")
def test_a_stripped_tool_is_gone_and_the_others_keep_their_place() -> None:
    tools = tuple(ToolDefinition(name=name) for name in "abc")
    request = Request(tools=tools, tool_choice=ToolChoice(mode="tool", name="c"))

    done = edited(request, asked("tools[0]", Effect.STRIP_TOOL), asked("tools[1]", Effect.STRIP_TOOL))

    assert done.tools == (tools[2],)


@pytest.mark.spec("EFF-3")
def test_signed_and_redacted_thinking_is_removed_whole() -> None:
    assert cut(ThinkingPart(text="secret plan", signature="sig"), 0, 6) is None
    assert cut(RedactedThinkingPart(data="secret"), 0, 6) is None


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (TextPart(text="my secret!"), "text"),
        (ThinkingPart(text="my secret!"), "text"),
        (ToolResultPart(content="my secret!"), "content"),
        (ResourcePart(uri="file:///a", content="my secret!", size_bytes=10), "content"),
        (PromptResultPart(prompt_name="p", content="my secret!"), "content"),
        (PromptResultPart(prompt_name="p", error_message="my secret!"), "error_message"),
    ],
)
def test_text_of_every_kind_is_cut(part: Any, field: str) -> None:
    assert getattr(cut(part, 3, 9), field) == f"my {MASK}!"


def test_a_json_result_is_cut_inside_its_strings() -> None:
    assert cut(ToolResultPart(content={"a": "secret"}), 6, 12).content == {"a": MASK}


@pytest.mark.spec("EFF-8")
def test_a_result_made_of_parts_is_left_to_its_parts() -> None:
    result = ToolResultPart(content=(TextPart(text="a secret"), TextPart(text="b")))

    done = edited(
        user(result),
        asked("content[0]", Effect.REDACT, spans=[[2, 8]]),
        asked("content[0].content[0]", Effect.REDACT, spans=[[2, 8]]),
    )

    assert done.content[0].content == (TextPart(text=f"a {MASK}"), TextPart(text="b"))


def together(*views: ViewDecision) -> ViewDecision:
    """One view with the hits of all of them."""
    return dataclasses.replace(views[0], hits=tuple(hit for view in views for hit in view.hits))


@pytest.mark.spec("EFF-2")
def test_overlapping_spans_become_one_under_the_stricter_replacement() -> None:
    both = together(
        asked("content[0]", Effect.REDACT, spans=[[0, 4]], replacement="token"),
        asked("content[0]", Effect.REDACT, spans=[[2, 6], [8, 9]], replacement="drop"),
    )

    assert edited(user(TextPart(text="0123456789")), both).content[0].text == "679"


@pytest.mark.spec("EFF-2")
@pytest.mark.parametrize(
    ("stricter", "laxer", "text"),
    [("drop", "mask", "d"), ("mask", "token", "[MASKED]d"), ("token", "hash", "[TOKEN_1]d")],
)
def test_the_stricter_replacement_stands_whichever_comes_first(stricter: str, laxer: str, text: str) -> None:
    for first, second in ((stricter, laxer), (laxer, stricter)):
        both = together(
            asked("content[0]", Effect.REDACT, spans=[[0, 2]], replacement=first),
            asked("content[0]", Effect.REDACT, spans=[[1, 3]], replacement=second),
        )

        assert edited(user(TextPart(text="abcd")), both).content[0].text == text


@pytest.mark.spec("EFF-1")
def test_spans_of_an_effect_that_is_no_edit_cut_nothing() -> None:
    message = user(TextPart(text="abc"))

    assert edited(message, asked("content[0]", Effect.WARN, spans=[[0, 1]], pointer="/arguments/a")) is message


@pytest.mark.spec("EFF-2")
def test_spans_that_only_touch_stay_two() -> None:
    both = together(
        asked("content[0]", Effect.REDACT, spans=[[0, 2]], replacement="token"),
        asked("content[0]", Effect.REDACT, spans=[[2, 4]], replacement="drop"),
    )

    assert edited(user(TextPart(text="abcd")), both).content[0].text == "[TOKEN_1]"


@pytest.mark.spec("EFF-2")
@given(text=st.text(min_size=1), data=st.data())
def test_outside_the_spans_every_character_stays(text: str, data: st.DataObject) -> None:
    edges = st.integers(min_value=0, max_value=len(text))
    spans = data.draw(st.lists(st.tuples(edges, edges).filter(lambda span: span[0] < span[1]), min_size=1, max_size=5))
    kept = "".join(
        character for index, character in enumerate(text) if not any(start <= index < end for start, end in spans)
    )

    done = edited(
        user(TextPart(text=text)),
        asked("content[0]", Effect.REDACT, spans=[list(span) for span in spans], replacement="drop"),
    )

    assert done.content[0].text == kept


@pytest.mark.spec("EFF-6")
def test_replacements_tell_equal_text_without_showing_it() -> None:
    assert cut(TextPart(text="ab"), 0, 1).text == f"{MASK}b"
    assert cut(TextPart(text="ab"), 0, 1, "drop").text == "b"
    replacer = Replacer(KEY)
    assert [replacer(text, "token") for text in ("a", "b", "a")] == ["[TOKEN_1]", "[TOKEN_2]", "[TOKEN_1]"]
    assert replacer("a", "hash") == Replacer(KEY)("a", "hash") != replacer("b", "hash")
    assert replacer("a", "hash") != Replacer(b"another key here")("a", "hash")


@pytest.mark.spec("EFF-6")
def test_processes_write_the_same_hashes_only_under_the_same_seal_key() -> None:
    seals = (bytes(32), bytes(32), b"other seal".ljust(32), None, None)
    one, same, *others = [Replacer(_replacer_key(Config(seal_key=seal)))("a", "hash") for seal in seals]

    assert one == same
    assert len({one, *others}) == 4


@pytest.mark.spec("EFF-6")
@pytest.mark.parametrize(
    ("how", "arguments"),
    [("mask", {"to": {"x/y": [MASK, 2]}}), ("drop", {"to": {"x/y": [2]}})],
)
def test_an_argument_is_replaced_or_taken_away(how: str, arguments: dict[str, Any]) -> None:
    call = ToolCallPart(name="f", arguments={"to": {"x/y": ["secret", 2]}})

    done = edited(user(call), asked("content[0]", Effect.REDACT, pointer="/arguments/to/x~1y/0", replacement=how))

    assert done.content[0].arguments == arguments


@pytest.mark.spec("EFF-11")
def test_no_removal_moves_what_another_edit_names() -> None:
    rows = ["secret", "b", "number", *"defghijk", "secret"]
    call = ToolCallPart(name="f", arguments={"to": rows, "n": 1}, extra={"w": {"title": "secret", "n": [1, 2, 3]}})
    removed = ["/arguments/to/0", "/arguments/to/11", "/arguments/to/0", "/arguments/n", "/arguments/to/3"]
    edits = [
        *({"pointer": pointer, "replacement": "drop"} for pointer in removed),
        {"pointer": "/arguments/to/2"},
        {"pointer": "/properties/extra/w/title"},
        {"pointer": "/properties/extra/w/n/0"},
        {"pointer": "/properties/extra/w/n/2"},
    ]

    for order in (edits, edits[::-1]):
        hits = [hit for fields in order for hit in asked("content[0]", Effect.REDACT, **fields).hits]
        done = edited(user(call), dataclasses.replace(asked("content[0]", Effect.REDACT), hits=tuple(hits)))
        assert done.content[0].arguments == {"to": ["b", MASK, *"efghijk"]}
    done = edited(user(call), dataclasses.replace(asked("content[0]", Effect.REDACT), hits=tuple(hits[:3])))
    assert done.content[0].extra == {"w": {"n": [2]}}


@pytest.mark.parametrize("index", ["00", "-1", "\u0660", "9" * 5000])
def test_a_place_in_a_list_has_one_spelling(index: str) -> None:
    call = ToolCallPart(name="f", arguments={"to": ["secret"]})

    with pytest.raises(EffectError, match="names nothing"):
        edited(user(call), asked("content[0]", Effect.REDACT, pointer=f"/arguments/to/{index}"))


def test_a_number_in_the_arguments_can_be_masked() -> None:
    call = PromptRequestPart(name="f", arguments={"card": 4111111111111111})

    done = edited(user(call), asked("content[0]", Effect.REDACT, pointer="/arguments/card"))

    assert done.content[0].arguments == {"card": MASK}


@pytest.mark.spec("EFF-6")
@pytest.mark.parametrize(("value", "text"), [("4111", "4111"), (4111, "4111"), ({"n": 4111}, '{"n":4111}')])
def test_the_hash_of_an_argument_is_that_of_its_text_and_else_of_its_json(value: Any, text: str) -> None:
    call = ToolCallPart(name="f", arguments={"card": value})

    done = edited(user(call), asked("content[0]", Effect.REDACT, pointer="/arguments/card", replacement="hash"))

    assert done.content[0].arguments == {"card": Replacer(KEY)(text, "hash")}


@pytest.mark.parametrize("kind", [ToolCallPart, PromptRequestPart])
def test_a_rewrite_sets_the_value(kind: Any) -> None:
    call = kind(name="f", arguments={"limit": 900, "q": "x", "list": [{"n": 1}]})

    done = edited(user(call), asked("content[0]", Effect.REWRITE, pointer="/arguments/limit", value=10))
    assert done.content[0].arguments == {"limit": 10, "q": "x", "list": [{"n": 1}]}
    done = edited(done, asked("content[0]", Effect.REWRITE, pointer="/arguments/list/0/n", value=2))
    assert done.content[0].arguments == {"limit": 10, "q": "x", "list": [{"n": 2}]}


@pytest.mark.spec("EFF-9")
@pytest.mark.parametrize("pointer", ["/arguments/a/b", "/arguments/list/1", "/arguments/list/-", "/arguments/q/x"])
def test_a_rewrite_adds_nothing_where_there_is_no_object(pointer: str) -> None:
    call = ToolCallPart(name="f", arguments={"q": "x", "list": [1]})

    with pytest.raises(EffectError, match="names nothing"):
        edited(user(call), asked("content[0]", Effect.REWRITE, pointer=pointer, value=10))


@pytest.mark.spec("EFF-9")
def test_a_rewrite_adds_an_argument() -> None:
    call = ToolCallPart(name="f", arguments={"q": {"text": "x"}})

    done = edited(
        user(call),
        asked("content[0]", Effect.REWRITE, pointer="/arguments/limit", value=10),
    )
    assert done.content[0].arguments == {"limit": 10, "q": {"text": "x"}}
    done = edited(done, asked("content[0]", Effect.REWRITE, pointer="/arguments/q/lang~1region", value=None))
    assert done.content[0].arguments == {"limit": 10, "q": {"text": "x", "lang/region": None}}


@pytest.mark.spec("EFF-5")
def test_what_rode_along_is_left_behind_by_an_edit() -> None:
    assert cut(TextPart(text="ab", extra={"w": {"cache_control": {}}}), 0, 1).extra is None
    resource = ResourcePart(uri="file:///a.txt", content="ab", size_bytes=2)
    assert cut(resource, 0, 1).size_bytes is None  # the size was that of the whole text


def test_a_key_of_extra_can_be_taken_away() -> None:
    part = TextPart(text="a", extra={"w": {"title": "secret", "n": 1}})

    done = edited(user(part), asked("content[0]", Effect.REDACT, pointer="/properties/extra/w/title"))

    assert done.content[0].extra == {"w": {"n": 1}}
    assert edited(done, asked("content[0]", Effect.REDACT, pointer="/properties/extra/w")).content[0].extra is None


@pytest.mark.spec("EFF-1")
def test_everything_off_the_path_is_the_same_object() -> None:
    first, second = user(TextPart(text="ab"), TextPart(text="cd")), user(TextPart(text="ef"))
    request = Request(messages=(first, second), tools=(ToolDefinition(name="t"),))

    done = edited(request, asked("messages[0].content[1]", Effect.REDACT, spans=[[0, 1]]))

    assert done.messages[1] is second
    assert done.messages[0].content[0] is first.content[0]
    assert done.tools is request.tools
    assert request.messages[0].content[1].text == "cd"


@pytest.mark.spec("EFF-1")
def test_a_choice_of_a_response_is_edited_in_place() -> None:
    response = Response(choices=tuple(Choice(message=user(TextPart(text=text))) for text in ("ab", "cd")))

    done = edited(response, asked("choices[1].message.content[0]", Effect.REDACT, spans=[[0, 2]]))

    assert [choice.message.content[0].text for choice in done.choices] == ["ab", MASK]
    assert done.choices[0] is response.choices[0]


def test_the_envelope_itself_can_lose_what_rode_along() -> None:
    request = Request(extra={"w": {"user": "secret"}})

    done = edited(request, asked("request", Effect.REDACT, pointer="/properties/extra/w/user"))

    assert done.extra == {"w": {}}


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.OFF])
def test_nothing_is_edited_unless_enforced(mode: Mode) -> None:
    message = user(TextPart(text="ab"))
    view = asked("content[0]", Effect.REDACT, spans=[[0, 1]])
    observed = asked("content[0]", Effect.REDACT, Mode.OBSERVE, spans=[[0, 1]])

    assert apply_edits(message, [view], mode, Replacer(KEY)) is message
    assert edited(message, observed) is message


def test_hits_on_a_part_that_is_removed_are_done_with_it() -> None:
    view = asked("content[0]", Effect.REDACT, spans=[[0, 1]])
    more = ViewDecision(
        **{
            **{f: getattr(view, f) for f in view.__slots__},
            "hits": (*view.hits, Hit(rule="r", code="c", effect=Effect.LABEL, reason="x", fields={"label": "l"})),
        }
    )

    assert edited(user(ThinkingPart(text="ab", signature="s")), more).content == ()


@pytest.mark.spec("EFF-11")
def test_many_items_that_are_removed_leave_those_between_them() -> None:
    call = ToolCallPart(tool_call_id="c", name="f", arguments={"items": list(range(6)), "kept": [[1, 2], 3]})
    gone = [
        asked("content[0]", Effect.REDACT, pointer=f"/arguments/items/{at}", replacement="drop") for at in (1, 3, 5)
    ]
    inner = asked("content[0]", Effect.REDACT, pointer="/arguments/kept/0/0", replacement="drop")
    hits = [hit for view in (*gone, inner) for hit in view.hits]

    left = edited(Message(role="assistant", content=[call]), dataclasses.replace(gone[0], hits=tuple(hits)))

    assert left.content[0].arguments == {"items": [0, 2, 4], "kept": [[2], 3]}


@pytest.mark.spec("EFF-1")
def test_parts_of_one_message_are_removed_and_edited_at_once() -> None:
    message = user(*(TextPart(text=f"abcdef{at}") for at in range(4)))
    signed = Message(role="assistant", content=[ThinkingPart(text="abcdef", signature="s"), TextPart(text="abcdef")])
    views = [asked(f"content[{at}]", Effect.REDACT, spans=[[0, 6]]) for at in (0, 2)]

    left = edited(message, *views)

    assert [part.text for part in left.content] == [f"{MASK}0", "abcdef1", f"{MASK}2", "abcdef3"]
    assert left.content[1] is message.content[1]
    assert len(edited(signed, *(asked(f"content[{at}]", Effect.REDACT, spans=[[0, 6]]) for at in (0, 1))).content) == 1

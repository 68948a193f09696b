"""The quick reader and writer of replies have them as the general ones do, or leave them to these."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters.chat_completions.dialect import Dialect
from cmf.adapters.chat_completions.encode import wire_response
from cmf.adapters.chat_completions.envelope import decoded_response
from cmf.adapters.chat_completions.quick_reply import quick_reply, quick_wire_reply
from cmf.adapters.wire.fields import unmarked
from cmf.adapters.wire.layout import envelope_layout, respell_envelope, with_layout
from cmf.enums import Channel, Role, StopReason
from cmf.errors import CmfError
from cmf.json.frozen import FrozenDict, freeze, same_spelling
from cmf.json.value import replace
from cmf.message.message import Layout, TextPart, TokenUsage, ToolCallPart
from cmf.message.request import ErrorInfo, Response
from cmf.message.tools import ToolDefinition
from tests.cmf.adapters.wiredata import records

DIALECT = Dialect(format="openai_chat", path="/", reasoning_key="reasoning", nested_effort=False, video=False)
PLAIN: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}
CALLED = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
PLACES = {
    "body": (*PLAIN, "system_fingerprint", "service_tier", "vendor", "cmf_partial", "error"),
    "choice": (*PLAIN["choices"][0], "logprobs", "error", "vendor"),
    "said": ("role", "content", "tool_calls", "vendor", "reasoning", "annotations", "refusal", "audio", "name"),
}
COUNTS = st.fixed_dictionaries(
    {"prompt_tokens": st.integers(0, 9), "completion_tokens": st.integers(-1, 9)},
    optional={
        "total_tokens": st.integers(0, 18) | st.none(),
        "prompt_tokens_details": st.sampled_from([{"cached_tokens": 3}, {"cache_write_tokens": 2}, {}, None]),
        **dict.fromkeys(("cached_tokens", "cache_creation_input_tokens", "cost"), st.sampled_from([0, 2, 0.5, None])),
    },
)
CHANGED = st.sampled_from(
    [*(..., None, None, None, 0, 1, False, "", "é", "stop", "tool_calls", "length", [], {}, {"a": [1.0]})]
    + [[{**CALLED, "function": {"name": "f", "arguments": text}}] for text in ('{"a":1}', '{"a": 1}', "{", "")]
    + [[CALLED, CALLED], [{**CALLED, "index": 0}], [{**CALLED, "type": "custom"}]]
)
CHANGE = st.sampled_from([(place, key) for place, keys in PLACES.items() for key in keys])


def _general(raw: Any) -> Response:
    raw = freeze(raw)
    decoded = decoded_response(raw, DIALECT)
    layout = envelope_layout(wire_response(decoded, DIALECT), unmarked(raw), format_name="openai_chat")
    return decoded if layout is None else with_layout(decoded, layout)


def _general_wire(response: Response) -> Any:
    plain = wire_response(response, DIALECT)
    return respell_envelope(
        plain, response, format_name="openai_chat", decode=lambda spelt: decoded_response(freeze(spelt), DIALECT)
    )


def _with(body: dict[str, Any] = {}, choice: dict[str, Any] = {}, said: dict[str, Any] = {}) -> dict[str, Any]:  # noqa: B006
    """The plain reply with these keys set, in its choice and its message too; what is set to `...` is left out."""
    chosen = {**PLAIN["choices"][0], "message": {**PLAIN["choices"][0]["message"], **said}, **choice}
    made = {**PLAIN, "choices": [chosen], **body}
    for holder in (made, chosen, *([chosen["message"]] if isinstance(chosen["message"], dict) else [])):
        for key in [key for key, item in holder.items() if item is ...]:
            del holder[key]
    return made


@pytest.mark.spec("OAC-2", "OAC-12", "OAC-13", "ADP-6")
@given(st.dictionaries(CHANGE, CHANGED, max_size=4), COUNTS)
def test_the_quick_and_the_general_reader_agree_and_what_is_written_again_is_what_was_read(
    changes: dict[tuple[str, str], Any], counts: dict[str, Any]
) -> None:
    changed = {place: {key: item for (at, key), item in changes.items() if at == place} for place in PLACES}
    raw = _with(**{**changed, "body": {"usage": counts, **changed["body"]}})
    quick = quick_reply(copy.deepcopy(raw), "openai_chat")
    if quick is None:
        return

    general = _general(raw)

    assert (quick, quick.provider_raw) == (general, general.provider_raw)
    assert repr(quick) == repr(general)
    assert quick.usage == general.usage
    assert same_spelling(_general_wire(quick), raw)
    written = quick_wire_reply(quick, "openai_chat")
    assert written is None or same_spelling(written, raw)


@pytest.mark.parametrize(
    "raw",
    [
        PLAIN,
        _with(said={"content": None, "tool_calls": [CALLED, CALLED]}, choice={"finish_reason": "tool_calls"}),
        _with(said={"tool_calls": [CALLED], "refusal": None}, choice={"finish_reason": "stop"}),
        _with({"usage": None, "system_fingerprint": None}, {"logprobs": None}, {"refusal": None, "annotations": []}),
        _with({"usage": ..., "service_tier": "default", "x_vendor": {"a": [1]}}, {"logprobs": {"content": []}}),
        _with(choice={"finish_reason": None}, said={"refusal": None, "tool_calls": None, "name": None}),
        _with({"service_tier": None, "provider": "P"}, {"native_finish_reason": "STOP"}),
    ],
)
def test_the_plainest_replies_are_read_and_written_quickly(raw: Any) -> None:
    quick = quick_reply(raw, "openai_chat")
    assert quick is not None

    written = quick_wire_reply(quick, "openai_chat")

    general = _general(raw)
    assert (repr(quick), quick.provider_raw) == (repr(general), general.provider_raw)
    assert written == raw


@pytest.mark.parametrize(
    "raw",
    [
        *([], "x", None, {}, _with({"object": ...}), _with({"id": ...}), _with({"created": ...}), _with({"model": 1})),
        *(_with({"model": "\ud800"}), _with({"choices": "x"}), _with({"choices": PLAIN["choices"] * 2})),
        *(_with({"error": {}}), _with({"error": "x"}), _with({"cmf_partial": True}), _with({"cmf_stream": {}})),
        *(_with(choice={"index": 1}), _with(choice={"index": False}), _with(choice={"error": {"message": "x"}})),
        *(_with(choice={"message": []}), _with(choice={"finish_reason": 5}), _with(choice={"finish_reason": ...})),
        *(_with(choice={"finish_reason": "\ud800"}), _with(said={"role": "user"}), _with(said={"content": ""})),
        *(_with(said={"content": [{"type": "text", "text": "x"}]}), _with(said={"content": None})),
        *(_with(said={"content": "\ud800"}), _with(said={"content": ..., "tool_calls": [CALLED]})),
        *(_with(said={"refusal": "no"}), _with(said={"reasoning_content": "hm"}), _with(said={"audio": {"id": "a"}})),
        *(_with(said={"tool_calls": []}), _with(said={"tool_calls": [{**CALLED, "index": 0}]})),
        _with(said={"tool_calls": [{**CALLED, "function": {"name": "f", "arguments": '{"a": 1}'}}]}),
        _with(
            {"usage": None, "service_tier": None, "system_fingerprint": None, "error": None},
            said=dict.fromkeys(("refusal", "audio", "annotations", "name", "reasoning")),
        ),
    ],
)
def test_every_other_reply_is_left_to_the_general_reader(raw: Any) -> None:
    assert quick_reply(raw, "openai_chat") is None


@pytest.mark.parametrize("at", ["body", "choice", "said"])
def test_what_rides_along_is_held_to_the_depth_of_the_body(at: str) -> None:
    deep: Any = 1
    for _ in range({"body": 63, "choice": 61, "said": 60}[at]):
        deep = [deep]

    assert repr(quick_reply(_with(**{at: {"x": deep}}), "openai_chat")) == repr(_general(_with(**{at: {"x": deep}})))
    for read in (lambda raw: quick_reply(raw, "openai_chat"), _general):
        with pytest.raises(CmfError, match="nested deeper than 64 levels"):
            read(_with(**{at: {"x": [deep]}}))


@pytest.mark.parametrize("at", ["body", "choice", "said"])
def test_broken_text_that_rides_along_is_refused(at: str) -> None:
    for read in (lambda raw: quick_reply(raw, "openai_chat"), _general):
        with pytest.raises(CmfError, match="lone surrogate"):
            read(_with(**{at: {"x": ["\ud800"]}}))


NULLS = _with({"system_fingerprint": None}, {"logprobs": None}, {"refusal": None, "annotations": []})


def _edited(response: Response, **fields: Any) -> Response:
    """The reply with these fields of it, of its choice or of its message replaced."""
    choice = response.choices[0]
    own, chosen, said = (
        {name: item for name, item in fields.items() if name in {field.name for field in dataclasses.fields(of)}}
        for of in (response, choice, choice.message)
    )
    if fields.keys() & {"stop_reason", "raw_stop_reason"} or "content" in fields or "channel" in fields:
        own = {"choices": (replace(choice, **chosen, message=replace(choice.message, **said)),)}
    return replace(response, **own)


@pytest.mark.spec("ADP-6", "OAC-12", "OAC-13")
@pytest.mark.parametrize("raw", [PLAIN, NULLS, _with({"id": 5, "usage": "none", "model": "m:x"})])
@pytest.mark.parametrize(
    "edit",
    [
        {"content": (TextPart(text="[masked]"),)},
        {"content": (TextPart(text="a"), TextPart(text="b"))},
        {"content": (TextPart(text="a", extra=FrozenDict({"openai_chat.key": "refusal"})),)},
        {"content": (ToolCallPart(tool_call_id="c", name="f"),)},
        {"content": (ToolCallPart(name="f"),)},
        {"content": (ToolCallPart(tool_call_id="c", name="f", namespace="n"),)},
        {"tools": (ToolDefinition(name="f"),)},
        {"content": ()},
        {"channel": Channel.FINAL, "content": (TextPart(text="a"),)},
        {"content": (TextPart(text="a"),), "role": Role.USER},
        {"content": (TextPart(text="a"),), "provider_raw": None},
        {"usage": TokenUsage(input_tokens=1)},
        {"usage": None},
        {"model": None},
        {"model": "other"},
        {"extra": None},
        {"extra": FrozenDict({"gemini": {"a": 1}})},
        {"extra": FrozenDict({"openai_chat": {"cmf_stream": {}}})},
        {"extra": FrozenDict({"openai_chat": {"refusal": 1, "choices": 2}})},
        {"extra": FrozenDict({"openai_chat": 5})},
        {"error": ErrorInfo(message="x")},
        {"choices": ()},
        {"stop_reason": StopReason.MAX_TOKENS},
        {"stop_reason": None},
        {"raw_stop_reason": None},
    ],
)
def test_the_quick_and_the_general_writer_agree_after_edits_too(raw: Any, edit: dict[str, Any]) -> None:
    edited = _edited(_general(raw), **edit)
    quick = quick_wire_reply(edited, "openai_chat")
    if quick is None:
        return

    general = _general_wire(edited)

    assert same_spelling(quick, general)
    assert list(quick) == list(general)


@pytest.mark.spec("ADP-6")
@pytest.mark.parametrize(
    "shape",
    [
        {"at": {"system_fingerprint": {"set": 5}}},
        {"at": {"system_fingerprint": {"cut": True}}},
        {"at": {"vendor": {"set": None}}},
        {"at": {"usage": {"set": None}}},
        {"at": {"model": {"set": None}}},
        {"at": {"choices": {"set": None}}},
        {"at": {"choices": {"at": {"1": {"at": {"logprobs": {"set": None}}}}}}},
        {"at": {"choices": {"at": {"0": {"at": {"index": {"set": None}}}}}}},
        {"at": {"choices": {"at": {"0": {"at": {"message": {"set": None}}}}}}},
        {"at": {"choices": {"at": {"0": {"at": {"message": {"at": {"content": {"set": None}}}}}}}}},
        {"at": {"choices": {"at": {"0": {"at": {"message": {"at": {"refusal": {"set": ""}}}}}}}}},
        {"set": None},
        {"at": {}},
        {"at": {"service_tier": {"set": None}}, "set": 1},
    ],
)
def test_every_other_layout_is_left_to_the_general_writer(shape: dict[str, Any]) -> None:
    forged = replace(_general(PLAIN), provider_raw=Layout(format="openai_chat", shape=FrozenDict(shape)))

    assert quick_wire_reply(forged, "openai_chat") is None


def test_most_recorded_replies_are_read_and_written_quickly() -> None:
    bodies = [record.response for record in records("openai_chat") if isinstance(record.response, dict)]

    read = [quick_reply(body, "openai_chat") for body in bodies]

    quick = [response for response in read if response is not None]
    written = [quick_wire_reply(response, "openai_chat") for response in quick]
    assert len(quick) > len(bodies) * 0.4
    assert None not in written

"""Everything that deltas bring is in the folded body, whatever shape it comes in."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.chat_completions.stream import LiveDecoder, adds_nothing
from cmf.adapters.wire.stream import TextDelta
from cmf.enums import MessageStatus
from cmf.errors import ShapeError
from cmf.json.codec import dumps
from cmf.views.iterate import iter_views

CHAT = get("openai_chat")
DONE = {"data": "[DONE]"}


def _fold(*deltas: dict[str, Any]) -> Any:
    """The only choice of the fold of these deltas, and what else the fold says."""
    events = [{"data": {"choices": [{"index": 0, "delta": delta}]}} for delta in deltas]
    body = CHAT.fold_events([*events, DONE])  # type: ignore[list-item]
    return body["choices"][0]["message"]


def _chunks(*choices: dict[str, Any]) -> Any:
    return CHAT.fold_events([*({"data": {"choices": [choice]}} for choice in choices), DONE])  # type: ignore[list-item]


@pytest.mark.spec("ADP-9")
@pytest.mark.parametrize("event", [None, "x", 5, ["data"]])
def test_an_event_that_is_no_event_is_refused(event: Any) -> None:
    with pytest.raises(ShapeError):
        CHAT.fold_events([event])


@pytest.mark.spec("OAC-22")
def test_what_is_no_chunk_no_choice_and_no_call_is_kept() -> None:
    body = CHAT.fold_events(
        [
            {"data": {"choices": ["odd choice", {"index": 0, "delta": {"tool_calls": ["odd call"]}}]}},
            {"data": {"choices": [{"index": 0, "delta": {"reasoning_details": ["odd detail"]}}]}},
            {"data": ["odd data"]},
            DONE,  # type: ignore[list-item]
        ]
    )

    assert body["cmf_unrecognized"] == [{"choices": "odd choice"}, ["odd data"]]
    assert body["cmf_stream"] == {"tool_calls": ["odd call"]}
    assert body["choices"][0]["message"]["reasoning_details"] == ["odd detail"]


@pytest.mark.spec("OAC-14")
@pytest.mark.parametrize("body", ["upstream timed out", [{"error": {"message": "no"}}]])
def test_a_body_in_an_event_is_the_body(body: Any) -> None:
    assert CHAT.fold_events([{"data": body}]) == body


@pytest.mark.spec("OAC-14")
def test_an_error_body_in_an_event_has_no_choices() -> None:
    body = CHAT.fold_events([{"data": {"message": "no", "code": "rate_limited"}}])

    response = CHAT.from_wire_response(body)

    assert response.error is not None
    assert (response.error.message, response.error.code, response.choices) == ("no", "rate_limited", ())


@pytest.mark.spec("OAC-15")
def test_log_probabilities_and_token_ids_add_up() -> None:
    body = _chunks(
        {"index": 0, "delta": {}, "logprobs": None},
        {"index": 0, "delta": None, "logprobs": {"content": [{"token": "a"}], "refusal": None}, "token_ids": [1]},
        {"index": 0, "delta": {}, "logprobs": {"content": [{"token": "a"}], "refusal": None}, "token_ids": [1, 2]},
    )

    choice = body["choices"][0]

    assert choice["logprobs"] == {"content": [{"token": "a"}, {"token": "a"}], "refusal": None}
    assert choice["token_ids"] == [1, 1, 2]


@pytest.mark.spec("OAC-4")
def test_a_sound_comes_in_pieces() -> None:
    said = _fold(
        {"audio": {"id": "a1", "transcript": "he"}},
        {"audio": {"data": "UklG", "transcript": "llo"}},
        {"audio": {"data": "Rg==", "expires_at": 5}},
    )

    assert said["audio"] == {"id": "a1", "transcript": "hello", "data": "UklGRg==", "expires_at": 5}


@pytest.mark.spec("OAC-7")
def test_a_legacy_and_a_custom_call_come_in_pieces() -> None:
    legacy = _fold({"function_call": {"name": "f", "arguments": '{"a"'}}, {"function_call": {"arguments": ":1}"}})
    custom = _fold(
        {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "sh", "input": "l"}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "s"}}]},
    )

    assert legacy["function_call"] == {"name": "f", "arguments": '{"a":1}'}
    assert custom["tool_calls"] == [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]


@pytest.mark.spec("OAC-21")
def test_a_name_in_pieces_is_one_name() -> None:
    said = _fold(
        {"tool_calls": [{"index": 0, "function": {"name": "get_", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"name": "mail", "arguments": "{}"}}]},
    )

    assert said["tool_calls"] == [{"function": {"name": "get_mail", "arguments": "{}"}}]


@pytest.mark.spec("OAC-6")
def test_content_in_blocks_is_joined_where_it_goes_on() -> None:
    reference = {"type": "reference", "ids": [1]}
    said = _fold(
        {"content": "pre"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}]},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "m"}, {"type": "reference", "ids": [1]}]}
            ]
        },
        {"content": "an"},
        {"content": [{"type": "text", "text": "swer"}, {"type": "text", "text": "!", "note": 1}]},
        {"content": ["odd", {"type": "text", "text": "."}]},
    )

    assert said["content"] == [
        {"type": "text", "text": "pre"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}, reference]},
        {"type": "text", "text": "answer"},
        {"type": "text", "text": "!", "note": 1},
        "odd",
        {"type": "text", "text": "."},
    ]


@pytest.mark.spec("OAC-22")
def test_lists_of_unknown_things_add_up_and_numbered_ones_are_merged() -> None:
    said = _fold(
        {"executed_tools": [{"index": 0, "type": "search", "arguments": "q"}], "annotations": [{"url": "a"}]},
        {
            "executed_tools": [{"index": 0, "output": "found"}, {"index": 1, "type": "visit"}],
            "annotations": [{"url": "a"}],
        },
    )

    assert said["executed_tools"] == [
        {"index": 0, "type": "search", "arguments": "q", "output": "found"},
        {"index": 1, "type": "visit"},
    ]
    assert said["annotations"] == [{"url": "a"}, {"url": "a"}]


@pytest.mark.spec("OAC-22")
def test_a_snapshot_of_the_message_is_kept_only_if_it_says_more() -> None:
    body = _chunks(
        {
            "index": 0,
            "delta": {"role": "assistant", "content": "pro"},
            "message": {"role": "assistant", "content": "pro"},
        },
        {"index": 0, "delta": {"content": "be"}, "message": {"role": "assistant", "content": "probe"}},
        {"index": 0, "delta": {}, "message": {"role": "assistant", "content": "another text"}},
    )

    assert body["cmf_stream"] == {"message": [{"role": "assistant", "content": "another text"}]}


@pytest.mark.spec("OAC-22")
@pytest.mark.parametrize(
    ("old", "new", "nothing"),
    [
        (5, "x", True),
        ("", 5, True),
        ("ab", "abc", True),
        ("ab", "xab", False),
        ({"a": 1}, {"a": 2}, True),
        ({"a": 1}, {}, False),
        (["a"], ["a", "b"], True),
        (["a", "b"], ["a"], False),
        ([], None, True),
        (["a"], "a", False),
    ],
)
def test_an_old_value_adds_nothing_if_its_texts_and_keys_are_in_the_new_one(old: Any, new: Any, nothing: bool) -> None:
    assert adds_nothing(old, new) is nothing


@pytest.mark.spec("ADP-3")
@pytest.mark.parametrize("message", [{}, {"tool_calls": []}, {"tool_calls": None, "content": None}, {"content": ""}])
def test_an_empty_message_streams_and_folds_to_itself(message: dict[str, Any]) -> None:
    body = {"id": "c", "object": "chat.completion", "created": 1, "choices": [{"index": 0, "message": message}]}

    events = CHAT.to_wire_events(CHAT.from_wire_response(body))

    assert CHAT.fold_events(events) == body


@pytest.mark.spec("ADP-3")
def test_a_whole_body_that_is_no_object_is_one_event() -> None:
    assert CHAT.to_wire_events(CHAT.from_wire_response("no")) == [{"data": "no"}]


def test_thirty_thousand_odd_deltas_fold_in_linear_time() -> None:
    """Each of these was quadratic once: lists, numbered items, details, blocks."""
    deltas = (
        {
            "annotations": [{"url": "a"}],
            "executed_tools": [{"index": at}],
            "reasoning_details": [{"type": "reasoning.text", "text": "x", "index": at}],
            "content": [{"type": "text", "text": "word "}],
        }
        for at in range(30_000)
    )
    events = ({"data": {"choices": [{"index": 0, "delta": delta}]}} for delta in deltas)

    said = CHAT.fold_events(events)["choices"][0]["message"]  # type: ignore[arg-type]

    assert (len(said["annotations"]), len(said["content"][0]["text"])) == (30_000, 150_000)


@pytest.mark.spec("OAC-20")
@pytest.mark.parametrize("events", [[], [{"data": {"choices": []}}]])
def test_an_end_without_a_choice_is_no_answer(events: list[Any]) -> None:
    body = CHAT.fold_events([*events, DONE])  # type: ignore[list-item]

    assert body["cmf_partial"] is True
    assert CHAT.fold_events(CHAT.to_wire_events(CHAT.from_wire_response(body))) == body


@pytest.mark.spec("OAC-22")
@pytest.mark.parametrize(("pieces", "aside"), [(["aGk="], None), (["aGk=", "aG8="], {"audio": ["aGk=", "aG8="]})])
def test_sound_that_comes_in_pieces_is_shown_piece_by_piece(pieces: list[str], aside: Any) -> None:
    deltas = [{"audio": {"id": "a", "data": piece}} for piece in pieces]

    body = _chunks(*({"index": 0, "delta": delta} for delta in deltas))

    assert body["choices"][0]["message"]["audio"] == {"id": "a", "data": "".join(pieces)}
    assert body.get("cmf_stream") == aside
    assert CHAT.fold_events(CHAT.to_wire_events(CHAT.from_wire_response(body))) == body


def _shown(body: Any) -> str:
    """All that policy sees of a folded body."""
    views = iter_views(CHAT.from_wire_response(body))
    return dumps([view.to_opa_input() for view in views]).decode()


@pytest.mark.spec("OAC-22", "ADP-5")
@pytest.mark.parametrize("odd", [["lost1"], {"x": "lost1"}, [{"type": "text", "text": "lost1"}]])
@pytest.mark.parametrize(
    "deltas",
    [
        ({"content": "a"}, {"content": ...}, {"content": "b"}),
        ({"reasoning_content": ...}, {"reasoning_content": "b"}),
        ({"reasoning_text": ...}, {"reasoning_text": "b"}),
        ({"refusal": "a"}, {"refusal": ...}, {"refusal": "b"}),
        ({"annotations": [{"url": "a"}]}, {"annotations": {"x": ...}}, {"annotations": [{"url": "b"}]}),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]}, {"reasoning_details": {"x": ...}}),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": ...}]},),
        ({"tool_calls": {"x": ...}}, {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ...}}]}, "arguments"),
        ({"tool_calls": [{"index": 0, "function": ...}]}, "arguments"),
    ],
)
def test_another_shape_among_the_pieces_is_shown(deltas: tuple[Any, ...], odd: Any) -> None:
    more = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": '{"a":1}'}}]}

    body = _chunks(*({"index": 0, "delta": _filled(more if one == "arguments" else one, odd)} for one in deltas))

    assert "lost1" in _shown(body)


def _filled(value: Any, odd: Any) -> Any:
    if value is ...:
        return odd
    if isinstance(value, dict):
        return {key: _filled(item, odd) for key, item in value.items()}
    return [_filled(item, odd) for item in value] if isinstance(value, list) else value


@pytest.mark.spec("OAC-22", "ADP-5")
@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": "lost1"},
        {"choices": {"0": "lost1"}},
        {"choices": [{"index": 0, "delta": "lost1"}]},
        {"choices": [{"index": 0, "delta": {}, "logprobs": "lost1"}]},
        {"choices": [{"index": 0, "delta": {}, "logprobs": {"content": "lost1"}}]},
        {"choices": [{"index": 0, "delta": {}, "token_ids": "lost1"}]},
    ],
)
def test_another_shape_of_a_chunk_or_choice_is_shown(chunk: dict[str, Any]) -> None:
    choice = {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"token": "a"}]}, "token_ids": [1]}
    around = {"data": {"choices": [choice]}}

    body = CHAT.fold_events([around, {"data": chunk}, around, DONE])  # type: ignore[list-item]

    assert "lost1" in _shown(body)
    assert CHAT.fold_events(CHAT.to_wire_events(CHAT.from_wire_response(body)))["choices"] == body["choices"]


@pytest.mark.spec("OAC-21")
@pytest.mark.parametrize(
    "pieces",
    [
        [
            [{"id": "a", "name": "f"}],
            [{"id": "b", "name": "g"}],
            [{"id": "a", "text": "1"}],
            [{"id": "b", "text": "2"}],
        ],
        [[{"name": "f", "text": "1"}], [{"name": "g", "text": "2"}]],
        [[{"name": "f", "text": ""}, {"name": "g", "text": ""}], [{"text": "1"}, {"text": "2"}]],
        [[{"id": "a", "name": "f"}], [{"text": "1"}], [{"id": "b", "name": "g"}], [{"text": "2"}]],
        [[{"id": "a", "name": "f"}], [{"index": 0, "text": "1"}], [{"index": 1, "name": "g", "text": "2"}]],
    ],
    ids=["by id", "whole ones", "by position", "the last one", "numbered later"],
)
def test_calls_without_an_index_stay_apart(pieces: list[list[dict[str, Any]]]) -> None:
    def call(piece: dict[str, Any]) -> dict[str, Any]:
        text = f'{{"a":{piece["text"]}}}' if piece.get("text") else ""
        named = {"name": piece["name"]} if "name" in piece else {}
        return {key: piece[key] for key in ("id", "index") if key in piece} | {"function": {**named, "arguments": text}}

    said = _fold(*({"tool_calls": [call(piece) for piece in delta]} for delta in pieces))

    told = [(one["function"]["name"], one["function"]["arguments"]) for one in said["tool_calls"]]
    assert told == [("f", '{"a":1}'), ("g", '{"a":2}')]


@pytest.mark.spec("OAC-20")
@pytest.mark.parametrize("finish", ["stop", None])
def test_a_last_chunk_that_repeats_the_whole_answer_ends_it(finish: str | None) -> None:
    said = {"role": "assistant", "content": "probe"}
    chunks = [
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": said, "message": said}]},
        {
            "object": "chat.completion",
            "choices": [{"index": 0, "delta": {"content": ""}, "message": said, "finish_reason": finish}],
        },
    ]

    body = CHAT.fold_events([{"data": chunk} for chunk in chunks])

    assert ("cmf_partial" in body) is (finish is None)


@pytest.mark.spec("OAC-20")
def test_a_whole_body_in_an_event_is_not_its_end() -> None:
    whole = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}],
    }

    assert "cmf_partial" in CHAT.fold_events([{"data": whole}])
    assert CHAT.from_wire_response(CHAT.fold_events([{"data": whole}, DONE])).message.status is MessageStatus.COMPLETE  # type: ignore[list-item]


@pytest.mark.spec("OAC-22")
def test_a_number_or_an_object_among_pieces_is_the_text_that_it_spells() -> None:
    pieces: list[Any] = ["1 + 1 = ", 2, ". ", {"a": 1}]
    live = [one for piece in pieces for one in LiveDecoder()({"data": {"choices": [{"delta": {"content": piece}}]}})]

    assert _fold(*({"content": piece} for piece in pieces))["content"] == '1 + 1 = 2. {"a":1}'
    assert [one.text for one in live if isinstance(one, TextDelta)] == ["1 + 1 = ", "2", ". ", '{"a":1}']

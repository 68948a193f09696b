"""Spec: docs/spec/adapters/gemini.md."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters.gemini.response import LiveDecoder
from cmf.adapters.wire.stream import ToolUseInputDelta, ToolUseStart
from cmf.enums import MessageStatus
from tests.cmf.adapters.gemini_bodies import GEMINI, answered, chunks, heard, shown

A, B = {"uri": "a"}, {"uri": "b"}
PARTS = ("text", "thought", "signed", "call", "last", "code")
EARLIER = {"jsonPath": "$.c[0]", "numberValue": 1}


class TestStreams:
    @pytest.mark.spec("GEM-21")
    def test_a_stream_without_its_last_reason_is_partial(self) -> None:
        body = GEMINI.fold_events(chunks({"candidates": [{"content": {"parts": [{"text": "a"}], "role": "model"}}]}))
        assert GEMINI.from_wire_response(body).message.status is MessageStatus.PARTIAL
        assert "cmf_partial" not in GEMINI.to_wire_response(GEMINI.from_wire_response(body))

    @pytest.mark.spec("GEM-21")
    @pytest.mark.parametrize("chunk", [{"usageMetadata": {"promptTokenCount": 3}}, {"candidates": []}])
    def test_a_stream_that_was_cut_before_its_first_candidate_is_partial(self, chunk: dict[str, Any]) -> None:
        body = GEMINI.fold_events(chunks(chunk))

        response = GEMINI.from_wire_response(body)

        assert (response.message.status, response.message.content) == (MessageStatus.PARTIAL, ())
        assert GEMINI.to_wire_response(response) == chunk

    @pytest.mark.spec("GEM-21")
    def test_no_candidate_of_a_cut_stream_is_complete(self) -> None:
        ended: dict[str, Any] = {"content": {"parts": [{"text": "a"}]}, "index": 1, "finishReason": "STOP"}
        going: dict[str, Any] = {"content": {"parts": [{"text": "b"}]}, "index": 0}

        choices = GEMINI.from_wire_response(GEMINI.fold_events(chunks({"candidates": [going, ended]}))).choices

        assert [choice.message.status for choice in choices] == [MessageStatus.PARTIAL] * 2

    @pytest.mark.spec("GEM-21")
    def test_a_part_after_a_reason_takes_it_back(self) -> None:
        code = answered({"executableCode": {"language": "PYTHON", "code": "1"}})
        more = {"candidates": [{"content": {"role": "model", "parts": [{"codeExecutionResult": {"outcome": "X"}}]}}]}
        for events in (chunks(code), chunks(code, more)):
            assert GEMINI.from_wire_response(GEMINI.fold_events(events)).message.status is MessageStatus.PARTIAL
        whole = GEMINI.from_wire_response(GEMINI.fold_events(chunks(code, more, answered({"text": "so"}))))
        assert whole.message.status is MessageStatus.COMPLETE

    @pytest.mark.spec("GEM-22")
    def test_text_is_joined_unless_signed(self) -> None:
        parts = [
            {"text": "a", "thought": True}, {"text": "b", "thought": True}, {"text": "c"}, {"text": "d"},
            {"text": "", "thoughtSignature": "c2ln"}, {"text": "e"},
        ]  # fmt: skip
        events = chunks(*({"candidates": [{"content": {"parts": [part]}}]} for part in parts[:-1]), answered(parts[-1]))
        body = GEMINI.fold_events(events)
        assert body["candidates"][0]["content"]["parts"] == [
            {"text": "ab", "thought": True}, {"text": "cd"}, {"text": "", "thoughtSignature": "c2ln"}, {"text": "e"},
        ]  # fmt: skip

    @pytest.mark.spec("GEM-22")
    def test_parts_that_stood_apart_in_one_answer_stay_apart_when_streamed(self) -> None:
        body = answered({"text": "a"}, {"text": "b"}, {"functionCall": {"name": "f", "args": {}}}, {"text": "c"})
        assert GEMINI.fold_events(GEMINI.to_wire_events(heard(body))) == body

    @pytest.mark.spec("GEM-24")
    @pytest.mark.parametrize(
        ("key", "name", "of_chunks", "whole"),
        [
            ("citationMetadata", "citations", [[A], [B]], [A, B]),
            ("citationMetadata", "citations", [[A], [A, B]], [A, B]),
            ("citationMetadata", "citationSources", ["odd", [B]], [B]),
            ("logprobsResult", "chosenCandidates", [[A], [B]], [A, B]),
        ],
    )
    def test_lists_that_each_chunk_has_its_own_piece_of_are_joined(
        self, key: str, name: str, of_chunks: list[Any], whole: list[Any]
    ) -> None:
        first, last = answered({"text": "a"}), answered({"text": "b"})
        del first["candidates"][0]["finishReason"]
        for body, piece in zip((first, last), of_chunks, strict=True):
            body["candidates"][0][key] = {name: piece}
        body = GEMINI.fold_events(chunks(first, last))
        assert body["candidates"][0][key] == {name: whole}
        assert ("cmf_superseded" in body) is (of_chunks[0] == "odd")

    @pytest.mark.spec("GEM-24")
    def test_null_takes_nothing_back(self) -> None:
        whole = answered({"text": "a"})
        whole["candidates"][0]["groundingMetadata"] = {"webSearchQueries": ["q"]}
        dumped = {"candidates": [dict.fromkeys(("content", "finishReason", "groundingMetadata"))]}
        assert GEMINI.fold_events(chunks(whole, dumped)) == whole

    @pytest.mark.spec("GEM-24")
    @pytest.mark.parametrize("odd", [{"candidates": "lost1"}, {"candidates": [{"content": ["lost1"]}]}])
    def test_another_shape_among_the_chunks_is_shown(self, odd: dict[str, Any]) -> None:
        for events in (chunks(odd, answered({"text": "a"})), chunks(answered({"text": "a"}), odd)):
            response = GEMINI.from_wire_response(GEMINI.fold_events(events))
            assert "lost1" in shown(response)
            assert "lost1" not in str(GEMINI.to_wire_response(response))

    @pytest.mark.spec("GEM-23")
    def test_streamed_arguments_are_put_in_their_places(self) -> None:
        pieces: list[dict[str, Any]] = [
            {"jsonPath": "$.city", "stringValue": "Par", "willContinue": True},
            {"jsonPath": "$.city", "stringValue": "is"},
            {"jsonPath": "$.days[0].temp", "numberValue": 3},
            {"jsonPath": "$['odd key']", "boolValue": True},
            {"jsonPath": "$.none", "nullValue": "NULL_VALUE"},
        ]
        calls: list[dict[str, Any]] = [
            {"name": "f", "willContinue": True, "args": {"unit": "C"}, "partialArgs": pieces[:1]},
            *({"partialArgs": [piece], "willContinue": True} for piece in pieces[1:]),
            {},
        ]
        whole = [{"functionCall": call} for call in calls]
        events = chunks(*({"candidates": [{"content": {"parts": [part]}}]} for part in whole[:-1]), answered(whole[-1]))
        response = GEMINI.from_wire_response(GEMINI.fold_events(events))
        call = response.message.content[0]
        assert call.arguments == {"unit": "C", "city": "Paris", "days": [{"temp": 3}], "odd key": True, "none": None}
        for cut in range(1, len(events)):
            partial = GEMINI.from_wire_response(GEMINI.fold_events(events[:cut]))
            assert partial.message.status is MessageStatus.PARTIAL

    @pytest.mark.spec("GEM-23")
    @pytest.mark.parametrize(
        "piece",
        [
            {"jsonPath": "$..city", "stringValue": "odd"},
            {"jsonPath": "$.a[7]", "stringValue": "odd"},
            {"jsonPath": "$.a", "stringValue": "odd", "more": 1},
            {"jsonPath": "$.a", "numberValue": "odd"},
            "odd",
        ],
    )
    def test_a_piece_that_is_not_understood_stays_and_is_shown(self, piece: Any) -> None:
        body = GEMINI.fold_events(chunks(answered({"functionCall": {"name": "f", "partialArgs": [piece]}})))
        response = GEMINI.from_wire_response(body)
        assert "odd" in shown(response)
        assert response.message.content[0].arguments == {}

    @pytest.mark.spec("GEM-24")
    def test_what_a_later_chunk_replaced_is_shown_and_not_sent(self) -> None:
        events = chunks(
            {"modelVersion": "first", "candidates": []}, "odd event", answered({"text": "a"}) | {"modelVersion": "last"}
        )
        response = GEMINI.from_wire_response(GEMINI.fold_events(events))
        assert response.model == "last"
        assert "first" in shown(response)
        assert "odd event" in shown(response)
        out = GEMINI.to_wire_response(response)
        assert set(out) == {"candidates", "modelVersion"}

    @pytest.mark.spec("GEM-24")
    @given(st.lists(st.lists(st.sampled_from(PARTS), max_size=4), max_size=6))
    def test_any_answer_streams_back_to_itself(self, turns: list[list[str]]) -> None:
        made: dict[str, dict[str, Any]] = {
            "text": {"text": "a"},
            "thought": {"text": "b", "thought": True},
            "signed": {"text": "", "thoughtSignature": "c2ln"},
            "call": {"functionCall": {"name": "f", "args": {"a": 1}}},
            "last": {"functionCall": {"name": "f", "args": {"a": 1}, "willContinue": False}},
            "code": {"executableCode": {"code": "1"}},
        }
        body = answered(*(made[kind] for turn in turns for kind in turn))
        response = heard(body)
        again = GEMINI.fold_events(GEMINI.to_wire_events(response))
        again.pop("cmf_partial", None)  # code that still runs
        assert again == body

    @pytest.mark.spec("GEM-23")
    def test_arguments_are_reported_as_they_grow(self) -> None:
        begun = {"functionCall": {"name": "f", "id": "1", "willContinue": True}}
        piece = {"functionCall": {"partialArgs": [{"jsonPath": "$.a", "stringValue": "xy"}], "willContinue": True}}
        decode = LiveDecoder()
        said = [one for part in (begun, piece) for one in decode({"data": [answered(part)]})]
        assert said[0] == ToolUseStart(index=0, tool_call_id="1", name="f")
        assert isinstance(said[1], ToolUseInputDelta)
        assert said[1].received_chars > 0

    @pytest.mark.spec("GEM-24")
    @pytest.mark.parametrize("data", [5, "[DONE]", {"candidates": "x"}, {"candidates": [5]}, {"candidates": [{}]}])
    def test_the_ear_never_raises(self, data: Any) -> None:
        assert LiveDecoder()({"data": data}) == []
        assert LiveDecoder()({}) == []

    @pytest.mark.spec("GEM-24")
    def test_events_of_other_shapes_are_read_or_shown(self) -> None:
        candidate = answered({"text": "a"}, index=0)["candidates"][0]
        events = [*chunks([answered({"text": "a"})], "[DONE]", {"candidates": ["odd"]}), {"comment": "ping"}]
        body = GEMINI.fold_events(events)
        assert body == answered({"text": "a"}) | {"cmf_unrecognized": ["odd"]}
        twice = GEMINI.fold_events(chunks({"candidates": [candidate, candidate]}))
        assert len(GEMINI.from_wire_response(twice).choices) == 2

    @pytest.mark.spec("GEM-23")
    @pytest.mark.parametrize("path", ["a", "$", "$[0]", "$.a.b", "$" + ".a" * 40, "$.b[0]"])
    def test_paths_that_lead_nowhere_change_nothing(self, path: str) -> None:
        call = {"name": "f", "args": {"a": 1, "b": {}}}
        pieces = {"partialArgs": [{"jsonPath": path, "stringValue": "x"}]}
        begun = answered({"functionCall": {**call, "willContinue": True}})
        body = GEMINI.fold_events(chunks(begun, answered({"functionCall": pieces})))
        assert body["candidates"][0]["content"]["parts"] == [{"functionCall": {**call, **pieces}}]

    @pytest.mark.spec("GEM-23")
    @pytest.mark.parametrize(
        ("path", "between", "arguments"),
        [
            ("$.a.b", {"args": {"a": 5}}, {"a": 5}),
            ("$.a.b", {"args": {"a": {"b": []}}}, {"a": {"b": "y"}}),
            ("$.a[0]", {"args": {"a": {}}}, {"a": {}}),
            ("$.a[0]", {"args": {"a": []}}, {"a": ["y"]}),
            ("$.a", {"partialArgs": 5}, {"a": "xy"}),
            ("$.a", {"partialArgs": [{"jsonPath": "$.c[1]", "numberValue": 2}]}, {"a": "xy", "c": [1]}),
        ],
    )
    def test_streamed_arguments_that_do_not_fit_are_read_and_stream_back_to_themselves(
        self, path: str, between: dict[str, Any], arguments: dict[str, Any]
    ) -> None:
        begun = {"name": "f", "partialArgs": [{"jsonPath": path, "stringValue": "x", "willContinue": True}]}
        ended = {"partialArgs": [{"jsonPath": path, "stringValue": "y"}, *([EARLIER] if "c" in arguments else [])]}
        calls = [begun | {"willContinue": True}, between | {"willContinue": True}, ended]
        response = GEMINI.from_wire_response(
            GEMINI.fold_events(chunks(*(answered({"functionCall": call}) for call in calls)))
        )
        assert response.message.content[0].arguments == arguments
        again = GEMINI.fold_events(GEMINI.to_wire_events(response))
        assert again == GEMINI.to_wire_response(response)

    @pytest.mark.spec("GEM-19")
    def test_a_listed_error_streams_as_one_event(self) -> None:
        body = [{"error": {"code": 500, "message": "x"}}]
        assert GEMINI.to_wire_events(heard(body)) == [{"data": body[0]}]


@pytest.mark.spec("GEM-21")
@pytest.mark.parametrize("unsaid", [None, 0, "FINISH_REASON_UNSPECIFIED"])
def test_a_finish_reason_that_says_nothing_ends_nothing(unsaid: Any) -> None:
    first = {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": unsaid}]}
    last = {"candidates": [{"content": {"parts": [{"text": "b"}]}, "finishReason": "STOP"}]}

    cut = GEMINI.fold_events([{"data": first}])
    whole = GEMINI.fold_events([{"data": first}, {"data": last}])

    assert cut["cmf_partial"] is True
    assert "cmf_partial" not in whole
    assert whole["candidates"][0]["content"]["parts"] == [{"text": "ab"}]

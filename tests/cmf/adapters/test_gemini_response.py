"""Spec: docs/spec/adapters/gemini.md."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.wire.layout import spelling
from cmf.enums import StopReason
from cmf.errors import ShapeError
from cmf.json.value import replace
from cmf.message.message import TokenUsage
from cmf.message.request import ErrorInfo, Response
from tests.cmf.adapters.gemini_bodies import GEMINI, answered, asked, heard, shown


class TestAnswers:
    @pytest.mark.spec("GEM-16")
    @pytest.mark.parametrize(
        ("reason", "stop"),
        [
            ("STOP", StopReason.END),
            (1, StopReason.END),
            ("MAX_TOKENS", StopReason.MAX_TOKENS),
            (2, StopReason.MAX_TOKENS),
            ("SAFETY", StopReason.CONTENT_FILTER),
            ("MALFORMED_FUNCTION_CALL", StopReason.ERROR),
            (17, StopReason.OTHER),
            ("SOMETHING_NEW", StopReason.OTHER),
            (None, None),
        ],
    )
    def test_reasons_of_the_end(self, reason: Any, stop: StopReason | None) -> None:
        assert heard(answered({"text": "a"}, finishReason=reason)).choices[0].stop_reason == stop

    @pytest.mark.spec("GEM-16")
    def test_a_stop_with_a_call_is_a_call(self) -> None:
        choice = heard(answered({"functionCall": {"name": "f", "args": {}}})).choices[0]
        assert (choice.stop_reason, choice.raw_stop_reason) == (StopReason.CALL, "STOP")

    @pytest.mark.spec("GEM-16")
    @pytest.mark.parametrize("content", [{}, {"content": {}}, {"content": {"role": "model"}}, {"content": None}])
    def test_a_candidate_may_have_no_content(self, content: dict[str, Any]) -> None:
        response = heard({"candidates": [{"finishReason": "MAX_TOKENS", "index": 0, **content}]})
        assert response.message.content == ()

    @pytest.mark.spec("GEM-16")
    def test_every_candidate_is_a_choice(self) -> None:
        one = answered({"text": "a"}, index=1)["candidates"][0]
        response = heard({"candidates": [one, {**one, "index": 0}, {**one, "safetyRatings": [{"category": "odd"}]}]})
        assert len(response.choices) == 3
        assert "odd" in shown(response)

    @pytest.mark.spec("GEM-16")
    def test_another_formats_reason_is_translated(self) -> None:
        response = GEMINI.from_wire_response(answered({"text": "a"}))
        choice = replace(response.choices[0], stop_reason=StopReason.MAX_TOKENS, raw_stop_reason="length")
        out = GEMINI.to_wire_response(replace(response, choices=(choice,)))
        assert out["candidates"][0]["finishReason"] == "MAX_TOKENS"

    @pytest.mark.spec("GEM-17")
    def test_a_blocked_prompt_is_one_filtered_choice(self) -> None:
        body = {"promptFeedback": {"blockReason": "MODEL_ARMOR", "blockReasonMessage": "injection"}}
        response = heard(body)
        assert [(choice.stop_reason, choice.message.content) for choice in response.choices] == [
            (StopReason.CONTENT_FILTER, ())
        ]
        assert "injection" in shown(response)
        assert GEMINI.fold_events(GEMINI.to_wire_events(response)) == body

    @pytest.mark.spec("GEM-17")
    @pytest.mark.parametrize(
        "body",
        [
            {"candidates": [], "promptFeedback": {"blockReasonMessage": "no reason"}},
            {"usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}, "modelVersion": "m"},
            {"responseId": "r", "candidates": None},
        ],
    )
    def test_a_reply_without_candidates_is_an_empty_answer(self, body: dict[str, Any]) -> None:
        response = heard(body)

        assert [(choice.stop_reason, choice.message.content) for choice in response.choices] == [(StopReason.OTHER, ())]
        assert get("anthropic_messages").to_wire_response(response)["stop_reason"] == "end_turn"
        assert get("openai_chat").to_wire_response(response)["choices"][0]["finish_reason"] == "stop"

    @pytest.mark.spec("ADP-15")
    @pytest.mark.parametrize("body", [{}, {"message": "Forbidden"}, {"detail": [{"candidate": 1}]}])
    def test_an_object_of_another_service_is_an_error(self, body: dict[str, Any]) -> None:
        response = heard(body)

        assert response.error is not None
        assert get("anthropic_messages").to_wire_response(response)["type"] == "error"

    @pytest.mark.spec("GEM-18")
    def test_a_count_is_the_usage_of_a_reply_without_choices(self) -> None:
        body = {"totalTokens": 31, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 31}]}
        response = heard(body)

        assert (response.choices, response.error) == ((), None)
        assert get("anthropic_messages").to_wire_response(response) == {"input_tokens": 31}
        other = get("anthropic_messages").from_wire_response({"input_tokens": 8})
        assert GEMINI.to_wire_response(other) == {"totalTokens": 8}
        assert heard({"totalTokens": "31"}).usage is None

    @pytest.mark.spec("GEM-18")
    def test_tokens_are_counted_without_the_cached_ones(self) -> None:
        usage = {
            "promptTokenCount": 100, "cachedContentTokenCount": 60, "toolUsePromptTokenCount": 5,
            "candidatesTokenCount": 7, "thoughtsTokenCount": 3, "totalTokenCount": 115,
        }  # fmt: skip
        tokens = heard(answered({"text": "a"}) | {"usageMetadata": usage}).usage
        assert tokens is not None
        assert (tokens.input_tokens, tokens.cached_input_tokens, tokens.output_tokens, tokens.total_tokens) == (
            45, 60, 10, 115,
        )  # fmt: skip

    @pytest.mark.spec("GEM-18")
    def test_changed_usage_is_written_anew(self) -> None:
        response = heard(answered({"text": "a"}) | {"usageMetadata": {"promptTokenCount": 1, "serviceTier": "x"}})
        assert response.usage is not None
        out = GEMINI.to_wire_response(replace(response, usage=replace(response.usage, input_tokens=2, total_tokens=2)))
        assert out["usageMetadata"] == {"promptTokenCount": 2, "candidatesTokenCount": 0, "totalTokenCount": 2}

    @pytest.mark.spec("GEM-19")
    @pytest.mark.parametrize("listed", [False, True])
    def test_an_error_is_a_response(self, listed: bool) -> None:
        error = {
            "error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "t"}]}
        }
        info = heard([error] if listed else error).error
        assert info is not None
        assert (info.status, info.message, info.type) == (429, "slow down", "RESOURCE_EXHAUSTED")

    @pytest.mark.spec("GEM-19")
    @pytest.mark.parametrize("error", ["down", None, 5, {"code": "x", "message": None}, {}])
    def test_odd_errors_come_back(self, error: Any) -> None:
        heard({"error": error})

    @pytest.mark.spec("GEM-19")
    @pytest.mark.parametrize("body", [[], [answered({"text": "a"})], [{"error": {}}, {}]])
    def test_an_array_of_answers_is_refused(self, body: Any) -> None:
        with pytest.raises(ShapeError):
            GEMINI.from_wire_response(body)

    @pytest.mark.spec("GEM-20")
    def test_what_cannot_be_written_back_is_refused(self) -> None:
        with pytest.raises(ShapeError) as refusal:
            spelling({"key": "said"}, {"key": "meant"}, "$")
        assert refusal.value.code == "shape.not-read-whole"

    @pytest.mark.spec("GEM-20")
    @pytest.mark.parametrize(
        "body",
        [
            asked({"text": "a"}, generationConfig={"cmf_schema": "mine"}),
            asked({"text": "a"}, tools=[{"functionDeclarations": [{"name": "f", "cmf_schema": "mine"}]}]),
        ],
    )
    def test_the_adapters_own_notes_are_no_wire_keys(self, body: dict[str, Any]) -> None:
        with pytest.raises(ShapeError):
            GEMINI.from_wire_request(body)

    @pytest.mark.spec("GEM-18")
    def test_usage_and_errors_of_other_formats_are_written_as_gemini_s(self) -> None:
        usage = TokenUsage(input_tokens=1, cached_input_tokens=2, output_tokens=3, total_tokens=6)
        assert GEMINI.to_wire_response(Response(usage=usage))["usageMetadata"] == {
            "promptTokenCount": 3, "cachedContentTokenCount": 2, "candidatesTokenCount": 3, "totalTokenCount": 6,
        }  # fmt: skip
        error = ErrorInfo(message="slow down", code="rate_limit", type="X")
        assert GEMINI.to_wire_response(Response(error=error)) == {
            "error": {"code": "rate_limit", "message": "slow down", "status": "X"}
        }

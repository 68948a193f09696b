"""What a model's edited words may be said again by, beside them: it goes as well."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.pipeline.run.test_effects import KEY, asked

from cmf import Choice, Message, Request, Response, TextPart, ToolCallPart
from cmf.adapters import get
from pipeline.decisions.decision import Effect, Mode
from pipeline.run.effects import Replacer, apply_edits

TEXT = {"spans": [[3, 9]]}
TOKEN = {"token": "SECRET", "logprob": -0.1}


def edited(value: Any, path: str, **fields: Any) -> Any:
    return apply_edits(value, [asked(path, Effect.REDACT, **fields)], Mode.ENFORCE, Replacer(KEY))


def chat(message: Any = None, choice: Any = None, **top: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "my SECRET", **(message or {})}
    one = {"index": 0, "finish_reason": "stop", "message": said, **(choice or {})}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [one], **top}


def claude(**fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    body = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "usage": usage, **fields}
    return {**body, "content": [{"type": "text", "text": "my SECRET"}]}


def gemini(**fields: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [{"text": "my SECRET"}]}, "finishReason": "STOP", **fields}
    return {"candidates": [candidate], "modelVersion": "m", "responseId": "r1"}


LLAMA = {"model": "m", "created_at": "2024-01-01T00:00:00Z", "done": True, "done_reason": "stop"}


@pytest.mark.spec("EFF-10")
@pytest.mark.parametrize(
    ("dialect", "body", "named"),
    [
        pytest.param(*one, id=name)
        for name, one in {
            "probabilities": ("openai_chat", chat(choice={"logprobs": {"content": [TOKEN]}}), "c1"),
            "the ids of tokens": ("openai_chat", chat(choice={"token_ids": [83, 69], "note": "SECRET"}), "c1"),
            "quotations": ("openai_chat", chat({"annotations": [{"title": "SECRET"}]}), "c1"),
            "a parsed copy": ("openai_chat", chat({"parsed": {"a": "SECRET"}}), "c1"),
            "what another format asks": ("openai_chat", chat(metadata={"a": "SECRET"}, text="SECRET"), "c1"),
            "notes of a filter": ("openai_chat", chat(moderation={"text": "SECRET"}), "c1"),
            "where it stopped": ("anthropic_messages", claude(stop_sequence="SECRET"), "m1"),
            "what it rests on": ("gemini", gemini(groundingMetadata={"segment": {"text": "SECRET"}}), "r1"),
            "probabilities of Gemini": ("gemini", gemini(logprobsResult={"chosenCandidates": [TOKEN]}), "r1"),
            "probabilities of Ollama": (
                "ollama",
                {**LLAMA, "message": {"role": "assistant", "content": "my SECRET"}, "logprobs": [TOKEN]},
                "2024",
            ),
        }.items()
    ],
)  # fmt: skip
def test_what_says_edited_words_again_goes_and_the_name_of_the_answer_stays(
    dialect: str, body: dict[str, Any], named: str
) -> None:
    adapter = get(dialect)
    response = adapter.from_wire_response(body)
    assert "SECRET" in json.dumps(adapter.to_wire_response(response)).replace("my SECRET", "")  # it would go out

    left = edited(response, "choices[0].message.content[0]", **TEXT)

    for out in (adapter.to_wire_response(left), adapter.to_wire_events(left)):
        assert "SECRET" not in json.dumps(out)
        assert "[MASKED]" in json.dumps(out)
        assert named in json.dumps(out)
        assert "83" not in json.dumps(out)


@pytest.mark.spec("EFF-10")
def test_another_choice_keeps_what_is_its_own() -> None:
    body = chat()
    second = chat({"content": "fine"}, {"index": 1, "logprobs": {"content": [{"token": "fine"}]}})["choices"][0]
    response = get("openai_chat").from_wire_response({**body, "choices": [*body["choices"], second]})

    left = edited(response, "choices[0].message.content[0]", **TEXT)

    assert left.choices[1] is response.choices[1]


@pytest.mark.spec("EFF-10")
def test_in_a_request_echoes_are_removed_only_from_assistant_messages() -> None:
    notes = {"openai_chat": {"annotations": "SECRET", "name": "ann"}, "openai_chat.key": "reasoning"}
    said = [Message(role=role, content=[TextPart(text="my SECRET")], extra=notes) for role in ("assistant", "user")]
    request = Request(messages=[*said, *said], model="m")

    for at in (0, 1):
        request = edited(request, f"messages[{at}].content[0]", **TEXT)

    assert [message.extra for message in request.messages] == [{"openai_chat.key": "reasoning"}, notes, notes, notes]
    assert edited(said[0], "content[0]", **TEXT).extra == {"openai_chat.key": "reasoning"}


@pytest.mark.spec("EFF-10")
def test_an_edited_call_counts_and_what_is_edited_beside_the_words_does_not() -> None:
    call = ToolCallPart(name="f", arguments={"a": "SECRET"})
    extra = {"openai_chat": {"logprobs": [TOKEN], "moderation": "x"}}
    choice = Choice(message=Message(role="assistant", content=[call]), extra=extra)
    response = Response(choices=[choice], extra=extra)

    beside = edited(response, "response", pointer="/properties/extra/openai_chat/moderation")
    within = edited(response, "choices[0].message.content[0]", pointer="/arguments/a")

    assert (beside.choices, beside.extra) == (response.choices, {"openai_chat": {"logprobs": [TOKEN]}})
    assert (within.choices[0].extra, within.extra) == (None, None)


@pytest.mark.spec("EFF-10")
def test_what_rides_along_with_the_result_of_a_tool_stays() -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"content": [{"type": "text", "text": "my SECRET"}], "resultType": "complete", "_meta": {"n": 1}},
    }
    response = get("mcp").from_wire_response(body)

    left = edited(response, "choices[0].message.content[0].content[0]", **TEXT)

    out = get("mcp").to_wire_response(left)["result"]
    assert (out["content"][0]["text"], out["resultType"], out["_meta"]) == ("my [MASKED]", "complete", {"n": 1})

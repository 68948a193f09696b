"""A secret in a field that only a provider reads (signature, encrypted reasoning) is found, however it is encoded."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from cmf import adapters
from pipeline import Action, Guard

KEY = "AKIAIOSFODNN7EXAMPLE"
SAID = f"my key {KEY} ok".encode()
ONCE = base64.b64encode(SAID).decode()
SPELLINGS = {
    "plain": KEY,
    "base64": ONCE,
    "url-safe": base64.urlsafe_b64encode(b"??>" + SAID).decode().rstrip("="),
    "in lines": "\n".join(ONCE[at : at + 16] for at in range(0, len(ONCE), 16)),
    "among bytes": base64.b64encode(b"\xff\x00" + SAID + b"\x81").decode(),
    "twice": base64.b64encode(ONCE.encode()).decode(),
}
USER = {"role": "user", "content": "hi"}


def _claude(block: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return {**head, "content": [block, {"type": "text", "text": "x"}], "stop_sequence": None, "usage": usage}


def _gemini(part: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}]}


def _router(detail: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "x", "reasoning_details": [detail]}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


REPLIES: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "signature": (
        "anthropic_messages",
        lambda text: _claude({"type": "thinking", "thinking": "t", "signature": text}),
    ),
    "redacted thinking": ("anthropic_messages", lambda text: _claude({"type": "redacted_thinking", "data": text})),
    "citation": (
        "anthropic_messages",
        lambda text: _claude(
            {
                "type": "text",
                "text": "x",
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": "https://a.example",
                        "title": "t",
                        "cited_text": "c",
                        "encrypted_index": text,
                    }
                ],
            }
        ),
    ),
    "thought signature of a text": ("gemini", lambda text: _gemini({"text": "y", "thoughtSignature": text})),
    "thought signature of a call": (
        "gemini",
        lambda text: _gemini({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": text}),
    ),
    "thought signature of a thought": (
        "gemini",
        lambda text: _gemini({"text": "y", "thought": True, "thoughtSignature": text}),
    ),
    "encrypted detail": (
        "openrouter",
        lambda text: _router({"type": "reasoning.encrypted", "data": text, "id": "r", "format": "f", "index": 0}),
    ),
    "signed detail": (
        "openrouter",
        lambda text: _router({"type": "reasoning.text", "text": "t", "signature": text, "format": "f", "index": 0}),
    ),
}


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize("field", REPLIES)
def test_a_secret_in_a_field_for_providers_is_found_in_every_spelling(field: str) -> None:
    adapter, reply = adapters.get(REPLIES[field][0]), REPLIES[field][1]
    guard = Guard()

    decisions = {name: guard.decide(adapter.from_wire_response(reply(text))) for name, text in SPELLINGS.items()}

    assert {name for name, decision in decisions.items() if decision.action is Action.FORWARD} == set()


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize("field", REPLIES)
def test_what_providers_really_put_there_passes(field: str) -> None:
    adapter, reply = adapters.get(REPLIES[field][0]), REPLIES[field][1]
    opaque = base64.b64encode(bytes((at * 167 + at // 3 * 59 + 13) % 256 for at in range(900))).decode()

    assert Guard().decide(adapter.from_wire_response(reply(opaque))).reasons == ()


@pytest.mark.spec("VIEW-14")
def test_encrypted_reasoning_that_a_client_sends_back_is_judged_too() -> None:
    for text in SPELLINGS.values():
        item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": text}
        request = {"model": "m", "store": False, "input": [USER, item, USER]}

        decision = Guard().decide(adapters.get("openai_responses").from_wire_request(request))

        assert decision.action is not Action.FORWARD


@pytest.mark.spec("VIEW-14")
def test_a_secret_in_a_field_of_a_message_is_found_in_every_spelling() -> None:
    adapter, guard = adapters.get("openai_chat"), Guard()

    for text in SPELLINGS.values():
        request = adapter.from_wire_request({"model": "m", "messages": [{**USER, "note": text}]})
        assert guard.decide(request).action is not Action.FORWARD

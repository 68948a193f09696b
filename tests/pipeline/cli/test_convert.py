"""`cmf convert`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipeline.cli.app import app

REQUESTS = Path(__file__).resolve().parents[3] / "examples" / "requests"
STREAM = (
    'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    '{"role":"assistant","content":"Hel"},"finish_reason":null}]}\n\n'
    'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    '{"content":"lo"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
THINKING = {
    "messages": [
        {
            "role": "assistant",
            "content": [{"content_type": "thinking", "text": "hm"}, {"content_type": "text", "text": "ok"}],
        }
    ]
}


def convert(body: Any, *options: str) -> Result:
    return CliRunner().invoke(
        app, ["convert", "-", *options], input=body if isinstance(body, str) else json.dumps(body)
    )


@pytest.mark.spec("CLI-8")
def test_what_the_target_cannot_say_is_listed_once_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--from", "canonical", "--to", "openai_chat")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as where nobody asked for logs

    dropped = convert(THINKING, *options)
    refused = convert(THINKING, *options, "--strict")

    assert dropped.exit_code == 0
    assert json.loads(dropped.stdout)["messages"] == [{"role": "assistant", "content": "ok"}]
    assert dropped.stderr.startswith("cmf: dropped thinking: ")
    assert len(dropped.stderr.splitlines()) == 1
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert "projection.critical" in refused.stderr


@pytest.mark.spec("CLI-8")
def test_a_request_of_one_provider_becomes_one_of_another() -> None:
    path = str(REQUESTS / "anthropic_messages_delete.json")

    result = CliRunner().invoke(app, ["convert", path, "--from", "anthropic_messages", "--to", "openai_chat"])

    body = json.loads(result.stdout)
    assert result.stderr == ""
    assert body["model"] == "claude-sonnet-4-6"
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool"]
    assert json.loads(body["messages"][2]["tool_calls"][0]["function"]["arguments"]) == {"customer_id": 77}


@pytest.mark.spec("CLI-8")
def test_a_request_through_its_own_format_is_unchanged() -> None:
    path = REQUESTS / "openai_chat_question.json"

    result = CliRunner().invoke(app, ["convert", str(path), "--from", "openai_chat", "--to", "openai_chat"])

    assert json.loads(result.stdout) == json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.spec("CLI-8")
def test_streams_are_converted_to_streams_and_to_responses() -> None:
    options = ("--kind", "stream", "--from", "openai_chat")

    anthropic = convert(STREAM, *options, "--to", "anthropic_messages").stdout
    canonical = json.loads(convert(STREAM, *options, "--to", "canonical").stdout)
    lines = convert(STREAM, *options, "--to", "ollama").stdout.splitlines()

    assert "event: message_start" in anthropic
    assert anthropic.rstrip().endswith('data: {"type":"message_stop"}')
    assert canonical["choices"][0]["message"]["content"] == [{"content_type": "text", "text": "Hello"}]
    assert "".join(json.loads(line)["message"]["content"] for line in lines) == "Hello"
    events = json.dumps([{"data": json.loads(line[6:])} for line in STREAM.splitlines() if line.startswith("data: {")])
    assert "Hello" in convert(events, *options, "--to", "canonical").stdout


@pytest.mark.spec("CLI-2")
def test_bad_input_is_one_line() -> None:
    for body, options in (
        ("{", ("--from", "openai_chat", "--to", "gemini")),
        (STREAM, ("--from", "canonical", "--to", "gemini", "--kind", "stream")),
        ('{"messages": 5}', ("--from", "openai_chat", "--to", "gemini")),
    ):
        result = convert(body, *options)
        assert (result.exit_code, result.stdout) == (4, "")
        assert len(result.stderr.splitlines()) == 1


def test_a_single_message_and_a_response_are_converted() -> None:
    message = {"role": "user", "content": [{"content_type": "text", "text": "hi"}]}
    response = {"model": "openai:m", "choices": [{"message": {**message, "role": "assistant"}, "stop_reason": "end"}]}

    said = json.loads(convert(message, "--from", "canonical", "--to", "openai_chat").stdout)
    answered = json.loads(convert(response, "--from", "canonical", "--to", "openai_chat", "--kind", "response").stdout)

    assert said["messages"] == [{"role": "user", "content": "hi"}]
    assert (answered["model"], answered["choices"][0]["message"]["content"]) == ("m", "hi")
    assert json.loads(convert(message, "--from", "canonical", "--to", "canonical").stdout) == message

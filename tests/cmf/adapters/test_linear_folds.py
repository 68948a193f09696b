"""Folding a stream does not copy what it has with each line that comes. Spec: docs/spec/adapters.md [ADP-16]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cmf.adapters import get

LINES = 400
PIECE = "word "


class Counted(str):
    """A text that counts, in `copied`, the characters that are copied to put two together."""

    __slots__ = ("_copied",)

    def __new__(cls, text: str, copied: list[int]) -> Counted:
        made = super().__new__(cls, text)
        made._copied = copied
        return made

    def __add__(self, other: str) -> Counted:
        self._copied[0] += len(self) + len(other)
        return Counted(str.__add__(self, other), self._copied)


def _chunk(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": None}]}}


def _arguments(text: str, path: str = "$.a.b") -> dict[str, Any]:
    call = {"partialArgs": [{"jsonPath": path, "stringValue": text, "willContinue": True}], "willContinue": True}
    return _chunk({"functionCall": call})


_BEGUN = _chunk({"functionCall": {"name": "f", "willContinue": True}})


@pytest.mark.spec("ADP-16")
@pytest.mark.parametrize(
    ("format_name", "line"),
    [
        ("ollama", lambda text: {"data": {"message": {"role": "assistant", "content": text}}}),
        ("ollama", lambda text: {"data": {"message": {"role": "assistant", "content": "x", "thinking": text}}}),
        ("ollama", lambda text: {"data": {"response": text}}),
        ("gemini", lambda text: _chunk({"text": text})),
        ("gemini", lambda text: _chunk({"text": text, "thought": True})),
        ("gemini", _arguments),
    ],
    ids=["content", "thinking", "response", "text", "thought", "arguments"],
)
def test_texts_that_come_in_pieces_are_joined_once(format_name: str, line: Callable[[str], dict[str, Any]]) -> None:
    copied = [0]
    events = [line(Counted(PIECE, copied)) for _ in range(LINES)]

    body = get(format_name).fold_events([_BEGUN, *events] if format_name == "gemini" else events)  # type: ignore[list-item]

    assert PIECE * LINES in str(body)
    assert copied[0] <= LINES * len(PIECE)


@pytest.mark.spec("ADP-16")
def test_two_arguments_that_grow_by_turns_are_joined_once() -> None:
    copied = [0]
    turns = [_arguments(Counted(PIECE, copied), path) for _ in range(LINES) for path in ("$.a.b", "$.c")]

    body = get("gemini").fold_events([_BEGUN, *turns])  # type: ignore[list-item]

    (part,) = body["candidates"][0]["content"]["parts"]
    assert part["functionCall"]["args"] == {"a": {"b": PIECE * LINES}, "c": PIECE * LINES}
    assert copied[0] <= 2 * LINES * len(PIECE)


@pytest.mark.spec("ADP-16", "GEM-24")
def test_lists_that_go_on_leave_the_chunks_and_what_was_superseded_as_they_were() -> None:
    said = [{"citations": [{"uri": "a"}], "note": "x"}, {"citations": [{"uri": "b"}]}, {"citations": [{"uri": "c"}]}]
    said.append({"citations": [{"uri": "d"}], "note": "y"})
    chunks = [{"data": {"candidates": [{"citationMetadata": one}]}} for one in said]

    body = get("gemini").fold_events(chunks)  # type: ignore[arg-type]

    assert [each["uri"] for each in body["candidates"][0]["citationMetadata"]["citations"]] == ["a", "b", "c", "d"]
    assert [len(each["citations"]) for each in said] == [1, 1, 1, 1]
    (kept,) = body["cmf_superseded"]
    assert [each["uri"] for each in kept["citationMetadata"]["citations"]] == ["a", "b", "c"]

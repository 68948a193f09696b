"""Roughly how many tokens a request is, for routing and limits before anything is sent. Spec: docs/spec/adapters.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cmf.json.codec import dumps
from cmf.message.message import MediaPart, Part, PromptResultPart, ToolResultPart
from cmf.message.request import Request

BYTES_PER_TOKEN: Final = 4  # of UTF-8 English text, by the providers' own rule of thumb
MESSAGE_TOKENS: Final = 4  # what a turn costs beside its text
MEDIA_TOKENS: Final = 1_000  # for an image, sound or page of which nothing else is known
_ANSWERS: Final = frozenset({"n", "best_of", "candidateCount", "candidate_count"})


def estimate(request: Request) -> int:
    """Tokens of all text, tool definitions and schemas at four bytes each, rounded up, plus a fixed sum per turn."""
    size = media = 0
    for message in request.messages:
        for part in message.content:
            text, pieces = _weight(part)
            size += text
            media += pieces
    for tool in request.tools:
        size += len(tool.name.encode()) + len((tool.description or "").encode()) + len(dumps(tool.input_schema or {}))
    if request.response_schema is not None:
        size += len(dumps(request.response_schema))
    return -(-size // BYTES_PER_TOKEN) + MESSAGE_TOKENS * len(request.messages) + MEDIA_TOKENS * media


def answers(request: Request) -> int:
    """How many answers the request asks for, each of which may have the greatest length: 1 unless it names more."""
    return max((1, *_counts(request.extra or {}, depth=2)))


def _counts(extra: Mapping[str, Any], depth: int) -> Iterator[int]:
    """The counts of answers in these fields and in objects within: under the format's name, and in its settings."""
    for key, item in extra.items():
        if key in _ANSWERS and isinstance(item, int | float):
            yield math.ceil(item)
        elif depth and isinstance(item, dict):
            yield from _counts(item, depth - 1)


def _weight(part: Part) -> tuple[int, int]:
    """Bytes of text, and pieces of media."""
    if isinstance(part, MediaPart):
        return 0, 1
    nested: tuple[Any, ...] = ()
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        nested = part.content
    elif isinstance(part, PromptResultPart):
        nested = tuple(inner for message in part.messages for inner in message.content)
    if nested:
        weights = [_weight(inner) for inner in nested]
        return sum(text for text, _ in weights), sum(pieces for _, pieces in weights)
    own = {name: item for name, item in part.model_dump().items() if name not in ("content_type", "extra")}
    return sum(len(item.encode()) if isinstance(item, str) else len(dumps(item)) for item in own.values()), 0

"""OpenRouter: chat completions with routing and reasoning details. Spec: docs/spec/adapters/openrouter.md."""

from __future__ import annotations

from typing import Final

from cmf.adapters.chat_completions.adapter import adapter_of
from cmf.adapters.chat_completions.dialect import Dialect

FORMAT: Final = "openrouter"

ADAPTER: Final = adapter_of(
    Dialect(
        format=FORMAT,
        path="/api/v1/chat/completions",
        reasoning_key="reasoning",
        nested_effort=True,
        video=True,
        asks_as="openai_chat",
        answers_as="openai_chat",
    )
)

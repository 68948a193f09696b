"""OpenAI chat completions, which many services use too. Spec: docs/spec/adapters/openai_chat.md."""

from __future__ import annotations

from typing import Final

from cmf.adapters.chat_completions.adapter import adapter_of
from cmf.adapters.chat_completions.dialect import Dialect

FORMAT: Final = "openai_chat"

ADAPTER: Final = adapter_of(
    Dialect(
        format=FORMAT,
        path="/v1/chat/completions",
        reasoning_key="reasoning_content",
        nested_effort=False,
        video=False,
        answers_as="openrouter",  # requests not: a server may refuse what it does not know, and clients read past it
    )
)

"""LiteLLM's own transformation of a chat request into an Anthropic one, without sending anything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from litellm.llms.anthropic.chat.transformation import AnthropicConfig

from bench import documents


def operations() -> dict[str, Callable[..., Any]]:
    """`translate`: its two steps, on a copy, because it writes into what it is given."""
    body = documents.openai_request()
    config = AnthropicConfig()

    def translate() -> dict[str, Any]:
        given = copy.deepcopy(body)
        messages, model = given.pop("messages"), given.pop("model")
        optional = config.map_openai_params(given, {}, model, drop_params=False)
        return config.transform_request(model, messages, optional, litellm_params={}, headers={})

    def blocks() -> list[str]:
        contents = [message["content"] for message in translate()["messages"]]
        return sorted(block["type"] for content in contents for block in content)

    return {"translate": translate, "copy": lambda: copy.deepcopy(body), "blocks": blocks}

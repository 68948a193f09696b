"""This project: JSON to message, views, policy inputs as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bench import documents
from cmf import Message, iter_views
from pipeline.policy_input import shared_bytes, view_bytes


def operations() -> dict[str, Callable[..., Any]]:
    """`validate`, `views`, `inputs` (from a held message), `all`; `keep` and `keep_dict` for memory."""
    text = documents.message_bytes(0)
    held = Message.model_validate_json(text)

    def inputs(message: Message = held) -> list[bytes]:
        views = list(iter_views(message))
        return [shared_bytes(views[0], None), *(view_bytes(view) for view in views)]

    return {
        "validate": lambda: Message.model_validate_json(text),
        "views": lambda: list(iter_views(held)),
        "inputs": inputs,
        "all": lambda: inputs(Message.model_validate_json(text)),
        "inputs_bytes": lambda: sum(map(len, inputs())),
        "keep": lambda index: Message.model_validate_json(documents.message_bytes(index)),
        "keep_dict": lambda index: json.loads(documents.message_bytes(index)),
    }

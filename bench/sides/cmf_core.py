"""This project: JSON to message, views, policy inputs as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bench import documents
from bench.fresh import BATCH, Fresh
from cmf import Message, iter_views
from pipeline.decisions.policy_input import shared_bytes, view_bytes


def operations() -> dict[str, Callable[..., Any]]:
    """`validate`; `views` and `inputs`, each of a message just read; `all`; `keep` and `keep_dict` for memory."""
    texts = [documents.message_bytes(index) for index in range(BATCH)]
    text = texts[0]

    def read(index: int = 0) -> Message:
        return Message.model_validate_json(texts[index % BATCH])

    def inputs(message: Message) -> list[bytes]:
        views = list(iter_views(message))
        return [shared_bytes(views[0], None), *[view_bytes(view) for view in views]]

    return {
        "validate": lambda: Message.model_validate_json(text),
        "views": Fresh(read, lambda message: list(iter_views(message))),
        "inputs": Fresh(read, inputs),
        "all": lambda: inputs(Message.model_validate_json(text)),
        "inputs_bytes": lambda: sum(map(len, inputs(read()))),
        "keep": lambda index: Message.model_validate_json(documents.message_bytes(index)),
        "keep_dict": lambda index: json.loads(documents.message_bytes(index)),
    }

"""cpex: the same steps with its own calls; orjson makes the bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from cpex.framework.cmf.message import Message
from cpex.framework.cmf.view import iter_views
from cpex.framework.extensions.extensions import Extensions

from bench import documents


def operations() -> dict[str, Callable[..., Any]]:
    """The operations of `cmf_core` that both have."""
    texts = documents.peer_bytes(0)

    def read(texts: tuple[bytes, bytes]) -> tuple[Message, Extensions]:
        return Message.model_validate_json(texts[0]), Extensions.model_validate_json(texts[1])

    message, extensions = read(texts)

    def inputs(message: Message = message, extensions: Extensions = extensions) -> list[bytes]:
        return [orjson.dumps(view.to_opa_input()) for view in iter_views(message, extensions=extensions)]

    return {
        "validate": lambda: read(texts),
        "views": lambda: list(iter_views(message, extensions=extensions)),
        "inputs": inputs,
        "all": lambda: inputs(*read(texts)),
        "inputs_bytes": lambda: sum(map(len, inputs())),
        "keep": lambda index: read(documents.peer_bytes(index)),
    }

"""cpex: the same steps with its own calls; orjson makes the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson
from cpex.framework.cmf.message import Message
from cpex.framework.cmf.view import iter_views
from cpex.framework.extensions.extensions import Extensions

from bench import documents
from bench.fresh import BATCH, Fresh


def operations() -> dict[str, Callable[..., Any]]:
    """The operations of `cmf_core` that both have."""
    texts = [documents.peer_bytes(index) for index in range(BATCH)]

    def read(index: int = 0) -> tuple[Message, Extensions]:
        message, extensions = texts[index % BATCH]
        return Message.model_validate_json(message), Extensions.model_validate_json(extensions)

    def views(held: tuple[Message, Extensions]) -> Iterable[Any]:
        return iter_views(held[0], extensions=held[1])

    def inputs(held: tuple[Message, Extensions]) -> list[bytes]:
        return [orjson.dumps(view.to_opa_input()) for view in views(held)]

    def kept(index: int) -> tuple[Message, Extensions]:
        message, extensions = documents.peer_bytes(index)
        return Message.model_validate_json(message), Extensions.model_validate_json(extensions)

    return {
        "validate": read,
        "views": Fresh(read, lambda held: list(views(held))),
        "inputs": Fresh(read, inputs),
        "all": lambda: inputs(read()),
        "inputs_bytes": lambda: sum(map(len, inputs(read()))),
        "keep": kept,
    }

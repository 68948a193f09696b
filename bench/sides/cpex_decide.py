"""cpex with an OPA server: its own views, inputs and resolver, one HTTP query a view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cpex.framework.cmf.message import Message
from cpex.framework.cmf.view import iter_views
from cpex.framework.extensions.extensions import Extensions
from cpex.framework.pdp.opa import OpaResolver

from bench import documents
from bench.fresh import BATCH
from bench.wall import wall_seconds


def operations(url: str) -> dict[str, Callable[..., Any]]:
    """`wall`: seconds by the clock on the wall from JSON to an answer for each of the four views; `answers`."""
    texts = [documents.peer_bytes(index) for index in range(BATCH)]
    loop = asyncio.new_event_loop()
    resolver = OpaResolver(f"{url}/v1/data/cmf/main/{{kind}}/decision", timeout_ms=5_000)

    async def resolved(message: Message, extensions: Extensions) -> list[Any]:
        views = iter_views(message, extensions=extensions)
        return [await resolver.resolve(view.to_opa_input()["input"]) for view in views]

    def decide(index: int = 0) -> list[Any]:
        message, extensions = texts[index % BATCH]
        read = Message.model_validate_json(message), Extensions.model_validate_json(extensions)
        return loop.run_until_complete(resolved(*read))

    return {
        "wall": lambda: wall_seconds(decide),
        "answers": lambda: [sorted(one.context or ()) for one in decide()],
    }

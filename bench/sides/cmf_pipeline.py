"""This project: stages of the pipeline, in order, awaited as a server does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bench import documents
from cmf import Message
from cmf.json.value import replace
from pipeline import Context, Mode, Stage
from pipeline.decisions.events import Events
from pipeline.run.offload import Offload, Waiting
from pipeline.run.stages import Stages

AWAITING = Waiting(Offload(waits=False))
CALLS = 20  # of one operation: what it takes to enter the event loop is not the pipeline's


def operations() -> dict[str, Callable[..., Any]]:
    """`one`, `ten`, `one_sees`, `ten_see`, `ten_label`, and `ten_await` (coroutines): `CALLS` runs each."""
    loop = asyncio.new_event_loop()
    message = Message.model_validate_json(documents.message_bytes(0))
    context = Context()
    everything = frozenset(documents.CAPABILITIES)

    def nothing(value: Message, _: Context) -> None:
        return None

    async def nothing_awaited(value: Message, _: Context) -> None:
        return None

    def labels(name: str) -> Callable[[Message, Context], Message]:
        def label(value: Message, _: Context) -> Message:
            extensions = value.extensions
            assert extensions is not None
            assert extensions.security is not None
            security = replace(extensions.security, labels=extensions.security.labels | {name})
            return replace(value, extensions=replace(extensions, security=security))

        return label

    def stages(count: int, call: Callable[[str], Any], capabilities: frozenset[Any]) -> Stages:
        made = [Stage(name=f"s{at}", call=call(f"l{at}"), capabilities=capabilities) for at in range(count)]
        return Stages(made, Events(), Mode.ENFORCE)

    some = frozenset(documents.CAPABILITIES[:1])
    listed = {
        "one": stages(1, lambda _: nothing, everything),
        "ten": stages(10, lambda _: nothing, everything),
        "one_sees": stages(1, lambda _: nothing, some),
        "ten_see": stages(10, lambda _: nothing, some),
        "ten_label": stages(10, labels, some),
        "ten_await": stages(10, lambda _: nothing_awaited, everything),
    }

    def runs(made: Stages) -> Callable[[], Any]:
        async def many() -> None:
            for _ in range(CALLS):
                await made.run(message, context, AWAITING)

        return lambda: loop.run_until_complete(many())

    def ran() -> list[int]:
        return [len(loop.run_until_complete(made.run(message, context, AWAITING)).records) for made in listed.values()]

    return {**{name: runs(made) for name, made in listed.items()}, "ran": ran}

"""cpex: the same stages as plugins of its manager, sequential, each in a hook type of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from cpex.framework import GlobalContext, Plugin, PluginConfig, PluginManager
from cpex.framework.cmf.message import Message
from cpex.framework.decorator import hook
from cpex.framework.extensions.extensions import Extensions
from cpex.framework.hooks.message import CmfHookType, MessagePayload, MessageResult

from bench import documents

ONE, TEN = CmfHookType.LLM_INPUT, CmfHookType.LLM_OUTPUT
ONE_SEES, TEN_SEE = CmfHookType.TOOL_PRE_INVOKE, CmfHookType.TOOL_POST_INVOKE
TEN_LABEL = CmfHookType.RESOURCE_PRE_FETCH
CALLS = 20  # of one operation: what it takes to enter the event loop is not the manager's


class Looks(Plugin):
    """Returns what says: nothing changed."""

    @hook(ONE)
    async def one(self, payload: Any, context: Any) -> Any:
        """Nothing."""
        return MessageResult()

    @hook(TEN)
    async def ten(self, payload: Any, context: Any) -> Any:
        """Nothing."""
        return MessageResult()

    @hook(ONE_SEES)
    async def one_sees(self, payload: Any, context: Any, extensions: Any) -> Any:
        """Nothing, with the extensions that it may see."""
        return MessageResult()

    @hook(TEN_SEE)
    async def ten_see(self, payload: Any, context: Any, extensions: Any) -> Any:
        """The same."""
        return MessageResult()

    @hook(TEN_LABEL)
    async def ten_label(self, payload: Any, context: Any, extensions: Any) -> Any:
        """One more label."""
        security = extensions.security
        more = security.model_copy(update={"labels": security.labels | {self.name}})
        return MessageResult(modified_extensions=extensions.model_copy(update={"security": more}))


def operations() -> dict[str, Callable[..., Any]]:
    """`one`, `ten`, `one_sees`, `ten_see`, `ten_label`: `CALLS` runs each."""
    loop = asyncio.new_event_loop()
    manager = PluginManager()
    loop.run_until_complete(manager.initialize())
    for at in range(10):
        hooks = [TEN, TEN_SEE, TEN_LABEL] + ([ONE, ONE_SEES] if at == 0 else [])
        config = PluginConfig(
            name=f"stage-{at}",
            kind="bench",
            hooks=[each.value for each in hooks],
            capabilities=frozenset({"read_labels", "append_labels"}),
            priority=at,
        )
        manager._registry.register(Looks(config))
    texts = documents.peer_bytes(0)
    message, extensions = Message.model_validate_json(texts[0]), Extensions.model_validate_json(texts[1])
    payload = MessagePayload(message=message)

    def runs(name: str) -> Callable[[], Any]:
        async def many() -> None:
            for _ in range(CALLS):
                await manager.invoke_hook(name, payload, GlobalContext(request_id="r"), extensions=extensions)

        def operation() -> None:
            work: Awaitable[None] = many()
            loop.run_until_complete(work)

        return operation

    names = {"one": ONE, "ten": TEN, "one_sees": ONE_SEES, "ten_see": TEN_SEE, "ten_label": TEN_LABEL}

    def ran() -> list[int]:
        found = []
        for name in names.values():
            invoked = manager.invoke_hook(name, payload, GlobalContext(request_id="r"), extensions=extensions)
            result, _ = loop.run_until_complete(invoked)
            found.append(len(result.executions or ()))
        return found

    return {**{name: runs(kind.value) for name, kind in names.items()}, "ran": ran}

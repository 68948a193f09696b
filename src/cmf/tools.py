"""Tool definitions: what a model is told it may call. Spec: docs/spec/tools.md."""

from __future__ import annotations

from typing import Literal

from cmf.enums import SideEffects
from cmf.frozen import FrozenDict
from cmf.value import Str, Value, value


@value
class ToolDefinition(Value):
    """A tool as it is offered to a model.

    `type` is the wire's own kind for tools that the provider runs ("web_search_20250305", say); `executed_by` says who
    runs it. `side_effects` None means: not declared.
    """

    name: Str
    description: Str | None = None
    input_schema: FrozenDict | None = None
    namespace: Str | None = None
    type: Str | None = None
    executed_by: Literal["client", "provider"] = "client"
    side_effects: SideEffects | None = None
    requires_workspace: bool = True
    extra: FrozenDict | None = None

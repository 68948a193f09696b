"""The items of the Responses format as tables: which carry calls, which results, and what runs them.

Spec: docs/spec/adapters/openai_responses.md [RSP-3] to [RSP-8].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from cmf.adapters.wire.fields import MARK
from cmf.enums import Role

FORMAT: Final = "openai_responses"

ROLES: Final = {
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}

# Keys of our own in the `extra` of parts; a wire part that has one of them stays opaque, so that none can be forged.
ITEM: Final = "item"  # facts of the item that begins with this part
INSIDE: Final = "inside"  # the opaque part is inside this kind of item, and not an item itself
STREAM: Final = f"{MARK}stream"  # in the fold of a stream: what it had and the body has not

Runner = Literal["client", "provider"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallItem:
    """How an item of one type spells a tool call.

    `tool`: the tool's name where the item has none of its own. The arguments are JSON text under `text`, the object
    under `whole`, or an object made of the item's `keys`. `result`: the key under which the provider adds the result.
    """

    tool: str | None = None
    id_key: str = "call_id"
    space: str = "namespace"
    text: str | None = None
    whole: str | None = None
    keys: tuple[str, ...] = ()
    result: str | None = None
    runner: Runner = "client"


CALLS: Final[dict[str, CallItem]] = {
    "function_call": CallItem(text="arguments"),
    "custom_tool_call": CallItem(keys=("input",)),
    "mcp_call": CallItem(id_key="id", space="server_label", text="arguments", result="output", runner="provider"),
    "mcp_approval_request": CallItem(id_key="id", space="server_label", text="arguments", runner="provider"),
    "web_search_call": CallItem(tool="web_search", id_key="id", whole="action", runner="provider"),
    "file_search_call": CallItem(
        tool="file_search", id_key="id", keys=("queries",), result="results", runner="provider"
    ),
    "code_interpreter_call": CallItem(
        tool="code_interpreter", id_key="id", keys=("code", "container_id"), result="outputs", runner="provider"
    ),
    "image_generation_call": CallItem(
        tool="image_generation", id_key="id", keys=("revised_prompt",), result="result", runner="provider"
    ),
    "shell_call": CallItem(tool="shell", whole="action"),
    "local_shell_call": CallItem(tool="local_shell", whole="action"),
    "apply_patch_call": CallItem(tool="apply_patch", whole="operation"),
    "computer_call": CallItem(tool="computer", keys=("action", "actions")),
    "tool_search_call": CallItem(tool="tool_search", whole="arguments"),
}

RESULTS: Final[dict[str, tuple[str, bool]]] = {
    "function_call_output": ("call_id", True),
    "custom_tool_call_output": ("call_id", True),
    "shell_call_output": ("call_id", False),
    "local_shell_call_output": ("id", False),
    "apply_patch_call_output": ("call_id", False),
    "computer_call_output": ("call_id", False),
}
"""Items that answer a call: the key of the call's id, and whether a list is content parts (else it is plain JSON)."""

CLIENT_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
"""Results of tools that nobody but the client has."""

KINDS: Final = frozenset({*CALLS, *RESULTS} - {"function_call", "function_call_output"})
"""Types of calls and results that layout keeps, so that an edited one stays what it is [RSP-5]."""

TEXTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Content parts that are text, and the key of the text."""

HOSTED_TOOLS: Final = frozenset(
    {
        "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "file_search",
        "code_interpreter", "image_generation", "mcp", "tool_search", "programmatic_tool_calling", "x_search",
    }
)  # fmt: skip
CLIENT_TOOLS: Final = frozenset(
    {"shell", "local_shell", "apply_patch", "computer", "computer_use_preview", "custom", "namespace"}
)

_ASKED_OF_THE_MODEL: Final = frozenset({"reasoning", "compaction", "mcp_list_tools", "mcp_approval_request", "program"})


def role_of(kind: str, item: dict[str, Any]) -> Role:
    """The role of an item that is not a message: its own if it names one, else by its type."""
    named = item.get("role")
    if isinstance(named, str) and named in ROLES:
        return ROLES[named]
    if kind in RESULTS or kind.endswith("_output"):
        return Role.TOOL
    return Role.ASSISTANT if kind.endswith("_call") or kind in _ASKED_OF_THE_MODEL else Role.USER


def text_type(role: Role) -> str:
    """The type that a text part has by default in a message of this role."""
    return "output_text" if role is Role.ASSISTANT else "input_text"

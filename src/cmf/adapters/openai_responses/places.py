"""Where in an item the events of a stream put what they say. Spec: docs/spec/adapters/openai_responses.md [RSP-13]."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]

PIECES: Final[dict[str, tuple[str, ...]]] = {
    "response.output_text": ("content", "content_index", "text"),
    "response.refusal": ("content", "content_index", "refusal"),
    "response.reasoning_text": ("content", "content_index", "text"),
    "response.reasoning_summary_text": ("summary", "summary_index", "text"),
    "response.function_call_arguments": ("arguments",),
    "response.mcp_call_arguments": ("arguments",),
    "response.custom_tool_call_input": ("input",),
    "response.code_interpreter_call_code": ("code",),
    "response.apply_patch_call_operation_diff": ("operation", "diff"),
    "response.shell_call_command": ("action", "commands", "command_index"),
}
"""Events `.delta` and `.done` (and `.added`, for a command): where in the item their text goes."""

PARTS: Final = {
    "response.content_part.added": ("content", "content_index"),
    "response.content_part.done": ("content", "content_index"),
    "response.reasoning_summary_part.added": ("summary", "summary_index"),
    "response.reasoning_summary_part.done": ("summary", "summary_index"),
}
PART_TYPES: Final = {
    "response.output_text": "output_text",
    "response.refusal": "refusal",
    "response.reasoning_text": "reasoning_text",
    "response.reasoning_summary_text": "summary_text",
}
_SKELETONS: Final = {
    "content": "message", "summary": "reasoning", "arguments": "function_call", "input": "custom_tool_call",
    "code": "code_interpreter_call", "operation": "apply_patch_call", "action": "shell_call",
}  # fmt: skip


def path_of(steps: tuple[str, ...], data: dict[str, Any]) -> Path:
    """The steps, with each `…_index` replaced by its number in the event."""
    return tuple(number(data.get(step)) if step.endswith("_index") else step for step in steps)


def number(value: Any) -> int:
    """The index that an event names; 0 where it names none."""
    return value if type(value) is int and value >= 0 else 0


def piece_key(base: str, step: str) -> str:
    """The field of an event that holds the text of a piece, or of the whole."""
    if base == "response.shell_call_command":
        return "delta" if step == "delta" else "command"
    return "delta" if step == "delta" else PIECES.get(base, ("",))[-1]


def pointer(path: Path) -> str:
    """The path as a JSON pointer."""
    return "".join(f"/{step}" for step in path)


def get(item: Any, path: Path) -> Any:
    """The value at the path; None if there is none."""
    for step in path:
        if isinstance(item, dict) and isinstance(step, str):
            item = item.get(step)
        elif isinstance(item, list) and type(step) is int and 0 <= step < len(item):
            item = item[step]
        else:
            return None
    return item


def put(item: dict[str, Any], path: Path, value: Any, part_type: str | None = None) -> None:
    """Set the value at the path; lists grow by one at most, so no index can make them large."""
    holder: Any = item
    for step, after in zip(path, (*path[1:], None), strict=True):
        last = after is None
        fresh = value if last else ([] if type(after) is int else {"type": part_type} if part_type else {})
        if isinstance(holder, dict) and isinstance(step, str):
            if last or not isinstance(holder.get(step), dict | list):
                holder[step] = fresh
            holder = holder[step]
        elif isinstance(holder, list) and type(step) is int:
            if step >= len(holder):
                holder.append(fresh)
                step = len(holder) - 1
            elif last:
                holder[step] = value
            holder = holder[step]
        else:
            return


def skeleton(paths: list[Path], types: dict[Path, str]) -> dict[str, Any]:
    """An item of which only pieces were received."""
    kind = _SKELETONS.get(str(paths[0][0]), "message") if paths else "message"
    if "reasoning_text" in types.values():
        kind = "reasoning"
    return {"type": kind, "role": "assistant"} if kind == "message" else {"type": kind}

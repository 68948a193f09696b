"""What policy changed, as a unified diff: in the message, and in the body that goes out."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, Final

from rich.text import Text

from pipeline.cli.convert import encoded
from pipeline.cli.rendering import console
from pipeline.decisions.display import escaped_json
from pipeline.decisions.stage import Traffic

_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def show_changes(before: Traffic, after: Traffic, target: str) -> None:
    """Print both diffs, from the input to the output. CmfError: `target` cannot express it."""
    out = console()
    out.print()
    pairs = [("message", _content(before), _content(after))]
    if target != "canonical":
        pairs.append((target, encoded(before, target), encoded(after, target)))
    for name, old, new in pairs:
        lines = list(_diff(name, old, new))
        if not lines:
            out.print(Text(f"{name}: no changes", "green"))
        for line in lines:
            out.print(Text(line, _STYLES.get(line[:1], "")))


def _content(value: Traffic) -> Any:
    """The canonical form without extensions, which the pipeline adds."""
    return _without_extensions(value.model_dump())


def _without_extensions(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _without_extensions(each) for key, each in item.items() if key != "extensions"}
    return [_without_extensions(each) for each in item] if isinstance(item, list) else item


def _diff(name: str, old: Any, new: Any) -> Iterator[str]:
    old_lines, new_lines = escaped_json(old).splitlines(), escaped_json(new).splitlines()
    yield from difflib.unified_diff(old_lines, new_lines, f"{name} as it came", f"{name} as it goes out", lineterm="")


__all__ = ["show_changes"]

"""Former option names: accepted for good, documented nowhere. Spec: cli.md [CLI-94]."""

from __future__ import annotations

from typing import Any


def modernised(command: Any, words: list[str]) -> list[str]:
    """A command's arguments under their current names: `--as` for `--by`, a leading STORE for `--store`."""
    known = {name for one in command.params for name in one.opts}
    if "--as" in known and "--by" not in known:
        words = [f"--as{word[4:]}" if word == "--by" or word.startswith("--by=") else word for word in words]
    if "store" in known and "--store" not in known:  # arguments are listed under their own names
        words = _store_first(words)
    return words


def _store_first(words: list[str]) -> list[str]:
    for at, word in enumerate(words):
        if word == "--store" and at + 1 < len(words):
            return [words[at + 1], *words[:at], *words[at + 2 :]]
        if word.startswith("--store="):
            return [word.removeprefix("--store="), *words[:at], *words[at + 1 :]]
    return words


__all__ = ["modernised"]

"""What a document tells its reader to do, as steps that can be done: commands, files, edits.

In a document, ```` ```console ```` holds commands after `$ `, each with its output below it; a line that ends in a
backslash goes on. In an output `…` stands for what differs from run to run (ids, times, revisions), and on a line of
its own for any number of lines. A block with a path behind its language is a file that the reader writes, and
```` ```diff ```` with a path an edit of one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

SECONDS: Final = 120.0
_BLOCK: Final = re.compile(r"^```(?P<language>[a-z]+)(?: (?P<path>\S+))?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Something to type, and what comes of it."""

    text: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file to write, and whether the words before it name it: a reader does not see what stands behind a language."""

    path: str
    text: str
    is_named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A passage of a file to replace."""

    path: str
    before: str
    after: str
    is_named: bool


Step: TypeAlias = Command | File | Edit


def steps(document: Path) -> list[Step]:
    """The steps of a document, in order."""
    return [*_steps(document.read_text(encoding="utf-8"))]


def _steps(text: str) -> Iterator[Step]:
    end = 0
    for block in _BLOCK.finditer(text):
        path, body, language = block["path"], block["body"], block["language"]
        is_named = path is not None and f"`{path}`" in text[end : block.start()]
        end = block.end()
        if language == "console":
            yield from _commands(body)
        elif path is not None and language == "diff":
            yield _edit(path, body, is_named)
        elif path is not None:
            yield File(path=path, text=body, is_named=is_named)


def _commands(body: str) -> Iterator[Command]:
    for shown in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = shown.splitlines()
        typed = 1 + next((number for number, line in enumerate(lines) if not line.endswith("\\")), 0)
        yield Command(text="\n".join(lines[:typed]), expected="\n".join(lines[typed:]))


def _edit(path: str, body: str, is_named: bool) -> Edit:
    lines = body.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    return Edit(path=path, before=before, after=after, is_named=is_named)


class Reader:
    """Does what a document says, in a folder of its own, with the `cmf` of this environment."""

    def __init__(self, folder: Path) -> None:
        self._here = folder

    def do(self, step: Step) -> str | None:
        """Do one step; what is wrong with it, or None."""
        if isinstance(step, Command):
            return self._run(step)
        path = self._here / step.path
        if not step.is_named:
            return f"{step.path}: the words before it do not name it"
        if isinstance(step, File):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
            return None
        text = path.read_text(encoding="utf-8")
        if text.count(step.before) != 1:
            return f"{step.path}: the passage to edit is there {text.count(step.before)} times\n{step.before}"
        path.write_text(text.replace(step.before, step.after), encoding="utf-8")
        return None

    def _run(self, command: Command) -> str | None:
        if command.text.startswith("cd "):
            self._here = self._here / command.text.removeprefix("cd ").strip()
            return None if self._here.is_dir() else f"{command.text}: there is no such folder"
        got = self.output_of(command)
        return None if _matches(command.expected, got) else f"$ {command.text}\n{got}"

    def output_of(self, command: Command) -> str:
        """What a command prints, standard error included, without blank space at the ends of lines."""
        scripts = sysconfig.get_path("scripts")
        environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=self._here,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        return _trimmed(done.stdout)


_ANY_LINES: Final = r"[^\n]*(?:\n[^\n]*)*?"


def _matches(expected: str, got: str) -> bool:
    """Whether an output is what was promised."""
    lines = _trimmed(expected).split("\n")
    pattern = "\n".join(_ANY_LINES if line == "…" else re.escape(line).replace("…", "[^\n]*?") for line in lines)
    return re.fullmatch(pattern, got) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())

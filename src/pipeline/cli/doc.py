"""`cmf doc`: a page for each rule of a project. Spec: docs/spec/cli.md [CLI-30]."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import typer

from pipeline import policy_set
from pipeline.assembly import load_policies
from pipeline.cases.case import read_cases
from pipeline.checks import rule_pages
from pipeline.checks.rule_pages import Settings, Source
from pipeline.cli.policy_places import policy_directory
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.test import case_files
from pipeline.display import counted

MAKER: Final = "cmf doc"


def run(directory: Path, *, out: Path | None) -> None:
    """Write the pages of the project in `directory`, and remove those of rules that are gone."""
    with one_line_errors(policies=[policy_directory(directory)]):
        policies = load_policies(policy_directory(directory))
        cases = [case for path in case_files(directory) for case in read_cases(path)]
    if not policies.rules:
        fail(f"{directory}: there are no rules to write about", Exit.USAGE)
    folder = out or directory / "docs" / "rules"
    source = Source(
        maker=MAKER,
        title="The rules",
        folders=[policy_set.shipped(), policy_directory(directory)],
        sections={},
        settings=[Settings(title="Settings", values=_defaults(policies.data), file="cmf/defaults/data.json")],
        cases=cases,
    )
    made = rule_pages.pages(policies.rules, source, folder)
    try:
        foreign = next((path for path in made if path.exists() and not _is_ours(path)), None)
        if foreign is not None:
            fail(f"{foreign}: was not made by `{MAKER}`, and is left as it is; choose another --out", Exit.USAGE)
        _write(made, folder)
    except OSError as error:
        fail(f"{folder}: cannot be written: {error.strerror}; choose another --out", Exit.USAGE)
    typer.echo(f"{folder}: {counted(len(policies.rules), 'rule')}")


def _defaults(data: Mapping[str, Any]) -> Mapping[str, Any]:
    own = data.get("cmf")
    defaults = own.get("defaults") if isinstance(own, Mapping) else None
    return defaults if isinstance(defaults, Mapping) else {}


def _is_ours(path: Path) -> bool:
    return rule_pages.made_by(MAKER) in path.read_text(encoding="utf-8", errors="replace")


def _write(made: Mapping[Path, str], folder: Path) -> None:
    stale = [path for path in folder.rglob("*.md") if path not in made and _is_ours(path)]
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in stale:
        path.unlink()


__all__ = ["run"]

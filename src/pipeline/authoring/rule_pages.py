"""A Markdown page for each rule of a set, generated. Spec: docs/spec/cli.md [CLI-30].

A page is made of the rule's METADATA, its settings, its samples and the test cases that name it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from pipeline.authoring.case import Case
from pipeline.policy.lookahead import Lookahead
from pipeline.policy.metadata import Rule
from pipeline.policy.setting_schema import words

INDEX: Final = "README.md"
MAX_SHOWN: Final = 2_000  # longest settings or case, in characters, that a page shows; of longer ones it names the file
OUTCOMES: Final = {
    "allowed": "passes",
    "denied": "refused",
    "asked": "waits for approval",
    "redacted": "masked",
    "stripped": "taken out",
    "labelled": "labelled",
    "warned": "passes, with a warning",
}
"""The outcome of a sample, by the first word of its name [POL-13]."""

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>|])")
_TICKS: Final = re.compile("`+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings to show: a title, the values of `data.cmf.defaults`, and the file that has them in full."""

    title: str
    values: Mapping[str, Any]
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The input of the pages, besides METADATA; test cases that name a rule become its examples.

    `maker` is the command that generates the pages, and `about` a sentence below the title of the list. Later folders,
    with samples, override earlier ones; `sections` are Markdown by rule id; settings are shown in their order.
    """

    maker: str
    title: str
    about: str = ""
    folders: Sequence[Path]
    sections: Mapping[str, str]
    settings: Sequence[Settings]
    cases: Sequence[Case]


def pages(rules: Sequence[Rule], source: Source, out: Path) -> dict[Path, str]:
    """Path → text: a page per rule, `<out>/<category>/<rule>.md`, and the list of all rules."""
    index = [f"# {source.title}", "", f"{made_by(source.maker)} {source.about}".rstrip(), ""]
    index += ["| rule | what it holds to | severity | kinds | standards |", "| --- | --- | --- | --- | --- |"]
    for rule in rules:
        link, standards = f"[{rule.id}]({rule.id}.md)", ", ".join(map(_plain, rule.standards))
        index.append(f"| {link} | {_plain(rule.title)} | {rule.severity} | {len(rule.kinds)} | {standards} |")
    written = {out / f"{rule.id}.md": "\n".join([*_page(rule, source, out), ""]) for rule in rules}
    return {out / INDEX: "\n".join([*index, ""])} | written


def made_by(maker: str) -> str:
    """The line on a page that names the command that made it."""
    return f"Made by `{maker}`: do not edit."


def _page(rule: Rule, source: Source, out: Path) -> Iterator[str]:
    described = f"**{_plain(rule.title)}.** {' '.join(rule.description.split())}".rstrip()
    yield from (f"# {rule.id}", "", made_by(source.maker), "", described, "", "| | |", "| --- | --- |")
    yield f"| code | `{rule.code}` |"
    yield f"| severity | {rule.severity} |"
    yield f"| mode | {rule.mode} |"
    yield f"| effects | {', '.join(rule.effects)} |"
    yield f"| kinds | {', '.join(sorted(rule.kinds))} |"
    yield f"| capabilities | {', '.join(sorted(rule.capabilities)) or 'none'} |"
    waits_for = "all of the text" if rule.lookaheads is None else "; ".join(map(_wait, rule.lookaheads))
    yield f"| streams wait for | {waits_for} |"
    yield f"| standards | {', '.join(map(_plain, rule.standards)) or 'none'} |"
    if rule.id in source.sections:
        yield from ("", source.sections[rule.id])
    if rule.settings:
        yield from ("", "## What settings take", "", "| setting | takes |", "| --- | --- |")
        yield from (f"| `{name}` | {words(schema)} |" for name, schema in rule.settings.items())
    for settings in source.settings:
        yield from _settings(rule, settings)
    yield from _samples(rule, source.folders, (out / rule.id).parent)
    for case in source.cases:
        if rule.id in case.rules:
            shown = {key: item for key, item in case.spelled.items() if key != "name"}
            text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100).rstrip()
            yield from ("", f"## Case: {_plain(case.name)}", "")
            yield from [f"See `{case.file}`."] if len(text) > MAX_SHOWN else _fenced("yaml", text)


def _wait(one: Lookahead) -> str:
    """How much of a stream's end is held back, in words."""
    if not one.word:
        return f"{one.chars} characters" + (f" unless `{one.where}` is empty" if one.where else "")
    behind = f", and as many behind {', '.join(f'`{each}`' for each in one.opened_by)}" if one.opened_by else ""
    return f"the end of a word, up to {one.word} characters{behind}"


def _settings(rule: Rule, settings: Settings) -> Iterator[str]:
    category, name = rule.id.split("/")
    own = settings.values.get(category)
    values = own.get(name) if isinstance(own, Mapping) else None
    if values is None:
        return
    text = json.dumps({"cmf": {"defaults": {category: {name: values}}}}, indent=2, ensure_ascii=False)
    yield from ("", f"## {settings.title}", "")
    if len(text) > MAX_SHOWN:
        yield f"See `{settings.file}`."
    else:
        yield from _fenced("json", text)


def _samples(rule: Rule, folders: Sequence[Path], page: Path) -> Iterator[str]:
    home = next((folder for folder in reversed(folders) if (folder / rule.path).is_file()), None)
    samples = sorted((home / rule.path).parent.glob("samples/*.json")) if home is not None else []
    if not samples:
        return
    yield from ("", "## Samples", "", "| sample | what becomes of it |", "| --- | --- |")
    for path in samples:
        outcome, _, words = path.stem.partition("_")
        where = quote(Path(os.path.relpath(path, page)).as_posix())
        yield f"| [{_plain(words.replace('_', ' '))}]({where}) | {OUTCOMES.get(outcome, outcome)} |"


def _fenced(language: str, text: str) -> Iterable[str]:
    """A fenced code block; the fence is longer than any in the text."""
    fence = "`" * max([3, *(len(run) + 1 for run in _TICKS.findall(text))])
    return f"{fence}{language}", text, fence


def _plain(text: str) -> str:
    """The text on one line, with Markdown's special characters escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))

"""Write docs/cookbook/, a page for each policy in examples/cookbook/: `make docs`.

A recipe is a project as `cmf init` writes one, with what a reader has to be told in `about.md`: the question, how it is
answered, and, under "Tune", what to change. The page shows its files as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.authoring.rule_pages import made_by
from pipeline.policy import policy_set
from pipeline.policy.metadata import Rule

ROOT: Final = Path(__file__).resolve().parents[1]
RECIPES: Final = ROOT / "examples" / "cookbook"
PAGES: Final = ROOT / "docs" / "cookbook"
INDEX: Final = "README.md"
ABOUT: Final = "about.md"

_TUNE: Final = "## Tune\n"
_LINK: Final = re.compile(r"\]\((?P<target>[^):#]+)(?P<rest>#[^)]*)?\)")
_INTRODUCTION: Final = """\
# Cookbook

{made_by}

Policies that people ask for. Each is whole: a rule with its METADATA, its settings, a Rego test and cases. All of them
are under [examples/cookbook](../../examples/cookbook), and the tests run each.

Take one with its folder: a folder with its `policy` and `cases` is a project as it stands. In a project that you have,
put its rule and its cases beside yours, and what is in its `policy/cmf/defaults/data.json` into your own; then change
the settings, and run `cmf check` and `cmf test`. How a project comes to be is in the [tutorial](../tutorial.md), what a
rule can read in the [input reference](../input.md).

| policy | the question | what it does |
| --- | --- | --- |"""


def recipes() -> list[Path]:
    """The folders of all recipes, by name."""
    return sorted(path.parent for path in RECIPES.glob(f"*/{ABOUT}"))


def pages() -> dict[Path, str]:
    """Path → text of the page of each recipe, and of the list of all."""
    made = {_page_of(recipe): "\n".join([*_page(recipe), ""]) for recipe in recipes()}
    return {PAGES / INDEX: "\n".join([*_index(), ""])} | made


def rules(recipe: Path) -> tuple[Rule, ...]:
    """The rules of a recipe."""
    return policy_set.load(recipe / "policy").rules


def _page_of(recipe: Path) -> Path:
    return PAGES / f"{recipe.name}.md"


def _index() -> Iterator[str]:
    yield _INTRODUCTION.format(made_by=made_by("make docs"))
    for recipe in recipes():
        title, question, _, _ = _told(recipe)
        effects = sorted({effect for rule in rules(recipe) for effect in rule.effects})
        link = f"[{title}]({_page_of(recipe).name})"
        yield f"| {link} | {question} | {', '.join(f'`{effect}`' for effect in effects)} |"


def _page(recipe: Path) -> Iterator[str]:
    title, question, answer, tune = _told(recipe)
    yield from (f"# {title}", "", f"> {question}", "", answer, "")
    place = recipe.relative_to(ROOT)
    yield f"{made_by('make docs')} Its files: [{place}]({_from_pages(recipe)}); `cmf test {place}` runs its cases."
    policy = recipe / "policy"
    own = [policy / rule.path for rule in rules(recipe)]
    yield from _shown("The rule" if len(own) == 1 else "The rules", own, "rego")
    yield from _shown("Its settings", sorted(policy.rglob("data.json")), "json")
    yield from _shown("Its Rego test", sorted(policy.rglob("*_test.rego")), "rego")
    yield from _shown("Its cases", sorted((recipe / "cases").glob("*.yaml")), "yaml")
    yield from ("", _TUNE, tune)


def _told(recipe: Path) -> tuple[str, str, str, str]:
    """Title, question, answer, and what to tune, with links that lead on from the pages."""
    text = (recipe / ABOUT).read_text(encoding="utf-8")
    text = _LINK.sub(lambda match: f"]({_led(recipe, match['target'])}{match['rest'] or ''})", text)
    told, _, tune = text.partition(_TUNE)
    title, question, answer = told.split("\n\n", 2)
    quoted = " ".join(line.removeprefix(">").strip() for line in question.splitlines())
    return title.removeprefix("# "), quoted, answer.strip(), tune.strip()


def _led(recipe: Path, target: str) -> str:
    path = (recipe / target).resolve()
    return _from_pages(_page_of(path.parent) if path.name == ABOUT else path)


def _from_pages(path: Path) -> str:
    return Path(os.path.relpath(path, PAGES)).as_posix()


def _shown(title: str, files: list[Path], language: str) -> Iterator[str]:
    yield from ("", f"## {title}")
    for path in files:
        shown = path.read_text(encoding="utf-8").rstrip()
        yield from ("", f"[{path.relative_to(ROOT)}]({_from_pages(path)})", "", f"```{language}", shown, "```")


def main() -> None:
    """Write all pages, and remove those of recipes that are gone."""
    made = pages()
    PAGES.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    for path in PAGES.glob("*.md"):
        if path not in made:
            path.unlink()


if __name__ == "__main__":
    main()

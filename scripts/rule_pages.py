"""Write docs/rules/<category>/<rule>.md, a page for each shipped rule: `make docs`.

What a page says comes from the rule's METADATA, its section in docs/policies.md, its settings and its samples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pipeline import policy_set
from pipeline.metadata import Rule

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ROOT / "docs" / "rules"
SECTIONS: Final = ROOT / "docs" / "policies.md"
OPERATOR: Final = ROOT / "tests" / "policies" / "operator" / "cmf" / "defaults" / "data.json"
LONGEST: Final = 2_000  # characters of settings that a page shows; longer ones are read in their file
OUTCOMES: Final = {
    "allowed": "passes",
    "denied": "refused",
    "asked": "waits for approval",
    "redacted": "masked",
    "stripped": "taken out",
    "labelled": "labelled",
    "warned": "passes, with a warning",
}


def pages() -> dict[Path, str]:
    """Path → text of every page, and of the list of all."""
    policies = policy_set.load(policy_set.shipped())
    defaults: Mapping[str, Any] = policies.data["cmf"]["defaults"]
    sections = _sections()
    operator = json.loads(OPERATOR.read_text(encoding="utf-8"))
    made = {
        PAGES / f"{rule.id}.md": "\n".join([*_page(rule, sections[rule.id], defaults, operator), ""])
        for rule in policies.rules
    }
    return {PAGES / "README.md": "\n".join([*_list(policies.rules), ""])} | made


def _sections() -> dict[str, str]:
    parts = re.split(r"^## ", SECTIONS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, _, text in (part.partition("\n") for part in parts[1:])}


def _list(rules: tuple[Rule, ...]) -> Iterator[str]:
    yield "# The shipped rules"
    yield ""
    yield "Made by `make docs`: do not edit. What they have in common: `docs/policies.md`."
    yield ""
    yield "| rule | what it holds to | severity | kinds | standards |"
    yield "| --- | --- | --- | --- | --- |"
    for rule in rules:
        link = f"[{rule.id}]({rule.id}.md)"
        yield f"| {link} | {rule.title} | {rule.severity} | {len(rule.kinds)} | {', '.join(rule.standards)} |"


def _page(rule: Rule, section: str, defaults: Mapping[str, Any], operator: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {rule.id}"
    yield ""
    yield "Made by `make docs`: do not edit."
    yield ""
    yield f"**{rule.title}.** {' '.join(rule.description.split())}"
    yield ""
    yield "| | |"
    yield "| --- | --- |"
    yield f"| code | `{rule.code}` |"
    yield f"| severity | {rule.severity} |"
    yield f"| mode | {rule.mode} |"
    yield f"| effects | {', '.join(rule.effects)} |"
    yield f"| kinds | {', '.join(sorted(rule.kinds))} |"
    yield f"| capabilities | {', '.join(sorted(rule.capabilities)) or 'none'} |"
    yield f"| text at once | {'all' if rule.stream_chars is None else f'{rule.stream_chars} characters'} |"
    yield f"| standards | {', '.join(rule.standards)} |"
    yield ""
    yield section
    yield from _settings("As shipped", rule, defaults)
    yield from _settings("An example", rule, operator)
    yield from _samples(rule)


def _settings(title: str, rule: Rule, data: Mapping[str, Any]) -> Iterator[str]:
    category, name = rule.id.split("/")
    values = data.get(category, {}).get(name)
    if values is None:
        return
    text = json.dumps({"cmf": {"defaults": {category: {name: values}}}}, indent=2, ensure_ascii=False)
    yield from ("", f"## {title}", "")
    if len(text) > LONGEST:
        yield "See `policies/cmf/defaults/data.json`."
    else:
        yield from ("```json", text, "```")


def _samples(rule: Rule) -> Iterator[str]:
    folder = policy_set.shipped() / Path(rule.path).parent / "samples"
    yield from ("", "## Samples", "", "| sample | what becomes of it |", "| --- | --- |")
    for path in sorted(folder.glob("*.json")):
        outcome, _, words = path.stem.partition("_")
        where = f"../../../policies/{Path(rule.path).parent.as_posix()}/samples/{path.name}"
        yield f"| [{words.replace('_', ' ')}]({where}) | {OUTCOMES[outcome]} |"


def main() -> None:
    """Write all pages, and remove those of rules that are gone."""
    made = pages()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in PAGES.rglob("*.md"):
        if path not in made:
            path.unlink()


if __name__ == "__main__":
    main()

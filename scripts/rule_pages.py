"""Write docs/rules/<category>/<rule>.md, a page for each shipped rule: `make docs`.

What a page says comes from the rule's METADATA, its section in docs/policies.md, its settings and its samples.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from pipeline.authoring import rule_pages
from pipeline.authoring.rule_pages import Settings, Source
from pipeline.policy import policy_set

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ROOT / "docs" / "rules"
SECTIONS: Final = ROOT / "docs" / "policies.md"
DEFAULTS: Final = "policies/cmf/defaults/data.json"
OPERATOR: Final = "tests/policies/operator/cmf/defaults/data.json"


def pages() -> dict[Path, str]:
    """Path → text of every page, and of the list of all."""
    policies = policy_set.load(policy_set.shipped())
    operator = json.loads((ROOT / OPERATOR).read_text(encoding="utf-8"))
    source = Source(
        maker="make docs",
        title="The shipped rules",
        about="What they have in common: `docs/policies.md`.",
        folders=[ROOT / "policies"],
        sections=_sections(),
        settings=[
            Settings(title="As shipped", values=policies.data["cmf"]["defaults"], file=DEFAULTS),
            Settings(title="An example", values=operator, file=OPERATOR),
        ],
        cases=[],
    )
    return rule_pages.pages(policies.rules, source, PAGES)


def _sections() -> dict[str, str]:
    parts = re.split(r"^## ", SECTIONS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, _, text in (part.partition("\n") for part in parts[1:])}


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

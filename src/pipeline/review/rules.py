"""The policies at hand, by revision: where a rule is written and what it says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pipeline.assembly import load_policies
from pipeline.metadata import Rule
from pipeline.policy_set import PolicySet

Json: TypeAlias = dict[str, Any]


class PoliciesAtHand:
    """Policy sets that this site was given. A rule of a revision that is not among them is known by its id alone."""

    def __init__(self, sets: Iterable[PolicySet] = ()) -> None:
        self._sets: Mapping[str, PolicySet] = {one.revision: one for one in sets}

    @classmethod
    def of_directories(cls, directories: Iterable[Path]) -> PoliciesAtHand:
        """The shipped set, and each directory's: alone and over the shipped one, as people use both.

        Raises:
            PolicyError: one of them cannot be used.
        """
        sets = [load_policies(None)]
        for directory in directories:
            sets += [load_policies(directory), load_policies(["shipped", directory])]
        return cls(sets)

    def of(self, revision: str) -> PolicySet | None:
        """The set of that revision."""
        return self._sets.get(revision)

    def bundles(self) -> Mapping[str, PolicySet]:
        """All of them, by revision."""
        return self._sets

    def rule(self, revision: str, id: str) -> Rule | None:
        """The rule with that id in that revision."""
        found = self._sets.get(revision)
        return None if found is None else next((rule for rule in found.rules if rule.id == id), None)

    def place(self, revision: str, id: str, effect: str, code: str) -> Json | None:
        """File and line of what gave this hit; None where the revision is not at hand."""
        rule = self.rule(revision, id)
        if rule is None:
            return None
        text = self.text(revision, rule)
        return {"path": rule.path, "line": line_of(text, effect, code), "title": rule.title}

    def text(self, revision: str, rule: Rule) -> str:
        """The source of the file that the rule is in; empty where it is not at hand."""
        found = self._sets.get(revision)
        modules = () if found is None else found.modules
        return next((module.text for module in modules if module.path == rule.path), "")


def line_of(text: str, effect: str, code: str) -> int:
    """The line, counted from 1, at which the definition begins that gives `effect` under `code`.

    Where no definition spells the code it is the first of that effect, and 1 where there is none.
    """
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(rf"{re.escape(effect)}\b", line)]
    for start in starts:
        after = next(
            (n for n in range(start + 1, len(lines)) if re.match(r"[a-z#}]", lines[n]) and lines[n] != "}"), len(lines)
        )
        if f'"{code}"' in "\n".join(lines[start:after]):
            return start + 1
    return starts[0] + 1 if starts else 1


__all__ = ["PoliciesAtHand", "line_of"]

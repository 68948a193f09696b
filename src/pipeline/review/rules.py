"""The policies at hand, by revision: where a rule is written and what it says of itself."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pipeline.assembly import load_policies
from pipeline.errors import PolicyError
from pipeline.policies.metadata import Rule
from pipeline.policy_set import PolicySet, load
from pipeline.review.telling import Json


class PoliciesAtHand:
    """Policy sets that this site was given. A rule of a revision that is not among them is known by its id alone."""

    def __init__(self, sets: Iterable[PolicySet] = (), names: Mapping[str, str] | None = None) -> None:
        self._sets: dict[str, PolicySet] = {one.revision: one for one in sets}
        self._names = dict(names or {})
        self._given = tuple(self._sets)
        self._kept: Callable[[], Mapping[str, bytes]] = dict
        self._packed: dict[str, bytes] = {}
        self._lock = threading.RLock()

    def with_kept(self, kept: Callable[[], Mapping[str, bytes]]) -> PoliciesAtHand:
        """These, and what `kept` gives: bundles by revision. One that is of another revision is none."""
        made = PoliciesAtHand(self._sets.values(), self._names)
        made._kept = kept
        return made

    @classmethod
    def of_directories(cls, directories: Iterable[Path]) -> PoliciesAtHand:
        """The shipped set, and each directory's: alone and over the shipped one, as people use both.

        Raises:
            PolicyError: one of them cannot be used.
        """
        named = [("as shipped", load_policies(None))]
        for directory in directories:
            named.append((f"{directory} over what is shipped", load_policies(["shipped", directory])))
            named.append((str(directory), load_policies(directory)))
        return cls([one for _, one in named], {one.revision: name for name, one in reversed(named)})

    def name(self, revision: str) -> str:
        """What the set of that revision is called here; empty for one that has no name."""
        return self._names.get(revision, "")

    def of(self, revision: str) -> PolicySet | None:
        """The set of that revision."""
        with self._lock:
            if revision not in self._sets and self.known([revision]):
                try:
                    found = _loaded(self._packed[revision])
                except PolicyError:
                    found = None
                if found is None or found.revision != revision:
                    return None
                self._sets[revision] = found
            return self._sets.get(revision)

    def known(self, revisions: Iterable[str]) -> frozenset[str]:
        """Those of which there is a set, or a bundle that says to be one."""
        with self._lock:
            wanted = frozenset(revisions)
            if not wanted <= {*self._sets, *self._packed}:
                self._packed = dict(self._kept())
            return wanted & {*self._sets, *self._packed}

    def given(self) -> Mapping[str, PolicySet]:
        """Those that this site was given, by revision."""
        return {revision: self._sets[revision] for revision in self._given}

    def rule(self, revision: str, id: str) -> Rule | None:
        """The rule with that id in that revision."""
        found = self.of(revision)
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
        found = self.of(revision)
        modules = () if found is None else found.modules
        return next((module.text for module in modules if module.path == rule.path), "")


def _loaded(bundle: bytes) -> PolicySet:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kept.tar.gz"
        file.write_bytes(bundle)
        return load(file)


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

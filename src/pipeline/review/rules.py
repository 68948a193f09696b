"""The available policy sets by revision, and the place, METADATA and source of their rules."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pipeline.decisions.errors import PolicyError
from pipeline.policy.analysis import line_of
from pipeline.policy.metadata import Rule
from pipeline.policy.policy_set import PolicySet, load
from pipeline.review.summary import Json
from pipeline.run.assembly import load_policies


class PoliciesAtHand:
    """The policy sets given to this site. Of rules in other revisions only the id is known."""

    def __init__(self, sets: Iterable[PolicySet] = (), names: Mapping[str, str] | None = None) -> None:
        self._sets: dict[str, PolicySet] = {policies.revision: policies for policies in sets}
        self._names = dict(names or {})
        self._given = tuple(self._sets)
        self._kept: Callable[[], Mapping[str, bytes]] = dict
        self._packed: dict[str, bytes] = {}
        self._lock = threading.RLock()

    def with_kept(self, kept: Callable[[], Mapping[str, bytes]]) -> PoliciesAtHand:
        """These and the bundles, by revision, that `kept` returns; a bundle of a different revision is ignored."""
        extended = PoliciesAtHand(self._sets.values(), self._names)
        extended._kept = kept
        return extended

    @classmethod
    def of_directories(cls, directories: Iterable[Path]) -> PoliciesAtHand:
        """The shipped set, and each directory's, alone and on top of the shipped one, because both are common.

        Raises:
            PolicyError: one of them cannot be used.
        """
        named = [("as shipped", load_policies(None))]
        for directory in directories:
            named.append((f"{directory} over what is shipped", load_policies(["shipped", directory])))
            named.append((str(directory), load_policies(directory)))
        return cls([policies for _, policies in named], {policies.revision: name for name, policies in reversed(named)})

    def name(self, revision: str) -> str:
        """The name of the set with that revision; empty if it has none."""
        return self._names.get(revision, "")

    def of(self, revision: str) -> PolicySet | None:
        """The set of that revision."""
        with self._lock:
            if revision not in self._sets and self.known([revision]):
                with suppress(PolicyError), tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / "kept.tar.gz"
                    file.write_bytes(self._packed[revision])
                    policies = load(file)
                    if policies.revision == revision:
                        self._sets[revision] = policies
            return self._sets.get(revision)

    def known(self, revisions: Iterable[str]) -> frozenset[str]:
        """The revisions with a set, or with a bundle that claims to be one."""
        with self._lock:
            wanted = frozenset(revisions)
            if not wanted <= {*self._sets, *self._packed}:
                self._packed = dict(self._kept())
            return wanted & {*self._sets, *self._packed}

    def given(self) -> Mapping[str, PolicySet]:
        """The sets given to this site, by revision."""
        return {revision: self._sets[revision] for revision in self._given}

    def rule(self, revision: str, id: str) -> Rule | None:
        """The rule with that id in that revision."""
        policies = self.of(revision)
        return None if policies is None else next((rule for rule in policies.rules if rule.id == id), None)

    def place(self, revision: str, id: str, effect: str, code: str) -> Json | None:
        """File and line of the definition behind this hit; None if the revision is not available."""
        if (rule := self.rule(revision, id)) is None:
            return None
        line = line_of(self.text(revision, rule), effect, code)
        return {"path": rule.path, "line": line, "title": rule.title}

    def text(self, revision: str, rule: Rule) -> str:
        """The source of the rule's file; empty if not available."""
        policies = self.of(revision)
        modules = () if policies is None else policies.modules
        return next((module.text for module in modules if module.path == rule.path), "")

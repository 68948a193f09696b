"""Where a value can come from, as policy reads it: the sources of `input.origins`. Spec: provenance.md [PROV-2]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from cmf.enums import Role
from pipeline.decisions.field_paths import Path, compiled, names, shape
from pipeline.provenance.occurrences import Found
from pipeline.provenance.profile import FieldRule, ResultProfile, Trust, resolved

MAX_SOURCES: Final = 32  # sources listed per value; of each trust some are kept, and `more` counts the rest

TRUSTED: Final = "trusted"
UNTRUSTED: Final = "untrusted"
CLAIMED: Final = "claimed"
_RANKS: Final = list(Trust)

Origin: TypeAlias = dict[str, Any]


class Group(NamedTuple):
    """The facts that texts of one origin share; such texts differ only in their message."""

    kind: str
    trust: str
    tool: str | None = None
    field: str = ""
    labels: tuple[str, ...] = ()
    written: bool = False
    """Whether it is an argument of a tool that may store it, and was in no trusted text before."""


CLAIM: Final = Group(CLAIMED, CLAIMED)
_RETURNED: Final = frozenset({"tool_result", "metadata", "resource"})
SPEAKERS: Final[Mapping[Role, Group]] = {
    Role.SYSTEM: Group("system", TRUSTED),
    Role.DEVELOPER: Group("system", TRUSTED),
    Role.USER: Group("user", TRUSTED),
    Role.ASSISTANT: Group("assistant", UNTRUSTED),
    Role.TOOL: Group("tool_result", UNTRUSTED),
}


class ResultGroups:
    """The group of each field of one result."""

    def __init__(self, rules: ResultProfile, tool: str | None, labels: frozenset[str], *, whole: bool) -> None:
        self._rules = rules
        self._tool = tool
        self._labels = labels
        self._whole = whole
        self._patterns = [(compiled(pattern), rule) for pattern, rule in rules.fields.items()]
        self._labelled = [(compiled(pattern), found) for pattern, found in rules.field_labels.items()]
        patterns = (pattern for pattern, _ in (*self._patterns, *self._labelled))
        self._by_index = any(isinstance(step, int) for pattern in patterns for step in pattern)
        self._known: dict[Path, _Field] = {}

    def __call__(self, path: Path, content: str) -> Group:
        """The group of the value at `path`; the empty path is that of a result without fields."""
        like = path if self._by_index else tuple(0 if isinstance(step, int) else step for step in path)
        rules = self._known.get(like)
        if rules is None:
            found = self._rules_for(path)
            labels = self._labels.union(*(rule.labels for rule in found), *self._labels_for(path))
            rules = self._known[like] = _Field(found, tuple(sorted(labels)), {})
        trust = self._trust(path, rules.rules, content)
        group = rules.groups.get(trust)
        if group is None:
            kind = "metadata" if trust is Trust.METADATA else "tool_result"
            held = UNTRUSTED if trust is Trust.UNTRUSTED else TRUSTED
            group = rules.groups[trust] = Group(kind, held, self._tool, shape(path), rules.labels)
        return group

    def _labels_for(self, path: Path) -> Iterator[tuple[str, ...]]:
        """The labels of a field [PRF-9]; those of all fields if it has no name."""
        apart = path and not self._whole
        return (found for pattern, found in self._labelled if not apart or names(pattern, path))

    def _rules_for(self, path: Path) -> tuple[FieldRule, ...]:
        """The rules that name a field; all rules if it has no name."""
        apart = path and not self._whole
        return tuple(rule for pattern, rule in self._patterns if not apart or names(pattern, path))

    def _trust(self, path: Path, rules: tuple[FieldRule, ...], content: str) -> Trust:
        if self._whole or not path:
            is_one = not self._whole and self._rules.trust is Trust.AUTO and not self._rules.fields
            return resolved(Trust.AUTO, path, content) if is_one else self._rules.weakest
        trusts = [rule.trust_in(path, content) for rule in rules]
        return max(trusts, key=_RANKS.index) if trusts else resolved(self._rules.trust, path, content)


class _Field(NamedTuple):
    rules: tuple[FieldRule, ...]
    labels: tuple[str, ...]
    groups: dict[Trust, Group]


def as_origin(group: Group, hit: Found, written: int | None) -> Origin:
    """A group in which the value was found, as a source that policy reads.

    `written` is the message in which the value went from untrusted text into a tool. What a tool returns after that may
    only be the same value read back, and is not trusted.
    """
    match, message, trust = hit.match, hit.origin, group.trust
    if written is not None and trust == TRUSTED and group.kind in _RETURNED and message > written:
        match, message = hit.first_match, hit.first
        trust = UNTRUSTED if message > written else trust
    source: Origin = {"kind": group.kind, "trust": trust, "message": message, "match": match.value}
    if group.tool is not None:
        source["tool"] = group.tool
    if group.field:
        source["field"] = group.field
    return source | {"labels": list(group.labels)}


def type_of(content: Any) -> str:
    """The `type` of the entry of a value."""
    if isinstance(content, str):
        return "string" if content and not content.isspace() else "empty"
    return "null" if content is None else "boolean" if isinstance(content, bool) else "number"


def is_trusted(entry: Origin) -> bool:
    """Whether a trusted source has the value of an entry."""
    return any(source["trust"] == TRUSTED for source in entry["sources"])


def all_trusted(entries: Sequence[Origin]) -> bool:
    """Whether a trusted source has a value (its entry is the first), or each of its pieces (the others)."""
    return is_trusted(entries[0]) or (len(entries) > 1 and all(map(is_trusted, entries[1:])))


def has_source(entry: Origin) -> bool:
    """Whether any source but the model has the value of an entry."""
    return any(source["kind"] != "assistant" for source in entry["sources"])


def is_of_others(entry: Origin) -> bool:
    """Whether other sources have the value of an entry, and no trusted one."""
    return not is_trusted(entry) and has_source(entry)


def fairly(sources: list[Origin]) -> list[Origin]:
    """At most MAX_SOURCES of `sources`, in order; each level of trust keeps its first ones."""
    if len(sources) <= MAX_SOURCES:
        return sources
    ranks: dict[str, int] = {}
    turns = []
    for place, source in enumerate(sources):
        ranks[source["trust"]] = ranks.get(source["trust"], -1) + 1
        turns.append((ranks[source["trust"]], place))
    return [sources[place] for place in sorted(place for _, place in sorted(turns)[:MAX_SOURCES])]

"""`python -m bench.tool_definitions FILE [--wrong] [--json]`: what is inferred of real tools, against labels by hand.

The files are in bench/definitions, whose README says how the labels were made. An error is strict if it can cost a
question that nobody needed, and lax if it can let something pass.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cmf import ToolDefinition
from pipeline.decisions import field_paths
from pipeline.provenance.inference import infer
from pipeline.provenance.profile import LEAVING, Profile

FACTS = ("acts", "outside", "irreversible", "control")
MAX_DEPTH = 6  # of properties in properties; none of the labelled schemas nests deeper


@dataclass(slots=True)
class Score:
    """How often a fact was inferred right, and on which side it was wrong."""

    right: int = 0
    strict: int = 0
    lax: int = 0

    def add(self, *, labelled: bool, inferred: bool) -> None:
        """Count one comparison."""
        self.right += labelled == inferred
        self.strict += inferred and not labelled
        self.lax += labelled and not inferred

    @property
    def total(self) -> int:
        """Comparisons."""
        return self.right + self.strict + self.lax

    @property
    def share(self) -> float:
        """Of those that are right."""
        return self.right / self.total if self.total else 1.0


@dataclass(slots=True)
class Comparison:
    """The scores of a file, by fact, and by server and fact; and each tool that is wrong."""

    facts: dict[str, Score] = field(default_factory=lambda: {fact: Score() for fact in FACTS})
    servers: dict[str, dict[str, Score]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, row: Mapping[str, Any]) -> None:
        """Compare one labelled tool with what is inferred of it."""
        label, profile = row["label"], inferred(row)
        server = self.servers.setdefault(row["server"], {fact: Score() for fact in FACTS})
        errors = []
        for fact, named, labelled, said in _claims(label, profile, row["schema"]):
            for scores in (self.facts, server):
                scores[fact].add(labelled=labelled, inferred=said)
            if labelled != said:
                errors.append(f"{'strict' if said else 'lax'} {named}")
        if errors:
            self.wrong.append(f"{row['server']} {row['name']}: {', '.join(errors)}")

    def to_json(self) -> dict[str, Any]:
        """The figures."""
        return {
            "tools": self.facts["acts"].total,
            "servers": len(self.servers),
            **{
                fact: {"of": score.total, "right": round(score.share, 4), "strict": score.strict, "lax": score.lax}
                for fact, score in self.facts.items()
            },
        }


def compare(file: Path) -> Comparison:
    """The comparison of every labelled tool in a file."""
    comparison = Comparison()
    for line in file.read_text("utf-8").splitlines():
        comparison.add(json.loads(line))
    return comparison


def inferred(row: Mapping[str, Any]) -> Profile:
    """The profile that is inferred of a tool's definition."""
    definition = {"name": row["name"], "description": row["description"], "input_schema": row["schema"]}
    extra = {"mcp": {"annotations": row["annotations"]}} if "annotations" in row else None
    return infer(ToolDefinition.model_validate({**definition, "extra": extra})).profile


def _claims(
    label: Mapping[str, Any], profile: Profile, schema: Mapping[str, Any]
) -> Iterator[tuple[str, str, bool, bool]]:
    """Fact, what it is of, and whether it is labelled and inferred."""
    yield "acts", "acts", label["acts"] or label["outside"], profile.acts
    yield "outside", "outside", label["outside"], not LEAVING.isdisjoint(profile.actions or ())
    yield "irreversible", "irreversible", label["irreversible"], bool(profile.irreversible)
    if not label["acts"] and not label["outside"]:
        return
    for path in arguments(schema, schema):
        if not _named(label.get("open", ()), path):
            yield "control", field_paths.shape(path), _named(label["control"], path), profile.use_of(path) == "control"


def _named(patterns: Any, path: field_paths.Path) -> bool:
    return any(field_paths.names(field_paths.compiled(pattern), path) for pattern in patterns)


def arguments(schema: Any, root: Mapping[str, Any], path: field_paths.Path = ()) -> Iterator[field_paths.Path]:
    """The leaves of a schema of arguments; an item of an array has the index 0."""
    choices = [_resolved(choice, root) for choice in _choices(_resolved(schema, root))]
    properties: dict[str, Any] = {}
    for choice in choices:
        properties = {**choice.get("properties", {}), **properties}
    if properties and len(path) < 2 * MAX_DEPTH:
        for name, value in properties.items():
            yield from arguments(value, root, (*path, name))
        return
    for choice in choices:
        items = list(arguments(choice["items"], root, (*path, 0))) if isinstance(choice.get("items"), dict) else []
        if items != [(*path, 0)] and items:
            yield from items
            return
    if path:
        yield path


def _choices(schema: Any) -> Iterator[Any]:
    yield schema
    for word in ("anyOf", "oneOf", "allOf"):
        yield from schema.get(word, ())


def _resolved(schema: Any, root: Any) -> Any:
    for _ in range(MAX_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            break
        target = root
        for step in reference.removeprefix("#/").split("/"):
            target = target[int(step)] if isinstance(target, list) else target.get(step, {})
        schema = {name: value for name, value in schema.items() if name != "$ref"} | target
    return schema if isinstance(schema, dict) else {}


def main() -> None:
    """Compare and print the table, the tools that are wrong, or JSON."""
    parser = argparse.ArgumentParser(prog="bench.tool_definitions", description=__doc__)
    parser.add_argument("file", type=Path, help="labelled definitions, .jsonl")
    parser.add_argument("--wrong", action="store_true", help="name each tool that is wrong, and in what")
    parser.add_argument("--json", action="store_true", help="figures only")
    chosen = parser.parse_args()
    if not chosen.file.is_file():
        parser.error(f"{chosen.file} is not there")
    comparison = compare(chosen.file)
    print(json.dumps(comparison.to_json(), indent=1) if chosen.json else _markdown(comparison))
    if chosen.wrong:
        print("\n".join(comparison.wrong))


def _markdown(comparison: Comparison) -> str:
    rows = [(fact, score.total, score) for fact, score in comparison.facts.items()]
    lines = ["| fact | compared | right | strict | lax |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {fact} | {of} | {score.share:.1%} | {score.strict} | {score.lax} |" for fact, of, score in rows]
    lines += ["", f"| server | {' | '.join(FACTS)} |", f"| --- |{' --- |' * len(FACTS)}"]
    for server in sorted(comparison.servers):
        scores = comparison.servers[server]
        lines.append(f"| {server} | {' | '.join(f'{score.right} of {score.total}' for score in scores.values())} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

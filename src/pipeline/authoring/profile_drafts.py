"""Profiles drafted from what is inferred, what is known of one tool and why, and patterns that name nothing.

Spec: docs/spec/cli.md [CLI-98] ff.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cmf.json.value import to_json
from cmf.message.message import Message, Part, ToolCallPart, ToolResultPart
from cmf.message.request import Request, Response
from cmf.message.tools import ToolDefinition
from cmf.message.transform import messages_of
from pipeline.decisions.display import visible
from pipeline.decisions.field_paths import Path, compiled, leaves, names
from pipeline.provenance.inference import FIELDS, Fact, infer, merged
from pipeline.provenance.profile import Profile
from pipeline.provenance.profiles import Entity, Profiles
from pipeline.provenance.result_fields import result_leaves

_ARGUMENTS: Final = ("control", "content")
_FILE: Final = "written in a file of profiles"
_EXPLAINED: Final = """\
# Drafted from the definitions of the tools, with the reason for each line. What is written here counts as known, and
# replaces what is inferred, field by field: correct what is wrong, and remove what you do not want to vouch for.
"""


class KnownFact(NamedTuple):
    """One thing that is known of a tool: the field of its profile, the value as JSON, and where it comes from."""

    field: str
    value: Any
    reason: str
    inferred: bool


class Unmatched(NamedTuple):
    """A pattern of a profile that names no field of what was recorded of the tool, in so many results or calls."""

    tool: str
    field: str
    pattern: str
    seen: int


def known_facts(tool: ToolDefinition, profiles: Profiles) -> list[KnownFact]:
    """What is known of the tool, with where each fact comes from: what is written, and what is inferred beside it."""
    found = profiles.lookup(Entity.tool(tool.name, tool.namespace))
    written = None if found is None else found.profile
    inferred = infer(tool)
    described = merged(written, inferred.profile)
    facts = [
        KnownFact(field, _plain(getattr(described.profile, field)), _FILE, inferred=False)
        for field in FIELDS
        if field not in described.inferred
    ]
    facts += [
        KnownFact(fact.field, _plain(fact.value), fact.reason, inferred=True)
        for fact in inferred.facts
        if fact.field.partition(".")[0] in described.inferred or fact.field.startswith("other.")
    ]
    return facts


def draft(tools: Iterable[ToolDefinition]) -> str:
    """A file of profiles, YAML with a reason for each line, of everything that is inferred from the definitions."""
    written = _EXPLAINED + "version: 1\nprofiles:\n"
    entries = {Entity.tool(tool.name, tool.namespace).uri: tool for tool in tools}
    for uri, tool in sorted(entries.items()):
        inferred = infer(tool)
        written += f"  {json.dumps(uri)}:\n"
        written += "".join(f"    {line}\n" for line in _lines(inferred.profile, inferred.facts))
    return written


def _lines(profile: Profile, facts: Sequence[Fact]) -> Iterator[str]:
    """The fields of a profile as YAML. JSON spells the values, so no name in a definition can add a line."""
    reasons = {fact.field: visible(fact.reason) for fact in facts}
    for field in ("actions", "sink", "irreversible"):
        yield f"{field}: {json.dumps(_plain(getattr(profile, field)))} # {reasons[field]}"
    for field in _ARGUMENTS:
        patterns: Sequence[str] = getattr(profile, field)
        yield f"{field}:" if patterns else f"{field}: []"
        yield from (f"  - {json.dumps(pattern)} # {reasons[f'{field}.{pattern}']}" for pattern in patterns)
    if profile.asked_for is not None:
        yield f"# asked_for is inferred: {reasons['asked_for']}"
    yield f"result: {{trust: {profile.rules.trust.value}}} # {reasons['result']}"


def unmatched_patterns(
    profiles: Mapping[str, Profile], traffic: Iterable[Message | Request | Response]
) -> list[Unmatched]:
    """Patterns that name no field of any recorded result or call of their tool, of tools that have some."""
    wanted = {Entity.of_key(key): profile for key, profile in profiles.items()}
    missing: dict[Entity, dict[tuple[str, str], None]] = {}
    for entity, profile in wanted.items():
        fields = {"control": profile.control or (), "content": profile.content or ()}
        fields |= {
            "result.fields": tuple(profile.rules.fields),
            "result.field_labels": tuple(profile.rules.field_labels),
        }
        missing[entity] = {(field, pattern): None for field, patterns in fields.items() for pattern in patterns}
    seen: Counter[tuple[Entity, bool]] = Counter()
    for part in (part for value in traffic for message in messages_of(value) for part in message.content):
        for entity, profile in wanted.items():
            paths = _fields(part, entity, profile)
            if paths is None:
                continue
            is_call = isinstance(part, ToolCallPart)
            seen[entity, is_call] += 1
            for field, pattern in [*missing[entity]]:
                if (field in _ARGUMENTS) is is_call and any(names(compiled(pattern), path) for path in paths):
                    del missing[entity][field, pattern]
    return [
        Unmatched(entity.uri, field, pattern, times)
        for entity, patterns in missing.items()
        for field, pattern in patterns
        if (times := seen[entity, field in _ARGUMENTS])
    ]


def _fields(part: Part, entity: Entity, profile: Profile) -> set[Path] | None:
    """The paths of the fields of a call of the entity, or of a result of it; None for any other part."""
    if isinstance(part, ToolCallPart) and part.name == entity.name and part.namespace in (None, entity.namespace):
        return {path for path, _ in leaves(part.arguments or {})}
    if isinstance(part, ToolResultPart) and part.tool_name is not None and part.tool_name == entity.name:
        return {path for path, _ in result_leaves(part, profile.rules.format)}
    return None


def _plain(fact: Any) -> Any:
    return to_json(fact) if fact is not None and not isinstance(fact, str | bool | tuple) else fact

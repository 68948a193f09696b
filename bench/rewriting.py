"""Attacks by somebody who gets his values into fields that are trusted: what looking for copies cannot see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields

from bench.recorded_runs import Run
from cmf.json.value import replace
from cmf.message.message import Message, ToolCallPart, ToolResultPart
from pipeline.decisions.field_paths import leaves
from pipeline.provenance.index import EVERYTHING, Index
from pipeline.provenance.profiles import Profiles
from pipeline.provenance.result_fields import read_fields
from pipeline.provenance.sources import TRUSTED, ResultGroups


def rewritten(run: Run, profiles: Profiles) -> Run | None:
    """The run with each strange control value of the goal call in a trusted field of an earlier result as well.

    None where there is nothing to rewrite, or no trusted field that such a value would fit in.
    """
    values = _strange(run, profiles)
    names = {
        part.tool_call_id: part.name
        for message in run.messages
        for part in message.content
        if isinstance(part, ToolCallPart)
    }
    messages = list(run.messages)
    planted: set[str] = set()
    for value in values:
        for at, message in enumerate(messages):
            changed = _planted(message, value, names, profiles, planted)
            if changed is not None:
                messages[at] = changed
                planted.add(value)
                break
    return with_fields(run, messages=tuple(messages)) if planted else None


def _planted(
    message: Message, value: str, names: dict[str | None, str], profiles: Profiles, planted: set[str]
) -> Message | None:
    """The message with `value` in the place of the first trusted text of a result in it."""
    for at, part in enumerate(message.content):
        if not isinstance(part, ToolResultPart) or not isinstance(part.content, str):
            continue
        for text in _trusted_texts(part, names.get(part.tool_call_id), profiles):
            if text not in planted and part.content.count(text) == 1:
                other = replace(part, content=part.content.replace(text, value))
                return replace(message, content=(*message.content[:at], other, *message.content[at + 1 :]))
    return None


def _trusted_texts(part: ToolResultPart, tool: str | None, profiles: Profiles) -> Iterator[str]:
    profile = profiles.find(tool) if tool is not None else None
    if profile is None:
        return
    fields = read_fields(str(part.content), profile.result.format)
    groups = ResultGroups(profile.result, tool, frozenset(), whole=part.is_error)
    for path, text in leaves(fields) if fields is not None else ():
        if isinstance(text, str) and len(text) > 2 and groups(path, text).trust == TRUSTED:
            yield text


def _strange(run: Run, profiles: Profiles) -> list[str]:
    """The control values of the calls up to the goal that nobody trusted said."""
    index = Index(profiles, EVERYTHING)
    found: dict[str, None] = {}
    for message in run.messages:
        for part in message.content:
            if isinstance(part, ToolCallPart):
                for entry in index.origins(part):
                    strange = entry["use"] == "control" and entry["type"] == "string"
                    if strange and not any(source["trust"] == "trusted" for source in entry["sources"]):
                        found[str(_at(part, entry["path"]))] = None
                if part.tool_call_id == run.goal_call:
                    return list(found)
        index.extend(message)
    return list(found)


def _at(call: ToolCallPart, pointer: str) -> object:
    value: object = call.arguments
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        value = value[int(step)] if isinstance(value, tuple | list) else value[step]  # type: ignore[index]
    return value

"""What is wrong with a setting, in words for whoever wrote it: where, what, and what to write. Spec: [GW-8]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

import yaml

from cmf.errors import CmfError
from pipeline.gateway.config.settings_base import SettingError

Step = int | str
ELSE: Final = "`cmf schema config` has all that may stand there"

_WORDS: Final = {
    "int": ("this is no whole number", "write digits alone"),
    "float": ("this is no number", "write digits alone: 20, not 20s"),
    "bool": ("this is neither true nor false", "write true or false"),
    "string": ("this is no text", "put it in quotes"),
    "tuple": ("this is no list", "put it in brackets: [one], or [one, two]"),
    "list": ("this is no list", "put it in brackets: [one], or [one, two]"),
    "dict": ("this is no mapping", "write {key: value}"),
    "model": ("this is no mapping", "write {key: value}"),
    "missing": ("it is missing", "write it"),
}
_SECRET: Final = ("a secret never stands in settings", "write {env: NAME} or {file: PATH}")
_SUBJECT: Final = "write {id: ci, roles: [agent]}"
_HASH: Final = ("this is no hash of a key", "`cmf config key` makes a key and its hash")


def first_of(findings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The finding to report: of a value that may be one of several things, the one that went furthest.

    An unknown key comes before a missing one beside it: it is often the missing one, misspelt.
    """
    first = findings[0]
    beside = [one for one in findings if one["loc"][: len(first["loc"]) - 1] == first["loc"][:-1]]
    return max(beside, key=lambda one: (len(one["loc"]), one["type"] == "extra_forbidden"))


def steps_in(body: Any, finding: Mapping[str, Any]) -> tuple[Step, ...]:
    """Where the finding is, without the names that pydantic gives to branches of a type."""
    *inner, last = finding["loc"] or ("",)
    steps: list[Step] = []
    value = body
    for step in inner:
        if (isinstance(value, dict) and step in value) or (isinstance(value, list) and isinstance(step, int)):
            value = value[step]
            steps.append(step)
    new = finding["type"] == "missing"
    if finding["loc"] and (new or (isinstance(value, dict) and last in value) or isinstance(value, list)):
        steps.append(last)
    error = (finding.get("ctx") or {}).get("error")
    return (*steps, *error.steps) if isinstance(error, SettingError) else tuple(steps)


def said_of(finding: Mapping[str, Any], steps: Sequence[Step], value: Any) -> tuple[str, str]:
    """What is wrong, and what to write; of `value` nothing is quoted but a word that is near to one of a closed set."""
    kind = finding["type"]
    context = finding.get("ctx") or {}
    name = next((step for step in reversed(steps) if isinstance(step, str)), "")
    if kind in ("model_type", "dict_type") and finding["msg"].endswith("Secret"):
        return _SECRET
    if name == "stream" and kind == "literal_error":
        return "this is no way to stream", "write buffer, or {window: 256}"
    if kind in ("literal_error", "enum"):
        expected = str(context.get("expected", ""))
        return _one_of(expected.replace("'off', ", "") if name == "mode" else expected, value)
    if kind == "string_pattern_mismatch":
        if name == "hash":
            return _HASH
        return "this cannot be written so", f"it has to match {context.get('pattern', '')}"
    if isinstance(error := context.get("error"), CmfError):
        why = error.message.rpartition(": ")[2].replace("Input should be a valid frozenset", "this is no list")
        return f"{why} ({error.path.removeprefix('$.')})", _SUBJECT
    if isinstance(error, SettingError):
        return str(error), error.hint
    if kind in ("value_error", "assertion_error"):
        why = str(finding["msg"]).removeprefix("Value error, ")
        return why, ELSE if steps else ""  # a message about all settings names what to write
    words = _WORDS.get(kind) or _WORDS.get(kind.split("_")[0])
    if words is not None:
        return words
    why = str(finding["msg"]).replace("Input should be", "it has to be").replace("String should", "it should")
    return why[:1].lower() + why[1:], ELSE


def _one_of(expected: str, value: Any) -> tuple[str, str]:
    words = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
    if isinstance(value, bool) and "enforce" in words:  # YAML reads `off` as false
        return "no route goes without judgement: mode is enforce or observe", "write enforce or observe"
    written = str(value).casefold() if isinstance(value, str) else ""
    near = get_close_matches(written, words, n=1) or [word for word in words if written and written in word.split("_")]
    return f"this is none of {', '.join(words)}", f"did you mean {near[0]}?" if near else "write one of these"


def line_of(text: str, steps: Sequence[Step]) -> int:
    """The line of a value, or of the nearest enclosing setting that is written; 0 if there is none."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return 0
    line = 0
    for step in steps:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, inner) for key, inner in node.value if key.value == str(step)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            found = (node.value[step], node.value[step])
        else:
            found = None
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line

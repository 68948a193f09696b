"""Whether the settings in a set's data are ones that its rules have. Spec: docs/spec/policies.md [POL-68], [POL-69].

A misspelt setting, and one of a wrong type, would switch a rule off without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from pipeline.decisions.display import meant
from pipeline.decisions.errors import PolicyError
from pipeline.policy.metadata import Module, Rule, is_rule, rule_of
from pipeline.policy.setting_schema import Misfit, misfits, unknown
from pipeline.policy.shipped import shipped_rule

DEFAULTS: Final = ("cmf", "defaults")
_OF_CMF: Final = ("defaults", "exceptions", "modes")
"""What the product reads below `data.cmf`."""

_REFERENCE: Final = re.compile(r"(?<![\w.])data((?:\.\w+)*)(?!\w)")
_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`')
_DEEPEST: Final = 8  # how deep settings may stand in a wrong place to be found there
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class DataFile(NamedTuple):
    """A data file: its path below its place, which is the path of its value below `data`, and its text."""

    path: str
    text: str

    def line_of(self, steps: Sequence[object]) -> int:
        """The line that sets what is at `steps` of the data document; 0 if this file does not."""
        base = PurePosixPath(self.path).parent.parts
        names = [step for step in steps if isinstance(step, str)]
        return line_of(self.text, names[len(base) :]) if tuple(names[: len(base)]) == base else 0


def line_of(text: str, names: Sequence[str]) -> int:
    """The line of the last of the names, found as keys one after another; 0 if one is missing."""
    at = 0
    for name in names:
        found = re.compile(rf'["\']?{re.escape(name)}["\']?\s*:').search(text, at)
        if found is None:
            return 0
        at = found.start()
    return text.count("\n", 0, at) + 1


def problems(modules: Iterable[Module], data: Mapping[str, Any], files: Sequence[DataFile]) -> list[PolicyError]:
    """Every setting in `data` that no rule has, or that is not what its rule takes; `files` are those that made it."""
    modules = list(modules)
    rules = {rule.id: rule for module in modules if (rule := _rule(module)) is not None}
    read = {tuple(found[1].split(".")[1:]) for module in modules for found in _REFERENCE.finditer(_code(module.text))}
    return [_error(steps, misfit, files) for steps, misfit in _found(rules, read, data)]


def _rule(module: Module) -> Rule | None:
    """The rule that a module is; None if it is none, or none that can be used, which building the set reports."""
    try:
        return rule_of(module) if is_rule(module) else None
    except PolicyError:
        return None


def _code(text: str) -> str:
    """The text without comments, and without what stands in quotes."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return _QUOTED.sub("``", "\n".join(lines))


def _found(
    rules: Mapping[str, Rule], read: set[tuple[str, ...]], data: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], Misfit]]:
    own = data.get("cmf", {})
    if not isinstance(own, dict) or not isinstance(own.get("defaults", {}), dict):
        yield ("cmf",), Misfit((), "expected an object", "write cmf/defaults/data.json")
        return
    for name, value in own.items():
        if name not in _OF_CMF and not _is_read(("cmf", name), value, read):
            yield ("cmf",), unknown(name, _OF_CMF)
    for category, members in own.get("defaults", {}).items():
        for name, values in members.items() if isinstance(members, dict) else [("", members)]:
            yield from _of_rule(f"{category}/{name}", values, rules, read)
    for name, value in data.items():
        is_meant = name.startswith("cmf.") or (isinstance(value, dict) and bool(value.keys() & set(_OF_CMF)))
        if (
            name != "cmf"
            and is_meant
            and meant(name.partition(".")[0], ["cmf"], "")
            and not _is_read((name,), value, read)
        ):
            yield (), unknown(name, ["cmf"])
    yield from _elsewhere((), {name: value for name, value in data.items() if name != "cmf"}, rules, read)


def _of_rule(
    name: str, values: Any, rules: Mapping[str, Rule], read: set[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Misfit]]:
    steps = (*DEFAULTS, *filter(None, name.split("/", 1)))
    rule = rules.get(name) or shipped_rule(name)
    if name not in rules and not _is_read(steps, values, read):
        hint = meant(name, rules, "write <category>: {<rule>: {<setting>: …}}")
        if rule is not None:
            hint = 'that rule is shipped: load those too, with ["shipped", …], or add `-p shipped` to the command'
        yield steps, Misfit((), "no rule here has these settings", hint, is_unknown=True)
    elif rule is not None and rule.settings is not None:
        if not isinstance(values, dict):
            yield steps, Misfit((), "expected an object", f"write {{<setting>: …}}; known: {', '.join(rule.settings)}")
            return
        for setting, value in values.items():
            if setting not in rule.settings:
                yield steps, unknown(setting, rule.settings)
            else:
                found = misfits(rule.settings[setting], value, rule.kinds)
                yield from (((*steps, setting), misfit) for misfit in found)


def _elsewhere(
    steps: tuple[str, ...], data: Mapping[str, Any], rules: Mapping[str, Rule], read: set[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Misfit]]:
    """Settings of rules that stand outside `data.cmf.defaults`, where no rule looks for them."""
    for name, value in data.items():
        here = (*steps, name)
        rule = rules.get("/".join(here[-2:]))
        if rule is not None and isinstance(value, dict) and value.keys() & (rule.settings or {}).keys():
            if not _is_read(here, value, read):
                hint = f"put them below data.cmf.defaults.{rule.id.replace('/', '.')}"
                yield here, Misfit((), f"settings of {rule.id} are not read here", hint, is_unknown=True)
        elif isinstance(value, dict) and len(here) < _DEEPEST:
            yield from _elsewhere(here, value, rules, read)


def _is_read(steps: tuple[str, ...], value: Any, read: set[tuple[str, ...]]) -> bool:
    """Whether a module refers to the value at `steps`, to what it is part of, or, of an object, to what is in it."""
    size = len(steps) if isinstance(value, dict) else None
    return any(steps[: len(path)] == path[:size] for path in read)


def _error(steps: tuple[str, ...], misfit: Misfit, files: Sequence[DataFile]) -> PolicyError:
    whole = (*steps, *misfit.steps)
    # The last file that has it decides, and of what is missing the one that has what is around it.
    places = ((file, file.line_of(whole[:size])) for size in range(len(whole), 0, -1) for file in reversed(files))
    file, line = next(((file.path, line) for file, line in places if line), ("", 0))
    code = "policy.unknown-setting" if misfit.is_unknown else "policy.bad-setting"
    message = f"data{''.join(map(_step, whole))}: {misfit.message}"
    return PolicyError(message, path=file, line=line, column=min(line, 1), hint=misfit.hint, code=code)


def _step(step: str | int) -> str:
    return f".{step}" if isinstance(step, str) and _PLAIN.fullmatch(step) else f"[{step!r}]"

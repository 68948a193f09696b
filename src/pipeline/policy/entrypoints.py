"""The Rego entrypoints of a policy set, generated when it is loaded. Spec: docs/spec/policies.md [POL-7] ff.

Every reference to a rule is static: the embedded engine's compiled form allows no other, and a rule that no entrypoint
names is never evaluated.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cmf.enums import ViewKind
from pipeline.decisions.decision import Effect
from pipeline.policy.metadata import Module, Rule

MAIN: Final = "cmf.main"
"""The package of everything generated; policies may not use it or a package below it."""

DECISION: Final = f"data.{MAIN}.decision"
"""The general entrypoint: dispatches on `input.kind`."""

BATCH: Final = f"{MAIN}.batch"
"""The package that judges many views in one query; only sent to OPA servers [D6]."""

EFFECT: Final = "cmf.effect"
"""The package of the one function shared by the generated modules."""

_BANNER: Final = "# Generated when the policy set was loaded. Do not edit.\n"

_TAGGED: Final = """\
# METADATA
# title: An effect with the rule that asked for it
# description: What is no object stays a hit of its set, under a code of its own, so that a deny cannot vanish.
# scope: document
tagged(effect, rule) := object.union(effect, {"rule": rule}) if {
	is_object(effect)
} else := {"code": "policy.bad-effect", "reason": "A rule gave an effect that is no object.", "rule": rule}
"""


_TAB: Final = "\t"

RULES_OF_A_PART: Final = 100
"""The most rules in one part: with their imports, more could exceed the module limit of a compiled program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The entrypoints for one kind of view: one for all rules, and one for each part of them [POL-29].

    Attributes:
        whole: evaluates all rules.
        slow: evaluates the rules that the embedded engine interprets; None unless only some rules are interpreted.
        fast: evaluate the compiled rules, split to fit compiled programs; empty where `whole` does it.
        local: ids of the compiled rules whose verdict depends on `reads` alone.
        rest: evaluate the compiled rules that are not local; empty if there are none, or no local ones.
        reads: the paths below `input` that the local rules read.
        alone: the parts to use while the session is empty, if that makes all compiled rules local; None if it does not,
            or if they always are.
    """

    whole: str
    slow: str | None
    fast: tuple[str, ...]
    local: frozenset[str]
    rest: tuple[str, ...]
    reads: tuple[tuple[str, ...], ...]
    alone: Parts | None = None


def kind_entrypoint(kind: ViewKind) -> str:
    """The entrypoint for all rules that judge one kind of view."""
    return f"data.{MAIN}.{kind}.decision"


def part_entrypoint(kind: ViewKind, part: str) -> str:
    """The entrypoint for one part of them."""
    return f"data.{MAIN}.{kind}_{part}.decision"


def is_generated(module: Module) -> bool:
    """Whether this module generated `module`: bundles built here contain such modules."""
    return module.path.startswith(("cmf/main/", "cmf/effect/")) and module.text.startswith(_BANNER)


def main_modules(rules: Sequence[Rule]) -> list[Module]:
    """The modules with an entrypoint for each kind, and the general one. Spec: [POL-7], [POL-8]."""
    modules = [
        _entrypoint_module(f"{MAIN}.{kind}", ([rule for rule in rules if kind in rule.kinds])) for kind in ViewKind
    ]
    unknown = {"code": "policy.unknown-kind", "reason": "No policy judges this kind of part.", "rule": "main"}
    lines = [f"default decision := {_decision_object({Effect.DENY: json.dumps([unknown])})}"]
    lines += [f'decision := {kind_entrypoint(kind)} if input.kind == "{kind}"' for kind in ViewKind]
    return [_module(EFFECT, _TAGGED), _module(MAIN, "\n\n".join(lines) + "\n"), *modules]


def part_module(kind: ViewKind, part: str, rules: Sequence[Rule]) -> Module:
    """The module with the entrypoint for one part of the rules that judge one kind of view."""
    return _entrypoint_module(f"{MAIN}.{kind}_{part}", rules)


def _entrypoint_module(package: str, rules: Sequence[Rule]) -> Module:
    asked = {effect: [rule for rule in rules if effect in rule.effects] for effect in Effect}
    asked = {effect: members for effect, members in asked.items() if members}
    parts = [_decision(asked), *(_contribution(effect, members) for effect, members in asked.items())]
    return _module(package, "\n\n".join(parts) + "\n")


def _decision(asked: Mapping[Effect, Sequence[Rule]]) -> str:
    """The decision. In the common case, no rule hits, it costs a single comparison."""
    whole = _decision_object({effect: effect.value for effect in asked})
    sets = [f"data.{rule.package}.{effect}" for effect, members in asked.items() for rule in members]
    if not 0 < len(sets) <= RULES_OF_A_PART:
        return f"decision := {whole}"
    return (
        f"decision := {_decision_object({})} if {{\n\t{_array(sets, indent=_TAB)} == _nothing\n}} else := {whole}\n\n"
        f"_nothing := {_array('set()' for _ in sets)}"
    )


def _contribution(effect: Effect, rules: Sequence[Rule]) -> str:
    """What the rules contribute to one set. In the common case, nothing, it costs a single comparison."""
    if len(rules) == 1:
        tagged = f'data.{EFFECT}.tagged(effect, "{rules[0].id}")'
        return f"{effect} contains {tagged} if some effect in data.{rules[0].package}.{effect}"
    tagged = f"data.{EFFECT}.tagged(effect, _{effect}_rules[number])"
    sets = _array((f"data.{rule.package}.{effect}" for rule in rules), indent=_TAB)
    return (
        f"{effect} contains {tagged} if {{\n\tasked := {sets}\n\tasked != _no_{effect}\n"
        "\tsome number, effects in asked\n\tsome effect in effects\n}\n\n"
        f"_{effect}_rules := {_array(json.dumps(rule.id) for rule in rules)}\n\n"
        f"_no_{effect} := {_array('set()' for _ in rules)}"
    )


def _array(members: Iterable[str], indent: str = "") -> str:
    """One member per line: a line of Rego is limited to 1,024 characters."""
    return "".join(["[\n", *(f"{indent}\t{member},\n" for member in members), f"{indent}]"])


def adapter_modules(entrypoint: str) -> list[Module]:
    """The module that turns the answer of a user-defined entrypoint into a decision. Spec: [POL-10].

    Accepted are a boolean, an object with a boolean `allow`, and a set of denials. Anything else, or no answer, denies.
    """
    template = importlib.resources.files("pipeline.policy").joinpath("adapter.rego.tmpl").read_text(encoding="utf-8")
    return [_module(EFFECT, _TAGGED), _module(MAIN, template.replace("ENTRYPOINT", entrypoint))]


def batch_module(entrypoints: Iterable[str], revision: str) -> Module:
    """The module with which an OPA server judges many views in one query. Spec: [POL-11].

    Its input is {"shared": {…}, "items": [{"entrypoint", "view"}, …]}; its `answer` is {"revision", "results"}. A
    result is an object with `value`, or an empty one if the entrypoint was undefined or is not one of these.
    """
    branches = [
        f'_result(item, document) := {{"value": value}} if {{\n\titem.entrypoint == "{entrypoint}"\n'
        f"\tvalue := {entrypoint} with input as document\n}}"
        for entrypoint in entrypoints
    ]
    text = "\n\n".join(
        [
            f'answer := {{"revision": "{revision}", "results": results}}',
            "results := [result |\n\tsome item in input.items\n\tresult := _answered(item)\n]",
            "_answered(item) := _result(item, object.union(input.shared, item.view))\n\n"
            "_answered(item) := {} if not _result(item, object.union(input.shared, item.view))",
            *branches,
        ]
    )
    return _module(BATCH, text + "\n")


def _decision_object(members: Mapping[Effect, str]) -> str:
    body = "".join(f'\t"{effect}": {members.get(effect, "[]")},\n' for effect in Effect)
    return f"{{\n{body}}}"


def _module(package: str, text: str) -> Module:
    path = package.replace(".", "/")
    return Module(f"{path}/{package.split('.')[-1]}.rego", f"{_BANNER}package {package}\n\n{text}")

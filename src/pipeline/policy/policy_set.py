"""Policies as one value: modules, data, rules and the entrypoints generated from them.

Spec: docs/spec/policies.md [POL-1] to [POL-12], [POL-25] to [POL-29].
"""

from __future__ import annotations

import hashlib
import itertools
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from cmf.enums import Capability, ViewKind
from cmf.json.codec import dumps
from cmf.json.frozen import FrozenDict
from pipeline.decisions.decision import Effect, Mode
from pipeline.decisions.display import counted, meant
from pipeline.decisions.errors import PolicyError
from pipeline.decisions.policy_input import Facts
from pipeline.policy import entrypoints, portability
from pipeline.policy.analysis import Survey, SurveyedRule, without_prints
from pipeline.policy.bundle_signature import Verification
from pipeline.policy.entrypoints import Parts
from pipeline.policy.exceptions import RuleException
from pipeline.policy.exceptions import read as read_exceptions
from pipeline.policy.loading import MANIFEST, Sources, bundle_files, data_of, read, text_of
from pipeline.policy.lookahead import Lookaheads
from pipeline.policy.metadata import Module, Rule, is_rule, package_of, rule_of
from pipeline.policy.portability import Finding
from pipeline.policy.shipped import shipped

BuiltinErrors = Literal["strict", "undefined"]
"""What a failing builtin makes of a view: `strict`, a failure; `undefined`, what ordinary OPA policies rely on [D5]."""

MODES: Final = "data.cmf.modes"
"""Where a set's data set the modes of its rules, overriding METADATA."""

_OWN: Final = re.compile(r"^(?:default )?(allow|deny|violation|decision)\b", re.MULTILINE)
_ENTRYPOINT: Final = re.compile(r"data(?:\.[A-Za-z_][A-Za-z0-9_]*){2,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """A loaded policy set.

    Attributes:
        modules: the files of the set without what they print and, after them, the generated ones.
        sources: what it was made of, tests included, as written.
        rules: all rules, those that are `off` included.
        own_entrypoint: the only entrypoint of policies that are not made of rules; else None.
        parts: by the entrypoint of a kind of view, the smaller parts in which it can be asked [POL-29].
        session_reads: by kind of view, the paths below `input.session` that its rules read; the empty path is all.
        request_reads: the same for `input.extensions.request`.
        facts: by kind of view, which facts about its texts its rules read; none for kinds whose rules read none.
        reads_context: whether a rule reads `input.spelled_context`.
        capabilities: what the rules that are not `off` need to see.
        findings: problems that do not keep the set from being used.
        exceptions: those from its rules, expired ones included.
        revision: the SHA-256 of modules and data, in hex.
    """

    modules: tuple[Module, ...]
    sources: Sources
    data: Mapping[str, Any]
    rules: tuple[Rule, ...]
    entrypoints: tuple[str, ...]
    own_entrypoint: str | None
    parts: Mapping[str, Parts]
    session_reads: Mapping[str, tuple[tuple[str, ...], ...]]
    request_reads: Mapping[str, tuple[tuple[str, ...], ...]]
    facts: Mapping[str, Facts]
    reads_context: bool
    capabilities: frozenset[Capability]
    builtin_errors: BuiltinErrors
    findings: tuple[Finding, ...]
    exceptions: tuple[RuleException, ...]
    revision: str

    def __repr__(self) -> str:
        return f"<PolicySet: {counted(len(self.rules), 'rule')}, revision {self.revision[:12]}>"

    def entrypoint(self, kind: ViewKind) -> str:
        """The entrypoint that judges views of `kind`."""
        name = entrypoints.kind_entrypoint(kind)
        return name if name in self.entrypoints else entrypoints.DECISION

    def rules_for(self, kind: ViewKind) -> tuple[Rule, ...]:
        """The rules asked for views of `kind`, by id; those that are `off` are not among them."""
        return tuple(rule for rule in self.rules if kind in rule.kinds and rule.mode is not Mode.OFF)

    def lookaheads(self, kind: ViewKind) -> Lookaheads | None:
        """What the rules for `kind` hold the end of a stream for [D7]; None where all of the text has to be there.

        That is so too where they may ask a person, who approves a whole, and where what judges is not made of rules.
        """
        rules = self.rules_for(kind)
        needed = [rule.lookaheads for rule in rules if Effect.REQUIRE_APPROVAL not in rule.effects]
        if self.own_entrypoint is not None or len(needed) < len(rules) or None in needed:
            return None
        return tuple({one for some in needed for one in some or () if one.applies(self.data)})

    @property
    def tests(self) -> tuple[Module, ...]:
        """The files that end in `_test.rego`; they judge nothing and are in no revision."""
        return self.sources.tests

    @property
    def modes(self) -> dict[str, Mode]:
        """Mode by rule id."""
        return {rule.id: rule.mode for rule in self.rules}

    @property
    def batch_module(self) -> Module:
        """The one extra module that an OPA server is given [POL-11]."""
        return entrypoints.batch_module(self.entrypoints, self.revision)

    def bundle(self) -> dict[str, bytes]:
        """The files of an OPA bundle of this set, by path: modules, the batch module, data, manifest [POL-12]."""
        packages = (package_of(module).split(".")[0] for module in self.modules)
        manifest = {"revision": self.revision, "roots": sorted({*packages, *self.data}), "rego_version": 1}
        files = {module.path: module.text.encode() for module in (*self.modules, self.batch_module)}
        return files | {"data.json": dumps(self.data), ".manifest": dumps(manifest)}


def load(
    *places: str | Path | Mapping[str, bytes],
    entrypoint: str | None = None,
    modes: Mapping[str, Mode | str] | None = None,
    inline: Mapping[str, str] | None = None,
    builtin_errors: BuiltinErrors = "strict",
    verification: Verification | None = None,
) -> PolicySet:
    """The policy set in `places`: a later one adds to, and where paths meet replaces, what came before.

    Args:
        places: trees of `.rego` files and data files, OPA bundles, or contents of files by their paths; at least one.
        entrypoint: `data.<package>.<rule>` of policies that are not made of rules: a boolean, an object with
            `allow`, or a set of denials. Given, it is the only thing asked.
        modes: rule id → mode, over what METADATA says.
        inline: path → Rego of a caller who is no operator: it may add packages, and shadow none.
        builtin_errors: `strict`, or `undefined` for policies that rely on it.
        verification: the keys by which bundles have to be signed.

    Raises:
        PolicyError: anything that would leave a part unjudged or a rule unasked; the code says what [POL-1] ff.
    """
    sources = read(*places, inline=inline, verification=verification)
    return build(sources, entrypoint=entrypoint, modes=modes, builtin_errors=builtin_errors)


def build(
    sources: Sources,
    *,
    entrypoint: str | None = None,
    modes: Mapping[str, Mode | str] | None = None,
    builtin_errors: BuiltinErrors = "strict",
) -> PolicySet:
    """The policy set that `sources` make; see `load`."""
    if builtin_errors not in ("strict", "undefined"):
        hint = "write strict or undefined"
        raise PolicyError("builtin errors are strict or undefined", hint=hint, code="policy.bad-option")
    rules: list[Rule] = []
    parts: dict[str, Parts] = {}
    if entrypoint is not None:
        survey = Survey(sources.modules)
        _check_entrypoint(entrypoint, survey)
        generated = entrypoints.adapter_modules(entrypoint)
        names: tuple[str, ...] = (entrypoints.DECISION,)
        capabilities = portability.needed(survey, tuple(entrypoint.split(".")))
        reachable = dict.fromkeys(ViewKind, survey.reachable([tuple(entrypoint.split("."))]))
    else:
        rules = _with_modes(with_configured_modes(_rules(sources.modules), sources.data), modes or {})
        survey = Survey(sources.modules)
        on = [_with_its_sets(rule, survey) for rule in rules if rule.mode is not Mode.OFF]
        parts, modules_of_parts = _in_parts(on, survey)
        generated = [*entrypoints.main_modules(on), *modules_of_parts]
        asked = (name for part in parts.values() for name in (part.slow, *part.fast, *part.rest) if name is not None)
        names = (entrypoints.DECISION, *map(entrypoints.kind_entrypoint, ViewKind), *asked)
        capabilities = frozenset(need for rule in on for need in rule.capabilities)
        effects = [(rule.kinds, path) for rule in on for path in portability.effect_paths(rule)]
        reachable = {kind: survey.reachable([path for kinds, path in effects if kind in kinds]) for kind in ViewKind}
    found = portability.undefined_names(survey, sources.modules, sources.data)
    found += portability.findings(survey, sources.data, rules, strict=builtin_errors == "strict")
    _refuse_first(found)
    # Engines have them without what they print: it is content, and for their authors alone.
    modules = (*itertools.starmap(Module, without_prints(sources.modules)), *generated)
    frozen = FrozenDict(sources.data)
    sources = replace(sources, data=frozen)
    return PolicySet(
        modules=modules,
        sources=sources,
        data=frozen,
        rules=tuple(rules),
        entrypoints=names,
        own_entrypoint=entrypoint,
        parts=parts,
        session_reads=_reads_below(("session",), reachable),
        request_reads=_reads_below(("extensions", "request"), reachable),
        facts=_facts(reachable),
        reads_context=bool(_reads_below(("spelled_context",), reachable)),
        capabilities=capabilities,
        builtin_errors=builtin_errors,
        findings=tuple(found),
        exceptions=read_exceptions(frozen, {rule.id for rule in rules}),
        revision=_revision({one.path: one.text for one in modules}, frozen, builtin_errors),
    )


def _refuse_first(found: Sequence[Finding]) -> None:
    first = next((one for one in found if one.refuses), None)
    if first is not None:
        path, line, column = first.place
        raise PolicyError(first.message, path=path, line=line, column=column, hint=first.hint, code=first.code)


def _in_parts(rules: Sequence[Rule], survey: Survey) -> tuple[dict[str, Parts], list[Module]]:
    """For each kind's entrypoint the parts in which it can be asked, and the modules that ask them [POL-29]."""
    parts: dict[str, Parts] = {}
    modules: list[Module] = []
    reads: dict[str, set[tuple[str, ...]]] = {}
    interpreted: set[str] = set()
    for rule in rules:
        reachable = survey.reachable(portability.effect_paths(rule))
        reads[rule.id] = portability.input_reads(reachable)
        if any(one.interpreted is not None for one in reachable):
            interpreted.add(rule.id)
    for kind in ViewKind:
        own = [rule for rule in rules if kind in rule.kinds]
        slow = [rule for rule in own if rule.id in interpreted]
        fast = [rule for rule in own if rule.id not in interpreted]
        local = [rule for rule in fast if portability.is_local(reads[rule.id])]
        rest = [rule for rule in fast if rule not in local]
        too_many = len(fast) > entrypoints.RULES_OF_A_PART
        asked: dict[str, Sequence[Rule]] = {"slow": slow} if slow and fast else {}
        asked |= _divided("fast", fast) if fast and (slow or too_many) else {}
        asked |= _divided("rest", rest) if local and rest else {}
        modules += [entrypoints.part_module(kind, part, members) for part, members in asked.items()]
        names = {part: entrypoints.part_entrypoint(kind, part) for part in asked}
        whole = entrypoints.kind_entrypoint(kind)
        of_all = Parts(
            whole=whole,
            slow=names.get("slow"),
            fast=tuple(name for part, name in names.items() if part.startswith("fast")),
            rest=(),
            local=frozenset(rule.id for rule in fast),
            reads=_all_reads(fast, reads),
        )
        parts[whole] = replace(
            of_all,
            rest=tuple(name for part, name in names.items() if part.startswith("rest")),
            local=frozenset(rule.id for rule in local),
            reads=_all_reads(local, reads),
            alone=of_all if rest and all(portability.is_local(reads[rule.id], alone=True) for rule in rest) else None,
        )
    return parts, modules


def _all_reads(rules: Iterable[Rule], reads: Mapping[str, set[tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted({path for rule in rules for path in reads[rule.id]}))


def _divided(part: str, rules: Sequence[Rule]) -> dict[str, Sequence[Rule]]:
    """The rules by name of part: one part, or as many as it takes, numbered."""
    size = entrypoints.RULES_OF_A_PART
    if len(rules) <= size:
        return {part: rules}
    return {f"{part}_{begin // size + 1}": rules[begin : begin + size] for begin in range(0, len(rules), size)}


def _reads_below(
    place: tuple[str, ...], reachable: Mapping[ViewKind, Sequence[SurveyedRule]]
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """By kind of view, what its rules read below `place` of the input; only kinds whose rules read any of it."""
    read = {kind.value: portability.reads_below(place, rules) for kind, rules in reachable.items()}
    return {kind: paths for kind, paths in read.items() if paths}


def _facts(reachable: Mapping[ViewKind, Sequence[SurveyedRule]]) -> dict[str, Facts]:
    readers = [_reads_below((name,), reachable) for name in Facts._fields]
    return {kind: Facts(*(kind in read for read in readers)) for kind in {kind for read in readers for kind in read}}


# -- rules -------------------------------------------------------------------------------------------------------------


def _rules(modules: Sequence[Module]) -> list[Rule]:
    rules: dict[str, Rule] = {}
    for rule in map(rule_of, filter(is_rule, modules)):
        rules[rule.id] = rule
    if not rules:
        found = [(package_of(one), match[1]) for one in modules if (match := _OWN.search(one.text)) is not None]
        own = f" (data.{found[0][0]}.{found[0][1]})" if found else ""
        hint = f"put rules under cmf/rules/<category>/<rule>/, or name your own entrypoint{own}"
        raise PolicyError("there is no rule in it", hint=hint, code="policy.no-rules")
    return [rules[name] for name in sorted(rules)]


def _with_its_sets(rule: Rule, survey: Survey) -> Rule:
    """The rule with the effects that it defines: a text can mention one, and what is not there is not asked for."""
    paths = zip(rule.effects, portability.effect_paths(rule), strict=True)
    return replace(rule, effects=tuple(effect for effect, path in paths if survey.rule(path) is not None))


def with_configured_modes(rules: Sequence[Rule], data: Mapping[str, Any]) -> list[Rule]:
    """The rules in the modes that the set's data say: `data.cmf.modes`, by id or `<category>/*` [POL-53].

    Raises:
        PolicyError: it names what is no rule or no mode (`policy.unknown-mode`).
    """
    own = data.get("cmf")
    configured_modes = own.get("modes", {}) if isinstance(own, Mapping) else {}
    if not isinstance(configured_modes, Mapping):
        hint = "write `<category>/<rule>: observe`"
        raise PolicyError("modes are no object", path=MODES, hint=hint, code="policy.unknown-mode")
    modes: dict[str, Mode | str] = {}
    # What names fewer rules wins: all, a category, one.
    for name, mode in sorted(configured_modes.items(), key=lambda item: (item[0] != "*", not item[0].endswith("/*"))):
        named = [rule.id for rule in rules if name in (rule.id, rule.id.partition("/")[0] + "/*", "*")]
        modes |= dict.fromkeys(named or [name], "off" if mode is False else str(mode))
    return _with_modes(rules, modes)


def _with_modes(rules: Iterable[Rule], modes: Mapping[str, Mode | str]) -> list[Rule]:
    known = {rule.id: rule for rule in rules}
    for name, mode in modes.items():
        if name not in known:
            hint = meant(name, known, "write <category>/<rule>, as `cmf check` and `cmf doc` do")
            if (shipped() / "cmf" / "rules" / name.removesuffix("/*")).is_dir():
                hint = 'it is a shipped one: load those too, with ["shipped", …], or add `-p shipped` to the command'
            raise PolicyError(f"unknown rule {name!r}", path=MODES, hint=hint, code="policy.unknown-mode")
        if mode not in set(Mode):
            hint = f"one of {', '.join(Mode)}"
            raise PolicyError(f"unknown mode {str(mode)!r}", path=MODES, hint=hint, code="policy.unknown-mode")
        known[name] = replace(known[name], mode=Mode(mode))
    return list(known.values())


def _check_entrypoint(entrypoint: str, survey: Survey) -> None:
    """A misspelt entrypoint would be undefined for ever, and that is found now rather than at the first request."""
    rule = survey.rule(tuple(entrypoint.split("."))) if _ENTRYPOINT.fullmatch(entrypoint) else None
    if rule is None or rule.is_function:
        known = [".".join(one.path) for one in survey.rules if not one.is_function]
        hint = meant(entrypoint, known, "write data.<package>.<rule>, as the package is spelt")
        raise PolicyError(f"{entrypoint} is not in these policies", hint=hint, code="policy.no-entrypoint")


# -- revision ----------------------------------------------------------------------------------------------------------


def revisions_of(bundle: bytes) -> frozenset[str]:
    """The revisions that a packed bundle of ours may be of, one for each way to take builtins that fail.

    None where it holds what is in no revision, but for its manifest and the module for servers. Nothing is compiled.

    Raises:
        PolicyError: it is no bundle.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bundle.tar.gz"
        file.write_bytes(bundle)
        files = bundle_files(file)
    data = data_of({"data.json": files.pop("data.json", b"{}")})
    beside = (MANIFEST, entrypoints.batch_module((), "").path)
    texts = {path: text_of(content, path) for path, content in files.items() if path not in beside}
    if not all(path.endswith(".rego") for path in texts):
        return frozenset()
    return frozenset(_revision(texts, data, way) for way in get_args(BuiltinErrors))


def _revision(modules: Mapping[str, str], data: Mapping[str, Any], builtin_errors: BuiltinErrors) -> str:
    """SHA-256 over each module's path and text in order of path, then the data with sorted keys. Spec: [POL-9]."""
    digest = hashlib.sha256()
    for module in sorted(modules.items()):
        for text in module:
            encoded = text.encode()
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
    digest.update(_canonical(data))
    if builtin_errors != "strict":
        digest.update(builtin_errors.encode())
    return digest.hexdigest()


def _canonical(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"{" + b",".join(dumps(key) + b":" + _canonical(value[key]) for key in sorted(value)) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(_canonical, value)) + b"]"
    return dumps(value)


__all__ = [
    "MODES",
    "BuiltinErrors",
    "PolicySet",
    "build",
    "load",
    "revisions_of",
    "shipped",
    "with_configured_modes",
]

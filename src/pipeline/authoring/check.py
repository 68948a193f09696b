"""Every check of a policy set that needs no traffic, in one go. Spec: docs/spec/policies.md [POL-35] ff.

Loading stops at the first error; a policy author wants to see all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from cmf.enums import ViewKind
from cmf.errors import CmfError
from cmf.json.codec import dumps, loads
from pipeline.authoring import effect_fields, unused
from pipeline.authoring.case import Case, read_cases
from pipeline.authoring.run_cases import CaseRunner
from pipeline.decisions.decision import Mode
from pipeline.decisions.display import meant
from pipeline.decisions.engine import Decided, Engine
from pipeline.decisions.errors import CaseError, PipelineError, PolicyError
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy import exceptions, loading, metadata, policy_set, portability
from pipeline.policy.analysis import HINTS, INSTEAD, Place, Survey, allowed_builtins
from pipeline.policy.analysis import Path as DataPath
from pipeline.policy.loading import DATA_FILES, Sources
from pipeline.policy.metadata import Rule
from pipeline.policy.policy_set import BuiltinErrors, PolicySet
from pipeline.policy.portability import Finding, warning
from pipeline.policy.rule_settings import DataFile
from pipeline.run.assembly import Config, build_engine

WARNINGS: Final = frozenset(
    {"policy.negated-reference", "policy.may-vanish", "policy.unknown-data", "check.rule-off", "check.never-hit"}
)
"""Findings that may be intended; every other finding is an error."""

_SAMPLE_SECONDS: Final = 5.0
_SPOT: Final = re.compile(r"(.+):(\d+):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings, ordered by place. If the Rego does not compile (`compiles`), many checks could not run."""

    findings: tuple[Finding, ...]
    compiles: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to check: policy directories, of which later ones override earlier ones.

    Warnings are limited to the files of the author's own. Exceptions that ended before `today` have expired. The
    entrypoint is that of policies that are not made of rules.
    """

    places: Sequence[Path]
    own: Sequence[Path]
    cases: Sequence[Path]
    today: date
    entrypoint: str | None = None
    builtin_errors: BuiltinErrors = "strict"


def is_error(finding: Finding) -> bool:
    """Whether it is an error, not a warning."""
    return finding.refuses or finding.code not in WARNINGS


def check(job: Job) -> Report:
    """All findings. No content of a file makes it raise."""
    try:
        settings: list[PolicyError] = []
        sources = loading.read(*job.places, problems=settings)
    except PolicyError as error:
        return Report(findings=(_finding_of(error),), compiles=False)
    modules = [module for module in sources.modules if job.entrypoint is None and metadata.is_rule(module)]
    found = [_finding_of(error) for module in modules for error in metadata.problems(module)]
    found += map(_finding_of, settings)
    cases, bad_cases = _cases(job.cases)
    found += bad_cases
    try:
        survey = Survey(sources.modules)
    except PolicyError as error:
        unread = list(_unparsed(sources))
        return _report(job, [*found, *(unread or [_finding_of(error)])], compiles=False)
    found += _unparsed(Sources(modules=(), tests=sources.tests, data={}))
    rules = [metadata.rule_of(module) for module in modules if not metadata.problems(module)]
    found += _banned(survey)
    found += portability.findings(survey, sources.data, rules, strict=job.builtin_errors == "strict")
    found += portability.undefined_names(survey, sources.modules, sources.data)
    found += effect_fields.findings(survey, sources.modules, rules)
    unheard = unused.findings(survey, sources, rules, lambda path: _place_of(job.places, path))
    # What was reported already:
    misnamed = {one.place for one in found if one.code in ("policy.unknown-effect", "policy.unknown-setting")}
    # A setting that is in no file came with the library, which does not have to read all of them.
    named = [one for one in unheard if one.code != "check.unused-setting" or one.place.line]
    found += [one for one in named if one.place not in misnamed]
    found += _exceptions(job, sources, rules)
    found += _off(rules, sources)
    try:
        policies = policy_set.build(sources, entrypoint=job.entrypoint, builtin_errors=job.builtin_errors)
        build_engine(policies, "embedded", Config(builtin_errors=job.builtin_errors))
    except PolicyError as error:
        if not any(one.refuses and one.code == error.code for one in found):  # usually it is among them already
            found.append(_finding_of(error))
        compiles = True
        try:
            EmbeddedEngine(sources.modules, sources.data, [])
        except PolicyError:
            compiles = False
        return _report(job, found, compiles=compiles)
    if cases:
        found += _never_hit(job, policies, cases)
    return _report(job, found, compiles=True)


def _report(job: Job, found: Iterable[Finding], *, compiles: bool) -> Report:
    # The author cannot fix a warning about somebody else's file; how the set is loaded is the author's own choice.
    unique = {
        (one.code, one.place, one.message): one
        for one in found
        if is_error(one) or one.code == "policy.may-vanish" or _is_own(job, one.place.module)
    }
    return Report(findings=tuple(sorted(unique.values(), key=lambda one: (one.place, one.code))), compiles=compiles)


def _is_own(job: Job, module: str) -> bool:
    return any((place / module).is_file() for place in job.own)


def _finding_of(error: PolicyError) -> Finding:
    return Finding(error.code, Place(error.path, error.line, error.column), error.message, error.hint)


# -- text --------------------------------------------------------------------------------------------------------------


def _unparsed(sources: Sources) -> Iterator[Finding]:
    """Each module that does not parse: parsing them together would stop at the first."""
    for module in (*sources.modules, *sources.tests):
        try:
            Survey([module])
        except PolicyError as error:
            if error.code == "policy.parse":
                yield _finding_of(error)


def _banned(survey: Survey) -> Iterator[Finding]:
    """All calls of builtins that the embedded engine lacks: compiling would stop at the first."""
    allowed = frozenset(allowed_builtins())
    functions = [rule.path for rule in survey.rules if rule.is_function]
    for definition in survey.definitions():
        for call in definition.calls:
            package = survey.packages[call.place.module]
            if call.name in allowed or survey.rule(unused.callee(package, call)) is not None:
                continue
            is_own = call.name.startswith("data.")
            if is_own:
                known = [".".join(path) for path in functions if path[-1][0] != "_"]
            else:  # what can be called in a package without `data.`
                known = [*(path[-1] for path in functions if path[:-1] == package), *allowed]
            code, message = "policy.banned-builtin", f"the embedded engine does not support {call.name}"
            if is_own or call.name.split(".")[0] not in _OPA_ONLY:
                code, message = "policy.unknown-function", f"unknown function {call.name}"
            hint = INSTEAD.get(call.name) or meant(call.name, known, HINTS[code])
            yield Finding(code, call.place, message, hint)


_OPA_ONLY: Final = frozenset(
    {
        "array", "cast_array", "crypto", "graph", "graphql", "http", "internal", "io", "json", "net", "opa", "print",
        "providers", "rand", "re_match", "regex", "rego", "set_diff", "strings", "time", "trace", "units", "uri",
        "uuid", "yaml",
    }
)  # fmt: skip
"""How names of OPA's builtins that the embedded engine lacks begin: up to their first dot."""


def _off(rules: Sequence[Rule], sources: Sources) -> Iterator[Finding]:
    with suppress(PolicyError):  # building the set reports what is wrong with the configured modes
        rules = policy_set.with_configured_modes(rules, sources.data)
    for rule in rules:
        if rule.mode is Mode.OFF:
            hint = "set its mode to observe, or remove it"
            yield warning("check.rule-off", Place(rule.path, 1, 1), f"{rule.id} is off and never evaluated", hint)


def _exceptions(job: Job, sources: Sources, rules: Sequence[Rule]) -> Iterator[Finding]:
    ids = {rule.id for rule in rules}
    # A rule with invalid METADATA is still a rule that exceptions may name.
    ids |= {"/".join(Path(module.path).parts[2:4]) for module in sources.modules if metadata.is_rule(module)}
    place = _place_of(job.places, ("data", "cmf", "exceptions"))
    bad = exceptions.problems(sources.data, ids)
    for error in bad:
        where = f"{error.path.removeprefix('data.cmf.')}: {error.message}"
        yield Finding(error.code, place, where, error.hint)
    for one in exceptions.read(sources.data, ids) if not bad else ():
        if one.until < job.today:
            message = f"the exception to {one.rule} owned by {one.owner} expired on {one.until}"
            yield warning("check.exception-expired", place, message, "remove it, or renew it")


def _place_of(places: Sequence[Path], path: DataPath) -> Place:
    """Where the value at `path` of the data document is set: the file, and the line of its last key."""
    names = path[1:]
    for place in reversed(places):
        for file in sorted(one for name in DATA_FILES for one in place.rglob(name)):
            data = DataFile(file.relative_to(place).as_posix(), file.read_text(encoding="utf-8", errors="replace"))
            if line := data.line_of(names):
                return Place(data.path, line, 1)
    return Place("data.json", 0, 0)


# -- cases and samples -------------------------------------------------------------------------------------------------


def _cases(files: Iterable[Path]) -> tuple[list[Case], list[Finding]]:
    cases: list[Case] = []
    bad: list[Finding] = []
    for file in files:
        try:
            cases += read_cases(file)
        except CaseError as error:
            where, _, inside = error.path.partition(": ")
            spot = _SPOT.fullmatch(where)
            place = Place(where, 0, 0) if spot is None else Place(spot[1], int(spot[2]), int(spot[3]))
            message = f"{inside}: {error.message}" if inside else error.message
            bad.append(Finding(error.code, place, message, error.hint))
    return cases, bad


def _never_hit(job: Job, policies: PolicySet, cases: Sequence[Case]) -> Iterator[Finding]:
    """The author's rules that hit in no case and on no sample, and so are untested."""
    own = [rule for rule in policies.rules if rule.mode is not Mode.OFF and _is_own(job, rule.path)]
    runner = CaseRunner(policies)
    hit: set[str] = set()
    for case in cases:
        try:
            hit |= runner.run(case).rules
        except (CmfError, PipelineError) as error:
            yield Finding("case.invalid", Place(case.file, 0, 0), f"{case.name}: {error}", "")
    runner.close()
    engine = build_engine(policies, "embedded", Config(builtin_errors=policies.builtin_errors))
    for rule, place in [(rule, place) for rule in own if rule.id not in hit for place in job.own]:
        for sample in sorted((place / rule.path).parent.glob("samples/*.json")):
            hit |= _hits(engine, policies, sample)
    engine.close()
    for rule in own:
        if rule.id not in hit:
            message = f"{rule.id} hits in no test case and on no sample"
            yield warning("check.never-hit", Place(rule.path, 1, 1), message, "write a test case that it hits")


def _hits(engine: Engine, policies: PolicySet, sample: Path) -> set[str]:
    """The rules that hit on a sample; none if it is not a policy input."""
    try:
        view = loads(sample.read_bytes())
        entrypoint = policies.entrypoint(ViewKind(view["kind"]))
    except (CmfError, OSError, KeyError, TypeError, ValueError):
        return set()
    (answer,) = engine.evaluate([entrypoint], b"{}", [dumps(view)], timeout_seconds=_SAMPLE_SECONDS)
    value: Mapping[str, Any] = answer.value if isinstance(answer, Decided) else {}
    return {effect["rule"] for effects in value.values() for effect in effects}

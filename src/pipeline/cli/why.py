"""`cmf why`: which rules hit a view, with which values, or where they stopped. Spec: docs/spec/cli.md [CLI-33]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from cmf.enums import ViewKind
from pipeline.cli.options import (
    ContextFile,
    Entrypoint,
    File,
    FromOrSeen,
    KindOrSeen,
    OutputAs,
    PolicyOption,
    SubjectId,
)
from pipeline.cli.policy_places import Places, chosen
from pipeline.cli.reading import Exit, check_has_none, fail, one_line_errors, read_context, read_wire
from pipeline.cli.rendering import console, progress, write_json
from pipeline.decisions.display import counted, escaped_json, meant, visible

if TYPE_CHECKING:
    from pipeline.authoring.case import Case
    from pipeline.authoring.explain import Body, Failing, RuleWhy, Why
    from pipeline.decisions.decision import Decision, Effect, ViewDecision
    from pipeline.policy.policy_set import PolicySet

CASE_SUFFIXES: Final = (".yaml", ".yml")
MAX_VALUE_LENGTH: Final = 160  # characters shown of a value


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewExplanation:
    """One view, and what each explained rule did with it; or each body of policies without rules."""

    view: ViewDecision
    rules: tuple[RuleWhy, ...] = ()
    own: tuple[Body, ...] = ()


def command(
    file: File,
    source: FromOrSeen = None,
    kind: KindOrSeen = None,
    policies: PolicyOption = None,
    context: ContextFile = None,
    subject: SubjectId = None,
    view: Annotated[str | None, typer.Option("--view", help="Only this view: its number or its path.")] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="Only this rule, in full: <category>/<rule>.")] = None,
    case: Annotated[
        str | None, typer.Option("--case", metavar="NAME", help="The case to explain, if FILE is a file of test cases.")
    ] = None,
    entrypoint: Entrypoint = None,
    output: OutputAs = "text",
) -> None:
    """Explain a decision: which rules hit and with which values, and at which expression the others stopped.

    FILE may be a file of test cases, or a recorded input, as `cmf audit reveal` writes it: these have their own context
    and session.

    Exit codes: 0 explained, 2 usage, 3 policy does not compile, 4 input not readable.
    """
    from pipeline.authoring.explain import Why
    from pipeline.authoring.run_cases import CaseRunner
    from pipeline.engines.recording import Tap
    from pipeline.replay.replay import Replay
    from pipeline.run.assembly import Config, build_engine, load_policies
    from pipeline.run.pipeline import Pipeline

    if rule is not None and entrypoint is not None:
        fail("--rule cannot be used with --entrypoint; leave out one of them", Exit.USAGE)
    policies = chosen(policies)
    with one_line_errors(policies=policies or ()):
        loaded = load_policies(policies, entrypoint=entrypoint)
        if rule is not None and rule not in (rules := [each.id for each in loaded.rules]):
            fail(f"there is no rule {visible(rule)}; {meant(rule, rules, 'see `cmf doc`')}", Exit.USAGE)
        tap = Tap(build_engine(loaded, "embedded", Config()))
        own = {"--context": context, "--subject": subject}
        if case is not None or Path(file).suffix in CASE_SUFFIXES:
            check_has_none("a test case", own | {"--from": source, "--kind": kind})
            decision = CaseRunner(loaded, engine=tap).judge(_case(Path(file), case)).decision
        else:
            with one_line_errors(str(context or "")):
                judged_in = read_context(context, subject)
            with one_line_errors(file):
                read = read_wire(file, source, kind)
            if read.entry is None:
                decision = Pipeline(policies=loaded, engine=tap).run(read.traffic, judged_in).decision
            else:
                check_has_none("a recorded input", own)
                decision = Replay(loaded, engine=tap).judged(read.entry)
        views = [each for at, each in enumerate(decision.views) if view in (None, each.path, str(at))]
        if view is not None and not views:
            fail(f"there is no view {visible(view)}; there are 0 to {len(decision.views) - 1}", Exit.USAGE)
        why, seen = Why(loaded), tap.documents()
        with progress("explaining", len(views)) as done:
            explanations = [
                explanation_of(why, loaded, asked, seen.get(asked.path, []), done, rule=rule) for asked in views
            ]
    places = Places(loaded, policies)
    if output == "json":
        write_json(_document(decision, explanations, places))
    else:
        _show(explanations, places, rule)


def explanation_of(
    why: Why,
    policies: PolicySet,
    view: ViewDecision,
    documents: Sequence[Mapping[str, Any]],
    done: Callable[[int], None],
    *,
    rule: str | None = None,
) -> ViewExplanation:
    """What each rule, or the named one, did with a view; `documents` are the inputs that policy saw for it."""
    own: tuple[Body, ...] = ()
    if policies.own_entrypoint is not None and documents:
        own = why.entrypoint(policies.own_entrypoint, documents[0])
    asked = [each.id for each in policies.rules_for(ViewKind(view.kind)) if rule in (None, each.id)]
    outcomes = [why.rules(document, only=asked) for document in documents]
    done(1)
    # Each rule on the first document that it hits, or else on the first one.
    of_each = (next((one for one in of_rule if one.hits), of_rule[0]) for of_rule in zip(*outcomes, strict=True))
    return ViewExplanation(view=view, rules=tuple(of_each), own=own)


def _case(file: Path, name: str | None) -> Case:
    """The case of a file that has this name, or else the only one whose name contains it."""
    from pipeline.authoring.case import read_cases

    cases = read_cases(file)
    fitting = [case for case in cases if name in (None, case.name)] or [
        case for case in cases if str(name) in case.name
    ]
    if len(fitting) != 1:
        listed = ", ".join(repr(visible(case.name)) for case in fitting or cases)
        fail(f"{file}: {'several cases' if fitting else 'no such case'}; give one to --case: {listed}", Exit.USAGE)
    return fitting[0]


# -- JSON output -------------------------------------------------------------------------------------------------------


def _document(decision: Decision, explanations: Sequence[ViewExplanation], places: Places) -> dict[str, Any]:
    return {
        "verdict": decision.verdict.value,
        "action": decision.action.value,
        "views": [
            {
                "path": explanation.view.path,
                "kind": explanation.view.kind,
                "uri": explanation.view.uri,
                "verdict": explanation.view.verdict.value,
                "rules": [_rule(rule, places) for rule in explanation.rules],
                "bodies": [{"file": places.file(body.place.module), **_body(body)} for body in explanation.own],
            }
            for explanation in explanations
        ],
    }


def _rule(rule: RuleWhy, places: Places) -> dict[str, Any]:
    bodies = [(effect, body) for effect, of_effect in rule.bodies.items() for body in of_effect]
    shown = [{"effect": effect.value, **_body(body)} for effect, body in bodies]
    file = places.file(bodies[0][1].place.module)
    return {"rule": rule.rule, "file": file, "hit": bool(rule.hits), "bodies": shown}


def _body(body: Body) -> dict[str, Any]:
    return {
        "name": body.name,
        "line": body.place.line,
        "held": body.held,
        "of": body.of,
        "ways": [dict(way) for way in body.ways],
        "values": list(body.values),
        "failing": [
            {
                "expression": stop.text,
                "line": stop.place.line,
                "operands": [
                    {"text": operand.text, "known": operand.known, "value": operand.value} for operand in stop.operands
                ],
                "bindings": dict(stop.bindings),
                "error": stop.error,
                "behind": [_body(behind) for behind in stop.behind],
            }
            for stop in body.failing
        ],
    }


# -- text output -------------------------------------------------------------------------------------------------------


def value_text(value: Any) -> str:
    """A value on one line, truncated."""
    text = escaped_json(value, indent=None)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


def _show(explanations: Sequence[ViewExplanation], places: Places, rule: str | None) -> None:
    out = console()
    for explanation in explanations:
        uri = "" if explanation.view.uri is None else f"  {visible(explanation.view.uri)}"
        verdict = explanation.view.verdict.value
        out.print(Text.assemble((visible(explanation.view.path), "bold"), f"  {explanation.view.kind}{uri}  {verdict}"))
        far: list[str] = []
        for rule_why in sorted(explanation.rules, key=lambda rule: not rule.hits):
            shown = _worth_telling(rule_why, whole=rule is not None)
            far += [] if shown else [rule_why.rule]
            for effect, body in shown:
                _show_body(out, rule_why.rule, places, f"  {effect.value}", body)
        near = [body for body in explanation.own if body.held]
        for body in near or explanation.own:
            _show_body(out, body.name, places, "", body)
        if near and len(near) < len(explanation.own):
            others = counted(len(explanation.own) - len(near), "definition")
            out.print(Text(f"  {others} stopped at the first expression", "dim"))
        if rule is not None and not explanation.rules:
            out.print(Text(f"  {rule} is not asked about it", "dim"))
        elif far:
            which = f": {', '.join(far)}" if len(far) <= _FEW else "; --rule shows one of them"
            out.print(Text(f"  {counted(len(far), 'rule')} stopped at the first expression{which}", "dim"))


def _worth_telling(rule: RuleWhy, *, whole: bool) -> Sequence[tuple[Effect, Body]]:
    """The hits of a rule; if it has none, the body that got furthest, unless it failed at its first expression.

    Bodies that could not be evaluated always: because of them the view is refused.
    """
    if whole:
        return (*rule.hits, *rule.near_misses)
    broken = [(effect, body) for effect, body in rule.near_misses if any(stop.error for stop in body.failing)]
    return [*rule.hits, *broken] or [(effect, body) for effect, body in rule.near_misses[:1] if body.held]


def _show_body(out: Console, name: str, places: Places, effect: str, body: Body) -> None:
    word, rest = headline(name, places, effect, body)
    out.print(Text.assemble("  ", (word, _STYLES[word.strip()]), f"  {rest}"))
    for line in body_lines(body):
        out.print(Text(line))


_FEW: Final = 5  # rules that are named, where each stopped at its first expression
_STYLES: Final = {"hit": "bold red", "true": "green", "near": "yellow", "no": "yellow"}


def headline(name: str, places: Places, effect: str, body: Body) -> tuple[str, str]:
    """How far a body got, as a word of up to four letters; and the body, its place, and how much of it holds."""
    held = "hit" if effect else "true"
    word = held if body.holds else "near" if body.held else "no"
    passed = "" if body.holds else f"  {body.held} of {body.of} hold"
    return f"{word:<4}", f"{name}  {visible(places.file(body.place.module))}:{body.place.line}{effect}{passed}"


def body_lines(body: Body, shown: Callable[[Any], str] = value_text, indent: str = "        ") -> Iterator[str]:
    """How a body holds and its value, or where it stopped, as lines; `shown` formats values."""
    for way in body.ways:
        if way:
            yield indent + ", ".join(f"{visible(name)} = {shown(item)}" for name, item in way.items())
    for text in dict.fromkeys(map(shown, body.values)):
        yield f"{indent}gives {text}"
    if body.failing:
        yield from _failing_lines(body.failing, shown, indent)


def _failing_lines(failing: Sequence[Failing], shown: Callable[[Any], str], indent: str) -> Iterator[str]:
    """The expression once, with all values that its operands had when it failed."""
    first = failing[0]
    error = f"  cannot be evaluated with these values [{first.error}]" if first.error else ""
    yield f"{indent}line {first.place.line}: {_plain(first.text)}{error}"
    values: dict[str, dict[str, None]] = {}
    for stop in failing:
        for operand in stop.operands:
            value = shown(operand.value) if operand.known else "undefined"
            values.setdefault(_plain(operand.text), {})[value] = None
    for text, seen in values.items():
        yield f"{indent}  {text} = {' or '.join(seen)}"
    for body in first.behind:
        yield f"{indent}  {body.name}, line {body.place.line}, {'holds' if body.holds else 'does not hold'}"
        yield from body_lines(body, shown, f"{indent}    ")


def _plain(text: str) -> str:
    return visible(" ".join(text.split()))

"""`cmf eval --trace`: what policies printed, and where each rule hit or stopped. Spec: cli.md [CLI-57].

The engine has no trace events: this combines `print` [POL-62] with the explanations of `cmf why` [POL-51]. A value is
shown only if `cmf eval` prints it anyway, or if policy, subject or session contain it: no other content is revealed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import typer

from pipeline.authoring.explain import Body, Why
from pipeline.cli.options import TraceLevel
from pipeline.cli.policy_places import Places
from pipeline.cli.reading import Exit, fail
from pipeline.cli.rendering import progress
from pipeline.cli.why import ViewExplanation, body_lines, explanation_of, headline, value_text
from pipeline.decisions.display import counted, visible
from pipeline.engines.recording import Tap
from pipeline.engines.rego_tests import Printing, prints
from pipeline.policy.policy_set import PolicySet
from pipeline.run.outcome import Outcome


def write_trace(traced: Traced, level: TraceLevel, *, most: int, out: Path | None) -> None:
    """Print at most so many lines on standard error, noting a cut; or write all of them to a file."""
    lines = traced.lines(level)
    if out is None:
        for line in list(islice(lines, most)) or ["cmf: the trace is empty"]:
            typer.echo(line, err=True)
        if next(lines, None) is not None:
            cut = f"… cut after {counted(most, 'line')}; see more with --trace-lines, all with --trace-out"
            typer.echo(cut, err=True)
        return
    try:
        with out.open("w", encoding="utf-8") as file:
            count = sum(bool(file.write(f"{line}\n")) for line in lines)
    except OSError as error:
        fail(f"the trace cannot be written to {out}: {error.strerror}; give another file", Exit.INPUT)
    typer.echo(f"cmf: the trace is in {out}, {counted(count, 'line')}", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A run to explain; `directories` is where the set was loaded from, None for the shipped one.

    `tap` has the engine's queries; `wire` is the outcome's value as `cmf eval` prints it, None if there is no output.
    """

    policies: PolicySet
    directories: Sequence[Path] | None
    tap: Tap
    outcome: Outcome
    wire: Any

    def lines(self, level: TraceLevel) -> Iterator[str]:
        """A headline for each view with something to report, and the report below it."""
        views, seen = self.outcome.decision.views, self.tap.documents()
        notes = self._notes() if level != "fails" else {}
        why = Why(self.policies) if level != "notes" else None
        places = Places(self.policies, self.directories)
        shown = Shown.of(self)
        with progress("tracing", len(views)) as done:
            for view in views:
                documents = seen.get(view.path, [])
                below = [*notes.get(view.path, ())]
                if why is not None:
                    explanation = explanation_of(why, self.policies, view, documents, done)
                    below += _bodies(explanation, level, places, shown.among(documents))
                if below:
                    yield f"trace {visible(view.path)}  {view.kind}  {view.verdict.value}"
                    yield from below

    def _notes(self) -> Mapping[str, list[str]]:
        """View → what policies printed about it."""
        if not prints(self.policies):
            return {}
        printing, places = Printing(self.policies), Places(self.policies, self.directories)
        notes: dict[str, list[str]] = {}
        for asked in self.tap.asked:
            printed = notes.setdefault(asked[1]["path"], [])
            for one in printing.lines([asked]):
                line = f"  note  {places.file(one.path)}:{one.line}: {visible(one.text)}"
                printed += [line] if line not in printed else []
        return notes


def _bodies(explanation: ViewExplanation, level: TraceLevel, places: Places, shown: Shown) -> Iterator[str]:
    """For each rule that did not hit, the body that got furthest; or all bodies of all rules."""
    chosen: list[tuple[str, str, Body]] = []
    for rule in explanation.rules:
        all_of = (*rule.hits, *rule.near_misses)
        some = all_of if level == "full" else () if rule.hits else all_of[:1]
        chosen += [(rule.rule, f"  {effect.value}", body) for effect, body in some]
    chosen += [(body.name, "", body) for body in explanation.own if level == "full" or not body.holds]
    for name, effect, body in chosen:
        yield "  {}  {}".format(*headline(name, places, effect, body))
        yield from body_lines(body, shown.text)


# -- which values may be shown -----------------------------------------------------------------------------------------


_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_LITERAL: Final = re.compile(r'(?<=")(?:[^"\\\n]|\\.)*(?=")|(?<=`)[^`]*(?=`)|\b[0-9]+(?:\.[0-9]+)?\b')
_SUBJECT: Final = ("id", "type", "roles", "permissions", "teams")


def _context(document: Mapping[str, Any]) -> Iterator[Any]:
    """The parts of a policy input that are not content: subject, session, labels, and the view's metadata."""
    yield [document.get(name) for name in ("kind", "role", "path", "action", "hook", "session")]
    yield [*document, *document.get("properties", {})]
    security = document.get("extensions", {}).get("security", {})
    yield security.get("labels")
    yield [(security.get("subject") or {}).get(name) for name in _SUBJECT]


def _leaves(value: Any) -> Iterator[str]:
    """Every string and number in it, including keys, as text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


@dataclass(frozen=True, slots=True)
class Shown:
    """How a view's values are written: as they are if visible without a trace, otherwise by their size only.

    Visible are parts of `whole`, the output, and `leaves`. Of `numbers`, those that policy saw in the view, only these
    are; any other number is not content.
    """

    whole: str
    leaves: frozenset[str]
    numbers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, traced: Traced) -> Shown:
        """By what `cmf eval` prints, and what the policies contain."""
        own = {text for module in traced.policies.modules for text in _LITERAL.findall(module.text)}
        also = [traced.outcome.decision.to_json(), traced.policies.data]
        return cls("\n".join(_leaves(traced.wire)), frozenset(own | {*_leaves(also)}))

    def among(self, documents: Sequence[Mapping[str, Any]]) -> Shown:
        """The same with subject and session, for a view that policy saw as these documents."""
        context = {leaf for document in documents for leaf in _leaves([*_context(document)])}
        content = [{**document, "size_bytes": None} for document in documents]
        numbers = {number for leaf in _leaves(content) for number in _NUMBER.findall(leaf)}
        return Shown(self.whole, self.leaves | context, frozenset(numbers))

    def text(self, value: Any) -> str:
        """The value on one line."""
        return value_text(self._masked(value))

    def _masked(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self._masked(key): self._masked(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(item) for item in value]
        if value is None or isinstance(value, bool) or str(value) in self.leaves or str(value) in self.whole:
            return value
        if isinstance(value, str):
            return f"<{counted(len(value), 'character')}>"
        return "<number>" if str(abs(value)) in self.numbers else value

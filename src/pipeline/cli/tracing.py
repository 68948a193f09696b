"""`cmf eval --trace`: what policies printed, and of each rule where it stopped or how it hit. Spec: cli.md [CLI-57].

The engine gives no events: this is `print` [POL-62] and the explanation that `cmf why` is made of [POL-51]. Values are
told only where `cmf eval` prints them anyway, or where policy, subject or session has them: no other content is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import typer

from pipeline import policy_set
from pipeline.checks.printing import Printing, prints
from pipeline.checks.why import Body, Why
from pipeline.cli.policy_places import Places, file_of
from pipeline.cli.progress import progress
from pipeline.cli.reading import Exit, fail
from pipeline.cli.why import Told, body_lines, headline, told_of, value_text
from pipeline.display import counted, visible
from pipeline.engines.tap import Tap
from pipeline.outcome import Outcome
from pipeline.policy_set import PolicySet

LINES: Final = 200  # that are printed where nobody says how many


Level: TypeAlias = Literal["notes", "fails", "full"]
"""How much is told; the words are OPA's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """What was asked for: how much, at most how many lines of it, and into which file instead of standard error."""

    level: Level
    lines: int = LINES
    out: Path | None = None

    def write(self, traced: Traced) -> None:
        """Print the lines, or write all of them into the file; what is cut off is said."""
        lines = traced.lines(self.level)
        if self.out is None:
            shown = list(islice(lines, self.lines))
            for line in shown or ["cmf: the trace is empty"]:
                typer.echo(line, err=True)
            if next(lines, None) is not None:
                cut = f"… cut after {counted(self.lines, 'line')}; --trace-lines for more, --trace-out for all"
                typer.echo(cut, err=True)
            return
        try:
            with self.out.open("w", encoding="utf-8") as file:
                count = sum(bool(file.write(f"{line}\n")) for line in lines)
        except OSError as error:
            fail(f"the trace cannot be written at {self.out}: {error.strerror}; name another file", Exit.INPUT)
        typer.echo(f"cmf: the trace is in {self.out}, {counted(count, 'line')}", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A run to be told of.

    Attributes:
        policies: what judged. directories: what it was loaded from; None for the shipped one.
        tap: what the engine was asked.
        outcome: what came of it. wire: what `cmf eval` prints of its value; None where nothing goes out.
    """

    policies: PolicySet
    directories: Sequence[Path] | None
    tap: Tap
    outcome: Outcome
    wire: Any

    def lines(self, level: Level) -> Iterator[str]:
        """A headline for each view of which there is something to tell, and below it what that is."""
        views, seen = self.outcome.decision.views, self.tap.documents()
        notes = self._notes() if level != "fails" else {}
        why = Why(self.policies) if level != "notes" else None
        places = {
            module.path: file_of(module.path, [policy_set.shipped(), *(self.directories or ())])
            for module in self.policies.modules
        }
        seen_anyway = Seen.of(self)
        with progress("tracing", len(views)) as done:
            for view in views:
                documents = seen.get(view.path, [])
                told = [] if why is None else [told_of(why, self.policies, view, documents, done)]
                below = [*notes.get(view.path, ())]
                below += [line for one in told for line in _bodies(one, level, places, seen_anyway.among(documents))]
                if below:
                    yield f"trace {visible(view.path)}  {view.kind}  {view.verdict.value}"
                    yield from below

    def _notes(self) -> Mapping[str, list[str]]:
        """By view, what policies printed about it."""
        if not prints(self.policies):
            return {}
        printing, places = Printing(self.policies), Places(self.policies, self.directories)
        notes: dict[str, list[str]] = {}
        for asked in self.tap.asked:
            told = notes.setdefault(asked[1]["path"], [])
            lines = [
                f"  note  {places.file(one.path)}:{one.line}: {visible(one.text)}" for one in printing.said([asked])
            ]
            told += [line for line in lines if line not in told]
        return notes


def _bodies(told: Told, level: Level, places: Mapping[str, str], shown: Shown) -> Iterator[str]:
    """Of each rule that did not hit, the body that came furthest; or of all rules all bodies."""
    chosen: list[tuple[str, str, Body]] = []
    for rule in told.rules:
        all_of = (*rule.hits, *rule.near_misses)
        some = all_of if level == "full" else () if rule.hits else all_of[:1]
        chosen += [(rule.rule, f"  {effect.value}", body) for effect, body in some]
    chosen += [(body.name, "", body) for body in told.own if level == "full" or not body.holds]
    for name, effect, body in chosen:
        yield "  {}  {}".format(*headline(name, places, effect, body))
        yield from body_lines(body, shown.text)


# -- what may be shown -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What is seen without a trace: what goes out, of which any part may be told again, and single values."""

    whole: str
    leaves: frozenset[str]

    @classmethod
    def of(cls, traced: Traced) -> Seen:
        """What `cmf eval` prints, and what the policies themselves say."""
        own = {text for module in traced.policies.modules for text in _LITERAL.findall(module.text)}
        also = [traced.outcome.decision.to_json(), traced.policies.data]
        return cls("\n".join(_leaves(traced.wire)), frozenset(own | {*_leaves(also)}))

    def among(self, documents: Sequence[Mapping[str, Any]]) -> Shown:
        """The same, with what is known of subject and session, for a view of which policy saw these documents."""
        context = {leaf for document in documents for leaf in _leaves([*_context(document)])}
        content = [{**document, "size_bytes": None} for document in documents]
        numbers = {number for leaf in _leaves(content) for number in _NUMBER.findall(leaf)}
        return Shown(self.whole, self.leaves | context, frozenset(numbers))


_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")


_LITERAL: Final = re.compile(r'(?<=")(?:[^"\\\n]|\\.)*(?=")|(?<=`)[^`]*(?=`)|\b[0-9]+(?:\.[0-9]+)?\b')
_SUBJECT: Final = ("id", "type", "roles", "permissions", "teams")


def _context(document: Mapping[str, Any]) -> Iterator[Any]:
    """What of a policy input is no content: who asks, in which session, with which labels, and what a view is."""
    yield [document.get(name) for name in ("kind", "role", "path", "action", "hook", "session")]
    yield [*document, *document.get("properties", {})]
    security = document.get("extensions", {}).get("security", {})
    yield security.get("labels")
    yield [(security.get("subject") or {}).get(name) for name in _SUBJECT]


def _leaves(value: Any) -> Iterator[str]:
    """Every text and number in it, keys too, as text."""
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
    """How the values of a view are written: those that are seen anyway as they are, others by their size alone."""

    whole: str
    leaves: frozenset[str]
    numbers: frozenset[str]  # that policy saw in the view: any other is no content

    def text(self, value: Any) -> str:
        """The value on one line."""
        return value_text(self._masked(value))

    def _masked(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self._masked(key): self._masked(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(item) for item in value]
        if value is None or isinstance(value, bool) or self._is_seen(str(value)):
            return value
        if isinstance(value, str):
            return f"<{counted(len(value), 'character')}>"
        return "<number>" if str(abs(value)) in self.numbers else value

    def _is_seen(self, text: str) -> bool:
        return text in self.leaves or text in self.whole


__all__ = ["LINES", "Level", "Traced", "Tracing"]

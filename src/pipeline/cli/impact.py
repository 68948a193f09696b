"""`cmf impact`: what other policies would have decided on recorded inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from pipeline.cli.findings import Finding, JUnitCase, write_report
from pipeline.cli.options import ProfilesOption, Records, RecordsKey, ReportAs, policy_option
from pipeline.cli.policy_places import policies_at
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.rendering import console, progress, write_json
from pipeline.cli.stores import lines_of
from pipeline.decisions.display import counted, visible

if TYPE_CHECKING:
    from pipeline.policy.policy_set import PolicySet
    from pipeline.replay.impact import Impact

SHOWN_IDS: Final = 20
# The changes by name: their enumeration is imported once the command runs.
_CHANGED: Final = ("newly_denied", "newly_allowed", "changed_effect")


def command(
    base: Annotated[str, typer.Option("--base", metavar="DIR|REV", help="The current policies.")],
    head: Annotated[str, typer.Option("--head", metavar="DIR|REV", help="The changed policies.")],
    records: Records,
    policies: Annotated[
        list[Path] | None,
        policy_option("Policies that both stand on (repeatable), such as the word shipped."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Use only this many records, evenly spread.")
    ] = None,
    max_newly_denied: Annotated[
        int | None,
        typer.Option("--max-newly-denied", min=0, help="Exit with 1 if more records than this are newly denied."),
    ] = None,
    output: Annotated[ReportAs, typer.Option("--format", help="The output format.")] = "text",
    profiles: ProfilesOption = None,
    key: RecordsKey = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="The number of processes; by default one per core.")
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Run on Ray: an existing cluster, or a local one.")] = False,
) -> None:
    """Report what a policy change would have done to recorded inputs: newly denied, newly allowed, changed.

    REV is the other directory at that git revision; write git:REV if a directory has the same name. Exit codes: 0 done,
    1 more newly denied than allowed, 2 usage, 3 a policy does not compile, 4 the records cannot be read.
    """
    from pipeline.replay.batch import lines
    from pipeline.replay.impact import Change, impact_of
    from pipeline.run.assembly import load_policies

    with one_line_errors(), ExitStack() as opened:
        before = load_policies([*(policies or ()), opened.enter_context(policies_at(base, beside=head))])
        after = load_policies([*(policies or ()), opened.enter_context(policies_at(head, beside=base))])
        recorded = opened.enter_context(
            lines_of(records, key, lines, actor="cmf impact", reason="judged again under other policies")
        )
        total = sum(1 for _ in recorded())
        if not total:
            fail(f"{records}: no records; create some with `cmf eval --record`", Exit.USAGE)
        wanted = min(total, sample or total)
        on_progress = opened.enter_context(progress("comparing", wanted))
        # Evenly spread, the same ones each time.
        sampled = (line for at, line in enumerate(recorded()) if at * wanted // total != (at - 1) * wanted // total)
        impact = impact_of(
            sampled, before, after, expected=wanted, profiles=profiles, jobs=jobs, on_progress=on_progress, ray=ray
        )
    silent = _silent(impact, before, after)
    exceeded = max_newly_denied is not None and impact.counts[Change.NEWLY_DENIED] > max_newly_denied
    match output:
        case "text":
            _text(impact, total, silent, same=before.revision == after.revision)
        case "json":
            revisions = {"base": before.revision, "head": after.revision}
            write_json({"records": total, **revisions, **impact.to_json(), "silent": silent})
        case _:
            cases = _junit(impact, max_newly_denied, exceeded=exceeded)
            write_report(output, "cmf impact", _findings(impact, records, exceeded=exceeded), cases)
    if exceeded:
        newly = impact.counts[Change.NEWLY_DENIED]
        typer.echo(f"cmf: {newly} newly denied, more than the {max_newly_denied} allowed", err=True)
    raise typer.Exit(int(Exit.REFUSED if exceeded else Exit.OK))


def _silent(impact: Impact, before: PolicySet, after: PolicySet) -> list[str]:
    """The rules of `after` that are new, or have another text or mode, and hit no record."""
    from pipeline.decisions.decision import Mode

    def spelled(policies: PolicySet) -> dict[str, tuple[str, str]]:
        texts = dict(policies.modules)
        return {rule.id: (rule.mode, texts[rule.path]) for rule in policies.rules if rule.mode is not Mode.OFF}

    old = spelled(before)
    return [rule for rule, text in spelled(after).items() if old.get(rule) != text and rule not in impact.hits]


def _text(impact: Impact, total: int, silent: Sequence[str], *, same: bool) -> None:
    from pipeline.replay.impact import Change

    out = console()
    of = "" if impact.entries == total else f"{impact.entries} of "
    out.print(f"{of}{counted(total, 'record')}, {counted(impact.views, 'view')}")
    if same:
        out.print(Text("base and head are the same policies", "yellow"))
    for change in Change:
        style = _STYLES[change] if impact.counts[change] else "dim"
        out.print(Text.assemble(f"{impact.counts[change]:>8}  ", (change.value.replace("_", " "), style)))
        if change in _CHANGED:
            _who(out, impact.rules.get(change, Counter()), "by rule")
            _who(out, impact.subjects.get(change, Counter()), "by subject")
        if change is Change.NOT_REPLAYABLE:
            _who(out, impact.reasons, "because")
        ids = impact.ids.get(change, [])
        for name in ids[:SHOWN_IDS]:
            out.print(Text(f"              {visible(name)}", "dim"))
        if len(ids) > SHOWN_IDS:
            out.print(Text(f"              … --format json lists {len(ids)}", "dim"))
    if silent:
        out.print(Text(f"new or changed, but without a hit in any record: {', '.join(silent)}", "yellow"))


_STYLES: Final = {
    "newly_denied": "bold red",
    "newly_allowed": "magenta",
    "changed_effect": "cyan",
    "unchanged": "green",
    "not_replayable": "yellow",
}


def _who(out: Console, counted: Counter[str], how: str) -> None:
    for name, count in counted.most_common():
        out.print(Text(f"          {how} {visible(name)}: {count}"))


def _junit(impact: Impact, limit: int | None, *, exceeded: bool) -> list[JUnitCase]:
    """A test case for each kind of change: the limited one can fail, uncertain ones are skipped."""
    from pipeline.replay.impact import Change

    cases = []
    for change in Change:
        lines = [f"{impact.counts[change]} {change.value}", *impact.ids.get(change, [])]
        failed = exceeded and change is Change.NEWLY_DENIED
        unknown = change is Change.NOT_REPLAYABLE and impact.counts[change] > 0
        limited = limit is not None and change is Change.NEWLY_DENIED
        cases.append(
            JUnitCase(
                suite="impact",
                name=f"{change.value} ≤ {limit}" if limited else change.value,
                failure="\n".join(lines) if failed else None,
                skipped="; ".join(impact.reasons) if unknown else None,
            )
        )
    return cases


def _findings(impact: Impact, records: str, *, exceeded: bool) -> list[Finding]:
    """One annotation per kind of change and rule."""
    from pipeline.replay.impact import Change

    return [
        Finding(
            file=str(records),
            message=f"{change.replace('_', ' ')} by {rule}: {count} of {impact.entries} records",
            code=f"impact.{change.replace('_', '-')}",
            severity="error" if exceeded and change == "newly_denied" else "warning",
        )
        for change in _CHANGED
        for rule, count in impact.rules.get(Change(change), Counter()).most_common()
    ]

"""`cmf audit`: finding, verifying and exporting records."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from typer.core import TyperCommand

from cmf.json.codec import loads
from pipeline.cli import audit_content
from pipeline.cli.audit_content import take
from pipeline.cli.groups import command_group
from pipeline.cli.options import OutputAs, Place, PublicKeys, RecordId, Second, SigningKey, WrittenAs
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.rendering import write_line
from pipeline.cli.stores import check_key, opened_for_search, other_key, reading
from pipeline.decisions.display import counted, escaped_json, shortened, visible
from pipeline.decisions.errors import ConfigError, StoreError
from pipeline.decisions.timestamps import instant_of, iso, micros
from pipeline.review.summary import extent, hits, named, readable, sentence, skipped

if TYPE_CHECKING:
    from pipeline.audit.heads import Signer
    from pipeline.audit.query import Query
    from pipeline.audit.verification import Report
    from pipeline.review.rules import PoliciesAtHand
    from pipeline.store.evidence import StoreEvidence
    from pipeline.store.records import Placed, Search, Stored

_GAPS: Final = frozenset({"record.missing", "content.missing", "policies.missing", "log.cut", "log.missing"})
_HEADS: Final = frozenset({"head.signature", "head.key", "head.missing", "bundle.signature", "bundle.unsigned"})
_FOLLOW_SECONDS: Final = 0.5
_PAGE_SIZE: Final = 1_000  # records fetched per query
_SHOWN: Final = 20  # problems printed; the rest is only counted
QueryText = Annotated[
    str, typer.Argument(metavar="QUERY", help="For example: verdict:deny rule:tools/* since:7d -session:test")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many, the newest.")]
command = command_group("Records of decisions: find, verify, export.")


class QueryCommand(TyperCommand):
    """A command whose query may begin with a negated term, such as `-verdict:allow`: that is no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options first, and then the query."""
        if "--" not in args and (queries := [arg for arg in args if _NEGATED.match(arg)]):
            args = [arg for arg in args if arg not in queries] + ["--", *queries]
        return super().parse_args(ctx, args)


_NEGATED: Final = re.compile(r"-[a-z]+:")


@command.command("verify")
def verify(
    place: Annotated[
        str, typer.Argument(metavar="STORE|BUNDLE", help="A database, or a bundle from `cmf audit export`.")
    ],
    heads: Annotated[Path | None, typer.Option("--heads", help="The file that heads were exported to.")] = None,
    keys: PublicKeys = None,
    unsigned: Annotated[
        bool,
        typer.Option("--unsigned", help="Accept an unsigned bundle: removals from it are not detected."),
    ] = False,
    output: OutputAs = "text",
) -> None:
    """Check that no record was changed, removed, moved or added. Works offline and changes nothing.

    Exit codes: 0 valid, 1 something was changed, 2 something is missing, 3 a head is missing, or a head or the manifest
    is not signed by a trusted key, 4 cannot be read.
    """
    from pipeline.audit.bundle import is_bundle
    from pipeline.audit.exporting import read_heads
    from pipeline.audit.heads import PublicKey
    from pipeline.store.engine import is_database
    from pipeline.store.full_check import check_bundle, check_store

    with one_line_errors():
        try:
            exported = [] if heads is None else read_heads(heads)
            trusted = [PublicKey.at(file) for file in (keys or ())] or None
            if not is_database(Path(place)) and is_bundle(place):
                report = check_bundle(Path(place), exported=exported, keys=trusted, unsigned=unsigned)
            else:
                with _evidence(place) as evidence:
                    report = check_store(evidence, exported=exported, keys=trusted)
        except (ConfigError, StoreError) as error:  # the exit code of `ConfigError` would mean that records are missing
            fail(str(error), Exit.INPUT)
    if output == "json":
        write_line(report.to_json())
    else:
        _print_report(report)
    if not report.holds:
        codes = {problem.code for problem in report.problems}
        raise typer.Exit(1 if codes - _GAPS - _HEADS else 2 if codes & _GAPS else 3)


@command.command("export")
def export(
    store: Place,
    out: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A new file.")],
    query: Annotated[
        str | None, typer.Option("--query", help="Only records that match; by default everything.")
    ] = None,
    contents: Annotated[
        bool,
        typer.Option(
            "--contents", help="Include content: needs --as WHO --reason WHY. Later erasures do not reach it."
        ),
    ] = False,
    heads: Annotated[
        Path | None,
        typer.Option("--heads", help="Exported heads: with --query, prove that the log extends them."),
    ] = None,
    person: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Who exports content; it is recorded.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason; it is recorded.")] = None,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Write records, their proofs, heads and keys into one file, which `cmf audit verify` checks anywhere.

    The manifest is signed with the key that signs the store's records, if it is available.
    """
    from pipeline.audit.bundle import Selection, write_bundle
    from pipeline.audit.exporting import read_heads
    from pipeline.sessions.base import wall_clock

    if contents:
        take(store, key, query=query, person=person, second=second, reason=reason)
    with one_line_errors():
        selection, exported = None, [] if heads is None else read_heads(heads)
        if query is not None:
            with _finding(store, query) as records:
                ids = {record.id for record in records}
            selection = Selection(query, lambda leaf: leaf.id in ids)
        with _evidence(store) as evidence:
            signer = _signer(store, key, {log.key for log in evidence.logs()})
            count = write_bundle(
                out,
                evidence,
                selection=selection,
                policies=evidence.policies(),
                contents=contents,
                exported=exported,
                made_at=micros(wall_clock()),
                signer=signer,
            )
    if signer is None:
        hint = "give the key that signs this store's records with --signing-key FILE, or verify the bundle with"
        typer.echo(f"cmf: the manifest is not signed: {hint} `cmf audit verify --unsigned`", err=True)
    typer.echo(f"{counted(count, 'record')} written to {visible(str(out))}")


def _signer(store: str, named: Path | None, signers: Collection[str]) -> Signer | None:
    """The key that signs the store's records: the named one, or the one beside the store, if it is readable."""
    from pipeline.audit.heads import Signer
    from pipeline.store.database import key_beside
    from pipeline.store.engine import file_of

    check_key(named)
    database = file_of(store)
    file, signer = named or (None if database is None else key_beside(database)), None
    if file is not None and file.is_file():  # do not create one: a key that never signed here proves nothing
        with nullcontext() if named else suppress(ConfigError):
            signer = Signer.at(file)
    if signer is not None and signer.public_key.id in signers:
        return signer
    if named is None:
        return None
    raise other_key(store)


@command.command("find", cls=QueryCommand)
def find(store: Place, query: QueryText, limit: Limit = 20, output: OutputAs = "text") -> None:
    """List the newest records that match a query.

    Names are id, kind, verdict, action, subject, session, revision; rule, code, effect, severity, tool, uri, view,
    mode, stage, environment, covered, excused, override; needs, reviewed, disposition, signed, assignee, sample; since
    and until
    (7d, or 2026-01-31). A value may end in *; commas separate alternatives. A - before a name negates it.
    """
    with one_line_errors(), _finding(store, query, at_once=min(limit, _PAGE_SIZE)) as records:
        record = None
        for record in islice(records, limit):
            _print_record(record, output)
    if record is None:
        typer.echo("cmf: no record matches", err=True)


@command.command("tail")
def tail(
    store: Place,
    limit: Limit = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new records as they arrive, until interrupted.")
    ] = False,
    output: OutputAs = "text",
) -> None:
    """List the newest records, newest last."""
    from pipeline.store.records import newest, rows_after

    with one_line_errors(), reading(store) as engine:
        records = newest(engine, limit=limit)
        seen = 0
        while True:
            for record in records:
                _print_record(record, output)
                seen = record.seq
            if not follow:
                return
            time.sleep(_FOLLOW_SECONDS)
            records = rows_after(engine, seen, limit=_PAGE_SIZE)


@command.command("show")
def show(store: Place, id: RecordId, output: OutputAs = "text") -> None:
    """Describe one record, with the file and line of each rule that hit.

    With --format json it is printed as stored. Either way its place in its log is shown.
    """
    from pipeline.review.rules import PoliciesAtHand
    from pipeline.run.assembly import load_policies
    from pipeline.store.contents import erasure_of
    from pipeline.store.evidence import StoreEvidence
    from pipeline.store.records import stored_record

    with one_line_errors(), reading(store) as engine:
        record = stored_record(engine, id)
        if record is None:
            problem = f"{store} has no record {id}; `cmf audit find` and `cmf audit tail` list them"
            fail(visible(problem), Exit.INPUT)
        body = None if record.body is None else loads(record.body)
        if output == "json":
            kept = {"erased": True} if body is None else body
            place = {"log": record.log, "place": record.place, "digest": record.digest}
            typer.echo(escaped_json(place | {"record": kept}))
            return
        policies = PoliciesAtHand([load_policies(None)]).with_kept(lambda: StoreEvidence(engine).policies())
        for line in _lines(record, body, policies, lambda: _erased(erasure_of(engine, id))):
            typer.echo(visible(line))


@command.command("head")
def head(store: Place) -> None:
    """Print the newest signed head of each log as a line of JSON. Keep them where writers of the store cannot."""
    with one_line_errors(), _evidence(store) as evidence:
        for log in evidence.logs():
            *_, newest = evidence.heads(log.id)
            write_line(newest.head.to_json())


@command.command("key")
def key(file: Annotated[Path, typer.Argument(metavar="FILE", help="The private key; created if missing.")]) -> None:
    """Create a key that signs heads, unless it exists, and print its public key."""
    from pipeline.audit.heads import Signer

    with one_line_errors():
        typer.echo(Signer.at(file).public_key.pem, nl=False)


@contextmanager
def _evidence(store: str) -> Iterator[StoreEvidence]:
    from pipeline.store.evidence import StoreEvidence

    with reading(store) as engine, StoreEvidence.at_one_moment(engine) as evidence:
        yield evidence


@contextmanager
def _finding(store: str, text: str, *, at_once: int = _PAGE_SIZE) -> Iterator[Iterator[Placed]]:
    """The query's results, newest first."""
    from pipeline.audit.query import parse
    from pipeline.review.catalog import Catalog
    from pipeline.sessions.base import wall_clock
    from pipeline.store.records import Search

    query = parse(text, wall_clock())
    with opened_for_search(store) as opened:
        if query.of_reviews:
            catalog = Catalog(opened)
            catalog.catch_up()
            yield reversed(catalog.all_of(catalog.select(query)))
        else:
            search = Search(opened.engine, opened.writer)
            search.catch_up()
            yield _pages(search, query, at_once)


def _pages(search: Search, query: Query, at_once: int) -> Iterator[Placed]:
    before: int | None = None
    while page := search.page(query, before=before, limit=at_once):
        yield from page
        before = page[-1].seq


def _print_report(report: Report) -> None:
    for log in report.logs:
        beyond = f", {log.unprotected} beyond the last exported head" if report.anchored else ""
        typer.echo(f"{visible(log.log)}  {counted(log.records, 'record')}, {counted(log.heads, 'head')}{beyond}")
    if (manifest := report.manifest) is not None:
        what = "everything" if manifest.selection is None else f"selection: {manifest.selection}"
        by = "not signed" if manifest.signed_by is None else f"signed by {manifest.signed_by}"
        said = f"bundle  {what}  {counted(manifest.records, 'record')}, made {iso(manifest.made_at)}, {by}"
        typer.echo(visible(said))
        if manifest.signed_by is None:
            typer.echo("not checked: the selection, and whether records, policies or reviews were removed since")
    for problem in report.problems[:_SHOWN]:
        where = [problem.log, "" if problem.place is None else f"place {problem.place}", problem.record or ""]
        typer.echo(visible(f"FAILS  {problem.code}  {'  '.join(part for part in where if part)}  {problem.message}"))
    if len(report.problems) > _SHOWN:
        typer.echo(f"and {len(report.problems) - _SHOWN} more")
    for what in report.unchecked:
        typer.echo(f"unprotected, because no record vouches for it: {what}")
    if not report.anchored:
        typer.echo("not checked: whether the newest records are missing (give the exported heads with --heads)")
    if not report.trusted:
        why = "whether all of it was rewritten under another key (give the right one with --public-key)"
        typer.echo(f"not checked: {why}")
    problems = f": {counted(len(report.problems), 'problem')}" if report.problems else ""
    typer.echo(f"{'holds' if report.holds else 'does not hold'}: {counted(report.records, 'record')}{problems}")


def _print_record(record: Placed, output: WrittenAs) -> None:
    from pipeline.decisions.context import shown_subject

    at = instant_of(record.at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    subject = shown_subject(record.subject)
    if output == "json":
        write_line(asdict(record) | {"at": at, "subject": subject})
        return
    who = shortened(subject) + (f" in {shortened(record.session)}" if record.session else "")
    what = record.kind if record.verdict == "none" else record.verdict
    typer.echo(visible(f"{at}  {what:<16}  {record.action:<16}  {record.id}  {who}"))


command.add_typer(audit_content.command)


# -- one record, described for people [CLI-81] -------------------------------------------------------------------------

Facts: TypeAlias = Iterator[tuple[str, str]]
_LONGEST: Final = 512  # characters of a value
_WIDTH: Final = 12  # of the names before the values
_NO_RULES: Final = ("stage/", "engine", "session")  # what hits in the name of no rule
_MOMENTS: Final = frozenset({"at", "expires_at", "until"})
_ELSEWHERE: Final = frozenset({"schema", "id", "timestamp"})  # fields of an act that its first line or nobody needs


def _lines(record: Stored, body: Any, policies: PoliciesAtHand, erased: Callable[[], str | None]) -> Iterator[str]:
    """The record in lines, which may hold anything that traffic or people wrote.

    `erased` says what became of its content; None if it is there.
    """
    written: Callable[[Any, PoliciesAtHand], Facts] = _act
    if body is None:
        yield f"{record.kind} {record.id}: its bytes were erased"
    elif record.kind == "decision" and readable(body):
        yield sentence(body)
        written = _decision
    else:
        yield f"{record.kind} {record.id}"
    for name, value in written(body or {}, policies):
        yield f"{name:<{_WIDTH}}  {shortened(value, _LONGEST)}"
    if written is _decision:
        yield f"{'content':<{_WIDTH}}  {shortened(_content(body, erased), _LONGEST)}"
    where = "in no log" if record.log is None else f"{record.log}, place {record.place}"
    yield f"{'log':<{_WIDTH}}  {where}"
    yield f"{'digest':<{_WIDTH}}  {record.digest}"


def _act(body: Mapping[str, Any], _: PoliciesAtHand) -> Facts:
    if "timestamp" in body:
        yield "at", str(body["timestamp"])
    for name, value in body.items():
        if name in _MOMENTS and type(value) is int:
            yield name, iso(value)
        elif name not in _ELSEWHERE:
            yield name, value if isinstance(value, str) else escaped_json(value, indent=None)


def _decision(body: Mapping[str, Any], policies: PoliciesAtHand) -> Facts:
    result = body["result"]
    yield "at", body["timestamp"]
    yield "verdict", f"{result['verdict']}, {result['action']} ({result['mode']})"
    yield "subject", (body.get("subject") or {}).get("id") or "anonymous"
    for name in ("session", "environment"):
        if name in body:
            yield name, body[name]
    if "llm" in body:
        yield "model", ":".join(filter(None, (body["llm"].get("provider"), body["llm"].get("model"))))
    coverage = result["coverage"]
    yield "parts", f"{coverage['evaluated']} of {coverage['produced']} judged"
    for entry in skipped(body):
        yield "not judged", f"{entry['path']}: {entry['reason']}"
    for view, hit in hits(body):
        yield "hit", _hit(view, hit)
        if not hit["rule"].startswith(_NO_RULES):
            yield "", f"  {_place(policies, body['revision'], hit)}"
    for entry in result.get("approvals") or ():
        yield "approval", f"{entry['id']}, {entry['status']}"
    yield "policies", body["revision"]


def _hit(view: Mapping[str, Any] | None, hit: Mapping[str, Any]) -> str:
    where = "the run" if view is None else f"{named(view)}, at {view['path']}"
    excused = hit.get("excused")
    by = "" if excused is None else f"; not enforced: {escaped_json(excused, indent=None)}"
    return f"{hit['effect']} by {hit['rule']} ({hit['code']}, {hit['severity']}): {extent(hit)}{where}{by}"


def _place(policies: PoliciesAtHand, revision: str, hit: Mapping[str, Any]) -> str:
    place = policies.place(revision, hit["rule"], hit["effect"], hit["code"])
    if place is not None:
        return f"{place['path']}:{place['line']}"
    missing = "the policies are not in the store" if policies.of(revision) is None else "it is not among the policies"
    return f"file and line of this rule are not known: {missing}"


def _content(body: Mapping[str, Any], erased: Callable[[], str | None]) -> str:
    content = body.get("content") or {}
    if "left_out" in content:
        return f"not kept: {content['left_out']}"
    if "commitment" not in content:
        return "not kept"
    if (gone := erased()) is not None:
        return gone
    masked = sum(pointer.startswith("/content/") for pointer in body.get("masked") or ())
    return "kept apart from the record" + (f", with secrets masked at {counted(masked, 'place')}" if masked else "")


def _erased(state: Mapping[str, Any] | None) -> str | None:
    """Who erased the content of a record, when and why; None if it is there."""
    if state is None:
        return None
    if not state:
        return "missing, and no erasure of it is on record: check the store with `cmf audit verify`"
    return f"erased {state['timestamp']} by {state['actor'] or 'the store'}: {state['reason']} [{state['id']}]"

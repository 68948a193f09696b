"""`cmf audit show`: one record, described for people or printed as stored. Spec: docs/spec/cli.md [CLI-81]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import typer

from cmf.json.codec import loads
from pipeline.cli.options import OutputAs, Place, RecordId
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.stores import reading
from pipeline.decisions.display import counted, escaped_json, shortened, visible
from pipeline.decisions.timestamps import iso
from pipeline.review.summary import hits, named, readable, sentence, skipped

if TYPE_CHECKING:
    from pipeline.review.rules import PoliciesAtHand
    from pipeline.store.records import Stored

Facts: TypeAlias = Iterator[tuple[str, str]]
_LONGEST: Final = 512  # characters of a value
_WIDTH: Final = 12  # of the names before the values
_NO_RULES: Final = ("stage/", "engine", "session")  # what hits in the name of no rule
_MOMENTS: Final = frozenset({"at", "expires_at", "until"})
_ELSEWHERE: Final = frozenset({"schema", "id", "timestamp"})  # fields of an act that its first line or nobody needs


def show(
    store: Place,
    id: RecordId,
    output: OutputAs = "text",
) -> None:
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
    return f"{hit['effect']} by {hit['rule']} ({hit['code']}, {hit['severity']}): {_extent(hit)}{where}{by}"


def _extent(hit: Mapping[str, Any]) -> str:
    redacted = hit.get("redacted") or {}
    if "spans" in redacted:
        return f"{counted(redacted['spans'], 'place')} in "
    return "a value in " if "depth" in redacted else ""


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

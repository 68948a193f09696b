"""The record of a run: who asked, what was judged, what policy said, what was done. Spec: docs/spec/recorder.md.

The names are those of an OPA decision log where it has one. No content is in a record, and no free text of a rule:
only ids, codes, paths, digests and counts.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads, ready
from cmf.json.value import trusted
from cmf.message.model_ids import provider_and_name
from pipeline.audit.evidence import SALT_BYTES, commitment_of
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Action, Decision, Effect, Hit, StageRecord, Verdict, ViewDecision
from pipeline.decisions.timestamps import new_ulid

SCHEMA: Final = 1
MAX_LINES: Final = 4_096  # lines of views that are kept, spelled; of some 200 bytes each
MAX_NAME: Final = 256  # characters of a name or URI from the traffic; the rest is cut, and the cut is listed
ERASED: Final = ("/input",)  # what an OPA log would hold and a record never does: the content
_TRUSTS: Final = ("trusted", "untrusted", "claimed")
_ABOUT_THE_CALL: Final = ("call", "before")  # entries of `origins` that are about no value
_LABELS: Final = {"system": "cmf-pipeline", "version": version("cmf-pipeline")}
_CHANGES: Final = b',"session_changes":'
_ALLOW: Final = Verdict.ALLOW  # of an enumeration itself, asking takes longer
_FORWARD: Final = Action.FORWARD
_BARE: Final = re.compile(r"(?!data:)[a-z]+://[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_./%-]*)?")  # nothing to take off

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}")  # a name that cannot be a sentence, or hold one


@dataclass(frozen=True, slots=True)
class Content:
    """What was judged, as it is kept apart from its record: the record holds the commitment alone [AUD-70].

    `body` is a line of a replay file; without the salt nobody can try out what the commitment may be to. At
    `expires_at`, in microseconds since the epoch, it must be gone.
    """

    body: bytes
    salt: bytes
    expires_at: int | None = None

    @classmethod
    def of(cls, body: bytes, expires_at: int | None = None) -> Content:
        """The content under a salt of its own."""
        return cls(body, secrets.token_bytes(SALT_BYTES), expires_at)

    @property
    def commitment(self) -> str:
        """SHA-256 of the salt and the bytes, as hex."""
        return commitment_of(self.salt, self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the host knows of a run besides the decision.

    Attributes:
        timestamp: when it was decided; UTC.
        input_digest: the value's digest, as hex (`pipeline.decisions.certificate.digest_of`); `output_digest` that of
            what went on, as its certificate has it.
        session_version: the version of the session as it was read.
        timings: phase → nanoseconds; OPA's `metrics`.
        labels_gained: labels that the session (or a run without one) has now and had not before.
        model: the model that was asked for, or that answered; `provider:model` if the provider is known.
        content: what was judged, if it is kept; `left_out` says why not, if settings want it kept.
        masked: the places in it, as JSON pointers, at which secrets were replaced.
        profiles: the revision of the profiles of tools and resources (`Profiles.revision`).
        overtaken: decisions of the same run that are on record, and of which nothing came [REC-23].
    """

    timestamp: datetime
    input_digest: str
    output_digest: str | None = None
    session_version: int | None = None
    timings: Mapping[str, int] = field(default_factory=dict)
    labels_gained: frozenset[str] = frozenset()
    model: str | None = None
    content: Content | None = None
    left_out: str | None = None
    masked: Sequence[str] = ()
    profiles: str | None = None
    overtaken: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record: the fields that a store indexes, and the bytes that it keeps; `digest` is their SHA-256, in hex.

    Attributes:
        id: that of the decision, or of what else it is about.
        kind: `decision`, `sweep`, `log`, or another thing that is put on record.
        content: what was judged, kept apart from the record.
        request_id, run_ns, unevaluated: for metrics, as the bytes of a decision have them: the request, how long the
            run took in nanoseconds, and how many views were not evaluated.
    """

    id: str
    timestamp: datetime
    subject: str | None
    session: str | None
    verdict: str
    action: str
    revision: str
    body: bytes
    kind: str = "decision"
    content: Content | None = None
    request_id: str | None = None
    run_ns: int | None = None
    unevaluated: int = 0

    @property
    def digest(self) -> str:
        """The leaf of the record in an audit log [E3]."""
        return hashlib.sha256(self.body).hexdigest()

    def with_session_changes(self, made: Mapping[str, Any]) -> Record:
        """The record of a run whose changes to its session are in the same transaction, which finds out what they are.

        They stand last, so that `session_changes_in` need not read the rest.
        """
        return replace(self, body=b"".join((self.body[:-1], _CHANGES, dumps(made), b"}"))) if made else self


def session_changes_in(body: bytes | None) -> Any:
    """What a record says of the changes to its session; None where it says nothing."""
    at = body.rfind(_CHANGES) if body is not None else -1
    try:
        return loads(body[at + len(_CHANGES) : -1]) if body is not None and at >= 0 else None
    except DecodeError:  # damaged, which its digest tells
        return None


def act_of(
    kind: str,
    prefix: str,
    action: str,
    said: Mapping[str, Any],
    now: datetime,
    *,
    subject: str | None = None,
    session: str | None = None,
    revision: str = "",
) -> Record:
    """The record of an act that is no decision, by a person or a gateway; its id begins with `prefix`.

    `subject` is who did it, and `session` the session that it is about, if any: the record can be looked up by both.
    """
    made = f"{prefix}_{new_ulid()}"
    body = {"schema": SCHEMA, "id": made, "timestamp": now.isoformat(), "action": action, **said}
    return Record(
        id=made,
        timestamp=now,
        subject=subject,
        session=session,
        verdict="none",
        action=action,
        revision=revision,
        body=dumps(body),
        kind=kind,
    )


def record_of(decision: Decision, context: Context, run: Run) -> Record:
    """The record of one run."""
    masked: list[str] = []
    # Filled as far as something is known: most of what a record can say, most do not.
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "decision_id": decision.id,
        "timestamp": run.timestamp.isoformat(),
        "labels": _LABELS,
        "path": "cmf/main/decision",
        "revision": decision.revision,
        "bundles": {"cmf": {"revision": decision.revision}},
        "input_digest": run.input_digest,
    }
    if run.profiles is not None:
        body["bundles"]["profiles"] = {"revision": run.profiles}
    if run.output_digest is not None:
        body["output_digest"] = run.output_digest
    body["result"] = _result(decision, masked)
    _add_asker(body, context, run, masked)
    body["metrics"] = dict(run.timings)
    body["masked"] = [*masked, *run.masked]
    body["erased"] = ERASED
    subject = context.subject
    return trusted(
        Record,
        id=decision.id,
        timestamp=run.timestamp,
        subject=subject.id if subject is not None else None,
        session=context.session,
        verdict=decision.verdict._value_,
        action=decision.action._value_,
        revision=decision.revision,
        body=dumps(body),
        content=run.content,
        request_id=context.request.request_id if context.request is not None else None,
        run_ns=run.timings.get("run_ns"),
        unevaluated=decision.coverage.produced - decision.coverage.evaluated,
    )


def _result(decision: Decision, masked: list[str]) -> dict[str, Any]:
    """What was decided, a line for each view."""
    lines = [
        _plain_line(view.path, view.kind, view.role, view.action, view.direction)
        if view.uri is None
        and view.name is None
        and view.verdict is _ALLOW
        and view.outcome is _FORWARD
        and not view.hits
        and not view.reused
        and view.origins is None
        else dumps(_view(view, f"/result/views/{place}", masked))
        for place, view in enumerate(decision.views)
    ]
    shown: dict[str, Any] = {
        "verdict": decision.verdict._value_,
        "action": decision.action._value_,
        "mode": decision.mode._value_,
        "coverage": decision.coverage.to_json(),
    }
    excused = decision.excused if decision.hit_views else 0
    if excused:
        shown["excused"] = excused
    shown["views"] = ready(b"[" + b",".join(lines) + b"]")
    if decision.stages:
        shown["stages"] = [_stage(stage) for stage in decision.stages]
    if decision.approvals:
        shown["approvals"] = [approval.to_json() for approval in decision.approvals]
    return shown


@lru_cache(MAX_LINES)
def _plain_line(path: str, kind: str, role: str, action: str, direction: str) -> bytes:
    """The line of a view without hits and without a name. It has no words of the traffic, so that it can be cached.

    Nearly all parts of a conversation have such lines, and each request has them again.
    """
    plain = ViewDecision(
        path=path,
        kind=kind,
        role=role,
        uri=None,
        name=None,
        action=action,
        direction=direction,
        verdict=_ALLOW,
        outcome=_FORWARD,
    )
    return dumps(_view(plain, "", []))


def _add_asker(body: dict[str, Any], context: Context, run: Run, masked: list[str]) -> None:
    """Who asked for what, where, as far as that is known."""
    subject, request = context.subject, context.request
    if subject is not None:
        body["subject"] = _present({"id": subject.id, "type": subject.type})
    if context.session is not None:
        body["session"] = context.session
    if run.session_version is not None:
        body["session_version"] = run.session_version
    if run.overtaken:
        body["overtaken"] = run.overtaken
    if run.labels_gained:
        body["labels_gained"] = sorted(map(plain, run.labels_gained))
    if run.model is not None:
        provider, model = provider_and_name(run.model)
        shown = {"provider": provider} if provider is not None else {}
        body["llm"] = {**shown, "model": _cut(model, model, "/llm/model", masked)}
    if context.recorded:
        body["host"] = dict(context.recorded)
    if run.content is not None:
        kept = run.content
        body["content"] = {"commitment": kept.commitment, "bytes": len(kept.body), "expires_at": kept.expires_at}
    elif run.left_out is not None:
        body["content"] = {"left_out": run.left_out}
    if context.released is not None:
        body["released_characters"] = context.released
    if subject is not None and subject.id is not None:
        body["requested_by"] = subject.id
    if context.environment is not None:
        body["environment"] = context.environment
    if request is not None:
        if request.request_id is not None:
            body["req_id"] = request.request_id
        if request.trace_id is not None:
            body["trace_id"] = request.trace_id
        if request.span_id is not None:
            body["span_id"] = request.span_id


def plain(name: str) -> str:
    """`name` if it looks like a name; else its digest, since it may be somebody's words."""
    return name if _PLAIN.fullmatch(name) else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in fields.items() if item is not None}


def _view(view: ViewDecision, where: str, masked: list[str]) -> dict[str, Any]:
    # A decision has as many of these as its conversation has parts: what most of them lack is never put there.
    shown: dict[str, Any] = {"path": view.path, "kind": view.kind}
    if view.role is not None:
        shown["role"] = view.role
    if view.uri is not None:
        shown["uri"] = _cut(_bare(view.uri), view.uri, f"{where}/uri", masked)
    if view.name is not None:
        shown["name"] = _cut(view.name, view.name, f"{where}/name", masked)
    shown["action"] = view.action
    shown["direction"] = view.direction
    shown["verdict"] = view.verdict._value_
    shown["outcome"] = view.outcome._value_
    shown["hits"] = [_hit(hit) for hit in view.hits]
    if view.origins is not None:
        shown["origins"] = _origins(view.origins)
        call = view.origins[0] if view.origins else {}
        if "inferred" in call:
            shown["inferred"] = {name: call[name] for name in _INFERRED}
    if view.reused:
        shown["reused"] = True
    return shown


_INFERRED: Final = ("inference", "inferred", "actions", "sink", "irreversible")
"""What is on record of a call of which something was inferred: facts of its tool, no content."""


def _origins(origins: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How many values of a call there are, by their use and by their most trusted source. No value or path is shown."""
    counted: dict[str, dict[str, int]] = {}
    for entry in origins:
        if entry["type"] not in _ABOUT_THE_CALL:
            best = "nowhere"
            if entry["sources"]:
                trusts = {source["trust"] for source in entry["sources"]}
                best = next((trust for trust in _TRUSTS if trust in trusts), best)
            by_trust = counted.setdefault(entry["use"], {})
            by_trust[best] = by_trust.get(best, 0) + 1
    return counted


def _stage(stage: StageRecord) -> dict[str, Any]:
    """What a stage did: whether it changed something, which headers, and the code with which it stopped or failed."""
    return _present(
        {
            "stage": stage.stage,
            "mode": stage.mode,
            "changed": stage.changed,
            "headers": [{"name": one.name, "removed": one.removed} for one in stage.headers] or None,
            "hit": None if stage.hit is None else _hit(stage.hit),
            "error": stage.error,
        }
    )


def _hit(hit: Hit) -> dict[str, Any]:
    """A hit by rule and code. Its reason and detail are a rule's free text, which may quote what it looked at."""
    shown: dict[str, Any] = {
        "rule": hit.rule,
        "code": hit.code,
        "effect": hit.effect.value,
        "severity": hit.severity,
        "mode": hit.mode.value,
    }
    if hit.excused is not None:
        shown["excused"] = hit.excused.to_json()
    if hit.effect is Effect.REDACT:
        # Where in the part, but not under which name: keys of arguments are the sender's own words.
        pointer = str(hit.fields.get("pointer") or "")
        shown["redacted"] = {"depth": pointer.count("/")} if pointer else {"spans": len(hit.fields.get("spans", ()))}
    return shown


def _bare(uri: str) -> str:
    """The URI without credentials, query and fragment, which may be secret; of what is no URI, only the scheme."""
    if _BARE.fullmatch(uri):
        return uri
    try:
        parts = urlsplit(uri)
        host = parts.netloc.rpartition("@")[2]
        return uri.partition(":")[0] if parts.scheme == "data" else urlunsplit((parts.scheme, host, parts.path, "", ""))
    except ValueError:
        return uri.partition(":")[0]


def _cut(shown: str, whole: str, where: str, masked: list[str]) -> str:
    kept = shown[:MAX_NAME]
    if kept != whole:
        masked.append(where)
    return kept

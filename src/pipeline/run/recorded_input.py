"""Files of recorded inputs for replay: a JSON line each, with everything the decision used. Spec: docs/spec/replay.md.

Such a file contains content. Operators export it on purpose; audit records never contain any [E3].
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from cmf.errors import CmfError, ShapeError
from cmf.json.codec import MAX_BYTES, dumps, loads
from cmf.json.value import to_json
from cmf.message.message import Message
from cmf.message.request import Request, Response
from pipeline.conversation.references import RULE as BY_REFERENCE
from pipeline.decisions.approval import Approval
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Decision
from pipeline.decisions.errors import ReplayError
from pipeline.decisions.override import Override
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.stage import Traffic
from pipeline.provenance.claims import HistoryTrust, history_trust

VERSION: Final = 1
KINDS: Final[dict[str, type[Message] | type[Request] | type[Response]]] = {
    "message": Message,
    "request": Request,
    "response": Response,
}
_GZIP: Final = b"\x1f\x8b"
_HINT: Final = "docs/spec/replay.md describes the lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One recorded input.

    Attributes:
        id: the id of its decision.
        session: the session's facts; `seen` are the session's marks that the decision looked up.
        mode: how its decision was enforced. history: how far its history was trusted.
        decision: the decision, as in `summary_of`.
        masked: whether its secrets were replaced by placeholders.
    """

    id: str
    traffic: Traffic
    context: Context
    session: SessionFacts
    seen: frozenset[str]
    mode: str
    history: HistoryTrust
    decision: Mapping[str, Any]
    masked: bool = False

    @property
    def subject(self) -> str:
        """The subject, for display."""
        subject = self.context.subject
        return "anonymous" if subject is None or subject.id is None else subject.id

    def to_json(self) -> dict[str, Any]:
        """The line, as JSON."""
        line = {
            "schema": VERSION,
            "id": self.id,
            "kind": type(self.traffic).__name__.lower(),
            "traffic": to_json(self.traffic),
            "context": to_json(self.context),
            "session": _session_json(self.session),
            "seen": sorted(self.seen),
            "mode": self.mode,
            "history": self.history,
            "decision": dict(self.decision),
        }
        return line | ({"masked": True} if self.masked else {})


def entry_of(
    traffic: Traffic,
    context: Context,
    session: SessionFacts,
    decision: Decision,
    *,
    seen: frozenset[str] = frozenset(),
    history: HistoryTrust = "claimed",
) -> Entry:
    """The entry of a run: `traffic` and `context` as passed to the pipeline, `session` as read for the run."""
    return Entry(
        id=decision.id,
        traffic=traffic,
        context=context,
        session=session,
        seen=seen,
        mode=decision.mode.value,
        history=history,
        decision=summary_of(decision),
    )


def summary_of(decision: Decision) -> dict[str, Any]:
    """The recorded part of a decision: verdict, action, hits by view, and the stages that affected it.

    A refusal of referenced content is excluded from the stages: the pipeline itself reproduces it.
    """
    referring = [one for one in decision.stages if one.hit is not None and one.hit.rule == BY_REFERENCE]
    others = [one for one in decision.stages if one not in referring]
    stages = [one.stage for one in others if one.changed or one.hit is not None or one.error is not None]
    shown = {
        "revision": decision.revision,
        "verdict": decision.verdict.value,
        "action": decision.action.value,
        "complete": decision.coverage.full or bool(referring),
        "views": [
            {
                "path": view.path,
                "kind": view.kind,
                "verdict": view.verdict.value,
                "hits": [{"rule": hit.rule, "code": hit.code, "effect": hit.effect.value} for hit in view.hits],
            }
            for view in decision.views
        ],
    }
    return shown | ({"stages": stages} if stages else {})


def read_entry(line: bytes) -> Entry:
    """The entry that a line holds.

    Raises:
        ReplayError: it has a newer version (`replay.newer-schema`), or is not valid (`replay.invalid`).
    """
    try:
        body = loads(line)
        if not isinstance(body, dict):
            raise ShapeError("not an object", path="$")
        if body.get("schema") != VERSION:
            if not isinstance(body.get("schema"), int):
                hint = "`cmf eval --record` writes such lines; for bare traffic, set `holds` of the batch"
                raise ReplayError("not a line of a recorded input", hint=hint, code="replay.invalid")
            hint = "read it with the version that wrote it"
            raise ReplayError(f"not of schema {VERSION}", path="schema", hint=hint, code="replay.newer-schema")
        history = history_trust(body["history"])
        if history is None or not isinstance(body["id"], str):
            raise ShapeError("a field is not valid", path="history")
        return Entry(
            id=body["id"],
            traffic=KINDS[body["kind"]].model_validate(body["traffic"]),
            context=Context.model_validate(body["context"]),
            session=_session(body["session"]),
            seen=frozenset(body["seen"]),
            mode=str(body["mode"]),
            history=history,
            decision=_decision(body["decision"]),
            masked=body.get("masked") is True,
        )
    except CmfError as error:
        raise ReplayError(error.message, path=error.path, hint=_HINT) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ReplayError):
            raise
        raise ReplayError("the line is not valid", hint=_HINT) from None


def _decision(spelled: Any) -> Mapping[str, Any]:
    """A summary, validated as far as it is used here."""
    for view in spelled["views"]:
        for hit in view["hits"]:
            if not all(isinstance(hit[name], str) for name in ("rule", "code", "effect")):
                raise ValueError
    if not all(isinstance(spelled[name], str) for name in ("revision", "verdict", "action")):
        raise ValueError
    found: Mapping[str, Any] = spelled
    return found


def _session_json(facts: SessionFacts) -> dict[str, Any]:
    rare = {
        "overrides": [asdict(one) for one in facts.overrides],
        "active_model": facts.active_model,
        "spent": sorted(facts.spent),
        "standing": [one.to_json() for one in facts.standing],
    }
    return {
        "labels": sorted(facts.labels),
        "counters": dict(facts.counters),
        "events": [dict(event) for event in facts.events],
        "approvals": [one.to_json() for one in facts.asked],
        "version": facts.version,
        "tool_ids": {name: dict(links) for name, links in facts.tool_ids.items()},
        "label_sources": {label: sorted(sources) for label, sources in sorted(facts.label_sources.items())},
        "lifted": sorted(map(list, facts.lifted)),
        "moment": facts.moment,
    } | {name: fact for name, fact in rare.items() if fact}


def _session(spelled: Mapping[str, Any]) -> SessionFacts:
    asked = tuple(map(Approval.from_json, spelled["approvals"]))
    return SessionFacts(
        labels=frozenset(spelled["labels"]),
        counters=dict(spelled["counters"]),
        events=tuple(spelled["events"]),
        approvals=tuple(one.shown() for one in asked if one.usable(int(spelled["moment"]))),
        version=int(spelled["version"]),
        tool_ids=dict(spelled["tool_ids"]),
        label_sources={label: frozenset(sources) for label, sources in spelled["label_sources"].items()},
        lifted=frozenset((label, source) for label, source in spelled["lifted"]),
        asked=asked,
        moment=int(spelled["moment"]),
        active_model=spelled.get("active_model"),
        overrides=tuple(Override(**one) for one in spelled.get("overrides", ())),
        spent=frozenset(spelled.get("spent", ())),
        standing=tuple(map(Approval.from_json, spelled.get("standing", ()))),
    )


# -- files -------------------------------------------------------------------------------------------------------------


def append(path: Path, entry: Entry) -> None:
    """Append `entry` to the file, created readable by its owner only if missing. `.gz` is compressed.

    Raises:
        ReplayError: the file cannot be written (`replay.unwritable`).
    """
    line = dumps(entry.to_json()) + b"\n"
    try:
        held = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(held, "ab") as stream:
            # In a single write, so that concurrent appends do not interleave.
            stream.write(gzip.compress(line) if path.suffix == ".gz" else line)
    except OSError as error:
        message, hint = f"cannot be written: {error.strerror}", "choose another file"
        raise ReplayError(message, path=str(path), hint=hint, code="replay.unwritable") from None


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, compressed or not, without empty ones. A line that is too long is truncated, so unreadable.

    Raises: as `numbered`.
    """
    return (line for _, line in numbered(path))


def entries(path: Path) -> Iterator[Entry]:
    """The entries of a file, in order.

    Raises:
        ReplayError: as `numbered`, and as `read_entry`, with file and line.
    """
    for number, line in numbered(path):
        try:
            yield read_entry(line)
        except ReplayError as error:
            error.path = f"{path}:{number}" + (f" {error.path}" if error.path else "")
            raise


def numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file as `lines` gives them, each with its number, from 1.

    Raises:
        ReplayError: the file cannot be read, or its compressed data is truncated (`replay.unreadable`).
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with cast("IO[bytes]", gzip.open(raw)) if packed else raw as stream:
                for number, line in enumerate(iter(lambda: stream.readline(MAX_BYTES + 1), b""), 1):
                    if line.strip():
                        yield number, line.removesuffix(b"\n")
    except (OSError, EOFError) as error:
        message = f"cannot be read: {getattr(error, 'strerror', None) or 'its compressed data is truncated'}"
        raise ReplayError(message, path=str(path), hint="check the file", code="replay.unreadable") from None


def find(path: Path, id: str) -> Entry:
    """The entry of that id.

    Raises:
        ReplayError: there is none (`replay.unknown-id`), or as `read_entry` and `lines`.
    """
    wanted = id.encode()
    for line in lines(path):
        if wanted in line:
            entry = read_entry(line)
            if entry.id == id:
                return entry
    raise ReplayError("no entry has this id", path=str(path), hint="`cmf impact` lists ids", code="replay.unknown-id")

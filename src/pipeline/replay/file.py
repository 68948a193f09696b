"""Judged inputs on file, to be judged again: a JSON line each, with all that judgement used. Spec: docs/spec/replay.md.

Such a file holds content. It is what an operator exports on purpose; the records of the audit never hold any [E3].
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from cmf.codec import MAX_BYTES, dumps, loads
from cmf.errors import CmfError, ShapeError
from cmf.message import Message
from cmf.request import Request, Response
from cmf.value import to_json
from pipeline.approval_state import Approval
from pipeline.claims import HistoryTrust, history_trust
from pipeline.context import Context
from pipeline.decision import Decision
from pipeline.errors import ReplayError
from pipeline.policies.overrides import Override
from pipeline.policy_input import SessionFacts
from pipeline.references import RULE as BY_REFERENCE
from pipeline.stage import Traffic

VERSION: Final = 1
KINDS: Final[dict[str, type[Message] | type[Request] | type[Response]]] = {
    "message": Message,
    "request": Request,
    "response": Response,
}
_GZIP: Final = b"\x1f\x8b"
_HINT: Final = "docs/spec/replay.md says what a line holds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One judged input.

    Attributes:
        id: that of its decision.
        session: what was known of the session; `seen` are the marks on record for it that judgement asked about.
        mode: how its decision was carried out. history: how far its history was believed.
        decision: what came of it, as `summary_of` gives it.
        masked: whether stand-ins were put in place of its secrets.
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
        """Who asked, for people to read."""
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
    """The entry of a run: `traffic` and `context` as the pipeline was given them, `session` as it was read for it."""
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
    """What is kept of a decision: verdict, action, hits by view, and the stages that had a part in it.

    A refusal of what is only referred to is the pipeline's own and comes again: it is complete, and no host's stage.
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
        ReplayError: it is of a newer version (`replay.newer-schema`), or not what a line should be (`replay.invalid`).
    """
    try:
        body = loads(line)
        if not isinstance(body, dict):
            raise ShapeError("not an object", path="$")
        if body.get("schema") != VERSION:
            if not isinstance(body.get("schema"), int):
                hint = "`cmf eval --record` writes them; of bare traffic, say to a batch what it `holds`"
                raise ReplayError("no line of judged input", hint=hint, code="replay.invalid")
            hint = "use the version that wrote it"
            raise ReplayError(f"not of schema {VERSION}", path="schema", hint=hint, code="replay.newer-schema")
        history = history_trust(body["history"])
        if history is None or not isinstance(body["id"], str):
            raise ShapeError("not what it should be", path="history")
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
        raise ReplayError("not what a line should hold", hint=_HINT) from None


def _decision(spelled: Any) -> Mapping[str, Any]:
    """A summary, looked at as far as anything here reads it."""
    for view in spelled["views"]:
        for hit in view["hits"]:
            if not all(isinstance(hit[name], str) for name in ("rule", "code", "effect")):
                raise ValueError
    if not all(isinstance(spelled[name], str) for name in ("revision", "verdict", "action")):
        raise ValueError
    found: Mapping[str, Any] = spelled
    return found


def _session_json(facts: SessionFacts) -> dict[str, Any]:
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
    } | _rare(facts)


def _rare(facts: SessionFacts) -> dict[str, Any]:
    rare = {
        "overrides": [asdict(one) for one in facts.overrides],
        "active_model": facts.active_model,
        "spent": sorted(facts.spent),
    }
    return {name: fact for name, fact in rare.items() if fact}


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
    )


# -- files -------------------------------------------------------------------------------------------------------------


def append(path: Path, entry: Entry) -> None:
    """Put `entry` at the end of the file, which is made if there is none: its owner's alone. `.gz` is compressed.

    Raises:
        ReplayError: the file cannot be written (`replay.unwritable`).
    """
    line = dumps(entry.to_json()) + b"\n"
    try:
        held = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(held, "ab") as stream:
            # In one piece: whoever else appends at the same time stands before or after it.
            stream.write(gzip.compress(line) if path.suffix == ".gz" else line)
    except OSError as error:
        message, hint = f"cannot be written: {error.strerror}", "choose another place"
        raise ReplayError(message, path=str(path), hint=hint, code="replay.unwritable") from None


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, compressed or not; empty ones are left out. One that is too long is given cut, unreadable.

    Raises: as `numbered`.
    """
    return (line for _, line in numbered(path))


def entries(path: Path) -> Iterator[Entry]:
    """The entries of a file, in their order.

    Raises:
        ReplayError: as `numbered`, and as `read_entry`, with the file and the line that it is.
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
        ReplayError: the file cannot be read, or ends in the midst of what was compressed (`replay.unreadable`).
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with cast("IO[bytes]", gzip.open(raw)) if packed else raw as stream:
                for number, line in enumerate(iter(lambda: stream.readline(MAX_BYTES + 1), b""), 1):
                    if line.strip():
                        yield number, line
    except (OSError, EOFError) as error:
        message = f"cannot be read: {getattr(error, 'strerror', None) or 'what was compressed is not whole'}"
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
    raise ReplayError("no line has this id", path=str(path), hint="`cmf impact` names ids", code="replay.unknown-id")


__all__ = ["KINDS", "VERSION", "Entry", "append", "entries", "entry_of", "find", "lines", "read_entry", "summary_of"]

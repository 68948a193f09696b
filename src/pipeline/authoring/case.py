"""Reading test cases from files, and turning recorded inputs into cases. Spec: docs/spec/cases.md.

A case is a conversation, its context, and the expected decision. Nothing is judged here.
"""

from __future__ import annotations

import copy
import importlib.resources
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BeforeValidator

from cmf import adapters
from cmf.adapters import FORMATS
from cmf.enums import Role
from cmf.errors import CmfError, ShapeError
from cmf.json.codec import MAX_BYTES, loads
from cmf.json.frozen import FrozenDict, frozen_mapping
from cmf.json.value import Str, Value, json_schema, to_json, value
from cmf.message.message import Message
from cmf.message.model_ids import FORMAT_PROVIDERS
from cmf.message.request import Request, Response
from cmf.message.security import SubjectExtension
from cmf.message.tools import ToolDefinition
from pipeline.decisions.context import Context, as_subject
from pipeline.decisions.decision import Action, Verdict
from pipeline.decisions.display import meant
from pipeline.decisions.errors import CaseError
from pipeline.decisions.stage import Traffic
from pipeline.policy.metadata import DUPLICATE_KEY, load_yaml, yaml_problem
from pipeline.policy.schemas import DIALECT, NAMED, closed, expanded
from pipeline.provenance.claims import HistoryTrust, history_trust
from pipeline.run.emit import with_provider
from pipeline.run.recorded_input import Entry

_Read = TypeVar("_Read", bound=Value)
Names = tuple[Str, ...]
OneOrMore = Annotated[
    Names,
    BeforeValidator(lambda given: (given,) if isinstance(given, str) else given, json_schema_input_type=Str | Names),
]


@value
class ViewExpectation(Value):
    """What is expected of one view. `rules` are exactly those that hit."""

    verdict: Verdict | None = None
    kind: Str | None = None
    uri: Str | None = None
    rules: Names | None = None
    rules_include: Names = ()


@value
class WireExpectation(Value):
    """What the output's text in one wire format must and must not contain."""

    contains: OneOrMore = ()
    not_contains: OneOrMore = ()


@value
class Expectation(Value):
    """What is expected of a decision; unset fields are not checked. `views` are keyed by path or number: `"0"`."""

    verdict: Verdict | None = None
    action: Action | None = None
    rules: Names | None = None
    rules_include: Names = ()
    codes: Names | None = None
    labels_include: Names = ()
    labels_exclude: Names = ()
    views: Annotated[dict[Str, ViewExpectation], AfterValidator(frozen_mapping)] = FrozenDict()
    wire: Annotated[dict[Str, WireExpectation], AfterValidator(frozen_mapping)] = FrozenDict()


@value
class SessionBefore(Value):
    """The session's content before the case."""

    labels: Names = ()
    counters: Annotated[dict[Str, int], AfterValidator(frozen_mapping)] = FrozenDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case, its matrix expanded: input, context and expectation.

    `spelled` is the case as in its file, with defaults filled in.
    """

    name: str
    file: str
    spelled: Mapping[str, Any]
    traffic: Traffic
    context: Context
    session: SessionBefore
    expected: Expectation
    profiles: Path | None
    history: HistoryTrust
    skip: str | None

    @property
    def rules(self) -> frozenset[str]:
        """The rules that it expects to hit."""
        by_view = (rule for view in self.expected.views.values() for rule in (*(view.rules or ()), *view.rules_include))
        return frozenset([*(self.expected.rules or ()), *self.expected.rules_include, *by_view])


KEYS: Final = frozenset(
    {
        "name", "description", "conversation", "reply", "model", "tools", "subject", "context", "session", "profiles",
        "history", "expect", "matrix", "expect_table", "skip",
    }
)  # fmt: skip
DEFAULTS: Final = frozenset({"subject", "context", "session", "profiles", "history", "model", "tools"})
FILE_KEYS: Final = frozenset({"name", "description", "defaults", "cases"})
_SCHEMA: Final = "`cmf schema case` describes what is allowed there"
MAX_CELLS: Final = 1_000  # cases per matrix


def read_cases(path: Path) -> list[Case]:
    """The cases of a YAML or JSON file, with matrices expanded.

    Raises:
        CaseError: the file cannot be read or is not valid; the error has file and place.
    """
    return [case_of(path, where, name, single) for where, name, single in spelled_cases(path)]


def spelled_cases(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Place, name and keys of each case of a file, with defaults filled in and matrices expanded.

    Raises:
        CaseError: as `read_cases`.
    """
    body = _body(path)
    if not isinstance(body, dict):
        raise _wrong(path, "$", "not an object", "write `cases:`")
    _only(path, "$", body, FILE_KEYS)
    defaults = body.get("defaults") or {}
    _only(path, "defaults", defaults, DEFAULTS)
    listed = body.get("cases")
    if not isinstance(listed, list) or not listed:
        raise _wrong(path, "cases", "no cases", "write a list")
    for place, spelled in enumerate(listed):
        where = f"cases[{place}]"
        _only(path, where, spelled, KEYS)
        for name, single in _cells(path, where, {**defaults, **spelled}):
            yield where, name, single


def _cells(path: Path, where: str, spelled: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The case itself, or one case per cell of its matrix, with the expectation from the table."""
    name = spelled.get("name")
    if not isinstance(name, str) or not name:
        raise _wrong(path, where, "a case needs a name", "write `name:`")
    matrix = spelled.pop("matrix", None)
    table = spelled.pop("expect_table", None)
    if matrix is None:
        if table is not None:
            raise _wrong(path, f"{where}.expect_table", "a table without a matrix", "write `matrix:` or `expect:`")
        yield name, spelled
        return
    if not isinstance(matrix, dict) or not all(isinstance(values, list) and values for values in matrix.values()):
        message = "the matrix must map paths to lists of values"
        raise _wrong(path, f"{where}.matrix", message, "write `path: [value, …]`")
    axes = [list(enumerate(values)) for values in matrix.values()]
    cells = list(itertools.islice(itertools.product(*axes), MAX_CELLS + 1))
    if len(cells) > MAX_CELLS:
        raise _wrong(path, f"{where}.matrix", f"more than {MAX_CELLS} cells", "split the case")
    for cell in cells:
        single = copy.deepcopy(spelled)
        for at, (_, item) in zip(matrix, cell, strict=True):
            _put(path, f"{where}.matrix", single, at, item)
        if table is not None:
            single["expect"] = _looked_up(path, where, table, [place for place, _ in cell], sizes=[*map(len, axes)])
        shown = ", ".join(f"{at}={item!r}" for at, (_, item) in zip(matrix, cell, strict=True))
        yield f"{name} [{shown}]", single


def _looked_up(path: Path, where: str, table: Any, places: Sequence[int], *, sizes: Sequence[int]) -> Any:
    for place, size in zip(places, sizes, strict=True):
        if not isinstance(table, list) or len(table) != size:
            hint = f"write {' lists of '.join(map(str, sizes))} entries, one for each value"
            raise _wrong(path, f"{where}.expect_table", "the table does not fit the matrix", hint)
        table = table[place]
    return table


_STEP: Final = re.compile(
    r"""(?:^|\.)(?P<name>[^.\["'\]]+)|\[(?P<place>[0-9]+)\]|\["(?P<text>[^"]+)"\]|\['(?P<other>[^']+)'\]"""
)


def _put(path: Path, where: str, case: dict[str, Any], at: str, item: Any) -> None:
    """Put `item` at a path such as `subject.roles`, `conversation[0].text` or `session.counters["calls:tool://a/b.c"]`."""
    found = list(_STEP.finditer(at))
    steps = [
        int(match[0][1:-1]) if match["place"] else match["name"] or match["text"] or match["other"] for match in found
    ]
    if not steps or "".join(match[0] for match in found) != at:
        hint = f'check `{at}`; a name with a dot stands in quotes: a["b.c"]'
        raise _wrong(path, where, "not a valid path in a case", hint)
    holder: Any = case
    try:
        for step in steps[:-1]:
            holder = holder.setdefault(step, {}) if isinstance(holder, dict) else holder[step]
        holder[steps[-1]] = item
    except (AttributeError, LookupError, TypeError):
        raise _wrong(path, where, "the path does not exist in the case", f"check `{at}`") from None


def case_of(path: Path, where: str, name: str, spelled: Mapping[str, Any]) -> Case:
    """The case for these keys, without a matrix; the files it names are relative to `path`.

    Raises:
        CaseError: as `read_cases`.
    """
    try:
        context = _read_as(Context, "context", dict(spelled.get("context") or {}))
        if spelled.get("subject") is not None:
            context = context.model_copy(update={"subject": as_subject(spelled["subject"])})
        traffic, before = _traffic(path, spelled)
        profiles, expect = spelled.get("profiles"), spelled.get("expect")
        if expect is None:
            raise ShapeError("the expectation is empty", path="expect", hint="write for example `expect: deny`")
        if (history := history_trust(spelled.get("history", "claimed"))) is None:
            raise ShapeError("neither claimed nor trusted", path="history", hint="leave it out")
        return Case(
            name=name,
            file=str(path),
            spelled=spelled,
            traffic=traffic,
            context=context.model_copy(update={"history": before}) if before is not None else context,
            session=_read_as(SessionBefore, "session", spelled.get("session") or {}),
            expected=_read_as(Expectation, "expect", {"verdict": expect} if isinstance(expect, str) else expect),
            profiles=None if profiles is None else path.parent / str(profiles),
            history=history,
            skip=None if spelled.get("skip") is None else str(spelled["skip"]),
        )
    except CaseError:
        raise
    except CmfError as error:
        raise _wrong(path, f"{where} ({name}) {error.path}", error.message, error.hint or _SCHEMA) from None
    except (TypeError, ValueError):
        raise _wrong(path, f"{where} ({name})", "not allowed in a case", _SCHEMA) from None


def _read_as(cls: type[_Read], key: str, value: Any) -> _Read:
    """The value of a key of a case; a ShapeError's path starts at the key."""
    try:
        return cls.model_validate(value)
    except ShapeError as error:
        raise error.at(key) from None


def _traffic(path: Path, spelled: Mapping[str, Any]) -> tuple[Traffic, Request | None]:
    """The input and, if it is a reply, the conversation before it."""
    conversation = spelled.get("conversation")
    if isinstance(conversation, dict):
        value: Traffic = _wire(path, conversation)
    elif isinstance(conversation, list):
        messages = [_message(entry, f"conversation[{place}]") for place, entry in enumerate(conversation)]
        # Give short results the name of the call with their id, as the wire formats have it
        names: dict[object, object] = {}
        for entry, message in zip(conversation, messages, strict=True):
            for part in message["content"] if "content" not in entry else ():
                call_id = part.get("tool_call_id")
                if part["content_type"] == "tool_call" and call_id is not None:
                    names[call_id] = part.get("name")
                elif part["content_type"] == "tool_result" and names.get(call_id) is not None:
                    part.setdefault("tool_name", names[call_id])
        extra = {key: spelled[key] for key in ("model", "tools") if spelled.get(key) is not None}
        value = Request.model_validate({"messages": messages, **extra})
    else:
        raise ShapeError("a case needs a conversation", path="conversation", hint="write a list of messages")
    if spelled.get("reply") is None:
        return value, None
    if not isinstance(value, Request):
        raise ShapeError("a reply to a reply", path="reply", hint="give a request as `conversation`")
    reply = Message.model_validate(_message({"role": "assistant", **spelled["reply"]}, "reply"))
    return Response.model_validate({"choices": [{"message": reply}]}), value


def _wire(path: Path, source: Mapping[str, Any]) -> Traffic:
    """A conversation in a wire format: `{from, file | body, kind}`."""
    unknown = sorted(map(str, source.keys() - {"from", "file", "body", "kind"}))
    if unknown or ("file" in source) == ("body" in source):
        hint = "give the format, and the file relative to this one"
        raise ShapeError("not {from, file or body, kind}", path="conversation", hint=hint)
    body = loads(_read(path.parent / str(source["file"]))) if "file" in source else source["body"]
    name = str(source.get("from"))
    if name == "canonical":
        return _CANONICAL.get(str(source.get("kind")), Request).model_validate(body)
    adapter, provider = adapters.get(name), FORMAT_PROVIDERS.get(name)
    if source.get("kind") == "response":
        return with_provider(adapter.from_wire_response(body), provider)
    return with_provider(adapter.from_wire_request(body), provider)


_CANONICAL: Final[dict[str, type[Traffic]]] = {"response": Response, "message": Message}


def _message(entry: Any, where: str) -> dict[str, Any]:
    """A canonical message from its short spelling: `text`, `tool_call` and `tool_result` stand for parts."""
    if not isinstance(entry, dict) or not isinstance(entry.get("role"), str):
        raise ShapeError("a message needs a role", path=where, hint="write {role: user, text: …}")
    if "content" in entry:
        return entry
    parts: list[Any] = []
    for key, item in entry.items():
        if key == "text":
            parts.append({"content_type": "text", "text": item})
        elif key in ("tool_call", "tool_result"):
            parts += [_tool_part(key, one, where) for one in (item if isinstance(item, list) else [item])]
        elif key != "role":
            hint = "use text, tool_call, tool_result or content"
            raise ShapeError(f"unknown key {key} of a message", path=where, hint=hint)
    return {"role": entry["role"], "content": parts}


_SHORT: Final = {"id": "tool_call_id", "args": "arguments"}


def _tool_part(kind: str, item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise ShapeError(f"{kind} must be an object", path=where, hint="write {name: …}")
    fields = {_SHORT.get(str(key), str(key)): value for key, value in item.items()}
    if kind == "tool_result" and "name" in fields:
        fields["tool_name"] = fields.pop("name")
    return {"content_type": kind, **fields}


def _body(path: Path) -> Any:
    raw = _read(path)
    try:
        return loads(raw) if path.suffix == ".json" else load_yaml(raw.decode("utf-8"))
    except CmfError as error:
        raise _wrong(path, error.path, error.message, error.hint) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line, column, problem = yaml_problem(error) if isinstance(error, yaml.YAMLError) else (0, 0, "")
        if not line:
            raise _wrong(path, "$", "not YAML", "save it as UTF-8") from None
        why, hint = "not YAML", "put strings in quotes; check brackets and indentation"
        if problem == DUPLICATE_KEY:
            why, hint = DUPLICATE_KEY, "remove one of them"
        raise CaseError(why, path=f"{path}:{line}:{column}", code="case.invalid", hint=hint) from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _wrong(path, "$", f"cannot be read: {error.strerror}", "check the path") from None


def _only(path: Path, where: str, body: Any, keys: frozenset[str]) -> None:
    if not isinstance(body, dict):
        raise _wrong(path, where, "not an object", _SCHEMA)
    for key in body:
        if key not in keys:
            hint = meant(str(key), keys, f"one of {', '.join(sorted(keys))}")
            raise _wrong(path, where, f"unknown key {key!r}", hint)


def _wrong(path: Path, where: str, message: str, hint: str) -> CaseError:
    return CaseError(message, path=f"{path}: {where}", code="case.invalid", hint=hint)


def case_schema() -> dict[str, Any]:
    """The schema of one file; it leaves open what a matrix may fill in."""
    shapes = loads(importlib.resources.files("pipeline.authoring").joinpath("case_schema.json").read_bytes())
    definitions: dict[str, Any] = {}
    for cls in (Expectation, ToolDefinition, SubjectExtension, Context, SessionBefore, Message):
        schema = json_schema(cls)
        definitions |= {**schema.pop("$defs", {}), cls.__name__: schema}
    enums: dict[str, Iterable[str]] = {"roles": Role, "verdicts": Verdict, "histories": get_args(HistoryTrust)}
    named = {**NAMED, **{name: {"enum": [*words]} for name, words in enums.items()}}
    named |= {"formats": {"enum": ["canonical", *FORMATS]}}
    turn = shapes["turn"]["object"]
    for name in ("call", "result"):
        named[name] = expanded(shapes[name], named)
    named["short"] = expanded(shapes["turn"], named)
    named["reply"] = expanded({"object": {**turn, "content": {"type": "array"}}}, named)
    definitions |= expanded(shapes["definitions"], named)
    keys = expanded(shapes["keys"], named)
    named["case"] = closed({key: keys[key] for key in sorted(KEYS)}, ["name"])
    named["defaults"] = closed({key: keys[key] for key in sorted(DEFAULTS)})
    return {"$schema": DIALECT, "title": "Test cases", **expanded(shapes["file"], named), "$defs": definitions}


# -- cases of recorded inputs [RPL-9] ----------------------------------------------------------------------------------

_PLAIN: Final = frozenset({"messages", "model", "tools"})  # what a case can express without a wire body


def case_text(entry: Entry, name: str | None = None) -> str:
    """A file of one case, in YAML."""
    return yaml_text({"cases": [recorded_case(entry, name)]})


def yaml_text(document: Any) -> str:
    """The document in YAML, without aliases; with escapes for what nobody would see or a terminal obey."""
    for plain in (True, False):
        text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=plain, width=110)
        if all(line.isprintable() for line in text.split("\n")):
            break
    return text


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        return True


def recorded_case(entry: Entry, name: str | None = None) -> dict[str, Any]:
    """The case as in a case file; it expects the entry's recorded decision."""
    case: dict[str, Any] = {"name": name or entry.id, "description": f"Judged as {entry.id}."}
    body = to_json(entry.traffic)
    if isinstance(entry.traffic, Request) and body.keys() <= _PLAIN:
        case["conversation"] = [_short_message(message) for message in body.get("messages", [])]
        case |= {part: body[part] for part in ("model", "tools") if part in body}
    else:
        case["conversation"] = {"from": "canonical", "kind": type(entry.traffic).__name__.lower(), "body": body}
    context = to_json(entry.context)
    subject = context.pop("subject", None)
    if subject is not None:
        case["subject"] = subject
    if context:
        case["context"] = context
    session = {"labels": sorted(entry.session.labels), "counters": dict(entry.session.counters)}
    if any(session.values()):
        case["session"] = {part: held for part, held in session.items() if held}
    if entry.history != "claimed":
        case["history"] = entry.history
    hits = [hit for view in entry.decision["views"] for hit in view["hits"]]
    case["expect"] = {
        "verdict": entry.decision["verdict"],
        "rules": sorted({hit["rule"] for hit in hits}),
        "codes": sorted({hit["code"] for hit in hits}),
    }
    return case


def left_out(entry: Entry) -> Iterator[str]:
    """What was known when the entry was judged, but a case cannot express."""
    session = entry.session
    known = {
        "the session's events": session.events,
        "the session's approvals": session.asked,
        "labels that were lifted": session.lifted,
        "overrides in force": session.overrides,
        "earlier traffic of the session": entry.seen,
    }
    return (what for what, facts in known.items() if facts)


def _short_message(body: dict[str, Any]) -> dict[str, Any]:
    """The short spelling of a message that is one text; any other as it is."""
    match body:
        case {"role": role, "content": [{"content_type": "text", "text": text, **more}], **rest} if not (more or rest):
            return {"role": role, "text": text}
    return body

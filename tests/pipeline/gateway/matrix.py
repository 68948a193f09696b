"""Every cell of the conformance matrix, asked of a real gateway: what became of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway import matrix_bodies as bodies
from tests.pipeline.gateway.matrix_bodies import CANNOT, DIALECTS, ROWS, Row
from tests.pipeline.gateway.servers import running

from cmf.adapters import get
from cmf.json.codec import dumps, loads
from pipeline.gateway.config import config_file
from pipeline.gateway.http import dialects, endpoints
from pipeline.gateway.service import built

EFFECTS: Final = ("deny", "redact", "rewrite", "strip", "approve", "label")
MODES: Final = ("whole", "streamed", "window", "check", "envoy", "litellm")
"""Answers of an upstream in three ways, and what `/v1/check` says of the same body, and what Envoy and LiteLLM hear."""
SIZES: Final = {effect: 64 + at for at, effect in enumerate(EFFECTS)}  # by which the rules know media
Scope = MutableMapping[str, Any]
AT_ONCE: Final = 16
KINDS: Final = """\
text, thinking, tool_call, tool_result, image, document, opaque, tool_definition, resource, resource_ref, \
prompt_request, prompt_result"""
_FOUND: Final = """\
default at := -1

at := indexof(object.get(input, "content", ""), "zebra-{effect}")

found if at >= 0

found if contains(object.get(input, "uri", ""), "zebra-{effect}")

found if {{
    some one in input.properties.data
    one.decoded_length == {size}
}}
"""
_RULES: Final = {
    "deny": 'deny contains {"code": "matrix.deny", "reason": "No."} if found',
    "approve": 'require_approval contains {"code": "matrix.approve", "reason": "Ask."} if found',
    "label": 'label contains {"code": "matrix.label", "reason": "Seen.", "label": "zebra"} if found',
    "rewrite": """\
rewrite contains {"code": "m.w", "reason": "W.", "pointer": "/arguments/note", "value": "gentle"} if found""",
    "strip": 'strip_tool contains {"code": "matrix.strip", "reason": "Gone."} if found',
    "redact": """\
redact contains {"code": "matrix.redact", "reason": "R.", "pointer": "/arguments/note"} if {
    has_arguments
    found
}

redact contains {"code": "matrix.redact", "reason": "R.", "spans": [[start, start + 12]]} if {
    not has_arguments
    found
    start := max([at, 0])
}

has_arguments if input.kind in {"tool_call", "prompt_request"}""",
}
_LABELLED: Final = """\
deny contains {"code": "matrix.labelled", "reason": "The session is labelled."} if {
    input.content == "after"
    "zebra" in input.session.labels
}"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One question: does this content, in this dialect, under this effect, get what it gets everywhere?"""

    dialect: str
    row: Row
    mode: str
    effect: str

    @property
    def stream(self) -> bool:
        """Whether the client asks for a stream."""
        return self.mode in ("streamed", "window")

    @property
    def marker(self) -> str:
        """What is looked for; of media, all of it."""
        return marker_of(self.row[0], self.effect)


def marker_of(kind: str, effect: str) -> str:
    """What the rule for an effect looks for in content of a kind; of media, all of it."""
    return bodies.picture(SIZES[effect]) if kind == "media" else f"zebra-{effect}"


def modes_of(dialect: str, row: Row) -> tuple[str, ...]:
    """In which ways it can be asked: Envoy asks about requests alone, LiteLLM about what it extracts of chats."""
    kind, way = row
    chat = dialect == "openai_chat" and (way == "request" or kind in ("text", "tool_call"))
    asks = {"envoy": way == "request", "litellm": chat}
    return tuple(mode for mode in MODES if asks.get(mode, True))


CELLS: Final = tuple(
    Cell(dialect, row, mode, effect)
    for dialect in DIALECTS
    for row in ROWS
    if (dialect, *row) not in CANNOT
    for mode in modes_of(dialect, row)
    for effect in EFFECTS
)


class Upstream:
    """Gives, in the dialect that it is asked in, the answer that belongs to the cell whose number is the model."""

    def __init__(self) -> None:
        self.heard: dict[int, bytes] = {}

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw, more = b"", True
        while more:
            event = await receive()
            raw += event.get("body", b"")
            more = event.get("more_body", False)
        number = _number(scope["path"], raw)
        self.heard[number] = raw
        cell = CELLS[number]
        kind, way = cell.row
        held = (kind, cell.marker) if way == "reply" else ("text", "ok")
        answer = bodies.reply(cell.dialect, *held)
        known = dialects.DIALECTS[cell.dialect]
        if cell.stream:
            adapter = get(cell.dialect)
            media_type = known.stream_type
            events = adapter.to_wire_events(adapter.from_wire_response(answer))
            body = b"".join(map(known.frame, events))
        else:
            media_type, body = "application/json", dumps(answer)
        head = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})


def _number(path: str, raw: bytes) -> int:
    found = re.search(r"/models/[cw](\d+):", path) or re.search(r'"model":\s*"[cw](\d+)"', raw.decode())
    assert found is not None
    return int(found[1])


async def asked(
    app: Any, path: str, body: bytes, session: str, more: Sequence[tuple[bytes, bytes]] = ()
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request, without a socket."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "client": ("127.0.0.1", 1),
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"x-cmf-session-id", session.encode()),
            *more,
        ],
    }
    waiting = [{"type": "http.request", "body": body}]
    status, headers, raw = 0, {}, b""

    async def receive() -> Scope:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(event: Scope) -> None:
        nonlocal status, headers, raw
        if event["type"] == "http.response.start":
            status = event["status"]
            headers = {name.decode(): text.decode() for name, text in event["headers"]}
        raw += event.get("body", b"")

    await app(scope, receive, send)
    return status, headers, raw


async def _outcome(app: Any, upstream: Upstream, number: int, cell: Cell) -> str:
    """What became of it, in words that are the same in every dialect."""
    if cell.mode == "check":
        return await _checked(app, number, cell)
    if cell.mode == "envoy":
        return await _authorized(app, number, cell)
    if cell.mode == "litellm":
        return await _handed_over(app, number, cell)
    kind, way = cell.row
    held = (kind, cell.marker) if way == "request" else ("text", "hi")
    session, model = f"s{number}", f"{'w' if cell.mode == 'window' else 'c'}{number}"
    path, body = bodies.request(cell.dialect, *held, model=model, stream=cell.stream)
    status, headers, raw = await asked(app, path, dumps(body), session)
    heard = upstream.heard.get(number, b"")
    far = heard if way == "request" else raw
    if status != 200:
        leak = "" if cell.marker.encode() not in raw and (way == "reply" or not heard) else ", leaks"
        return refused(status, headers) + leak
    became = shown(kind, cell.marker, far)
    path, body = bodies.request(cell.dialect, "text", "after", model=model, stream=False)
    status, headers, _ = await asked(app, path, dumps(body), session)
    return became + (", labelled" if headers.get("x-cmf-code") == "matrix.labelled" else "")


async def _checked(app: Any, number: int, cell: Cell) -> str:
    """What `/v1/check` says became of it, in the same words."""
    kind, way = cell.row
    said = "response" if way == "reply" else "request"
    if way == "request":
        _, body = bodies.request(cell.dialect, kind, cell.marker, model="m", stream=False)
    else:
        body = bodies.reply(cell.dialect, kind, cell.marker)
    after = bodies.request(cell.dialect, "text", "after", model="m", stream=False)[1]
    told, raw = await checked(app, {"format": cell.dialect, "kind": said, "body": body}, f"s{number}")
    if "body" not in told:
        return withheld(told) + (", leaks" if cell.marker.encode() in raw else "")
    became = shown(kind, cell.marker, dumps(told["body"]))
    last, _ = await checked(app, {"format": cell.dialect, "kind": "request", "body": after}, f"s{number}")
    return became + (", labelled" if last.get("code") == "matrix.labelled" else "")


async def _authorized(app: Any, number: int, cell: Cell) -> str:
    """What becomes of a request that Envoy asks about: it sends what it has, or nothing."""

    async def may_go_on(kind: str, marker: str) -> tuple[bytes, int, dict[str, str], bytes]:
        path, body = bodies.request(cell.dialect, kind, marker, model="m", stream=False)
        whole = [(b"x-envoy-auth-partial-body", b"false")]
        return dumps(body), *await asked(app, f"{endpoints.ENVOY_PREFIX}{path}", dumps(body), f"s{number}", whole)

    sent, status, headers, raw = await may_go_on(cell.row[0], cell.marker)
    if status != 200:
        return refused(status, headers) + (", leaks" if cell.marker.encode() in raw else "")
    _, _, last, _ = await may_go_on("text", "after")
    return shown(cell.row[0], cell.marker, sent) + (", labelled" if last.get("x-cmf-code") == "matrix.labelled" else "")


async def _handed_over(app: Any, number: int, cell: Cell) -> str:
    """What becomes of what LiteLLM extracts of a chat: it puts other texts in the place of its own, or stops."""
    if cell.row[1] == "request":
        body = bodies.request(cell.dialect, cell.row[0], cell.marker, model="m", stream=False)[1]
        contents = [message.get("content") for message in body["messages"]]
        parts = [part for one in contents for part in (one if isinstance(one, list) else [{"text": one}])]
        texts = [part["text"] for part in parts if part.get("text") is not None]
        handed = {"input_type": "request", "structured_messages": body["messages"], "tools": body.get("tools")}
    else:
        message = bodies.reply(cell.dialect, *(cell.row[0], cell.marker))["choices"][0]["message"]
        texts = [message["content"]] if message.get("content") else []
        handed = {"input_type": "response", "tool_calls": message.get("tool_calls")}
    told, headers, raw = await _guarded(app, {**handed, "texts": texts}, number)
    if told["action"] == "BLOCKED":
        return refused(403, headers) + (", leaks" if cell.marker.encode() in raw else "")
    _, last, _ = await _guarded(app, {"input_type": "request", "texts": ["after"]}, number)
    became = shown(cell.row[0], cell.marker, dumps(told.get("texts", {**handed, "texts": texts})))
    return became + (", labelled" if last.get("x-cmf-code") == "matrix.labelled" else "")


async def _guarded(app: Any, handed: Mapping[str, Any], number: int) -> tuple[Any, dict[str, str], bytes]:
    status, headers, raw = await asked(app, endpoints.LITELLM_PATH, dumps(handed), f"s{number}")
    assert status == 200, raw
    return loads(raw), headers, raw


def refused(status: int, headers: Mapping[str, str]) -> str:
    """What a refusal says of itself."""
    return f"{status} {headers.get('x-cmf-code')}" + (", names the approval" if "x-cmf-approval-id" in headers else "")


async def checked(app: Any, question: Mapping[str, Any], session: str) -> tuple[Any, bytes]:
    """What is answered to a check, read and as it came."""
    status, _, raw = await asked(app, endpoints.CHECK_PATH, dumps(question), session)
    assert status == 200, raw
    return loads(raw), raw


def withheld(told: Mapping[str, Any]) -> str:
    """What an answer without a body says, as a dialect's refusal would."""
    assert told["action"] == ("suspend" if "approvals" in told else "refuse")
    return f"403 {told['code']}" + (", names the approval" if "approvals" in told else "")


def shown(kind: str, marker: str, far: bytes) -> str:
    """What became of content that was let go on, by what arrived at the far end."""
    if marker.encode() in far:
        return "goes through"
    if b"gentle" in far:
        return "rewritten"
    if kind == "tool_definition":
        return "stripped" if b"lookup" not in far else "changed"
    # Thinking that is signed, or was another's, goes as a whole.
    return "masked" if b"[MASKED]" in far and kind != "thinking" else "taken out"


def policies_of(home: Path) -> Path:
    """The rules of all effects."""
    rules = {effect: f"{_FOUND.format(effect=effect, size=SIZES[effect])}\n{rule}" for effect, rule in _RULES.items()}
    return write_rules(home / "policy", {**rules, "labelled": _LABELLED}, kinds=KINDS)


def settings_of(home: Path, upstream: str) -> Path:
    """The file of a gateway with a route from each dialect to the same, under the rules of all effects."""
    policies = policies_of(home)
    body = {
        "anonymous": True,
        "store": "matrix.db",
        "policies": [str(policies)],
        "watch": False,
        "check": {"envoy": {}, "litellm": {"edit_answers": True}},
        "upstreams": {name: {"dialect": name, "base_url": upstream} for name in DIALECTS},
        "routes": [
            {"name": name + suffix, "upstream": name, "dialects": [name], "models": [models], "stream": stream}
            for name in DIALECTS
            for suffix, models, stream in (("", "c*", "buffer"), ("-window", "w*", {"window": 1}))
        ],
    }
    file = home / "cmf.yaml"
    file.write_text(yaml.safe_dump(body), encoding="utf-8")
    return file


def outcomes(home: Path) -> dict[Cell, str]:
    """What became of every cell."""
    upstream = Upstream()

    async def all_of(app: Any) -> list[str]:
        await app.open()
        room = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, cell: Cell) -> str:
            async with room:
                return await _outcome(app, upstream, number, cell)

        try:
            return await asyncio.gather(*(one(number, cell) for number, cell in enumerate(CELLS)))
        finally:
            await app.close()

    with running(upstream) as url:
        settings = config_file.load(settings_of(home, url), {}).settings
        with built(settings, {}) as gateway:
            return dict(zip(CELLS, asyncio.run(all_of(gateway)), strict=True))


def expected(row: Row, effect: str, mode: str) -> str:
    """What becomes of it, in every dialect, in that way: Envoy can change nothing, LiteLLM texts alone."""
    became = _expected(row[0], effect)
    changed = not became.startswith(("403", "goes"))
    texts = became == "masked" and row[0] in ("text", "tool_result")
    cannot = mode == "envoy" or (mode == "litellm" and not texts)
    return "403 check.would-change" if changed and cannot else became


def _expected(kind: str, effect: str) -> str:
    match effect:
        case "deny":
            return "403 matrix.deny"
        case "approve":
            return "403 matrix.approve, names the approval"
        case "label":
            return "goes through, labelled"
        case "rewrite":
            return "rewritten" if kind == "tool_call" else "403 policy.bad-effect"
        case "strip":
            return "stripped" if kind == "tool_definition" else "403 policy.bad-effect"
    if kind in ("media", "opaque", "tool_definition"):
        return "403 effect.no-text"
    return "taken out" if kind == "thinking" else "masked"


def table(found: Mapping[Cell, str]) -> str:
    """The matrix for people: what became of each kind of content, where it differs, and what has no words for it."""
    rows = {
        f"{row[0]} in a {row[1]}": {
            effect: [cell for cell in CELLS if (cell.row, cell.effect) == (row, effect)] for effect in EFFECTS
        }
        for row in ROWS
    }
    lines = table_of(rows, found)
    right = sum(found[cell] == expected(cell.row, cell.effect, cell.mode) for cell in CELLS)
    lines += ["", f"{right} of {len(CELLS)} cells: {', '.join(DIALECTS)}; {', '.join(MODES)}.", ""]
    lines += [f"- {name} has no words for {kind} in a {way}: {why}." for (name, kind, way), why in CANNOT.items()]
    return "\n".join(lines)


_C = TypeVar("_C")


def table_of(rows: Mapping[str, Mapping[str, Sequence[_C]]], found: Mapping[_C, str]) -> list[str]:
    """Lines of a table: what became of the cells of each row, by effect, with every outcome where they differ."""
    lines = [f"| content | {' | '.join(EFFECTS)} |", f"|---|{'---|' * len(EFFECTS)}"]
    for row, effects in rows.items():
        said = [" / ".join(sorted({found[cell] for cell in effects[effect]})) for effect in EFFECTS]
        lines.append(f"| {row} | {' | '.join(said)} |")
    return lines

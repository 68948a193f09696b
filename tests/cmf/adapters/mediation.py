"""Whether every string of a body reaches policy, and nothing leaves that did not [B3]."""

from __future__ import annotations

import ast
import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol

import orjson

import cmf.enums
from cmf.adapters import FORMATS
from cmf.adapters.wire.base import Adapter
from cmf.errors import CmfError
from cmf.json.codec import loads, loads_object
from cmf.message.request import Request, Response
from tests.cmf.adapters.tally import Tally, cases, decoded, emitted, inputs
from tests.cmf.adapters.wiredata import (
    CANARY,
    Record,
    Side,
    Spot,
    every,
    planted,
    spots,
    strings,
)
from tests.house.tree import SRC, parsed

FRAMING = frozenset({"event", "id", "comment"})  # of an event: regenerated or dropped, never copied [E1]


class Judge(Protocol):
    """A policy that hits `token`: called with the inputs of a value's views, gives the paths of those that it hit."""

    token: str

    def __call__(self, inputs: list[dict[str, Any]], /) -> set[str]: ...


def check_mediated(
    format_name: str,
    chosen: Iterable[Record],
    *,
    at_most: int | None = None,
    seed: int = 0,
    judge: Judge | None = None,
) -> Tally:
    """A canary at any leaf or key of a body is in some policy input (itself or by digest), or the body is refused [B3].

    With a judge the canary is its token, and the judge has to hit a view that shows it; a refusal counts as a hit.
    """
    token = CANARY if judge is None else judge.token
    tally = Tally("mediated" if judge is None else "judged")
    marks = _marks(token)
    for adapter, where, side, body, context in cases(format_name, chosen, "request", "response", "stream"):
        places = [spot for spot in spots(body) if not _of_the_envelope(spot, side)]
        for spot in every(places, at_most, seed):
            problem, how = _mediation(adapter, side, planted(body, spot, token), spot, context, marks, judge)
            tally.count(how)
            tally.case(f"{where} {spot}", problem)
    return tally


def _of_the_envelope(spot: Spot, side: Side) -> bool:
    """The names `data`, `event` … belong to our own envelope of an event, not to the wire."""
    return side == "stream" and spot.what == "key" and len(spot.path) == 2


def _mediation(
    adapter: Adapter,
    side: Side,
    body: Any,
    spot: Spot,
    context: Request | None,
    marks: tuple[bytes, ...],
    judge: Judge | None,
) -> tuple[str, str]:
    try:
        value = decoded(adapter, side, body, context)
        shown = inputs(value)
    except CmfError:
        return "", "refused"
    texts = [orjson.dumps(each) for each in shown]
    if judge is not None:
        showing = {each["input"]["path"] for each, text in zip(shown, texts, strict=True) if marks[0] in text}
        if not showing:
            return "", "no free text"  # binary data stands there by digest, framing not at all: nothing to scan
        return ("", "judged") if judge(shown) & showing else ("shown, but no rule hits it", "missed")
    if any(mark in text for mark in marks for text in texts):
        return "", "found"
    if side == "stream" and len(spot.path) == 2 and spot.path[1] in FRAMING:
        again = b"".join(orjson.dumps(event) for event in adapter.to_wire_events(value))  # type: ignore[arg-type]
        return ("a framing field is copied", "missed") if marks[0] in again else ("", "dropped framing")
    return "in no policy input", "missed"


def _marks(token: str) -> tuple[bytes, ...]:
    compact = token.encode()
    found = [compact, hashlib.sha256(compact).hexdigest().encode()]
    if len(token) % 4 == 0 and token.isalnum():
        found.append(hashlib.sha256(base64.b64decode(token)).hexdigest().encode())
    return tuple(found)


def check_emitted(format_name: str, chosen: Iterable[Record]) -> Tally:
    """Every string of what is emitted was in a policy input (itself or by digest), or is a constant of the adapter."""
    tally = Tally("emitted")
    constants = adapter_constants(format_name)
    for adapter, where, side, body, context in cases(format_name, chosen, "request", "response", "stream"):
        try:
            value = decoded(adapter, side, body, context)
            out = [emitted(adapter, value)]
            if isinstance(value, Response):
                out.append(adapter.to_wire_events(value))
            unseen = unseen_strings(out, value, constants)
        except CmfError:
            continue  # refused: nothing is emitted
        tally.case(where, f"{len(unseen)} unjudged, such as {unseen[0][:60]!r}" if unseen else "")
    return tally


def unseen_strings(body: Any, value: Request | Response, constants: frozenset[str]) -> list[str]:
    """The strings of a body that no policy input of the value has, and that are no constants."""
    shown = set(strings(inputs(value)))
    shown |= {inner for text in shown for inner in _inside(text)}
    flat: list[str] = []
    return [text for text in strings(body) if not _is_seen(text, shown, constants, flat)]


def _inside(text: str) -> list[str]:
    """The strings of a text that is JSON: a view shows arguments, results and opaque blocks so."""
    if text[:1] not in ("{", "["):
        return []
    try:
        return list(strings(loads(text)))
    except CmfError:
        return []


def _is_seen(text: str, shown: set[str], constants: frozenset[str], flat: list[str]) -> bool:
    if text in shown or text in constants or not text.strip():
        return True
    if hashlib.sha256(text.encode()).hexdigest() in shown:
        return True
    if text.startswith("data:") and "," in text:
        head, payload = text.split(",", 1)
        kind = head.removeprefix("data:").removesuffix(";base64")
        return _is_seen(payload, shown, constants, flat) and _is_seen(kind, shown, constants, flat)
    head, dash, name = text.partition("-")
    if dash and head + dash in constants and name in shown:  # `tool-<name>`: a constant before what was shown
        return True
    if text.startswith(("msg_", "call_")) and text.partition("_")[2].isdecimal():  # an id by position
        return True
    if not flat:
        flat.append("\n".join(shown))
    if text in flat[0]:
        return True
    inside = loads_object(text)
    return inside is not None and all(_is_seen(each, shown, constants, flat) for each in strings(inside))


@cache
def adapter_constants(format_name: str) -> frozenset[str]:
    """Every string literal in the code of an adapter and its floor, and every member of the closed sets."""
    folder = SRC / "cmf" / "adapters"
    shared = [path for path in (*folder.glob("*.py"), *folder.glob("wire/*.py")) if path.stem not in FORMATS]
    family = _FAMILIES.get(format_name, format_name)
    own = [*folder.glob(f"{format_name}.py"), *folder.glob(f"{family}/*.py")]
    members = {member.value for kind in vars(cmf.enums).values() if isinstance(kind, type) for member in _members(kind)}
    literals = {
        node.value
        for path in (*shared, *own)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return frozenset(members | literals)


_FAMILIES = {"openai_chat": "chat_completions", "openrouter": "chat_completions"}
"""Formats that are a dialect of a shape which a package has."""


def _members(kind: type) -> list[Any]:
    return list(kind) if issubclass(kind, cmf.enums.StrEnum) else []

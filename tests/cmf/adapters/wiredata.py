"""The recorded wire traffic, and how a body of it is changed by the proofs. Nothing here knows a format."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import pytest

from cmf.json.codec import loads_object
from tests.house.tree import ROOT

WIRE = ROOT.parent / "shared" / "data" / "wire"

Side: TypeAlias = Literal["request", "response", "stream"]
Path: TypeAlias = tuple[str | int, ...]

# 24 letters and digits: text anywhere, and valid base64 too (18 bytes that are no text).
CANARY = "Canary7Qx2Zk9Lm4Vb8Rt3Wy"


@dataclass(frozen=True, slots=True)
class Record:
    """One recorded exchange; what was not recorded is None."""

    source: str
    host: str | None
    status: int | None
    request: Any
    response: Any
    events: list[dict[str, Any]] | None

    @property
    def sides(self) -> list[tuple[Side, Any]]:
        """What there is of request, response and stream."""
        found: list[tuple[Side, Any]] = [
            ("request", self.request),
            ("response", self.response),
            ("stream", self.events),
        ]
        return [(side, body) for side, body in found if body is not None]


@cache
def records(format_name: str) -> tuple[Record, ...]:
    """All recorded exchanges of a format; skips the test where the recordings are not at hand."""
    path = WIRE / f"{format_name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no recorded traffic: {path.name} is kept beside the project, not in it")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(_record(json.loads(line)) for line in lines)


def _record(line: dict[str, Any]) -> Record:
    return Record(
        source=line["source"],
        host=line["host"],
        status=line["status"],
        request=line["request"],
        response=line["response"],
        events=line["events"],
    )


def sampled(items: Sequence[Record], scale: float, seed: int) -> list[Record]:
    """A fraction of the records (all of them from 1.0 on), drawn afresh with each seed."""
    if scale >= 1:
        return list(items)
    return random.Random(seed).sample(items, max(1, round(len(items) * scale)))


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for a canary: a string leaf, an object's key, or something inside a leaf (JSON in text, a data URL)."""

    path: Path
    what: Literal["leaf", "key", "embedded", "payload"]
    inner: Path = ()

    def __str__(self) -> str:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in (*self.path, *self.inner))
        return f"{steps.removeprefix('.')} ({self.what})"


def spots(body: Any) -> list[Spot]:
    """Every place of a body where a canary can be put."""
    return list(_spots(body, ()))


def _spots(body: Any, path: Path) -> Iterator[Spot]:
    if isinstance(body, dict):
        for key, item in body.items():
            yield Spot((*path, key), "key")
            yield from _spots(item, (*path, key))
    elif isinstance(body, list):
        for index, item in enumerate(body):
            yield from _spots(item, (*path, index))
    elif isinstance(body, str):
        yield Spot(path, "leaf")
        if body.startswith("data:") and "," in body:
            yield Spot(path, "payload")
        elif body.startswith("{") and (inside := loads_object(body)) is not None:
            yield from (Spot(path, "embedded", spot.path) for spot in _spots(inside, ()) if spot.what == "leaf")


def planted(body: Any, spot: Spot, canary: str = CANARY) -> Any:
    """The body with the canary at the spot; everything else is shared with the original."""
    if spot.what == "key":
        return changed(body, spot.path[:-1], lambda holder: _renamed(holder, spot.path[-1], canary))
    if spot.what == "payload":
        return changed(body, spot.path, lambda url: url[: url.index(",") + 1] + canary)
    if spot.what == "embedded":
        return changed(
            body, spot.path, lambda text: json.dumps(changed(json.loads(text), spot.inner, lambda _: canary))
        )
    return changed(body, spot.path, lambda _: canary)


def _inside(text: str, path: Path, canary: str) -> str:
    return json.dumps(changed(json.loads(text), path, lambda _: canary))


def _renamed(holder: dict[str, Any], key: Any, name: str) -> dict[str, Any]:
    return {name if each == key else each: item for each, item in holder.items()}


def changed(body: Any, path: Path, change: Any) -> Any:
    """The body with `change` applied to what stands at the path; only what leads there is copied."""
    if not path:
        return change(body)
    copy = body.copy()
    copy[path[0]] = changed(body[path[0]], path[1:], change)
    return copy


def strings(body: Any) -> Iterator[str]:
    """Every string of a body: leaves and keys."""
    if isinstance(body, str):
        yield body
    elif isinstance(body, dict):
        for key, item in body.items():
            yield key
            yield from strings(item)
    elif isinstance(body, list | tuple):
        for item in body:
            yield from strings(item)


def first_difference(left: Any, right: Any, path: str = "$") -> str:
    """Where two JSON values first differ, and how: kinds and lengths, for a table of differences."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in (*right, *(key for key in left if key not in right)):
            if key not in left or key not in right:
                return f"{path}.{key} {'is missing' if key not in left else 'is added'}"
            if found := first_difference(left[key], right[key], f"{path}.{key}"):
                return found
        return ""
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return f"{path} has {len(left)} items, not {len(right)}"
        pairs = enumerate(zip(left, right, strict=True))
        return next((found for at, (a, b) in pairs if (found := first_difference(a, b, f"{path}[{at}]"))), "")
    if type(left) is type(right) and left == right:
        return ""
    return f"{path} is {_brief(left)}, not {_brief(right)}"


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else f"{text[:40]}… ({len(text)} characters)"


def every(items: Iterable[Spot], at_most: int | None, seed: int) -> list[Spot]:
    """All spots, or so many of them drawn with the seed."""
    listed = list(items)
    return listed if at_most is None or len(listed) <= at_most else random.Random(seed).sample(listed, at_most)

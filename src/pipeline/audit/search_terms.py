"""The searchable facts in a record's body: names and values, never content. Spec: docs/spec/audit.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cmf.errors import DecodeError
from cmf.json.codec import loads


def facts_of(kind: str, body: bytes | None) -> frozenset[tuple[str, str]]:
    """The facts to index for a record; none if its body is erased or not JSON."""
    if kind != "decision" or body is None:
        return frozenset()
    try:
        return frozenset(_facts(loads(body)))
    except (DecodeError, KeyError, TypeError, AttributeError):
        return frozenset()


def _facts(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    result = body["result"]
    yield "mode", result["mode"]
    coverage = result["coverage"]
    yield "covered", "yes" if coverage["evaluated"] == coverage["produced"] else "no"
    if (environment := body.get("environment")) is not None:
        yield "environment", environment
    for view in result["views"]:
        yield "view", view["kind"]
        if view["kind"] in _OF_TOOLS and "name" in view:
            yield "tool", view["name"]
        if "uri" in view and view["hits"]:
            yield "uri", view["uri"]
        for hit in view["hits"]:
            yield from _of_hit(hit)
    for stage in result.get("stages", ()):
        if "hit" in stage:
            yield "stage", stage["stage"]
            yield from _of_hit(stage["hit"])


def _of_hit(hit: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("rule", "code", "effect", "severity"):
        yield name, hit[name]
    if "excused" in hit:
        yield "excused", "override" if "override" in hit["excused"] else "exception"
    if "override" in hit.get("excused", {}):
        yield "override", hit["excused"]["override"]


_OF_TOOLS = frozenset({"tool_call", "tool_result", "tool_definition"})

__all__ = ["facts_of"]

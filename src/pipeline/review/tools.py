"""The tools that recorded decisions name: what was inferred of each, how often it asked, what people said.

Spec: docs/spec/review.md [REV-47].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cmf.message.tools import ToolDefinition
from pipeline.audit.query import Value, exactly
from pipeline.decisions.timestamps import iso
from pipeline.provenance.inference import infer
from pipeline.provenance.profiles import Entity
from pipeline.review.site import Page, Site, Visit
from pipeline.review.summary import Json

MOST: Final = 500  # tools on the page: those that most decisions name
HELD: Final = 500  # the newest held decisions in which questions are counted
_NEWEST: Final = 5  # the newest decisions about a tool in which its facts are looked for
_FACTS: Final = ("actions", "sink", "irreversible")
_NOT_ON_RECORD: Final = "its definition or its arguments say it, which are not on record"
_NO_PATHS: Final = "records name no arguments; cmf profiles show reads them in the definition"
_NOTHING: Final[Json] = {"result": {"views": []}}  # of a record that was erased
_SAID: Final = {"approve": "agreed", "deny": "refused"}


def tools(site: Site, _visit: Visit) -> Page:
    """Each tool that decisions name, those first that most decisions name."""
    matches = site.catalog.select(site.query(""))
    listed = site.catalog.values(matches, "tool", limit=MOST + 1)
    counts = _counts(site)
    rows = [_row(site, name, decisions, counts.get(name, {})) for name, decisions in listed[:MOST]]
    is_cut = len(listed) > MOST or (not listed and bool(site.catalog.having("tool", Value("", begins=True))))
    return Page("tools.html", {"rows": rows, "cut": is_cut, "most": MOST, "held": HELD})


def _counts(site: Site) -> dict[str, dict[str, int]]:
    """Tool → how many approvals were asked for its calls, and how many of these people agreed to and refused."""
    tool_of: dict[str, str] = {}
    held = site.catalog.page(site.catalog.having("verdict", "require_approval"), before=None, limit=HELD)
    for body in filter(None, site.bodies(held).values()):
        called = {view["path"]: str(view["name"]) for view in _calls(body)}
        for ref in _dicts(body["result"].get("approvals")):
            if (name := called.get(str(ref.get("path")))) is not None:
                tool_of[str(ref.get("id"))] = name
    said: dict[str, str] = {}
    for annotation in site.catalog.annotations_of("review"):
        if (action := annotation.body.get("action")) in ("approve", "deny"):
            said[str(annotation.body.get("approval"))] = _SAID[action]
    counts: dict[str, dict[str, int]] = {}
    for asked_id, name in tool_of.items():
        counted = counts.setdefault(name, {"asked": 0, "agreed": 0, "refused": 0})
        for outcome in ("asked", said.get(asked_id)):
            if outcome is not None:
                counted[outcome] += 1
    return counts


def _row(site: Site, name: str, decisions: int, counts: Mapping[str, int]) -> Json:
    placed = site.catalog.page(site.catalog.having("tool", name), before=None, limit=_NEWEST)
    bodies = site.bodies(placed)
    newest = [(row, view) for row in placed for view in _calls(bodies.get(row.seq) or _NOTHING) if view["name"] == name]
    uris = dict.fromkeys(str(view["uri"]) for _, view in newest if "uri" in view)
    row, view = next(((row, view) for row, view in newest if isinstance(view.get("inferred"), dict)), (None, {}))
    return {
        "name": name,
        "uris": list(uris),
        "decisions": decisions,
        "q": exactly("tool", name),
        **{outcome: counts.get(outcome, 0) for outcome in ("asked", "agreed", "refused")},
        "recorded": None if row is None else {"id": row.id, "at": iso(row.at)},
        "facts": list(_facts(name, str(view.get("uri", "")), view.get("inferred", {}))),
    }


def _calls(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [view for view in body["result"]["views"] if view["kind"] == "tool_call" and "name" in view]


def _facts(name: str, uri: str, recorded: Mapping[str, Any]) -> Iterator[Json]:
    """The facts of a call on record, each with its reason if the tool's name gives the same."""
    if not recorded:
        return
    namespace = Entity.of_uri(uri).namespace if uri.startswith("tool://") else None
    by_name = {fact.field: fact for fact in infer(ToolDefinition(name=name, namespace=namespace)).facts}
    inferred = recorded.get("inferred")
    for field in _FACTS:
        value, fact = recorded.get(field), by_name[field]
        if not isinstance(inferred, list) or field not in inferred:
            yield {"field": field, "value": value, "inferred": False, "reason": "an operator wrote it"}
        else:
            is_same = value == (list(fact.value) if isinstance(fact.value, tuple) else fact.value)
            yield {
                "field": field,
                "value": value,
                "inferred": True,
                "reason": fact.reason if is_same else _NOT_ON_RECORD,
            }
    is_inferred = isinstance(inferred, list) and "control" in inferred
    yield {"field": "control", "value": None, "inferred": is_inferred, "reason": _NO_PATHS}


def _dicts(listed: Any) -> list[Mapping[str, Any]]:
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []

"""A decision's record summarised in a sentence, and the parts of it that pages show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pipeline.decisions.display import counted

Json: TypeAlias = dict[str, Any]
_KINDS: Final = {
    "text": "a text",
    "thinking": "a model's thinking",
    "tool_call": "the tool call",
    "tool_result": "the result of the tool",
    "tool_definition": "the definition of the tool",
    "prompt_request": "the prompt request",
    "prompt_result": "the prompt result",
    "resource": "a resource",
    "resource_ref": "a reference to a resource",
}
_EDITS: Final = {"redact": "masked", "rewrite": "rewrote", "strip_tool": "took out"}
_VERBS: Final = {"deny": "denied", "require_approval": "wants a person to approve", "warn": "warned about"}


def hits(body: Mapping[str, Any]) -> Iterator[tuple[Json | None, Json]]:
    """Every hit with its view; None for hits of stages."""
    result = body["result"]
    for stage in result.get("stages", ()):
        if "hit" in stage:
            yield None, stage["hit"]
    for view in result["views"]:
        for hit in view["hits"]:
            yield view, hit


def skipped(body: Mapping[str, Any]) -> list[Json]:
    """The views that were never evaluated, and why."""
    views: list[Json] = body["result"]["coverage"].get("skipped", [])
    return views


def not_judged(body: Mapping[str, Any]) -> int:
    """How many parts were never evaluated."""
    coverage = body["result"]["coverage"]
    return max(int(coverage["produced"]) - int(coverage["evaluated"]), len(skipped(body)))


def readable(body: Mapping[str, Any]) -> bool:
    """Whether this is a well-formed record of a decision; other writers may have written anything."""
    try:
        sentence(body)
        result = body["result"]
        rules = [(hit["rule"] + hit["code"] + hit["effect"] + hit["severity"], hit["mode"]) for _, hit in hits(body)]
        views = [
            view["path"] + view["kind"] + view["role"] + view["verdict"] + view["outcome"] for view in result["views"]
        ]
        left_out = [view["path"] + view["reason"] for view in skipped(body)]
        body.get("metrics", {}).get("run_ns", 0) / 1
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False
    return all(isinstance(texts, list) for texts in (rules, views, left_out)) and isinstance(result["mode"], str)


def sentence(body: Mapping[str, Any]) -> str:
    """What happened, in a sentence or two. It contains names from traffic and rules, never content."""
    result = body["result"]
    sentences = [_outcome(body)]
    missed = not_judged(body)
    produced = result["coverage"]["produced"]
    if 0 < missed < produced:
        sentences.append(f"{missed} of {produced} parts {'was' if missed == 1 else 'were'} not evaluated.")
    elif missed:
        sentences.append(
            "Its only part was not evaluated." if missed == 1 else f"None of its {missed} parts was evaluated."
        )
    described = 0 if result["action"] in ("refuse", "suspend") else len(_lifted(body, result["verdict"]))
    others = result.get("excused", 0) - described
    if others > 0:
        were = "hit was" if others == 1 else "hits were"
        sentences.append(f"{others} {'more ' if described else ''}{were} excused, and so not enforced.")
    return " ".join(sentences)


def _outcome(body: Mapping[str, Any]) -> str:
    result = body["result"]
    verdict, action = result["verdict"], result["action"]
    reasons = [(view, hit) for view, hit in hits(body) if hit["effect"] == verdict and _enforced(hit)]
    because = _because(reasons, verdict)
    if action == "refuse":
        return f"Refused: {because}." if because else "Refused."
    if action == "suspend":
        return f"Held for approval: {because}." if because else "Held for approval."
    edits = [(view, hit) for view, hit in hits(body) if hit["effect"] in _EDITS and _enforced(hit)]
    approvals = result.get("approvals") or []
    approved = approvals and all(approval.get("status") in ("approved", "used") for approval in approvals)
    if verdict == "require_approval" and approved:
        return f"Let through, because a person had approved it: {because}." if because else "Let through, as approved."
    if verdict in ("deny", "require_approval") and not reasons and (lifted := _lifted(body, verdict)):
        under = "an override" if any("override" in hit["excused"] for _, hit in lifted) else "an exception"
        return f"Let through under {under}, although {_because(lifted, verdict)}."
    if verdict in ("deny", "require_approval"):
        return f"Let through, because policy is in observe mode. It would have been stopped: {because or verdict}."
    if edits and action == "forward_modified":
        described = [
            f"rule {hit['rule']} {_EDITS[hit['effect']]} {extent(hit)}{'' if view is None else named(view)}"
            for view, hit in edits[:2]
        ]
        return f"Let through after {counted(len(edits), 'edit')}: {_first_two(described, len(edits))}."
    if verdict == "warn":
        return f"Let through with a warning: {because}." if because else "Let through with a warning."
    parts = result["coverage"]["evaluated"]
    return f"Let through: no rule objected to {'the one part' if parts == 1 else f'any of {parts} parts'}."


def _enforced(hit: Mapping[str, Any]) -> bool:
    return "excused" not in hit


def _lifted(body: Mapping[str, Any], verdict: str) -> list[tuple[Json | None, Json]]:
    """The hits that would have stopped it had they not been excused."""
    if verdict not in ("deny", "require_approval"):
        return []
    return [(view, hit) for view, hit in hits(body) if hit["effect"] == verdict and not _enforced(hit)]


def _because(reasons: Sequence[tuple[Json | None, Json]], verdict: str) -> str:
    described: list[str] = []
    for view, hit in reasons[:2]:
        about = "the run" if view is None else named(view)
        if hit["rule"].startswith("stage/"):
            described.append(f"stage {hit['rule'].removeprefix('stage/')} stopped {about} ({hit['code']})")
        elif hit["rule"] in ("engine", "session"):
            described.append(f"policy could not judge {about} ({hit['code']})")
        else:
            described.append(f"rule {hit['rule']} {_VERBS.get(verdict, verdict)} {about}")
    return _first_two(described, len(reasons))


def _first_two(described: Sequence[str], total: int) -> str:
    return "; ".join(described) + (f"; and {total - 2} more" if total > 2 else "")


def extent(hit: Mapping[str, Any]) -> str:
    """How much a redaction masked, as `3 places in `; empty for other hits."""
    redacted = hit.get("redacted") or {}
    if "spans" in redacted:
        return f"{counted(redacted['spans'], 'place')} in "
    return "a value in " if "depth" in redacted else ""


def named(view: Mapping[str, Any]) -> str:
    """A view as a noun: `the tool call send_mail`."""
    kind = _KINDS.get(view["kind"], view["kind"].replace("_", " "))
    return f"{kind} {view['name']}" if view.get("name") and view["kind"] in _KINDS and kind.startswith("the ") else kind

"""An engine that records its inputs, for tools that explain a decision. Spec: docs/spec/policies.md [POL-51]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from cmf.json.codec import loads
from pipeline.decisions.engine import Engine, EngineResult, InlineEngine

Json: TypeAlias = dict[str, Any]


class Tap(InlineEngine):
    """Wraps an engine and records the entrypoint and the policy input of each view."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: list[tuple[str, Json]] = []

    @property
    def revision(self) -> str:
        """That of the engine."""
        return self._engine.revision

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """The answer of the wrapped engine."""
        common = loads(shared)
        self.asked += [(name, _merged(common, loads(view))) for name, view in zip(entrypoints, views, strict=True)]
        return self._engine.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        """Nothing: the engine is kept for the next run."""

    def documents(self) -> dict[str, list[Mapping[str, Any]]]:
        """By path, what policy saw of each view: once, or each time that it was another thing."""
        seen: dict[str, list[Mapping[str, Any]]] = {}
        for _, document in self.asked:
            listed = seen.setdefault(document["path"], [])
            if document not in listed:
                listed.append(document)
        return seen


def _merged(under: Any, over: Any) -> Any:
    """`over` on top of `under`, object by object."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return under | {key: _merged(under.get(key), item) for key, item in over.items()}

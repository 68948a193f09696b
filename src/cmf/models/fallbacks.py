"""The models that a request names besides its own: those its provider may turn to, and those its tools ask. [VIEW-23].

Wire formats keep them in fields that no table knows. Whoever allows models by name has to be told of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cmf.message.model_ids import wire_name
from cmf.message.request import Request

_LISTS: Final = ("fallbacks", "models")
_ROUTES: Final = ("routing_config", "routingConfig")  # of Gemini, here or in its `generationConfig`
_NAMES: Final = ("model", "model_name", "modelName")


def other_models(request: Request) -> list[str]:
    """Their names as written on the wire, in order, each once; the request's own is not among them."""
    if not request.extra and not any(tool.extra for tool in request.tools):
        return []
    found = dict.fromkeys(_of_request(request.extra or {}))
    for tool in request.tools:
        found |= dict.fromkeys(name for own in _levels(tool.extra or {}) for name in _named(own))
    own = request.model or ""
    return [name for name in found if name not in (own, wire_name(own))]


def _of_request(extra: Mapping[str, Any]) -> Iterator[str]:
    for own in _levels(extra):
        for key in _LISTS:
            yield from _listed(own.get(key))
        for key in _ROUTES:
            if isinstance(route := own.get(key), dict):
                yield from (name for level in _levels(route) for name in _named(level))


def _listed(item: Any) -> Iterator[str]:
    """Names, or objects that have one, in a list or alone ("default" is one too: nobody here knows which it means)."""
    for each in item if isinstance(item, list | tuple) else [item]:
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            yield from _named(each)


def _named(own: Mapping[str, Any]) -> Iterator[str]:
    yield from (item for key in _NAMES if isinstance(item := own.get(key), str))


def _levels(extra: Mapping[str, Any], depth: int = 2) -> Iterator[Mapping[str, Any]]:
    """These fields, and the objects among them: under the name of a wire format, and once more within."""
    yield extra
    if depth:
        for inner in extra.values():
            if isinstance(inner, dict):
                yield from _levels(inner, depth - 1)

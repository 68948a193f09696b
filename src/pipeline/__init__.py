"""What happens to a message: judged by policy, changed by effects, let out or refused. Spec: docs/spec/."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.exports import *  # noqa: F403 - what type checkers see is what `exports` has


def __getattr__(name: str) -> Any:
    """What `exports` has, imported when first asked for: that takes pydantic, which many programs never need.

    So are the modules of the package: after `import pipeline` there is `pipeline.replay`.
    """
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name != "__all__" and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    held = vars(import_module("pipeline.exports")).items()
    offered = {each: item for each, item in held if not each.startswith("_") and not isinstance(item, ModuleType)}
    globals().update(offered, __all__=sorted(offered))
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    """What the package offers, and nothing that it only uses: editors and notebooks ask for it."""
    return list(__getattr__("__all__"))
